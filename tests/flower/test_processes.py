"""Processes of a federation: none is lost, and none of anybody else's is ever touched."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ebbflow.core.errors import EbbflowError
from ebbflow.flower.launch import process_table, processes
from ebbflow.flower.launch.process_table import MARK, everything, find, is_running, marked
from ebbflow.flower.launch.processes import LOCK, RECORDS, Processes, Record, end_all, recorded

FOREVER = "import time\nwhile True: time.sleep(0.05)"
STUBBORN = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + FOREVER
# A child that begins another one in a session of its own, twice over, and lets go of it.
FAMILY = f"""
import os, subprocess, sys, time
first = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        subprocess.Popen([sys.executable, "-c", {STUBBORN!r}], start_new_session=True)
    os._exit(0)
os.wait()
print("ready", flush=True)
{FOREVER}
"""
QUICK = 0.5


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_all(tmp_path, QUICK)


def start(group: Processes, name: str, program: str, layer: int = 0) -> processes.Child:
    log = group.folder / "logs" / f"{name}.log"
    command = [sys.executable, "-c", program]
    return group.start(name, command, environment=os.environ, log=log, layer=layer)


def soon(holds: Callable[[], object], seconds: float = 10) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


def family_of(group: Processes) -> list[process_table.LiveProcess]:
    return marked(group.mark, everything())


def test_a_process_has_a_record_a_session_and_a_log(folder: Path) -> None:
    group = Processes(folder)
    child = start(group, "greeter", f"print('good day', flush=True)\n{FOREVER}")
    log = folder / "logs" / "greeter.log"
    soon(lambda: log.read_text() == "good day\n")
    (record,) = recorded(folder)
    assert record == child.record
    assert record.running
    found = find(record.pid)
    assert found is not None
    assert (found.session, found.parent) == (record.pid, os.getpid())
    assert group.running("greeter") == record
    assert group.running("nobody") is None
    assert end_all(folder, QUICK) == ["greeter"]
    assert not is_running(record.pid, record.started)
    assert child.wait(1) == -signal.SIGTERM
    assert {path.name for path in folder.iterdir()} == {LOCK, "logs"}


def test_ending_ends_descendants_that_made_sessions_of_their_own(folder: Path) -> None:
    group = Processes(folder)
    child = start(group, "parent", FAMILY)
    soon(lambda: "ready" in (folder / "logs" / "parent.log").read_text())
    # The parent, its child, and the stubborn orphan, which no tree of parents leads to.
    soon(lambda: len(family_of(group)) == 3)
    assert len({each.session for each in family_of(group)}) == 2
    assert group.end_all(QUICK) == ["parent"]
    assert family_of(group) == []
    assert child.code == -signal.SIGTERM


def test_orphans_of_a_killed_process_are_ended_too(folder: Path) -> None:
    group = Processes(folder)
    child = start(group, "parent", FAMILY)
    start(group, "other", FOREVER)
    soon(lambda: len(family_of(group)) == 4)
    os.kill(child.record.pid, signal.SIGKILL)
    child.wait(5)
    assert len(family_of(group)) == 3
    assert group.end(["parent"], QUICK) == []
    (left,) = family_of(group)
    other = group.running("other")
    assert other is not None
    assert left.pid == other.pid
    assert end_all(folder, QUICK) == ["other"]
    assert family_of(group) == []


def test_one_of_several_can_be_ended_and_started_again(folder: Path) -> None:
    group = Processes(folder)
    for name in ("a", "b"):
        start(group, name, FOREVER)
    before = group.running("a")
    assert group.end(["a"], QUICK) == ["a"]
    assert group.running("a") is None
    assert group.running("b") is not None
    again = start(group, "a", FOREVER)
    assert again.record != before
    assert [each.name for each in group.records()] == ["b", "a"]


def test_a_name_is_not_started_twice(folder: Path) -> None:
    group = Processes(folder)
    start(group, "gate", FOREVER)
    with pytest.raises(EbbflowError, match=r"gate of .* is already running"):
        start(group, "gate", FOREVER)
    with pytest.raises(EbbflowError, match="already running"):
        start(Processes(folder), "gate", FOREVER)


def test_what_a_killed_process_has_left_behind_ends_before_the_next_one(folder: Path) -> None:
    group = Processes(folder)
    first = start(group, "node0", FAMILY)
    soon(lambda: len(family_of(group)) == 3)
    left = family_of(group)
    os.kill(first.record.pid, signal.SIGKILL)
    soon(lambda: not first.record.running)
    again = start(group, "node0", FOREVER)
    assert not any(is_running(each.pid, each.started) for each in left)
    assert [each.pid for each in family_of(group)] == [again.record.pid]


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", FOREVER]) as process:
        yield process
        assert process.poll() is None, "a process of somebody else was ended"
        process.kill()


def forge(folder: Path, record: Record) -> None:
    path = folder / RECORDS
    content = json.loads(path.read_text())
    content["processes"].append(record.__dict__)
    path.write_text(json.dumps(content))


def test_another_process_with_the_same_number_is_left_alone(
    folder: Path, stranger: subprocess.Popen[bytes]
) -> None:
    group = Processes(folder)
    now = find(stranger.pid)
    assert now is not None
    begins, _, ticks = now.started.rpartition("/")
    earlier = [f"{begins}/{int(ticks) - 1}", f"another-boot/{ticks}"]
    for number, started in enumerate(earlier):
        forge(folder, Record(f"old{number}", stranger.pid, started, 0, "old.log"))
    assert not any(each.running for each in recorded(folder))
    assert group.end(["old0", "old1"], QUICK) == []
    assert end_all(folder, QUICK) == []
    assert not process_table.send(
        process_table.LiveProcess(stranger.pid, 0, 0, earlier[0]), signal.SIGKILL
    )


def test_children_of_another_process_with_the_same_number_are_left_alone(folder: Path) -> None:
    program = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {FOREVER!r}])\n"
    with subprocess.Popen([sys.executable, "-c", program + FOREVER]) as parent:
        soon(lambda: [each for each in everything() if each.parent == parent.pid])
        (child,) = (each for each in everything() if each.parent == parent.pid)
        Processes(folder)
        forge(folder, Record("old", parent.pid, "earlier", 0, "old.log"))
        assert end_all(folder, QUICK) == []
        assert is_running(child.pid, child.started)
        process_table.send(child, signal.SIGKILL)
        parent.kill()


def test_whoever_ends_a_federation_is_not_ended_by_it(folder: Path) -> None:
    group = Processes(folder)
    start(group, "other", FOREVER)
    program = f"""
        from pathlib import Path
        from ebbflow.flower.launch.processes import end_all
        print(end_all(Path({str(folder)!r}), {QUICK}))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, MARK: group.mark},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "['other']\n"


