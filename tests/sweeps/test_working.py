"""Workers: each cell once, whoever is killed; failures, crashes and memory stop nobody else."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ebbflow import experiment
from ebbflow.core.errors import EbbflowError
from ebbflow.runs.records import METRICS, SUMMARY, write_sealed
from ebbflow.simulation import ceilings
from ebbflow.sweeps.children import CellProcess
from ebbflow.sweeps.claims import Claim, Claims
from ebbflow.sweeps.computing import CellEnding, compute_cell
from ebbflow.sweeps.crew import Crew
from ebbflow.sweeps.estimates import CellEstimate
from ebbflow.sweeps.failures import LEFT, Failures
from ebbflow.sweeps.folder import SweepFolder, SweepJobs
from ebbflow.sweeps.jobs import JobsReference
from ebbflow.sweeps.outcome import sweep_views
from ebbflow.sweeps.plan import SweepPlan
from ebbflow.sweeps.servants import start_servant
from ebbflow.sweeps.status import StatusReader
from ebbflow.sweeps.usage import birth
from ebbflow.sweeps.working import Worker
from tests.sweeps.wishes import kept, planned

LONG = {"sessions": 3, "rounds": 150, "partition__devices": 6, "data__limit_train": 1437}


def reference(
    folder: Path,
    does: Mapping[str, str],
    needs: Mapping[str, int] | None = None,
    clusters: Mapping[str, str] | None = None,
) -> JobsReference:
    arguments = {
        "folder": str(folder),
        "does": dict(does),
        "needs": dict(needs or {}),
        "clusters": dict(clusters or {}),
    }
    return JobsReference("tests.sweeps.toys:toy_jobs", arguments)


def worker(jobs: JobsReference, log: Path, grace: int = 10) -> subprocess.Popen[bytes]:
    """Start a worker that ends with this process."""
    order = {"do": "work", **jobs._asdict(), "cores": [], "grace": grace}
    with log.open("ab") as file:
        return start_servant(order, stderr=file)


def until(condition: Callable[[], object], seconds: float = 120) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "what was waited for has not happened"
        time.sleep(0.02)


def done(folder: Path) -> set[str]:
    return {path.name for path in (folder / "done").glob("*")}


def test_cells_that_fail_or_crash_do_not_stop_the_others(tmp_path: Path) -> None:
    does = {"refused": "refuse", "crashing": "crash", "bug": "bug", "good": "do", "last": "do"}
    jobs = reference(tmp_path, does)
    crew = Crew(jobs, 1, tmp_path / "logs")
    crew.work(lambda: None)
    assert done(tmp_path) == {"good", "last"}
    failures = Failures(tmp_path)
    sentences = {name: failure["sentence"] for name in does if (failure := failures.read(name))}
    assert sentences.keys() == {"refused", "crashing", "bug"}
    assert "died 3 times in a row" in sentences["crashing"] and "signal 9" in sentences["crashing"]
    assert (tmp_path / "log").read_text().count("begin crashing") == 3
    log = (tmp_path / "logs" / "worker-1.log").read_text()
    assert "crashing: its process died (signal 9); it is tried again\n" in log
    assert "refused: failed: it cannot be: mend it\n" in log


def test_two_workers_share_the_cells_and_compute_none_twice(tmp_path: Path) -> None:
    does = {f"c{number}": "wait0.2" for number in range(6)}
    Crew(reference(tmp_path, does), 2, tmp_path / "logs").work(lambda: None)
    assert done(tmp_path) == set(does)
    log = (tmp_path / "log").read_text()
    assert all(log.count(f"begin {name}\n") == 1 for name in does)
    assert len({Claims(tmp_path).attempts(name)[0]["pid"] for name in does}) == 6


def test_a_worker_waits_for_the_process_of_the_last_cell_to_end(tmp_path: Path) -> None:
    """Else it would tell that a cell is running that is done, and end with exit code one."""
    jobs = reference(tmp_path, {"last": "linger2"})
    with worker(jobs, tmp_path / "1.log") as first, worker(jobs, tmp_path / "2.log") as second:
        until(lambda: done(tmp_path))
        assert Claims(tmp_path).is_held("last")
        until(lambda: first.poll() is not None or second.poll() is not None)
        assert not Claims(tmp_path).is_held("last")
        assert (first.wait(20), second.wait(20)) == (0, 0)
    assert [each["state"] for each in Claims(tmp_path).attempts("last")] == ["done"]


def test_cells_that_take_a_whole_cluster_are_computed_one_at_a_time(tmp_path: Path) -> None:
    """Whoever finds it taken computes another cell, or waits; no cell fails for that."""
    does = {"one": "wait3", "two": "wait0.5", "elsewhere": "do", "local": "wait0.2"}
    clusters = {"one": "10.0.0.7:6379", "two": "10.0.0.7:6379", "elsewhere": "10.0.0.8:6379"}
    Crew(reference(tmp_path, does, clusters=clusters), 2, tmp_path / "logs").work(lambda: None)
    assert done(tmp_path) == set(does)
    order = [line.split(maxsplit=1)[1] for line in (tmp_path / "log").read_text().splitlines()]
    assert order.index("end elsewhere") < order.index("end local") < order.index("end one")
    assert order.index("begin two") > order.index("end one")
    assert all(len(Claims(tmp_path).attempts(name)) == 1 for name in does)
    said = [(tmp_path / "logs" / f"worker-{n}.log").read_text() for n in (1, 2)]
    sentence = "waits for a Ray cluster that another cell of the sweep has taken\n"
    assert [log.count(sentence) for log in said] in ([0, 1], [1, 0])


def test_who_is_killed_gives_its_cluster_back(tmp_path: Path) -> None:
    clusters = {"crashing": "10.0.0.7:6379", "good": "10.0.0.7:6379"}
    jobs = reference(tmp_path, {"crashing": "crash", "good": "do"}, clusters=clusters)
    Crew(jobs, 1, tmp_path / "logs").work(lambda: None)
    assert done(tmp_path) == {"good"}


def test_only_cells_on_a_cluster_that_is_there_take_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = kept(tmp_path / "sweep", planned({"seeds": [1]}, engine__kind="ray"))
    local = kept(tmp_path / "local", planned({"seeds": [1]}))
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.7:6379")
    assert SweepJobs(cells.path).cluster("s1") == "10.0.0.7:6379"
    assert SweepJobs(local.path).cluster("s1") == ""
    monkeypatch.setenv("RAY_ADDRESS", "local")  # each run starts one of its own
    assert SweepJobs(cells.path).cluster("s1") == ""
    # Known by two names on its head node; other machines have a loopback of their own.
    monkeypatch.setattr("ebbflow.cluster.connection._own_address", lambda: "10.0.0.7")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6379")
    assert SweepJobs(cells.path).cluster("s1") == "10.0.0.7:6379"


def test_a_killed_worker_takes_its_cell_with_it_and_another_goes_on(tmp_path: Path) -> None:
    """The cell's process notices that its worker is gone, and gives the cell up."""
    jobs, claims = reference(tmp_path, {"a": "wait60"}), Claims(tmp_path)
    with worker(jobs, tmp_path / "first.log") as first:
        until(lambda: claims.is_held("a") and claims.attempts("a"))
        (attempt,) = claims.attempts("a")
        first.kill()
    until(lambda: not claims.is_held("a"), 20)
    until(lambda: not birth(attempt["pid"]), 5)
    assert claims.attempts("a")[0]["state"] == "stopped"
    with worker(reference(tmp_path, {"a": "do"}), tmp_path / "second.log") as second:
        assert second.wait(120) == 0
    assert done(tmp_path) == {"a"}


