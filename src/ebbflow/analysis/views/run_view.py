"""A run that is to be shown, finished or still under way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ebbflow.config.merge import read_written
from ebbflow.config.resolved import Config
from ebbflow.core.errors import EbbflowError
from ebbflow.core.judging import Judge, judge_of
from ebbflow.runs import records
from ebbflow.runs.checkpoint import check_complete
from ebbflow.runs.configuration import read_config
from ebbflow.runs.records import Round, RunRecords
from ebbflow.runs.summary import Key

Event = Mapping[str, Any]
"""A line of ``events.jsonl``."""


@dataclass(frozen=True)
class RunView:
    """What is known of a run: its settings, its rounds and its events.

    ``name`` is what a page calls it. ``environment`` holds the machine, the versions and the data
    set's facts, and is empty for a run without a folder.
    """

    name: str
    config: Config
    rounds: Sequence[Round] = field(repr=False)
    events: Sequence[Event] = field(repr=False)
    folder: Path | None = None
    environment: Mapping[str, Any] = field(default_factory=dict, repr=False)
    finished: bool = True

    @cached_property
    def judge(self) -> Judge:
        """The measure that the run's methods are judged by."""
        return judge_of(self.config.task, self.config.metrics)

    @cached_property
    def algorithms(self) -> tuple[str, ...]:
        """The algorithms that have finished a round, in the order of the settings."""
        present = {r.algorithm for r in self.rounds}
        return tuple(name for name in self.config.algorithm if name in present)

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """The methods that have finished a round, in the order of the settings."""
        present = {r.method for r in self.rounds}
        return tuple(name for name in self.config.methods if name in present)

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """The seeds under which a round is finished, in the order of the settings."""
        present = {r.seed for r in self.rounds}
        return tuple(seed for seed in self.config.seeds if seed in present)

    @cached_property
    def starts(self) -> Mapping[Key, Event]:
        """Where each method started each session."""
        return {key_of(event): event for event in self.events if event["event"] == "start"}

    @cached_property
    def _device_names(self) -> Mapping[int, Sequence[str]]:
        return {e["seed"]: e["names"] for e in self.events if e["event"] == "names"}

    def device_name(self, seed: int, device: int) -> str:
        """Return what a device is called: its name, or else its number."""
        names = self._device_names.get(seed, ())
        return names[device] if device < len(names) else str(device)

    def label_name(self, label: int) -> str:
        """Return what a label is called: its name, or else its number."""
        names = self.environment.get("dataset", {}).get("labels", ())
        return str(names[label]) if label < len(names) else str(label)


def key_of(event: Event) -> Key:
    """Return the method, seed and session that an event is about."""
    return Key(event["algorithm"], event["method"], event["seed"], event["session"])


def load_view(folder: Path) -> RunView:
    """Return the view of a run folder, whose run need not be finished."""
    # In this order: what is finished is complete when its lines are read.
    view = view_without_lines(folder)
    rounds, events = records.read_rounds(folder), records.read_events(folder)
    return replace(view, rounds=rounds, events=events)


def view_without_lines(folder: Path) -> RunView:
    """Return the view of a run folder with neither rounds nor events."""
    config = read_config(folder)
    finished = (folder / records.SUMMARY).exists()
    if finished:
        check_complete(folder)
    path = folder / records.ENVIRONMENT
    environment = records.read_sealed(path) if path.exists() else {}
    return RunView(folder.resolve().name, config, (), (), folder, environment, finished)


def view_of(outcome: RunRecords) -> RunView:
    """Return the view of records from Python."""
    if outcome.folder is not None:
        return load_view(outcome.folder)
    config = read_written(outcome.config, "the records")
    return RunView(Path(config.dataset).stem, config, outcome.rounds, outcome.events)


def check_rounds(view: RunView) -> None:
    """Raise an error unless a round is finished."""
    if not view.rounds:
        where = view.folder or view.name
        raise EbbflowError(
            f"{where} holds no rounds yet: let it run on, or start it by `ebbflow resume {where}`"
        )