def test_after_the_end_nothing_more_is_started(folder: Path) -> None:
    group = Processes(folder)
    start(group, "a", FOREVER)
    end_all(folder, QUICK)
    with pytest.raises(EbbflowError, match="was taken down: b is not started"):
        start(group, "b", FOREVER)
    Processes(folder)  # somebody takes it up again
    with pytest.raises(EbbflowError, match="was taken down"):
        start(group, "b", FOREVER)
    assert group.records() == ()


LAUNCHER = """
    import os, sys
    from pathlib import Path
    from ebbflow.flower.launch import processes
    {before}
    group = processes.Processes(Path(sys.argv[1]))
    print(group.mark, flush=True)
    for number in range(100):
        group.start(
            f"p{{number}}", [sys.executable, "-c", {program!r}],
            environment=os.environ, log=Path(sys.argv[1]) / "logs" / "p.log",
        )
"""


def launcher(folder: Path, program: str, before: str = "") -> subprocess.Popen[str]:
    code = textwrap.dedent(LAUNCHER).format(program=program, before=before)
    return subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("moment", range(8))
def test_a_killed_launcher_leaves_nothing_that_cannot_be_ended(folder: Path, moment: int) -> None:
    with launcher(folder, "import time; time.sleep(600)") as process:
        assert process.stdout is not None
        mark = process.stdout.readline().strip()
        time.sleep(random.Random(moment).uniform(0, 0.1))
        process.kill()
    count = len(recorded(folder))
    # The last one may have been recorded, and not been told to go.
    assert len(end_all(folder, QUICK)) in (count, count - 1)
    assert marked(mark, everything()) == []
    assert {path.name for path in folder.iterdir()} <= {LOCK, "logs"}


