"""The suites in small: what they check, what they refuse, what they report."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import cells, scaling, suites, texts, works
from benchmarks.peer_runs import Peer, PeerError, known_peers
from benchmarks.profile import Looks, place_of, profile, stage_of, watched
from benchmarks.results import GIGABYTE, Suite
from benchmarks.works import Work
from ebbflow.core.errors import EbbflowError

ROOT = Path(__file__).parents[2]


def small() -> Work:
    return works.softmax_work(4, 50, 16)


def peer_folder(folder: Path, **faults: str) -> Path:
    """Write a folder of peers that are all the one without a framework."""
    start: dict[str, Any] = {
        name: {
            "python": sys.executable,
            "module": "tests.bench.plain_peer",
            "root": str(ROOT),
            "environment": {"PEER_FAULT": fault},
        }
        for name, fault in faults.items()
    }
    (folder / "peers.json").write_text(json.dumps(start), encoding="utf-8")
    return folder


def names(suite: Suite) -> list[str]:
    return [row.name for row in suite.rows]


def test_w1_measures_everybody_and_says_what_holds(tmp_path: Path) -> None:
    folder = peer_folder(tmp_path, good="", bad="wrong", dead="death", lost="later")
    suite = suites.w1(2, folder, small())
    rows = {row.name: row for row in suite.rows}
    assert names(suite)[:4] == [suites.ONE, suites.LOCKSTEP, suites.APART, suites.PRODUCTS]
    assert names(suite)[4].startswith(suites.PLAIN)
    assert all(len(rows[name].seconds) == 2 for name in (*names(suite)[:5], "good"))
    assert rows[suites.LOCKSTEP].difference == 0
    assert rows["good"].difference is not None and rows["good"].difference < 1e-6
    assert rows["good"].memory
    assert "a note" in rows["good"].note
    assert not rows["bad"].seconds and "another one" in rows["bad"].note
    for name in ("dead", "lost"):
        assert not rows[name].seconds and "has fallen over" in rows[name].note
    assert [check.bound for check in suite.checks] == [3, 2.5, 3.5, 1]
    assert "fastest peer (good)" in suite.checks[0].what
    assert suite.versions.keys() >= {"ebbflow", "torch", "numpy"}


def test_other_works_in_small() -> None:
    two = suites.w2(1, None, works.cnn_work(2, 16, 8, 16))
    assert names(two) == [suites.ONE, suites.BF16]
    assert two.notes
    four = suites.w4(1, None, works.text_work(3, 20, 8, 50, 4, 6))
    assert [check.bound for check in four.checks] == [10]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_texts_under_every_algorithm_in_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "ALGORITHMS", ("fedavg", "scaffold"))  # each starts a process
    suite = texts.texts(1, None, (20, 8, 50, 4, 6))
    assert names(suite)[::2] == list(texts.ALGORITHMS)
    assert names(suite)[1::2] == [name + texts.WHOLE for name in texts.ALGORITHMS]
    assert all(row.difference is not None and row.memory for row in suite.rows[::2])
    assert [check.bound for check in suite.checks] == [10, 2] * len(texts.ALGORITHMS)


def test_texts_that_train_to_another_model_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "apart", lambda algorithm, work: 1.0)
    with pytest.raises(EbbflowError, match=r"fedavg are .* nothing is timed"):
        texts.texts(1, None, (20, 8, 50, 4, 6))


@pytest.mark.slow
def test_steps_of_the_resnet_are_counted() -> None:
    suite = suites.w3(1, None, works.resnet_work(4))
    assert [row.operations for row in suite.rows][-1] == 2 * 2048**3
    assert suite.rows[0].operations == suite.rows[1].operations
    assert suite.rows[0].operations is not None and suite.rows[0].operations > 10**8


def test_unequal_results_are_not_timed() -> None:
    work = small()
    contest = suites.Contest(work)
    with pytest.raises(EbbflowError, match="nothing is timed"):
        contest.add("liar", lambda: None, lambda: work.initial.theta)


def test_a_peer_that_does_not_answer_is_ended(tmp_path: Path) -> None:
    folder = peer_folder(tmp_path, slow="")
    work = tmp_path / "work"
    works.export(small(), work)
    start = known_peers(folder)["slow"] | {"module": "tests.bench.silent_peer"}
    with pytest.raises(PeerError, match=r"no answer within 0\.5 s"):
        Peer("slow", start, work, tmp_path, patience=0.5)


def test_a_peer_is_gone_after_its_end(tmp_path: Path) -> None:
    folder = peer_folder(tmp_path, good="")
    work = tmp_path / "work"
    works.export(small(), work)
    peer = Peer("good", known_peers(folder)["good"], work, tmp_path)
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
    assert scaling.engines_apart(2) < scaling.EQUAL
    config = scaling.configuration(10_000, 1)
    assert (config.partition.kind, config.partition.samples) == ("pool", 600)


@pytest.mark.slow
def test_sessions_of_several_sizes() -> None:
    suite = scaling.scaling(1, sizes=(2, 4))
    assert [row.devices for row in suite.rows] == [2, 4]
    assert all(row.memory for row in suite.rows)


@pytest.mark.slow
def test_a_cell_is_one_command() -> None:
    tiny = ("--dataset", "digits", "--sessions", "3", "--rounds", "2", "--seeds", "1")
    suite = cells.cells(1, None, [cells.Cell("digits", tiny, 60, GIGABYTE)])
    (row,) = suite.rows
    assert row.note == f"`ebbflow compare {' '.join(tiny)}`"
    assert row.memory
    assert [check.unit for check in suite.checks] == ["s", "GB"]


@pytest.mark.slow
def test_what_a_cell_lacks_is_said(tmp_path: Path) -> None:
    with pytest.raises(EbbflowError, match="nothing"):
        cells.engines_apart(("--dataset", "nothing"), tmp_path)


def test_a_profile_says_where_the_time_goes() -> None:
    digits: dict[str, object] = {"dataset": "digits", "seeds": [1], "sessions": 4, "rounds": 5}
    suite = profile(1, None, small(), digits, seconds=0.1)
    assert len(suite.rows) == 5
    assert len(suite.shares) == 6
    for name, shares in suite.shares.items():
        total = sum(share for place, share in shares.items() if place != "busy threads")
        assert total <= 1 + 1e-9, name


def test_looks_see_who_computes() -> None:
    digits = [works.softmax_work(2, 20, 8)]

    def compute() -> None:
        digits.append(works.softmax_work(2, 200, 8))

    looks = watched(compute, 0.1)
    assert isinstance(looks, Looks)
    assert looks.looks > 5
    assert stage_of("core/evaluate.py") == "evaluation"
    assert stage_of("nowhere.py") == "other"
    assert place_of(None) is None
    assert place_of(sys._getframe()) == ("other", "other")