def test_a_worker_ends_with_the_process_that_it_works_for(tmp_path: Path) -> None:
    claims = Claims(tmp_path)
    with worker(reference(tmp_path, {"a": "wait60"}), tmp_path / "log.txt") as servant:
        until(lambda: claims.is_held("a"))
        assert servant.stdin is not None
        servant.stdin.close()
        assert servant.wait(30) == 128 + signal.SIGTERM
    assert not claims.is_held("a")


def test_a_round_has_as_long_as_it_is_given_and_is_lost_after_that(tmp_path: Path) -> None:
    """The cell does not look whether it is to stop before its round is over."""
    claims = Claims(tmp_path)
    jobs = reference(tmp_path, {"long": "round60"})
    with worker(jobs, tmp_path / "log.txt", grace=1) as servant:
        until(lambda: claims.is_held("long") and claims.attempts("long"))
        began = time.monotonic()
        servant.terminate()
        assert servant.wait(30) == 128 + signal.SIGTERM
        assert 1 <= time.monotonic() - began < 4
    (attempt,) = claims.attempts("long")
    assert attempt["state"] == "stopped"
    assert attempt["how"] == "asked to stop, and no round was over 1 s later"


@pytest.mark.slow
def test_a_round_that_takes_longer_than_usual_is_saved_where_it_may(tmp_path: Path) -> None:
    """Workers, and those who have started them, wait as long as they are told to."""
    crew = Crew(reference(tmp_path, {"long": "round12"}), 1, tmp_path / "logs", grace=30)

    def look() -> None:
        if crew.stopped_by is None and (tmp_path / "log").exists():
            os.kill(os.getpid(), signal.SIGTERM)

    crew.work(look)
    assert crew.stopped_by == signal.SIGTERM
    assert Claims(tmp_path).attempts("long")[0]["state"] == "done"
    assert done(tmp_path) == {"long"}


