"""Rounds beside those of an older commit, and on narrower vectors: what is compared and refused."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benchmarks import avx2, before, suites, texts, workloads
from benchmarks.before import BASE, WORKS, ComparedWork, Pair, check_out, commit_of, compared
from benchmarks.peer_runs import ROOT, PeerError, PeerProcess, RoundSpent, own_process
from benchmarks.workloads import Workload
from ebbflow.core.errors import EbbflowError
from ebbflow.core.processor import instructions


def small() -> Workload:
    return workloads.softmax_workload(4, 50, 16)


class Scripted:
    """Stands for a process, and notes when its turn is."""

    def __init__(self, name: str, log: list[str], model: float = 0.0) -> None:
        self.name, self.log, self.model = name, log, model

    def __call__(self) -> float:
        return 0.04

    def spend(self) -> RoundSpent:
        self.log.append(self.name)
        return RoundSpent(2.0, 3.0)

    def theta(self) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        return np.array([1.0, self.model], dtype=np.float32)


def test_an_unknown_commit_is_refused_in_a_sentence() -> None:
    with pytest.raises(
        EbbflowError, match=r"no commit 0000000 in .*`git fetch --unshallow`.*--base"
    ):
        commit_of("0000000")
    with pytest.raises(EbbflowError, match="no commit --help"):
        commit_of("--help")
    assert len(BASE) == 40  # in full: a short name may come to mean two


def test_a_tree_without_the_package_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(before, "ROOT", tmp_path)
    with pytest.raises(EbbflowError, match=r"no commit HEAD in .* \(.*not a git repository.*\): "):
        commit_of("HEAD")


def test_turns_are_neighbours_of_several_rounds_and_nobody_is_always_first() -> None:
    log: list[str] = []
    pair = Pair(Scripted("now", log), Scripted("old", log))  # type: ignore[arg-type]
    turns = list(pair.turns(0.0))
    assert log == [*["now"] * 3, *["old"] * 6, *["now"] * 6, *["old"] * 3]  # 0.1 s of 0.04 s each
    assert turns == [(RoundSpent(2.0, 3.0),) * 2] * before.LEAST_TURNS


@pytest.mark.slow
def test_the_code_of_a_commit_is_compiled_and_compared(tmp_path: Path) -> None:
    older = check_out(commit_of("HEAD"), tmp_path / "older")
    assert (older / "ebbflow" / "engines" / "native" / "_kernels.so").exists()
    same = ComparedWork("W1", small, 0.0, "scaffold")  # it is the code of this checkout, to the bit
    rows, requirements = compared(same, older, 1, 0.1)
    assert [row.name for row in rows] == ["W1, now", "W1, before"]
    assert rows[0].difference == 0
    assert all(len(row.seconds) == 1 and row.memory for row in rows)
    assert [each.bound for each in requirements] == [1.03] * 2
    assert all(each.value > 0 for each in requirements)
    source = older / "ebbflow" / "core" / "algorithm.py"
    changed = source.read_text(encoding="utf-8").replace("def combine(", "def combined(")
    source.write_text(changed, encoding="utf-8")
    with pytest.raises(PeerError, match=r"W1 before ended: .*combine"):
        compared(same, older, 1, 0.1)


def test_models_that_differ_are_not_timed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log: list[str] = []
    pair = Pair(Scripted("now", log, 1.5), Scripted("old", log))  # type: ignore[arg-type]
    with pytest.raises(EbbflowError, match=r"W1 differ by 1.5e\+00 .*, more than 1e-06, so that"):
        before.judge(ComparedWork("W1", small, 1e-6), pair)
    assert not log


def test_what_is_compared_is_every_work_and_the_texts_under_every_algorithm() -> None:
    assert [work.name for work in WORKS[:5]] == ["W1", "W2", "W3", "W4", "texts, fedavg"]
    assert {work.algorithm for work in WORKS} == set(texts.ALGORITHMS)
    assert all(0 < work.tolerance <= 1e-4 for work in WORKS)
    assert {work.name for work in WORKS if work.exact} == {"W2", "W3"}


def test_a_process_with_another_ebbflow_than_it_should_have_is_not_timed(tmp_path: Path) -> None:
    workloads.export(small(), tmp_path / "work")
    start = own_process("benchmarks.rounds", "fedavg", packages=tmp_path)
    with pytest.raises(PeerError, match=f"ebbflow should be that of {tmp_path}"):
        PeerProcess("wrong", start, tmp_path / "work", tmp_path)


def test_w1_on_narrower_vectors_gives_the_same_bits() -> None:
    suite = avx2.w1_avx2(2, None, small())
    assert suite.name == "W1-AVX2"
    if instructions()["torch"] != "AVX512":
        assert not suite.measurements and "see W1" in suite.notes[0]
        return
    rows = {row.name: row for row in suite.measurements}
    assert list(rows) == [avx2.OURS_HELD, suites.OURS, avx2.PRODUCTS_HELD]
    assert [row.note for row in rows.values()] == [
        "MKL_CBWR AVX2,STRICT",
        "MKL_CBWR AVX512,STRICT",
        "MKL_CBWR not set",
    ]
    assert [each.bound for each in suite.requirements] == [0.95]


def test_other_bits_on_narrower_vectors_are_not_timed() -> None:
    log: list[str] = []
    processes = [Scripted("wide", log), Scripted("narrow", log)]
    avx2.refuse_other_bits(processes)  # type: ignore[arg-type]
    processes[1].model = float(np.nextafter(np.float32(0), np.float32(1)))
    with pytest.raises(EbbflowError, match="of wide and of narrow are not equal bit by bit"):
        avx2.refuse_other_bits(processes)  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_older_commit_still_runs_in_these_processes() -> None:
    """The processes import their contenders from here, and all else from there."""
    works = [
        ComparedWork("W1", small, 1e-6),
        ComparedWork(
            "W3", partial(workloads.resnet_workload, 4), suites.DOUBLE, workers=1, exact=True
        ),
        ComparedWork("texts", partial(workloads.text_workload, 3, 20, 8, 50, 4, 6), 1e-4, "moon"),
    ]
    if subprocess.run(["git", "-C", ROOT, "cat-file", "-e", BASE], check=False).returncode:
        with pytest.raises(EbbflowError, match="git fetch --unshallow"):  # a shallow clone
            before.before(1, works=works)
        return
    suite = before.before(1, works=works, box=0.1)
    assert [row.name for row in suite.measurements][::2] == ["W1, now", "W3, now", "texts, now"]
    assert len(suite.requirements) == 6
