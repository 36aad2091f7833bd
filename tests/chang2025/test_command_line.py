"""The paper's command line: what it stands for, what it refuses, and that it runs."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from chang2025.command_line import translate
from chang2025.flags import FLAGS
from ebbflow.config.merge import Layers
from ebbflow.config.resolved import Config
from tests.chang2025.command import NAME, chang2025
from tests.test_cli import Answer, ebbflow

# As printed in the paper.
COMMAND = r"""
python -u fasy_adapt_training.py \
    --dataset_name 'cifar10' \
    --algorithm 'scaffold' \
    --cross_session_label_overlap 0.0 \
    --in_session_label_dist "dirichlet" \
    --dirichlet_alpha 0.7 \
    --seed 300 \
    --initial 1 \
    --average 1 \
    --previous 1 \
    --continuous 0 \
    --num_clients 100 \
    --num_sessions 7 \
    --num_sessions_pilot 1 \
    --num_rounds_pilot 100 \
    --num_rounds_actual 100 \
    --lr_config_path 'lr_poly.json' \
    --momentum 0.9 \
    --gpu_index 0 \
    --num_SGD_training 5 \
    --batch_size_training 128 \
    --num_SGD_grad_cal 5 \
    --batch_size_grad_cal 128 \
    --prox_alpha 1.0 \
    --moon_mu 1.0 \
    --moon_tau 1.0 \
    --kl_coefficient 0.5 \
    --acg_beta 0.1 \
    --acg_lambda 0.5 \
    --num_round_grad_cal 1 \
    --similarity "two_norm" \
    --similarity_scale 10.0
