"""run.log and --quiet: what a run leaves for people, and what it does not say."""

from __future__ import annotations

import os
import re
import shlex
import stat
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from ebbflow import __version__, experiment
from ebbflow.cli import run_log
from ebbflow.runs import records
from tests.callbacks import StopAfter, Stopped
from tests.configs import with_keys
from tests.run_folders import SMALL
from tests.test_cli import TINY, ebbflow, tree

LINE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d)  (.+)")


def logged(folder: Path) -> list[str]:
    """Return what the lines of a log say, after checking their times."""
    lines = (folder / records.LOG).read_text(encoding="utf-8").splitlines()
    matches = [LINE.fullmatch(line) for line in lines]
    times = [datetime.fromisoformat(match[1]) for match in matches if match]
    assert len(times) == len(lines)
    assert times == sorted(times)
    return [match[2] for match in matches if match]


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    folder = tmp_path / "half" / "run"
    with pytest.raises(Stopped):
        experiment.run(with_keys(SMALL, {}), folder, callbacks=[StopAfter(7)])
    return folder


def test_a_run_is_logged_from_its_command_to_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "a run"
    arguments = ("compare", *TINY, "--set", "parameters.warm_start.scale=20", "--out", str(folder))
    assert ebbflow(*arguments).code == 0
    first, versions, *sessions, last = logged(folder)
    assert first == f"started by: {shlex.join(['ebbflow', *arguments])}"
    assert shlex.split(first.removeprefix("started by: "))[1:] == list(arguments)
    assert f"ebbflow {__version__}" in versions
    assert "torch " in versions
    assert len(sessions) == 4
    for number, line in enumerate(sessions, start=1):
        assert re.fullmatch(rf"seed 1, session {number} of 4 finished after \d+\.\d\d\d s", line)
    assert re.fullmatch(r"finished after \d+\.\d\d\d s", last)


def test_resuming_appends(stopped: Path) -> None:
    assert ebbflow("resume", str(stopped)).code == 0
    lines = logged(stopped)
    assert lines[0] == f"resumed by: ebbflow resume {stopped}"
    assert lines[2] == "going on after seed 1, session 3, round 1"
    assert lines[3].startswith("seed 1, session 3 of 4 finished after")
    before = tree(stopped)
    assert ebbflow("resume", str(stopped)).code == 0  # a finished run is only read
    assert {**tree(stopped), "accuracy.png": b""} == {**before, "accuracy.png": b""}


def test_the_log_is_no_part_of_what_is_computed_or_verified(tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert ebbflow("run", *TINY, "--quiet", "--out", str(tmp_path / name)).code == 0
    one, two = tree(tmp_path / "one"), tree(tmp_path / "two")
    assert one.keys() == two.keys() >= {"run.log"}
    for name in (records.METRICS, records.SUMMARY, records.CONFIG):
        assert one[name] == two[name]
    (tmp_path / "one" / records.LOG).write_bytes(b"\x00\xff rubbish")
    for command in ("verify", "repair", "metrics", "resume"):
        assert ebbflow(command, str(tmp_path / "one")).code == 0
    (tmp_path / "one" / records.LOG).unlink()
    assert ebbflow("verify", str(tmp_path / "one")).out == "every file is intact\n"


def test_warnings_and_failures_are_logged(tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    x, y = draw.normal(size=(60, 5)) * [1, 1, 1, 1, 1000], np.arange(60) % 3
    data, out = tmp_path / "own.npz", tmp_path / "run"
    np.savez(data, x_train=x, y_train=y, x_test=x[:20], y_test=y[:20])
    small = ("--sessions", "2", "--rounds", "1", "--devices", "2", "--seeds", "1")
    answer = ebbflow("run", "--dataset", str(data), *small, "--quiet", "--out", str(out))
    assert answer.out == f"{out}\n"
    said = [line.removeprefix("warning ") for line in answer.err.splitlines()]
    assert len(said) == 2
    told = [line for line in logged(out) if line.startswith("warning: ")]
    assert [line.removeprefix("warning: seed 1, ") for line in told] == said


def test_a_method_that_ends_alone_and_a_run_that_fails(tmp_path: Path) -> None:
    diverging = ("--methods", "previous", "--set", "lr.initial=3e38")
    answer = ebbflow("run", *TINY, *diverging, "--out", str(tmp_path / "run"))
    assert answer.code == 2
    lines = logged(tmp_path / "run")
    assert "previous ended: " in lines[-2]
    assert re.match(r"failed after \d+\.\d\d\d s: TrainingError: ", lines[-1])


def test_no_terminal_code_reaches_the_log(tmp_path: Path) -> None:
    folder = tmp_path / "a\x1b[31m\nb"
    assert ebbflow("run", *TINY, "--quiet", "--out", str(folder)).code == 0
    content = (folder / records.LOG).read_bytes()
    assert b"\x1b" not in content
    assert len(logged(folder)) == 7


@pytest.mark.parametrize("obstacle", ["folder", "link", "fifo", "read-only"])
def test_a_log_that_cannot_be_written_ends_no_run(
    obstacle: str, stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, victim = stopped / records.LOG, tmp_path / "victim"
    victim.write_text("mine")
    if obstacle == "folder":
        path.mkdir()
    elif obstacle == "read-only":

        def refused(*arguments: object, **more: object) -> int:
            raise OSError(30, "Read-only file system")

        monkeypatch.setattr(os, "open", refused)
        log = run_log.RunLog(stopped)
        log._waiting = None
        log.warn("nobody hears this")
        assert not path.exists()
        return
    elif obstacle == "link":
        path.symlink_to(victim)
    else:
        os.mkfifo(path)
    code = ebbflow("resume", str(stopped)).code
    # A link or a pipe in a run folder is refused before anything is read.
    assert code == (0 if obstacle == "folder" else 2)
    assert victim.read_text() == "mine"


def test_a_log_with_a_second_name_outside_is_left_alone(stopped: Path, tmp_path: Path) -> None:
    (stopped / records.LOG).write_text("earlier\n")
    os.link(stopped / records.LOG, tmp_path / "backup")
    assert ebbflow("resume", str(stopped), "--quiet").code == 0
    assert (tmp_path / "backup").read_text() == "earlier\n"
    assert (stopped / records.LOG).read_text().startswith("earlier\n")


def test_the_log_has_the_usual_rights(tmp_path: Path) -> None:
    assert ebbflow("run", *TINY, "--quiet", "--out", str(tmp_path / "run")).code == 0
    modes = {
        stat.S_IMODE((tmp_path / "run" / name).stat().st_mode)
        for name in (records.LOG, records.METRICS)
    }
    assert len(modes) == 1


# --- --quiet -------------------------------------------------------------------------------------


def test_quiet_says_nothing_but_where_the_run_is(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert ebbflow("compare", *TINY, "-q", "--out", str(folder)) == (0, f"{folder}\n", "")
    assert (folder / "accuracy.png").stat().st_size > 1000
    assert ebbflow("compare", *TINY, "-q", "--dry-run") == (0, "", "")


def test_quiet_resume(stopped: Path) -> None:
    assert ebbflow("resume", str(stopped), "--quiet") == (0, f"{stopped}\n", "")
    assert ebbflow("resume", str(stopped), "--quiet") == (0, f"{stopped}\n", "")


def test_quiet_errors_are_said(tmp_path: Path) -> None:
    answer = ebbflow("resume", str(tmp_path), "--quiet")
    assert (answer.code, answer.out) == (2, "")
    assert "holds no ebbflow run" in answer.err
