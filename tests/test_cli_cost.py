"""`ebbflow cost`: what it prints, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ebbflow.runs.records import claim_folder
from tests.configs import with_keys
from tests.test_cli import ebbflow

TINY = ("--seeds", "1", "--sessions", "4", "--rounds", "3", "--devices", "4")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cost") / "run"
    methods = ("--methods", "warm_start,previous,average,learned")
    assert ebbflow("compare", *TINY, *methods, "--out", str(folder)).code == 0
    return folder


def test_a_run_is_costed(run: Path) -> None:
    answer = ebbflow("cost", str(run))
    assert (answer.code, answer.err) == (0, "")
    for word in ("650 parameters", "warm_start", "+ probe", "+ pilot", "a session", "latency"):
        assert word in answer.out
    for word in ("learned", "+ survey", "survey"):
        assert word in answer.out


def test_a_run_as_json(run: Path) -> None:
    content = json.loads(ebbflow("cost", str(run), "--json", "--preset", "fitted").out)
    assert content["wireless"]["bandwidth"] == 1.39e6
    assert content["model"]["parameters"] == 650
    methods = {row["method"]: row for row in content["methods"]}
    assert set(methods) == {"warm_start", "previous", "average", "learned"}
    assert methods["previous"]["probe"]["energy"] == methods["previous"]["survey"]["energy"] == 0
    assert methods["learned"]["probe"]["energy"] == 0
    # Three probes of a single round each, in a run of four sessions of three rounds.
    ratio = methods["warm_start"]["run"]["up"] / methods["previous"]["run"]["up"]
    assert ratio == pytest.approx(15 / 12)
    assert {row["session"] for row in content["targets"]} == {2, 3, 4}


def test_a_survey_costs_less_to_all_at_once_and_to_devices_that_hold_models(run: Path) -> None:
    found = {}
    for name in ("downlink=unicast", "downlink=multicast", "returning=hold"):
        content = json.loads(ebbflow("cost", str(run), "--json", "--set", f"wireless.{name}").out)
        (row,) = (row for row in content["methods"] if row["method"] == "learned")
        found[name] = row["survey"]
        rows = [row for row in content["targets"] if row["method"] == "learned" and row["reached"]]
        for row in rows:
            assert row["training"]["energy"] == row["probed"]["energy"] < row["surveyed"]["energy"]
    sent, once, held = found.values()
    assert once["down"] < sent["down"]
    assert once["energy"] <= sent["energy"]  # of a model as small as this, whole slots are the same
    assert held["down"] < sent["down"]
    assert once["up"] == held["up"] == sent["up"] > 0


def test_a_multicast_is_named() -> None:
    answer = ebbflow("cost", "--model", "mnist", "--set", "wireless.downlink=multicast")
    assert "downlink multicast" in " ".join(answer.out.split())
    assert "multicast" not in ebbflow("cost", "--model", "mnist").out


def test_a_round_without_a_run() -> None:
    answer = ebbflow(
        "cost", "--model", "tinyimagenet", "--devices", "100", "--bandwidth", "100e6", "--json"
    )
    content = json.loads(answer.out)
    assert content["devices"] == 100
    cost = content["round"]["auto"]
    assert cost["latency"] == pytest.approx(154, rel=0.02)
    assert cost["energy"] == pytest.approx(1750, rel=0.01)
    assert cost["up"] == 100 * 21_730_056 * 4


def test_a_round_without_a_run_does_not_wait_for_torch() -> None:
    code = (
        "import sys; from ebbflow import cli; sys.argv = ['ebbflow', 'cost', '--model', 'svhn']\n"
        "try: cli.main()\n"
        "except SystemExit as end: sys.exit(end.code or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_scaffold_moves_two_vectors() -> None:
    sizes = [
        json.loads(ebbflow("cost", "--model", "svhn", "--algorithm", name, "--json").out)["round"]
        for name in ("fedacg", "scaffold")
    ]
    assert sizes[1]["auto"]["down"] == 2 * sizes[0]["auto"]["down"]


def test_exact_shows_the_closed_forms_error() -> None:
    answer = ebbflow("cost", "--model", "mnist", "--devices", "10", "--exact", "--draws", "2")
    assert answer.code == 0
    assert "the closed form differs by latency " in answer.out


@pytest.mark.parametrize("what", ["bandwidth", "devices"])
def test_a_sweep_with_a_picture(what: str, tmp_path: Path) -> None:
    path = tmp_path / "sweep.png"
    answer = ebbflow(
        "cost", "--model", "svhn", "--sweep", what, "--draws", "2", "--picture", str(path)
    )
    assert (answer.code, answer.err) == (0, "")
    assert path.exists()
    assert "svhn: latency and energy of one round" in " ".join(answer.out.split())


def test_a_sweep_of_a_run(run: Path) -> None:
    content = json.loads(ebbflow("cost", str(run), "--sweep", "bandwidth", "--json").out)
    assert "warm_start" in content["rounds"]
    assert {row["bandwidth"] for row in content["sweep"]} == {
        50e6,
        75e6,
        100e6,
        125e6,
        150e6,
        175e6,
        200e6,
    }


def test_fast_devices_are_warned_of_in_one_line() -> None:
    answer = ebbflow("cost", "--model", "mnist", "--devices", "5", "--speed", "30")
    assert answer.code == 0
    assert answer.err.startswith("warning: a slot of 0.5 ms is not well below the coherence time")
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "a run folder or --model"),
        (("nowhere",), "nowhere holds no ebbflow run"),
        (("nowhere", "--model", "svhn"), "and not both"),
        (("--model", "svhm"), "did you mean svhn?"),
        (("--model", "svhn", "--bandwidth", "-1"), "wireless.bandwidth = -1 (--bandwidth -1)"),
        (("--model", "svhn", "--bandwidth", "wide"), "--bandwidth 'wide' is no number: write"),
        (("--model", "svhn", "--sweep", "bandwith"), "did you mean bandwidth?"),
        (("--model", "svhn", "--picture", "x.png"), "add --sweep"),
        (("--model", "svhn", "--sweep", "speed", "--picture", "no/x.png"), "no folder no"),
        (("--model", "svhn", "--target", "200"), "--target '200' is not an accuracy"),
        (("--model", "svhn", "--algorithm", "fedavg,moon"), "no algorithm 'fedavg,moon'"),
        (("--model", "svhn", "--algorithm", "fedagv"), "did you mean fedavg?"),
        (("--model", "svhn", "--set", "wireless.speeed=3"), "did you mean wireless.speed?"),
        (("--model", "svhn", "--set", "wireless.min_distance=300"), "leaves no room"),
        (("--model", "svhn", "--set", "wireless.height_device=0.5"), "is not above"),
        (("--model", "svhn", "--set", "wireless.speed=[]"), "wireless.speed"),
        (("--model", "svhn", "--set", "wireless.downlink=all"), "'unicast' or 'multicast'"),
        (("--model", "svhn", "--set", "wireless.returning=no"), "'send' or 'hold'"),
    ],
)
def test_bad_input_is_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    answer = ebbflow("cost", *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert sentence in answer.err
    assert answer.err.count("\n") == 1


def test_a_run_says_itself_how_many_devices_it_has(run: Path) -> None:
    answer = ebbflow("cost", str(run), "--devices", "5")
    assert answer.code == 2
    assert "--devices 5: a run says that itself" in answer.err


def test_a_run_without_a_round_is_told(tmp_path: Path) -> None:
    claim_folder(tmp_path / "run", with_keys({"dataset": "mnist"}).model_dump())
    answer = ebbflow("cost", str(tmp_path / "run"))
    assert answer.code == 2
    assert "holds no finished round yet" in answer.err


def test_a_round_of_a_model_needs_a_number_of_devices() -> None:
    trace = ("--set", "schedule.kind=trace", "--set", "schedule.file=a.csv")
    answer = ebbflow("cost", "--model", "svhn", *trace)
    assert answer.code == 2
    assert "--devices" in answer.err


@pytest.mark.parametrize(
    "setting", ["noise=1e308", "carrier=5e-324", "shadowing=1e308", "cpu=5e-324"]
)
def test_a_cell_beyond_all_numbers_is_refused(setting: str) -> None:
    answer = ebbflow("cost", "--model", "mnist", "--set", f"wireless.{setting}")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.count("\n") == 1
    assert f"[wireless] ({setting.partition('=')[0]} = " in answer.err
    assert "check that the values are in SI units" in answer.err
