"""What a run shows while it works."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest
from rich.console import Console

from ebbflow.config.merge import Layers
from ebbflow.config.resolved import Config
from ebbflow.core.types import Session
from ebbflow.data import datasets
from ebbflow.report.progress import ProgressBar, ProgressDisplay, ProgressLines, progress_display
from ebbflow.runs.records import Round
from ebbflow.simulation.building import build_world
from ebbflow.simulation.callbacks import RoundFinished, SessionStarted
from ebbflow.simulation.world import World


def configured(**settings: Any) -> Config:
    layers = Layers()
    small = {"seeds": [1, 2], "sessions": 4, "rounds": 5, "partition": {"devices": 3}}
    layers.add({**small, **settings}, "test")
    return layers.config()


def worlds(config: Config) -> list[World]:
    data = datasets.load("digits")
    return [build_world(config, data, seed) for seed in config.seeds]


def show(display: ProgressDisplay, world: World, session: int, t: int, *algorithms: str) -> None:
    """Tell a display of a round in which two methods took part."""
    here = world.sessions[session - 1]
    rounds = [
        Round(algorithm, method, world.seed, session, t, accuracy, 1.0, 0.1, 3, 3)
        for algorithm in algorithms or ("fedavg",)
        for method, accuracy in (("warm_start", 81.25), ("previous", 60.0))
    ]
    event = RoundFinished(world=world, session=here, round=t, results=rounds, tracks=[])
    display.round_finished(event)


def terminal(out: io.StringIO) -> Console:
    return Console(file=out, force_terminal=True, width=160, color_system=None)


def test_a_terminal_gets_a_bar_and_everything_else_lines() -> None:
    config = configured()
    assert isinstance(progress_display(config, terminal(io.StringIO())), ProgressBar)
    assert isinstance(progress_display(config, Console(file=io.StringIO())), ProgressLines)


def test_the_bar_shows_session_devices_and_accuracies() -> None:
    config, out = configured(), io.StringIO()
    display = progress_display(config, terminal(out))
    show(display, worlds(config)[1], 3, 5)
    display.close()
    text = out.getvalue()
    assert "seed 2  session 3/4  round 5/5  3 devices  warm_start 81.2  previous 60.0" in text
    assert " 88%" in text or " 87%" in text  # (4 + 3) of 8 sessions


def test_the_bar_of_a_resumed_run_begins_where_the_run_was_left() -> None:
    config, out = configured(), io.StringIO()
    display = ProgressBar(config, terminal(out))
    show(display, worlds(config)[1], 1, 1)  # 21 of 40 rounds
    (task,) = display._progress.tasks
    assert (task.completed, task.total, task.speed) == (21, 40, None)
    display.close()


def test_a_bar_that_never_began_can_be_closed() -> None:
    out = io.StringIO()
    ProgressBar(configured(), terminal(out)).close()
    assert out.getvalue().strip() == ""


def test_a_line_is_written_at_a_sessions_end_and_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config, out = configured(), io.StringIO()
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    display = progress_display(config, Console(file=out))
    world = worlds(config)[0]
    for t in range(1, 6):
        now += 10
        show(display, world, 1, t)
    lines = out.getvalue().splitlines()
    assert [line.split("round ")[1].split()[0] for line in lines] == ["2/5", "4/5", "5/5"]
    assert lines[-1].endswith("350 s left")  # 35 rounds of ten seconds


def test_the_time_left_of_a_resumed_run_counts_only_what_was_done_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config, out = configured(), io.StringIO()
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    display = progress_display(config, Console(file=out))
    now += 2
    show(display, worlds(config)[1], 2, 5)  # the thirtieth of 40 rounds took two seconds
    assert out.getvalue().endswith("20 s left\n")


def test_several_algorithms_are_shown_by_their_mean_so_that_a_line_stays_short() -> None:
    config, out = configured(algorithm=["fedavg", "fedprox"]), io.StringIO()
    display = progress_display(config, Console(file=out))
    show(display, worlds(config)[0], 1, 5, "fedavg", "fedprox")
    assert "mean of 2 algorithms: warm_start 81.2  previous 60.0" in out.getvalue()


def test_a_warning_is_shown_once_a_method() -> None:
    config, out = configured(), io.StringIO()
    display = progress_display(config, Console(file=out))
    world = worlds(config)[0]
    session: Session = world.sessions[3]
    for method in ("warm_start", "warm_start", "other"):
        event = {"algorithm": "fedavg", "method": method, "seed": 1, "session": 4}
        warning = {"event": "warning", "text": "the [weights] are flat", **event}
        recorded = [{"event": "start", **event}, warning]
        display.session_started(
            SessionStarted(world=world, session=session, tracks=[], recorded=recorded)
        )
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0] == "warning seed 1, session 4, warm_start: the [weights] are flat"


def test_warnings_about_the_run_as_a_whole_are_all_shown_once() -> None:
    config, out = configured(), io.StringIO()
    display = progress_display(config, Console(file=out))
    for world in worlds(config):
        texts = ("the [data] are odd", "the weights lack some")
        events = [{"event": "warning", "seed": world.seed, "session": 1, "text": t} for t in texts]
        display.session_started(
            SessionStarted(world=world, session=world.sessions[0], tracks=[], recorded=events)
        )
    assert out.getvalue().splitlines() == [
        "warning the [data] are odd",
        "warning the weights lack some",
    ]
