"""The suites in small: what they check, what they refuse, what they report."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks import (
    cells,
    histories,
    modules,
    registers,
    scaling,
    suites,
    texts,
    workloads,
)
from benchmarks.contenders import EngineRounds, fast_engine, starts
from benchmarks.peer_runs import PeerError, PeerProcess, known_peers
from benchmarks.peers.protocol import mkl_setting
from benchmarks.profile import OTHER, PACKAGE, STAGES, place_of, profile, profiled, stage_of
from benchmarks.results import GIGABYTE, Measurement, Suite
from benchmarks.workloads import Workload
from ebbflow.core.batching import Feed
from ebbflow.core.errors import EbbflowError
from ebbflow.core.local import Cohort
from ebbflow.core.processor import instructions
from ebbflow.core.types import ModelState
from ebbflow.engines import Sequential

ROOT = Path(__file__).parents[2]


def small() -> Workload:
    return workloads.softmax_workload(4, 50, 16)


def peer_folder(folder: Path, **faults: str) -> Path:
    """Write a folder of peers that are all the one without a framework."""
    start: dict[str, Any] = {
        name: {
            "python": sys.executable,
            "module": "tests.benchmarks.plain_peer",
            "root": str(ROOT),
            "environment": {"PEER_FAULT": fault},
        }
        for name, fault in faults.items()
    }
    (folder / "peers.json").write_text(json.dumps(start), encoding="utf-8")
    return folder


def names(suite: Suite) -> list[str]:
    return [measurement.name for measurement in suite.measurements]


def test_w1_measures_everybody_and_says_what_holds(tmp_path: Path) -> None:
    folder = peer_folder(tmp_path, good="", bad="wrong", dead="death", lost="later")
    suite = suites.w1(2, folder, small())
    measurements = {each.name: each for each in suite.measurements}
    assert names(suite)[:4] == [suites.OURS, suites.LOCKSTEP, suites.ONE_BY_ONE, suites.PRODUCTS]
    assert names(suite)[4] == suites.PLAIN
    for name in (suites.PRODUCTS, suites.PLAIN):  # ebbflow's setting has not reached them
        assert measurements[name].note.endswith("MKL_CBWR not set")
    assert mkl_setting() in suite.notes[1] and "that variable is not set" in suite.notes[1]
    assert all(len(measurements[name].seconds) == 2 for name in (*names(suite)[:5], "good"))
    assert measurements[suites.LOCKSTEP].difference == 0
    assert measurements["good"].difference is not None and measurements["good"].difference < 1e-6
    assert measurements["good"].memory
    assert "a note" in measurements["good"].note
    assert (
        not measurements["bad"].seconds and "differs from the reference" in measurements["bad"].note
    )
    for name in ("dead", "lost"):
        assert not measurements[name].seconds and "has fallen over" in measurements[name].note
    products = 0.75 if instructions()["torch"] == "AVX512" else 0.95
    assert [requirement.bound for requirement in suite.requirements] == [3, products, 3.5, 1]
    assert "fastest peer (good)" in suite.requirements[0].what
    assert suite.versions.keys() >= {"ebbflow", "torch", "numpy"}


def test_w5_is_measured_like_w1() -> None:
    suite = suites.w5(1, None, workloads.mlp_workload(3, 40, 16, 20))
    assert names(suite)[:4] == [suites.OURS, suites.LOCKSTEP, suites.ONE_BY_ONE, suites.PRODUCTS]
    assert [requirement.bound for requirement in suite.requirements] == [1.4, 3, 1]
    assert suite.measurements[1].difference == 0
    in_registers = [name for name in names(suite) if name == suites.REGISTERS]
    assert len(in_registers) == len(suite.notes) - 2


def test_lockstep_that_is_not_equal_bit_by_bit_is_not_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def others(workload: Workload, count: int) -> list[ModelState]:
        given.append(starts(workload, count))
        if len(given) == 2:  # those that are run one by one
            given[1][3].theta[5] += 1e-7
        return given[-1]

    given: list[list[ModelState]] = []
    monkeypatch.setattr(suites, "starts", others)
    with pytest.raises(EbbflowError, match=r"W1: .* lockstep differ by .* bit by bit"):
        suites.w1(1, None, small())


def test_what_limits_lockstep_is_said_with_its_reason() -> None:
    seconds = {suites.OURS: [2.0], suites.LOCKSTEP: [5.0], suites.REGISTERS: [0.9, 0.5]}
    rows = [Measurement(name=name, seconds=each) for name, each in seconds.items()]
    said = suites.least_time(rows)
    assert "at best 0.25 of the time of one" in said  # the fastest counts
    assert "no lockstep of four can be below 1.00 times one" in said
    assert "F = (4 one - four) / 3 of the times measured, which is 0.50 of one" in said
    assert said.endswith("cannot be below (4 - 3 F / one) = 2.50 times one.")


def test_multiply_adds_are_those_of_the_products(tmp_path: Path) -> None:
    workload = workloads.mlp_workload(3, 40, 16, 20)
    rows = sum(len(rows) for steps in workload.cohort(0).batches for rows in steps)
    assert workload.multiply_adds == rows * 20 * (2 * 784 + 3 * 10)
    library = registers.compiled(tmp_path)
    if library is None:
        pytest.skip("there is no C compiler, or no vectors that torch uses")
    seconds = []
    for count in (10**8, 4 * 10**8):
        made = registers.Registers(library, count, 1)
        assert made.times > 1  # long enough for both workers to be at work
        seconds.append(min(made() for _ in range(5)))
        made.close()
    assert 2 < seconds[1] / seconds[0] < 8  # four times as many


def test_modules_of_users_are_measured_beside_a_plain_loop(tmp_path: Path) -> None:
    folder = peer_folder(tmp_path, good="")
    suite = modules.modules(1, folder, ("two layers", "Dropout"), (2, 8, 4))
    assert names(suite)[0] == "two layers"
    assert [name.partition(",")[0] for name in names(suite)] == ["two layers"] * 2 + ["Dropout"] * 2
    assert [row.what for row in suite.requirements] == ["two layers, speed", "Dropout, speed"]
    for row in suite.measurements:
        assert row.difference is not None and row.difference < suites.DOUBLE
        assert row.memory  # each has a process of its own
    assert len(modules.TABLE) == 8


def test_a_module_that_is_wrong_as_it_is_timed_is_not_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In double precision other code trains it: that it is right there does not tell."""
    whole = EngineRounds.__call__

    def wrong(rounds: EngineRounds) -> None:
        whole(rounds)
        theta = rounds.models[0].theta
        if theta.dtype == torch.float32 and not isinstance(rounds.engine, Sequential):
            theta[0] += 2 * modules.SINGLE

    monkeypatch.setattr(EngineRounds, "__call__", wrong)
    with pytest.raises(EbbflowError, match=r"two layers: the model of ebbflow differs"):
        modules.contest_of("two layers", (2, 8, 4), 1, None)