@pytest.mark.slow
def test_a_real_cell_that_was_killed_goes_on_and_has_the_bits_of_a_single_run(
    tmp_path: Path,
) -> None:
    plan = planned({"seeds": [5]}, **LONG)
    (cell,) = plan.cells
    experiment.run(cell.config, tmp_path / "single")
    sweep = kept(tmp_path / "sweep", plan)
    run, claims = sweep.run_folder(cell.name), Claims(sweep.path)
    jobs = sweep.reference()
    for by in ("worker", "worker and cell"):
        with worker(jobs, tmp_path / "log") as servant:
            before = len(claims.attempts(cell.name))
            until(lambda n=before: len(claims.attempts(cell.name)) > n)  # type: ignore[misc]
            child = claims.attempts(cell.name)[-1]["pid"]
            until(lambda: (run / METRICS).exists() or (run / SUMMARY).exists())
            time.sleep(0.3)
            servant.kill()
            if by == "worker and cell" and birth(child):
                os.kill(child, signal.SIGKILL)
        until(lambda: not claims.is_held(cell.name), 30)
    with worker(jobs, tmp_path / "log") as servant:
        assert servant.wait(120) == 0
    assert (run / METRICS).read_bytes() == (tmp_path / "single" / METRICS).read_bytes()
    attempts = claims.attempts(cell.name)
    assert attempts[-1]["state"] == "done"
    numbers = [attempt["checkpoint"] for attempt in attempts]
    assert numbers == sorted(numbers)  # what was saved is never computed again
    assert not Failures(sweep.path).read(cell.name)


def test_a_crew_starts_a_killed_worker_again(tmp_path: Path) -> None:
    does = {"a": "wait1", "b": "wait1", "c": "do"}
    crew = Crew(reference(tmp_path, does), 1, tmp_path / "logs")
    killed: list[int] = []

    def look() -> None:
        if not killed and Claims(tmp_path).is_held("a"):
            killed.append(crew.pids[0])
            os.kill(crew.pids[0], signal.SIGKILL)

    crew.work(look)
    assert killed and crew.pids != killed
    assert done(tmp_path) == set(does)
    assert crew.stopped_by is None


