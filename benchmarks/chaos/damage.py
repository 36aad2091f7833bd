"""Files that are damaged: bits flipped, ends cut off; then resumed, and read by every command."""

from __future__ import annotations

import contextlib
import io
import os
import random
import shutil
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from benchmarks.chaos.kinds import configured, copied, flip, results, run_to_the_end
from ebbflow import cli, experiment
from ebbflow.core.errors import EbbflowError, RunStoppedError
from ebbflow.runs.kept_files import kept_files

READING: tuple[tuple[str, ...], ...] = (
    ("metrics",),
    ("cost",),
    ("history", "ls"),
    ("history", "show"),
    ("verify",),
)


class Damage(NamedTuple):
    """What became of damaged runs: noticed, harmless, or silently wrong."""

    name: str
    trials: int
    noticed: int
    harmless: int
    wrong: tuple[str, ...]


class Answer(NamedTuple):
    """What a command gave back; ``crash`` is the traceback, if there is one."""

    code: int
    out: str
    err: str = ""
    crash: str = ""


def asked(command: Sequence[str], folder: Path) -> Answer:
    """Run a reading command on a run folder in this process."""
    more = ("4",) if tuple(command) == ("history", "show") else ()
    answer = answered([*command, str(folder), *more])
    return answer._replace(out=answer.out.replace(str(folder), "RUN"))


def answered(arguments: Sequence[str]) -> Answer:
    """Run any command in this process."""
    out, err = io.StringIO(), io.StringIO()
    code, crash = 0, ""
    try:
        with (
            mock.patch.object(sys, "argv", ["ebbflow", *arguments]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        code, crash = 1, traceback.format_exc()
    return Answer(code, "" if crash else out.getvalue(), err.getvalue(), crash)


def _is_told(answer: Answer) -> bool:
    """Whether an answer says that something is not as it was."""
    return "damaged" in answer.out or "was changed" in answer.err


def cut(path: Path, draw: random.Random) -> None:
    """Cut off the end of a file."""
    os.truncate(path, draw.randrange(path.stat().st_size))


HARMS: dict[str, Callable[[Path, random.Random], None]] = {"flipped bit": flip, "cut short": cut}


def damage(kind: str, scratch: Path, trials: int, harm: str, seed: int = 0) -> list[Damage]:
    """Damage a run that was stopped, and one that is over, so many times each."""
    draw = random.Random(f"{kind} {harm} {seed}")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    whole, half = scratch / "whole", scratch / "half"
    run_to_the_end(kind, whole)
    stop_half_way(kind, half)
    return [
        _resumed(kind, half, whole, scratch / "run", trials, harm, draw),
        _read(whole, scratch / "run", trials, harm, draw),
    ]


def stop_half_way(kind: str, folder: Path, rounds: int = 10) -> None:
    """Leave a run behind that was stopped after so many rounds."""
    times = iter(range(1, 10_000))
    with contextlib.suppress(RunStoppedError):
        experiment.run(configured(kind), folder, stop=lambda: next(times) >= rounds)


def _harmed(source: Path, run: Path, harm: str, draw: random.Random) -> Path:
    """Make a copy of a run and harm one of its files; return which."""
    copied(source, run)
    files = sorted(path for path in run.rglob("*") if path.is_file() and path.stat().st_size)
    path = draw.choice(files)
    HARMS[harm](path, draw)
    return path


def _resumed(
    kind: str, half: Path, whole: Path, run: Path, trials: int, harm: str, draw: random.Random
) -> Damage:
    expected = results(whole)
    noticed = harmless = 0
    wrong: list[str] = []
    for _ in range(trials):
        path = _harmed(half, run, harm, draw)
        told: list[warnings.WarningMessage] = []
        try:
            with warnings.catch_warnings(record=True) as told:
                run_to_the_end(kind, run)
        except EbbflowError:
            noticed += 1
        except BaseException:
            wrong.append(f"{path.relative_to(run)}: {traceback.format_exc(limit=-1).strip()}")
        else:
            if results(run) == expected:
                harmless += 1
            elif told or any(kept.state != "ok" for kept in kept_files(run)):
                noticed += 1
            else:
                wrong.append(f"{path.relative_to(run)}: other results")
    return Damage(f"{harm}, then resumed", trials, noticed, harmless, tuple(wrong))


def _read(whole: Path, run: Path, trials: int, harm: str, draw: random.Random) -> Damage:
    shown = {command: asked(command, whole).out for command in READING}
    noticed = harmless = 0
    wrong: list[str] = []
    for _ in range(trials):
        path = _harmed(whole, run, harm, draw)
        answers = {command: asked(command, run) for command in READING}
        crashed = [answer.crash for answer in answers.values() if answer.crash]
        other = [
            " ".join(command)
            for command, answer in answers.items()
            if answer.code == 0 and answer.out != shown[command] and not _is_told(answer)
        ]
        if crashed or other:
            wrong.append(f"{path.relative_to(run)}: {crashed[0] if crashed else other}")
        elif any(answer.code for answer in answers.values()):
            noticed += 1
        else:
            harmless += 1
    name = f"{harm}, then read by {len(READING)} commands"
    return Damage(name, trials, noticed, harmless, tuple(wrong))