def test_a_module_that_drops_other_units_than_the_reference_is_not_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = Feed.noise_of_steps

    def others(feed: Feed, cohort: Cohort, place: int, like: Tensor) -> Tensor | None:
        noise = drawn(feed, cohort, place, like)
        return None if noise is None else 1 - noise

    monkeypatch.setattr(Feed, "noise_of_steps", others)
    with pytest.raises(EbbflowError, match=r"Dropout: the model of ebbflow differs"):
        modules.contest_of("Dropout", (2, 8, 4), 1, None)


def test_other_works_in_small() -> None:
    two = suites.w2(1, None, workloads.cnn_workload(2, 16, 8, 16))
    assert names(two) == [suites.OURS, suites.BF16]
    assert two.notes
    four = suites.w4(1, None, workloads.text_workload(3, 20, 8, 50, 4, 6))
    assert [requirement.bound for requirement in four.requirements] == [10]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_texts_under_every_algorithm_in_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "ALGORITHMS", ("fedavg", "scaffold"))  # each starts a process
    suite = texts.texts(1, None, (20, 8, 50, 4, 6))
    assert names(suite)[::2] == list(texts.ALGORITHMS)
    assert names(suite)[1::2] == [name + texts.WHOLE for name in texts.ALGORITHMS]
    assert all(row.difference is not None and row.memory for row in suite.measurements[::2])
    assert [requirement.bound for requirement in suite.requirements] == [10, 2] * len(
        texts.ALGORITHMS
    )


def test_texts_that_train_to_another_model_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "model_difference", lambda algorithm, workload: 1.0)
    with pytest.raises(EbbflowError, match=r"fedavg differ by .* nothing is timed"):
        texts.texts(1, None, (20, 8, 50, 4, 6))


@pytest.mark.slow
def test_steps_of_the_resnet_are_counted() -> None:
    suite = suites.w3(1, None, workloads.resnet_workload(4))
    assert [row.operations for row in suite.measurements][-1] == 2 * 2048**3
    assert suite.measurements[0].operations == suite.measurements[1].operations
    assert suite.measurements[0].operations is not None and suite.measurements[0].operations > 10**8


def test_unequal_results_are_not_timed() -> None:
    workload = small()
    contest = suites.Contest(workload)
    with pytest.raises(EbbflowError, match="nothing is timed"):
        contest.add("liar", lambda: None, lambda: workload.initial.theta)


def test_a_peer_that_does_not_answer_is_ended(tmp_path: Path) -> None:
    folder = peer_folder(tmp_path, slow="")
    workload = tmp_path / "workload"
    workloads.export(small(), workload)
    start = known_peers(folder)["slow"] | {"module": "tests.benchmarks.silent_peer"}
    with pytest.raises(PeerError, match=r"no answer within 0\.5 s"):
        PeerProcess("slow", start, workload, tmp_path, patience=0.5)


