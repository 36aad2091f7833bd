"""Warnings and events: what a reader should know before trusting a number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypedDict

from ebbflow.analysis.views.run_view import Event, RunView, key_of
from ebbflow.core.names import listed
from ebbflow.report.page.plain import text
from ebbflow.report.page.presence_data import ranges
from ebbflow.runs.summary import Key

MOST_ROWS = 1000
LONGEST_TEXT = 900
NAMED = 6
"""Devices and reasons that a sentence names."""

Kind = Literal["ended", "warning", "left out", "note"]


class EventFacts(TypedDict):
    """Something that happened; ``where`` says to which methods, under which seed and when."""

    kind: Kind
    where: str
    text: str


class EventSection(TypedDict):
    """What happened; ``left_out`` counts what the page does not show."""

    left_out: int
    rows: list[EventFacts]


class _Entry(NamedTuple):
    kind: Kind
    text: str
    algorithm: str = ""
    methods: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    sessions: tuple[int, ...] = ()
    round: int | None = None


def event_section(view: RunView) -> EventSection:
    """Return warnings and events; what happened to several methods or under several seeds, once."""
    order: tuple[Kind, ...] = ("ended", "warning", "left out", "note")
    told = _once(_told(view))
    rows = [
        EventFacts(kind=entry.kind, where=_where(view, entry), text=text(entry.text, LONGEST_TEXT))
        for entry in sorted(told, key=lambda entry: order.index(entry.kind))
    ]
    return EventSection(left_out=max(0, len(rows) - MOST_ROWS), rows=rows[:MOST_ROWS])


def _told(view: RunView) -> Iterator[_Entry]:
    """Yield each thing that happened, by itself."""
    lost: dict[Key, list[Event]] = {}
    for event in view.events:
        kind = event["event"]
        if kind == "left_out":
            lost.setdefault(key_of(event), []).append(event)
        elif kind == "note":
            # What is done to the data is the same under every seed.
            yield _Entry("note", event["text"])
        elif kind in ("ended", "warning"):
            yield _Entry(
                "ended" if kind == "ended" else "warning",
                event["text"],
                event.get("algorithm", ""),
                (event["method"],) if "method" in event else (),
                (event["seed"],) if "seed" in event else (),
                (event["session"],) if "session" in event else (),
                event.get("round"),
            )
    for key, events in lost.items():
        words = _left_out(view, events)
        yield _Entry("left out", words, key.algorithm, (key.method,), (key.seed,), (key.session,))


def _once(entries: Iterable[_Entry]) -> list[_Entry]:
    """Return one entry for all that differ only in methods, then in seeds, then in sessions."""
    by_method: dict[_Entry, list[str]] = {}
    for entry in entries:
        by_method.setdefault(entry._replace(methods=()), []).extend(entry.methods)
    by_seed: dict[_Entry, list[int]] = {}
    for entry, methods in by_method.items():
        alike = entry._replace(methods=tuple(dict.fromkeys(methods)), seeds=())
        by_seed.setdefault(alike, []).extend(entry.seeds)
    by_session: dict[_Entry, list[int]] = {}
    for entry, seeds in by_seed.items():
        alike = entry._replace(seeds=tuple(seeds), sessions=())
        by_session.setdefault(alike, []).extend(entry.sessions)
    return [entry._replace(sessions=tuple(own)) for entry, own in by_session.items()]


def _where(view: RunView, entry: _Entry) -> str:
    everybody = len(entry.methods) == len(view.config.methods) > 1
    seeds = "all seeds" if len(entry.seeds) == len(view.config.seeds) > 1 else ""
    if entry.seeds and not seeds:
        seeds = f"seed{'s' if len(entry.seeds) > 1 else ''} {', '.join(map(str, entry.seeds))}"
    parts = [
        entry.algorithm if len(view.config.algorithm) > 1 else "",
        "all methods" if everybody else ", ".join(entry.methods),
        seeds,
        _session_words(entry.sessions),
        "" if entry.round is None else f"round {entry.round}",
    ]
    return ", ".join(part for part in parts if part)


def _session_words(sessions: Sequence[int]) -> str:
    if len(sessions) > 1:
        return f"sessions {ranges(sessions)}"
    return f"session {sessions[0]}" if sessions else ""


def _left_out(view: RunView, events: Sequence[Event]) -> str:
    """Return what a session of one method went without, in a sentence."""
    seed = events[0]["seed"]
    devices = Counter(view.device_name(seed, d) for e in events for d in e["devices"])
    reasons = Counter(reason for e in events for reason in e["reasons"])
    abandoned = sum(e["abandoned"] for e in events)
    updates = sum(devices.values())
    why = listed([f"{text(r, 80)} ({n})" for r, n in reasons.most_common()], NAMED)
    who = listed([f"{text(d, 40)} ({n}×)" for d, n in devices.most_common()], NAMED)
    opening = f"{_counted(updates, 'update')} left out in {_counted(len(events), 'round')}"
    ending = f"; {_counted(abandoned, 'round')} abandoned" if abandoned else ""
    return f"{opening}{ending}: {why}. Devices: {who}."


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