def test_a_crew_that_cannot_begin_says_why(tmp_path: Path) -> None:
    plan = planned({"seeds": [1]})
    sweep = kept(tmp_path / "sweep", plan)
    crew_jobs = sweep.reference()
    sweep.plan_file.write_text("rubbish")
    with pytest.raises(EbbflowError, match=r"sweep.toml was changed or damaged: restore the file"):
        Crew(crew_jobs, 1, tmp_path / "logs").work(lambda: None)


def test_a_worker_that_cannot_lock_says_so_once_and_fails_no_cell(tmp_path: Path) -> None:
    jobs = reference(tmp_path, {"a": "do"}).open()
    (tmp_path / "hosts").touch()
    with pytest.raises(EbbflowError, match=r"lock cannot be locked .*: a sweep needs a folder"):
        Worker(jobs, lambda sentence: None).work()
    assert "a" not in Failures(tmp_path)
    (tmp_path / "done").mkdir()
    (tmp_path / "done" / "a").touch()
    Worker(jobs, lambda sentence: None).work()  # nothing is left to lock


def test_where_nothing_can_be_written_any_more_the_cause_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "claims").touch()
    (tmp_path / "failed").touch()
    child = CellProcess(reference(tmp_path, {"a": "do"}).open(), "a")
    assert child.ending() == "exit code 1"
    said = capfd.readouterr().err
    assert said.startswith("a: ") and said.count("\n") == 1
    assert "a.lock cannot be locked (File exists)" in said


def full(path: Path, content: object) -> None:
    raise EbbflowError(f"{path} needs 100 bytes, and its disk or quota has no more room")


def test_a_full_disk_ends_a_worker_after_three_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """No death can be noted, so that the cells would be tried again and again."""
    monkeypatch.setattr("ebbflow.runs.records.write_atomically", full)
    said: list[str] = []
    own = Worker(reference(tmp_path, {"a": "do", "b": "do"}).open(), said.append)
    with pytest.raises(EbbflowError) as caught:
        own.work()
    assert str(caught.value) == (
        f"3 processes in a row ended before they had noted anything in {tmp_path} (the last one: "
        "a, exit code 1): make sure that it can be written to and that its disk and your quota "
        "have room, and start the worker again"
    )
    assert len(said) == 2
    assert capfd.readouterr().err.count("its disk or quota has no more room\n") == 3
    assert not Failures(tmp_path).read("a")