def test_a_peer_is_gone_after_its_end(tmp_path: Path) -> None:
    folder = peer_folder(tmp_path, good="")
    workload = tmp_path / "workload"
    workloads.export(small(), workload)
    peer = PeerProcess("good", known_peers(folder)["good"], workload, tmp_path)
    pid = peer._process.pid
    assert peer() > 0
    peer.stop()
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(PeerError, match="ended"):
        peer()


def test_a_folder_without_peers_says_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(EbbflowError, match=r"benchmarks/peers/install\.py"):
        known_peers(tmp_path)


def test_engines_agree_before_sessions_are_timed() -> None:
    assert scaling.engine_difference(2) < scaling.TOLERANCE
    config = scaling.configuration(10_000, 1)
    assert (config.partition.kind, config.partition.samples) == ("pool", 600)


@pytest.mark.slow
def test_sessions_of_several_sizes() -> None:
    suite = scaling.scaling(1, sizes=(2, 4))
    assert [row.devices for row in suite.measurements] == [2, 4]
    assert all(row.memory for row in suite.measurements)


@pytest.mark.slow
def test_early_and_late_sessions_take_turns() -> None:
    suite = histories.histories(1, starts=["average"], sizes=(60, 10, 3, 12), pairs=2)
    early, late = suite.measurements
    assert len(early.seconds) == len(late.seconds) == 2 * 3
    assert early.memory and late.memory
    assert late.note.startswith("processor, by hundreds: ")
    assert [requirement.bound for requirement in suite.requirements] == [1.1] * 3


@pytest.mark.slow
def test_a_cell_is_one_command() -> None:
    tiny = ("--dataset", "digits", "--sessions", "3", "--rounds", "2", "--seeds", "1")
    suite = cells.cells(1, None, [cells.TimedCommand("digits", tiny, 60, GIGABYTE)])
    (row,) = suite.measurements
    assert row.note == f"`ebbflow compare {' '.join(tiny)}`"
    assert row.memory
    assert [requirement.unit for requirement in suite.requirements] == ["s", "GB"]


@pytest.mark.slow
def test_a_cell_with_perceptrons_is_compared_with_mapped_blocks() -> None:
    tiny = ("--dataset", "digits", "--set", "model.kind=mlp", "--sessions", "3", "--seeds", "1")
    suite = cells.perceptrons(1, None, (*tiny, "--rounds", "2"))
    closed, mapped = suite.measurements
    assert (closed.name, mapped.name) == ("closed forms", "mapped blocks")
    assert closed.difference is not None and closed.difference > 0  # they did go two ways
    assert closed.seconds and mapped.seconds
    assert [requirement.at_least for requirement in suite.requirements] == [True]


@pytest.mark.slow
def test_what_a_cell_lacks_is_said(tmp_path: Path) -> None:
    with pytest.raises(EbbflowError, match="nothing"):
        cells.engine_difference(("--dataset", "nothing"), tmp_path)


def test_a_profile_says_where_the_time_goes() -> None:
    digits: dict[str, object] = {"dataset": "digits", "seeds": [1], "sessions": 4, "rounds": 5}
    suite = profile(1, None, small(), digits, seconds=0.1)
    assert len(suite.measurements) == 5
    assert len(suite.shares) == 6
    for name, shares in suite.shares.items():
        total = sum(share for place, share in shares.items() if place != "busy threads")
        assert total <= 1 + 1e-9, name


def test_samples_see_who_computes() -> None:
    digits = [workloads.softmax_workload(2, 20, 8)]

    def compute() -> None:
        digits.append(workloads.softmax_workload(2, 200, 8))

    sampler = profiled(compute, 0.1)
    assert sampler.samples > 5
    assert stage_of("core/evaluate.py") == "evaluation"
    assert stage_of("nowhere.py") == OTHER
    assert place_of(None) is None
    assert place_of(sys._getframe()) == ("other", "other")


def test_every_file_of_the_package_has_a_stage() -> None:
    for places in STAGES.values():
        for place in places:
            assert (PACKAGE / place).exists(), place
    files = [path.relative_to(PACKAGE).as_posix() for path in PACKAGE.glob("*/**/*.py")]
    assert files
    assert [file for file in files if stage_of(file) == OTHER] == []


def test_samples_are_of_the_package_and_not_of_the_benchmarks() -> None:
    rounds = EngineRounds(small(), fast_engine(small()))
    sampler = profiled(rounds, 0.3)
    assert sampler.places
    assert not any("benchmarks" in file for file, _ in sampler.places)
    assert any(file.startswith(("engines/", "core/")) for file, _ in sampler.places)