"""
EXAMPLE = shlex.split(COMMAND.replace("\\\n", " "))[3:]
MEANS: dict[str, Any] = {
    "preset": ["authors-code"],
    "dataset": "cifar10",
    "algorithm": ["scaffold-authors"],
    "methods": ["warm_start", "previous", "average"],
    "seeds": [300],
    "sessions": 7,
    "rounds": 100,
    "window": [5, 10],
    "device": "cpu",
    "model": {"kind": "resnet18"},
    "partition": {"kind": "dirichlet", "overlap": 0.0, "alpha": 0.7, "devices": 100},
    "local": {"steps": 5, "batch": 128, "momentum": 0.9},
    "lr": {"algorithms": {"scaffold-authors": {"initial": 0.3, "floor": 0.9}}},
    "pilot": {"sessions": 1, "rounds": 100},
    "probe": {"rounds": 1, "steps": 5, "batch": 128},
    "parameters": {
        "warm_start": {"distance": "per_tensor", "scale": 10.0},
        "continuous": {"kl": 0.5},
        "fedprox": {"mu": 1.0},
        "moon": {"mu": 1.0, "tau": 1.0},
        "fedacg": {"momentum": 0.5, "beta": 0.1},
    },
}
# Another value for every flag than the one it has in the example.
OTHERWISE: list[tuple[str, str, str, object]] = [
    ("dataset_name", "AG-News", "dataset", "agnews"),
    ("algorithm", "prox", "algorithm", ["fedprox"]),
    ("cross_session_label_overlap", "0.2", "partition.overlap", 0.2),
    ("in_session_label_dist", "Two-Shard", "partition.kind", "two_shard"),
    ("dirichlet_alpha", "0.3", "partition.alpha", 0.3),
    ("seed", "7", "seeds", [7]),
    ("initial", "0", "methods", ["previous", "average"]),
    ("average", "0", "methods", ["warm_start", "previous"]),
    ("previous", "0", "methods", ["warm_start", "average"]),
    ("continuous", "1", "methods", ["warm_start", "previous", "average", "continuous"]),
    ("num_clients", "10", "partition.devices", 10),
    ("num_sessions", "9", "sessions", 9),
    ("num_sessions_pilot", "3", "pilot.sessions", 3),
    ("num_rounds_pilot", "11", "pilot.rounds", 11),
    ("num_rounds_actual", "12", "rounds", 12),
    ("momentum", "0", "local.momentum", 0.0),
    ("num_SGD_training", "3", "local.steps", 3),
    ("batch_size_training", "32", "local.batch", 32),
    ("num_SGD_grad_cal", "2", "probe.steps", 2),
    ("batch_size_grad_cal", "64", "probe.batch", 64),
    ("prox_alpha", "0.01", "parameters.fedprox.mu", 0.01),
    ("moon_mu", "5", "parameters.moon.mu", 5.0),
    ("moon_tau", "0.5", "parameters.moon.tau", 0.5),
    ("kl_coefficient", "1", "parameters.continuous.kl", 1.0),
    ("acg_beta", "0.002", "parameters.fedacg.beta", 0.002),
    ("acg_lambda", "0.85", "parameters.fedacg.momentum", 0.85),
    ("num_round_grad_cal", "2", "probe.rounds", 2),
    ("similarity", "inner product", "parameters.warm_start.distance", "inner_product"),
    ("similarity_scale", "800", "parameters.warm_start.scale", 800.0),
]
SMALL = (
    "--dataset_name digits --algorithm avg --seed 1 --num_clients 4 --num_sessions 4 "
    "--num_rounds_pilot 2 --num_rounds_actual 3 --continuous 0"
)
TINY = SMALL.split()


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where there is no lr_poly.json


def paper(*arguments: str) -> Answer:
    return chang2025("translate", *arguments)


def values(answer: Answer) -> dict[str, Any]:
    assert (answer.code, answer.err) == (0, "")
    return tomllib.loads(answer.out)


def value(found: dict[str, Any], key: str) -> Any:
    node: Any = found
    for part in key.split("."):
        node = node[part]
    return node


def loaded(text: str) -> Config:
    path = Path("printed.toml")
    path.write_text(text, encoding="utf-8")
    layers = Layers()
    layers.add_file(path)
    return layers.config()


def refused(answer: Answer, *words: str) -> None:
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"{NAME}: ")
    assert answer.err.count("\n") == 1
    for word in words:
        assert word in answer.err


# --- what flags stand for ------------------------------------------------------------------------


def test_the_papers_example_is_printed_with_every_value() -> None:
    assert EXAMPLE[::2] == [f"--{flag.name}" for flag in FLAGS]
    answer = paper(*EXAMPLE)
    assert values(answer) == MEANS
    for flag in FLAGS:
        if flag.name != "lr_config_path":
            assert re.search(rf"# .*--{flag.name}\b", answer.out)
    assert 'no file "lr_poly.json": the published rates' in answer.out
    assert "what the authors' code runs" in answer.out
    assert "--use-gpu" in answer.out


@pytest.mark.parametrize(("flag", "written", "key", "meant"), OTHERWISE)
def test_every_flag_has_its_key(flag: str, written: str, key: str, meant: object) -> None:
    changed = EXAMPLE.copy()
    changed[EXAMPLE.index(f"--{flag}") + 1] = written
    found = values(paper(*changed))
    assert value(found, key) == meant
    assert value(MEANS, key) != meant
    assert next(f.key for f in FLAGS if f.name == flag) == key


def test_the_flags_that_are_not_in_that_table_are_tested_elsewhere() -> None:
    there = {flag for flag, *_ in OTHERWISE}
    assert {flag.name for flag in FLAGS} - there == {"lr_config_path", "gpu_index"}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("avg", "fedavg"),
        ("FedAvg", "fedavg"),
        ("prox", "fedprox"),
        ("fedprox", "fedprox"),
        ("MOON", "moon"),
        ("SCAFFOLD", "scaffold-authors"),
        ("acg", "fedacg"),
        ("fed_acg", "fedacg"),
    ],
)
def test_algorithms_have_several_spellings(written: str, meant: str) -> None:
    found = values(paper("--dataset_name", "mnist", "--algorithm", written))
    assert found["algorithm"] == [meant]
    assert list(found["lr"]["algorithms"]) == [meant]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("MNIST", "mnist"),
        ("fmnist", "fmnist"),
        ("Fashion-MNIST", "fmnist"),
        ("SVHN", "svhn"),
        ("cifar10", "cifar10"),
        ("CIFAR-100", "cifar100"),
        ("tinyimagenet", "tinyimagenet"),
        ("Tiny_ImageNet", "tinyimagenet"),
        ("ag_news", "agnews"),
        ("digits", "digits"),
    ],
)
def test_data_sets_have_several_spellings(written: str, meant: str) -> None:
    assert values(paper("--dataset_name", written, "--algorithm", "avg"))["dataset"] == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("Dirichlet", "dirichlet"),
        ("two-shard", "two_shard"),
        ("two_shards", "two_shard"),
        ("half", "half"),
        ("Partial-Overlap", "partial_overlap"),
        ("partial_overlap", "partial_overlap"),
        ("DISTINCT", "distinct"),
    ],
)
def test_label_distributions_have_several_spellings(written: str, meant: str) -> None:
    base = ("--dataset_name", "mnist", "--algorithm", "avg", "--dirichlet_alpha", "0.7")
    answer = paper(*base, "--in_session_label_dist", written)
    partition = values(answer)["partition"]
    assert partition["kind"] == meant
    assert ("alpha" in partition) == (meant == "dirichlet")
    assert ("overlap and alpha have no meaning" in answer.out) == (meant != "dirichlet")


@pytest.mark.parametrize(
    ("dataset", "algorithm", "name"),
    [
        ("MNIST", "prox", "mnist-dirichlet-o0.0-a0.3-fedprox"),
        ("ag_news", "moon", "agnews-dirichlet-o0.0-a0.3-moon"),
        ("SVHN", "scaffold", "svhn-dirichlet-o0.0-a0.3-scaffold-authors"),
        ("tinyimagenet", "acg", "tinyimagenet-dirichlet-o0.0-a0.3-fedacg"),
    ],
)
def test_what_is_left_out_is_as_in_the_papers_tables(
    dataset: str, algorithm: str, name: str
) -> None:
    layers = Layers()
    layers.add_preset("authors-code")
    layers.add_preset(name)
    row = layers.config()
    answer = paper("--dataset_name", dataset, "--algorithm", algorithm)
    found = loaded(answer.out)
    assert found.model_copy(update={"parameters": row.parameters}) == row
    assert found.parameters == found.parameters | row.parameters
    assert "# default" in answer.out


def test_what_is_left_out_is_as_in_the_appendix() -> None:
    layers = Layers()
    layers.add_preset("authors-code")
    layers.add_preset("svhn-half-fedavg")
    answer = paper("--dataset_name", "SVHN", "--algorithm", "avg", "--in_session_label_dist=half")
    translated, preset = loaded(answer.out), layers.config()
    assert translated.model_copy(update={"parameters": preset.parameters}) == preset
    assert translated.parameters.items() >= preset.parameters.items()


def test_scaffold_itself_is_to_be_asked_for() -> None:
    answer = paper(*EXAMPLE, "--true-scaffold")
    found = values(answer)
    assert found["algorithm"] == ["scaffold"]
    assert found["lr"]["algorithms"] == {"scaffold": {"initial": 0.3, "floor": 0.9}}
    assert "SCAFFOLD itself" in answer.out


def test_the_gpu_is_to_be_asked_for() -> None:
    base = ("--dataset_name", "mnist", "--algorithm", "avg")
    assert values(paper(*base, "--gpu_index", "2"))["device"] == "cpu"
    assert values(paper(*base, "--gpu_index", "2", "--use-gpu"))["device"] == "cuda:2"
    assert values(paper(*base, "--use-gpu"))["device"] == "cuda:0"
    assert values(paper(*base, "--gpu_index", "-1", "--use-gpu"))["device"] == "cpu"


# --- the file of rates ---------------------------------------------------------------------------


def rates_file(content: object) -> str:
    path = Path("rates.json")
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_file_of_rates_is_read() -> None:
    rates = {"mnist": {"avg": [0.1, 1]}, "SVHN": {"prox": [0.2, 0.3], "scaffold": [4, 0]}}
    base = ("--lr_config_path", rates_file(rates), "--dataset_name", "svhn", "--algorithm")
    answer = paper(*base, "prox")
    rate = values(answer)["lr"]["algorithms"]["fedprox"]
    assert rate == {"initial": 0.2, "floor": 0.3}
    assert "initial = 0.2  # --lr_config_path" in answer.out
    assert "published" not in answer.out
    for options in ((), ("--true-scaffold",)):  # one entry for both
        (rate,) = values(paper(*base, "scaffold", *options))["lr"]["algorithms"].values()
        assert rate == {"initial": 4.0, "floor": 0.0}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", ["not valid JSON"]),
        ("[" * 100_000, ["not valid JSON"]),
        ([1, 2], ["not of the form"]),
        ({"fmnist": {}}, ["no entry for mnist", "leave --lr_config_path out"]),
        ({"mnist": [0.1, 0.2]}, ["not of the form"]),
        ({"mnist": {"moon": [0.1, 0.2]}}, ["mnist", "no entry for fedavg"]),
        ({"mnist": {"avg": 0.1}}, ["0.1 for mnist and fedavg"]),
        ({"mnist": {"avg": [0.1]}}, ["[0.1]"]),
        ({"mnist": {"avg": [0.1, 0.2, 0.3]}}, ["a pair"]),
        ({"mnist": {"avg": ["0.1", 0.2]}}, ["a pair"]),
        ({"mnist": {"avg": [True, 0.2]}}, ["a pair"]),
        ({"mnist": {"avg": [0, 0.2]}}, ["above 0"]),
        ({"mnist": {"avg": [10**400, 0.2]}}, ["a pair"]),
        ({"mnist": {"avg": [0.1, 1.2]}}, ["from 0 to 1"]),
        ('{"mnist": {"avg": [NaN, 0.2]}}', ["above 0"]),
        ('{"mnist": {"avg": [Infinity, 0.2]}}', ["above 0"]),
    ],
)
def test_a_bad_file_of_rates_is_refused(content: object, words: list[str]) -> None:
    base = ("--dataset_name", "mnist", "--algorithm", "avg", "--lr_config_path")
    refused(paper(*base, rates_file(content)), "rates.json", *words)


def test_a_file_of_rates_that_cannot_be_read_is_refused() -> None:
    base = ("--dataset_name", "mnist", "--algorithm", "avg", "--lr_config_path")
    refused(paper(*base, "."), "cannot be read")
    Path("latin.json").write_bytes(b'{"mn\xefst": 1}')
    refused(paper(*base, "latin.json"), "latin.json", "not valid JSON")


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--dataset_name imagenet", ["--dataset_name", "imagenet", "did you mean tinyimagenet?"]),
        ("--algorithm sgd", ["--algorithm", "sgd", "known are"]),
        ("--in_session_label_dist halves", ["--in_session_label_dist", "did you mean half?"]),
        ("--similarity cosine", ["--similarity", "two_norm, inner_product"]),
        ("--initial 2", ["--initial 2", "1 for yes or 0 for no"]),
        ("--initial 0 --average 0 --previous 0 --continuous 0", ["nothing is left to run"]),
        ("--seed x", ["--seed"]),
        ("--seed -1", ["--seed", "-1"]),
        ("--num_sessions 0", ["sessions", "--num_sessions"]),
        ("--num_sessions 2 --num_sessions_pilot 3", ["pilot.sessions = 3"]),
        ("--cross_session_label_overlap 1.5", ["1.5", "--cross_session_label_overlap"]),
        ("--dirichlet_alpha 0", ["--dirichlet_alpha"]),
        ("--momentum 1", ["local.momentum", "--momentum"]),
        ("--prox_alpha -1", ["--prox_alpha -1"]),
        ("--prox_alpha nan", ["--prox_alpha nan"]),
        ("--moon_tau 0", ["--moon_tau 0", "above 0"]),
        ("--moon_mu inf", ["--moon_mu inf", "finite"]),
        ("--acg_lambda 1", ["--acg_lambda 1", "below 1"]),
        ("--kl_coefficient nan", ["--kl_coefficient"]),
        ("--similarity_scale -1", ["--similarity_scale"]),
        ("--true-scaffold", ["--true-scaffold", "avg"]),
        ("--json", ["--json", "--run"]),
        ("--out here", ["--out", "--run"]),
        ("--num_client 3", ["--num_client"]),
    ],
)
def test_bad_flags_are_refused_in_one_sentence(arguments: str, words: list[str]) -> None:
    base = ["--dataset_name", "mnist", "--algorithm", "avg"]
    refused(paper(*base, *arguments.split()), *words)


@pytest.mark.parametrize("flag", ["dataset_name", "algorithm"])
def test_two_flags_are_needed(flag: str) -> None:
    place = EXAMPLE.index(f"--{flag}")
    refused(paper(*EXAMPLE[:place], *EXAMPLE[place + 2 :]), f"--{flag}")


# --- running it ----------------------------------------------------------------------------------


def test_what_is_printed_is_what_is_run() -> None:
    printed = loaded(paper(*TINY).out)
    answer = paper(*TINY, "--run", "--json", "--out", "run", "--gpu_index", "0")
    assert answer.code == 0
    assert "note: the device is the CPU" in answer.err
    ran = json.loads(answer.out)["config"]
    assert ran == printed.model_dump(mode="json")
    assert (ran["local"]["rule"], ran["pilot"]["carry_over"]) == ("one_pass", False)
    again = ebbflow("compare", "printed.toml", "--json", "--out", "again")
    assert json.loads(again.out) == json.loads(answer.out)


def test_a_run_without_json_prints_the_table() -> None:
    answer = paper(*TINY, "--run", "--out", "run")
    assert answer.code == 0
    assert "transition 1" in answer.out
    assert (Path("run") / "summary.json").is_file()


def test_the_printed_toml_loads_back_for_every_flag() -> None:
    for flag, written, _, _ in OTHERWISE:
        changed = EXAMPLE.copy()
        changed[EXAMPLE.index(f"--{flag}") + 1] = written
        flags = {f.name: f.kind(changed[2 * place + 1]) for place, f in enumerate(FLAGS)}
        found = translate(flags)
        layers = Layers()
        layers.add_preset("authors-code")
        for key, meant in found.settings.items():
            layers.add_key(key, meant, "test")
        assert loaded(found.toml()) == layers.config()


# --- the document --------------------------------------------------------------------------------


def test_the_document_has_every_flag_and_its_key() -> None:
    page = (Path(__file__).parents[2] / "docs" / "presets.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `--(\w+)` \| `([\w.]+)` \|", page, flags=re.MULTILINE)
    assert table == [(flag.name, flag.key) for flag in FLAGS]