def test_processes_that_are_killed_before_they_begin_are_counted_in_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is done in between shows that notes can be written."""
    tries, begin = tmp_path / "tries", Claim.begin

    def killed_first(claim: Claim) -> None:
        with tries.open("a") as file:
            file.write("x")
        if len(tries.read_text()) != 3 and len(tries.read_text()) < 6:
            os.kill(os.getpid(), signal.SIGKILL)
        begin(claim)

    monkeypatch.setattr(Claim, "begin", killed_first)
    Worker(reference(tmp_path, {"a": "do", "b": "do"}).open(), lambda sentence: None).work()
    assert done(tmp_path) == {"a", "b"} and len(tries.read_text()) == 6


@pytest.mark.slow
def test_cells_that_do_not_fit_together_are_computed_one_after_the_other(tmp_path: Path) -> None:
    available = ceilings.available_memory()
    if available is None:
        pytest.skip("the system does not say how much memory there is")
    most = int(0.7 * available)
    does = {"a": "wait1.5", "b": "wait1.5", "small": "do"}
    jobs = reference(tmp_path, does, {"a": most, "b": most, "small": 1000})
    Crew(jobs, 2, tmp_path / "logs").work(lambda: None)
    lines = [line.split()[1:] for line in (tmp_path / "log").read_text().splitlines()]
    large = [(what, name) for what, name in lines if name != "small"]
    first = large[0][1]
    second = "b" if first == "a" else "a"
    assert large == [("begin", first), ("end", first), ("begin", second), ("end", second)]


@pytest.mark.slow
def test_a_cell_that_no_worker_here_can_take_is_left(tmp_path: Path) -> None:
    if ceilings.total_memory() is None:
        pytest.skip("the system does not say how much memory there is")
    jobs = reference(tmp_path, {"huge": "do", "small": "do"}, {"huge": 10**15, "small": 1000})
    with worker(jobs, tmp_path / "log.txt") as servant:
        assert servant.wait(120) == 0
    assert done(tmp_path) == {"small"}
    said = (tmp_path / "log.txt").read_text()
    assert "huge needs about 1000.0 TB of memory, and this machine has" in said
    assert "left for other machines" in said
    note = Failures(tmp_path, LEFT).read("huge")
    assert note is not None and note["sentence"] in said


def test_a_cell_for_which_other_programs_leave_no_memory_is_left_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ebbflow.sweeps.working.INTERVAL", 0.01)
    monkeypatch.setattr("ebbflow.sweeps.room.PATIENCE", 0.05)
    monkeypatch.setattr(ceilings, "available_memory", lambda: 10**9)
    monkeypatch.setattr(ceilings, "total_memory", lambda: 10**12)
    said: list[str] = []
    jobs = reference(tmp_path, {"large": "do", "small": "do"}, {"large": 10**11, "small": 10})
    own = Worker(jobs.open(), said.append)
    own.work()
    assert done(tmp_path) == {"small"}
    sentence = (
        "large needs about 100.0 GB of memory, and other programs leave 1.0 GB: it is left for "
        "other machines"
    )
    assert own.left == {"large": sentence}
    assert said[-2:] == ["waits for memory that other cells have been promised", sentence]


def test_a_run_of_somebody_else_is_not_gone_on_with(tmp_path: Path) -> None:
    plan = planned({"seeds": [1]})
    other = planned({"seeds": [2]}).cells[0].config
    sweep = kept(tmp_path / "sweep", SweepPlan("", plan.varied, plan.cells))
    experiment.run(other, sweep.run_folder("s1"))
    jobs = SweepJobs(sweep.path)
    assert not jobs.is_done("s1")
    with pytest.raises(EbbflowError, match=r"s1 holds a run with other settings: move it away"):
        jobs.compute("s1", lambda: False)
    assert [cell.state for cell in StatusReader(sweep).read().cells] == ["waiting"]
    assert compute_cell(jobs, "s1", lambda: False) is CellEnding.FAILED
    (cell,) = StatusReader(sweep).read().cells
    assert cell.state == "failed" and "with other settings: move it away" in cell.why
    assert sweep_views(sweep, plan).lacking == ["s1"]


def test_the_memory_of_a_cell_is_that_on_the_cores_it_gets(tmp_path: Path) -> None:
    """It may be planned on a machine with many cores and computed on one with few."""
    sweep, own = SweepFolder(tmp_path / "sweep"), len(os.sched_getaffinity(0))
    sweep.write(planned({"seeds": [1]}), {"s1": CellEstimate(1.0, 10_000, 10, 64, 100)})
    assert SweepJobs(sweep.path).need("s1") == 10_000 - (64 - own) * 100
    assert SweepJobs(sweep.path, cores=4).need("s1") == 10_000 - 60 * 100


def test_estimates_without_what_a_core_adds_are_read(tmp_path: Path) -> None:
    line = {"seconds": 1.0, "memory": 10_000, "disk": 10, "cores": 64}
    sweep = kept(tmp_path / "sweep", planned({"seeds": [1]}))
    write_sealed(sweep.path / "estimates.json", {"cells": {"s1": line}})
    assert SweepJobs(sweep.path).need("s1") == 10_000


def test_a_damaged_note_fails_its_cell_and_no_other(tmp_path: Path) -> None:
    """Or its process would be started again and again."""
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "bad.json").write_text("rubbish")
    Crew(reference(tmp_path, {"bad": "do", "good": "do"}), 1, tmp_path / "logs").work(lambda: None)
    assert done(tmp_path) == {"good"}
    failure = Failures(tmp_path).read("bad")
    assert failure is not None
    assert "bad.json is no JSON object: remove the file" in failure["sentence"]