def test_a_process_that_could_not_be_recorded_never_begins(folder: Path) -> None:
    # The launcher dies when the process is there and its record is not.
    dies = """write = processes._write
def _write(folder, kept):
    if kept.records:
        os._exit(9)
    write(folder, kept)
processes._write = _write"""
    trace = folder / "began"
    with launcher(folder, f"open({str(trace)!r}, 'w')", dies) as process:
        assert process.stdout is not None
        mark = process.stdout.readline().strip()
        assert process.wait(10) == 9
    soon(lambda: not marked(mark, everything()))
    assert recorded(folder) == ()
    assert not trace.exists()


def test_layers_end_from_the_top(folder: Path) -> None:
    group = Processes(folder)
    says = """
import signal, sys, time
def last(*_):
    time.sleep(0.1)
    with open(sys.argv[1], "a") as file: file.write(sys.argv[2] + "\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, last)
print("ready", flush=True)
while True: time.sleep(0.05)
"""
    order = folder / "order.txt"
    for name, layer in (("below", 0), ("above", 2), ("between", 1)):
        command = [sys.executable, "-c", says, str(order), name]
        log = folder / "logs" / f"{name}.log"
        group.start(name, command, environment=os.environ, log=log, layer=layer)
        soon(lambda log=log: log.read_text() == "ready\n")  # type: ignore[misc]
    end_all(folder, 5)
    assert order.read_text().split() == ["above", "between", "below"]


def test_a_name_with_brackets_and_spaces_is_read(folder: Path) -> None:
    odd = folder / ") R 1 (x"
    shutil.copy(Path(sys.executable).resolve(), odd)
    with subprocess.Popen(
        [odd, "-c", FOREVER], env={**os.environ, "PYTHONHOME": sys.base_prefix}
    ) as child:
        found = find(child.pid)
        assert found is not None
        assert found.parent == os.getpid()
        child.kill()
        child.wait()
    assert find(child.pid) is None


def test_what_has_ended_and_was_not_waited_for_does_not_run() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    soon(lambda: find(child.pid) is None)
    assert Path(f"/proc/{child.pid}").exists() or sys.platform != "linux"
    child.wait()


@pytest.mark.skipif(shutil.which("ps") is None, reason="there is no ps here")
def test_where_there_is_no_proc_ps_serves(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_table, "_PROC", folder / "nowhere")
    group = Processes(folder)
    child = start(group, "parent", FAMILY)
    soon(lambda: len(family_of(group)) == 3)
    found = find(child.record.pid)
    assert found is not None
    assert found.parent == os.getpid()
    assert found.started == child.record.started
    assert group.end_all(QUICK) == ["parent"]
    assert family_of(group) == []


def test_a_damaged_record_is_named(folder: Path) -> None:
    (folder / RECORDS).write_text("{")
    with pytest.raises(EbbflowError, match=rf"{RECORDS} is damaged .* {MARK}"):
        Processes(folder)
    (folder / RECORDS).unlink()


def test_a_folder_that_is_not_there_has_nothing_to_end(tmp_path: Path) -> None:
    assert end_all(tmp_path / "nowhere") == []
    assert recorded(tmp_path / "nowhere") == ()
    assert end_all(tmp_path) == []
