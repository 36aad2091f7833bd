"""The presets of the paper's rows, against a table of them that is written out here."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from itertools import product
from typing import Any

import pytest

from ebbflow.algorithms import ALGORITHMS
from ebbflow.config import defaults as defaults_module
from ebbflow.config import paper_rows as presets
from ebbflow.config.merge import Layers
from ebbflow.config.presets import preset, preset_names, preset_text
from ebbflow.config.resolved import Config
from ebbflow.core.errors import EbbflowError
from tests.config.published import RATES, ROUNDS
from tests.test_cli import ebbflow

# The rows of the paper's tables, as printed: data set, overlaps, alphas, algorithms.
ACCURACY_100 = [
    (data, overlap, alpha, algorithm)
    for data, overlaps in [
        ("MNIST", "0.0 0.2"),
        ("FMNIST", "0.0 0.2"),
        ("SVHN", "0.0 0.2"),
        ("CIFAR-10", "0.0 0.2"),
        ("CIFAR-100", "0.0 0.2"),
        ("TinyImageNet", "0.0 0.2"),
        ("AG News", "0.0 0.8"),
    ]
    for overlap in overlaps.split()
    for alpha in ("0.3", "0.7")
    for algorithm in ("MOON", "FedProx", "SCAFFOLD", "FedACG")
]
# Label distribution, data set, devices, algorithms.
FIRST_10 = [
    (kind, data, devices, algorithm)
    for kinds, datasets, devices, algorithms in [
        (
            "Two-Shard Partial-Overlap Half",
            "MNIST Fashion-MNIST SVHN CIFAR10 CIFAR100",
            20,
            "FedProx FedAvg SCAFFOLD MOON",
        ),
        ("Distinct", "MNIST Fashion-MNIST", 20, "FedProx FedAvg SCAFFOLD MOON"),
        ("Distinct", "SVHN", 20, "FedProx FedAvg"),
        ("Half Partial-Overlap", "TinyImageNet", 20, "FedAvg"),
        ("Partial-Overlap", "MNIST Fashion-MNIST", 100, "FedProx FedAvg MOON"),
        ("Partial-Overlap", "MNIST", 50, "SCAFFOLD"),
    ]
    for kind, data, algorithm in product(kinds.split(), datasets.split(), algorithms.split())
]
OURS = {
    "MNIST": "mnist",
    "FMNIST": "fmnist",
    "Fashion-MNIST": "fmnist",
    "SVHN": "svhn",
    "CIFAR-10": "cifar10",
    "CIFAR10": "cifar10",
    "CIFAR-100": "cifar100",
    "CIFAR100": "cifar100",
    "TinyImageNet": "tinyimagenet",
    "AG News": "agnews",
    "Two-Shard": "two_shard",
    "Partial-Overlap": "partial_overlap",
    "Half": "half",
    "Distinct": "distinct",
}
MODELS = {
    "mnist": "softmax",
    "fmnist": "softmax",
    "svhn": "cnn",
    "cifar10": "resnet18",
    "cifar100": "resnet18",
    "tinyimagenet": "resnet34",
    "agnews": "embedding",
}
PARAMETERS = {
    "fedprox": {"mu": 1.0},
    "moon": {"mu": 1.0, "tau": 1.0},
    "fedacg": {"momentum": 0.5, "beta": 0.1},
}
LEFT_TO_THE_BEHAVIOUR = {
    "local.rule",
    "pilot.carry_over",
    "probe.lr",
    "parameters.warm_start.distance",
}


def names_of(algorithm: str) -> list[str]:
    plain = algorithm.lower()
    return ["scaffold", "scaffold-authors"] if plain == "scaffold" else [plain]


def expected(
    dataset: str, algorithm: str, partition: dict[str, Any], methods: list[str]
) -> dict[str, Any]:
    """Return a preset's values, from the paper's configuration section."""
    dirichlet = partition["kind"] == "dirichlet"
    column = 1 if algorithm == "moon" else 2 if algorithm.startswith("scaffold") else 0
    initial, floor = RATES[dataset][column]
    found: dict[str, Any] = {
        "dataset": dataset,
        "algorithm": [algorithm],
        "methods": methods,
        "seeds": [100, 200, 300],
        "sessions": 7 if dirichlet else 6,
        "rounds": ROUNDS[dataset],
        "window": [5, 10] if dirichlet else [10],
        "model": {"kind": MODELS[dataset]},
        "partition": partition,
        "local": {"steps": 5, "batch": 128, "momentum": 0.9},
        "lr": {"algorithms": {algorithm: {"initial": initial, "floor": floor}}},
        "pilot": {"sessions": 1, "rounds": ROUNDS[dataset]},
        "probe": {"rounds": 1, "steps": 5, "batch": 128},
        "parameters": {
            "warm_start": {"scale": 800.0 if dataset == "agnews" else 10.0},
            "continuous": {"kl": 0.5 if dataset == "agnews" else 1.0},
        },
    }
    if algorithm in PARAMETERS:
        found["parameters"][algorithm] = PARAMETERS[algorithm]
    return found


def all_expected() -> dict[str, dict[str, Any]]:
    found = {}
    three = ["warm_start", "previous", "average"]
    for data, overlap, alpha, printed in ACCURACY_100:
        dataset = OURS[data]
        methods = three if data == "AG News" else [*three, "continuous"]
        partition = {
            "kind": "dirichlet",
            "overlap": float(overlap),
            "alpha": float(alpha),
            "devices": 100,
        }
        for algorithm in names_of(printed):
            name = f"{dataset}-dirichlet-o{overlap}-a{alpha}-{algorithm}"
            found[name] = expected(dataset, algorithm, partition, methods)
    for kind, data, devices, printed in FIRST_10:
        dataset, ours = OURS[data], OURS[kind]
        number = "" if devices == 20 else f"-d{devices}"
        for algorithm in names_of(printed):
            partition = {"kind": ours, "devices": devices}
            name = f"{dataset}-{ours}{number}-{algorithm}"
            found[name] = expected(dataset, algorithm, partition, three)
    return found


EXPECTED = all_expected()


def resolved(*names: str) -> Config:
    layers = Layers()
    for name in names:
        layers.add_preset(name)
    return layers.config()


def test_every_row_has_its_preset_and_there_is_no_other() -> None:
    assert len(ACCURACY_100) == 7 * 16
    assert len(FIRST_10) == 40 + 30 + 2 + 7
    assert set(presets.rows()) == set(EXPECTED)
    assert len(EXPECTED) == 237


@pytest.mark.parametrize("name", EXPECTED)
def test_a_preset_sets_what_its_row_needs_and_nothing_else(name: str) -> None:
    assert preset(name) == EXPECTED[name]


@pytest.mark.parametrize("name", EXPECTED)
def test_a_preset_resolves_to_what_it_says(name: str) -> None:
    found = resolved(name).model_dump()
    for section, value in EXPECTED[name].items():
        if section == "lr":
            assert found["lr"]["algorithms"] == value["algorithms"]
        elif isinstance(value, dict):
            assert found[section] == found[section] | value
        else:
            assert found[section] == value


def test_the_rates_are_those_of_the_configuration() -> None:
    for name, values in EXPECTED.items():
        ((algorithm, rate),) = preset(name)["lr"]["algorithms"].items()
        usual = defaults_module.SETTINGS[values["dataset"]].rates
        own = ALGORITHMS[algorithm].rates.get(values["dataset"], usual)
        assert (rate["initial"], rate["floor"]) == own


@pytest.mark.parametrize("behaviour", ["authors-code", "paper-text"])
def test_a_behaviour_may_come_before_or_after_a_row(behaviour: str) -> None:
    wanted = preset(behaviour)
    for name in EXPECTED:
        layers = Layers()
        layers.add_preset(name)
        assert not LEFT_TO_THE_BEHAVIOUR & set(layers.places)
    for name in ("mnist-dirichlet-o0.0-a0.3-fedprox", "svhn-distinct-fedavg"):
        after = resolved(name, behaviour)
        assert after == resolved(behaviour, name)
        for section, values in wanted.items():
            for key, value in values.items():
                now = after.model_dump()[section][key]
                assert (now | value if isinstance(value, dict) else value) == now


def test_the_texts_first_line_is_a_sentence() -> None:
    for name in EXPECTED:
        text = preset_text(name)
        assert re.match(r"# .+: .+\.\n", text)
        assert max(map(len, text.splitlines())) <= 100
    first = preset_text("mnist-dirichlet-o0.0-a0.3-fedprox").splitlines()[0]
    assert first == ("# MNIST, Dirichlet, overlap 0.0, alpha 0.3, 100 devices a session: FedProx.")


FILES = ["authors-code", "demo", "fitted", "paper-text", "per-device"]


def test_files_come_first_and_names_are_unique() -> None:
    names = preset_names()
    assert names[: len(FILES)] == FILES
    assert names[len(FILES) :] == list(presets.rows())
    assert len(set(names)) == len(names)


def test_an_unknown_row_is_answered_with_the_nearest_in_a_short_sentence() -> None:
    with pytest.raises(EbbflowError) as caught:
        Layers().add_preset("mnist-dirichlet-o0.0-a0.3-fedprx")
    message = str(caught.value)
    assert "did you mean mnist-dirichlet-o0.0-a0.3-fedprox?" in message
    assert "`ebbflow presets`" in message
    assert len(message) < 200


# --- the listing ---------------------------------------------------------------------------------


def expanded(pattern: str) -> list[str]:
    parts = re.split(r"\{(.*?)\}", pattern)
    options = [part.split(",") if place % 2 else [part] for place, part in enumerate(parts)]
    return ["".join(words) for words in product(*options)]


def test_the_listing_is_short_and_names_every_preset() -> None:
    answer = ebbflow("presets")
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert len(lines) < 50
    files, lines = [line.split()[0] for line in lines[: len(FILES)]], lines[len(FILES) :]
    rows = [name for line in lines if line.startswith("  ") for name in expanded(line[2:])]
    assert files == FILES
    assert rows == list(presets.rows())
    titles = [line for line in lines if line and not line.startswith((" ", "237"))]
    assert titles == list(presets.DATASETS.values())


def test_the_listing_of_all_has_a_name_per_line() -> None:
    answer = ebbflow("presets", "--all")
    assert (answer.code, answer.out.splitlines()) == (0, preset_names())


def test_a_row_is_shown_as_toml() -> None:
    name = "mnist-two_shard-fedavg"
    answer = ebbflow("presets", "show", name)
    assert answer.code == 0
    assert tomllib.loads(answer.out) == EXPECTED[name]
    assert ebbflow("presets", "show", "mnist-two_shard-fedavgg").code == 2


def test_neither_help_nor_presets_import_torch() -> None:
    code = (
        "import sys, ebbflow.cli; assert 'ebbflow.config.schema' not in sys.modules, 'config'; "
        "import ebbflow.config.merge, ebbflow.config.presets as p; "
        "[p.preset(n) for n in p.preset_names()]; "
        "assert 'torch' not in sys.modules, 'torch'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
