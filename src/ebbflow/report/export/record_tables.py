"""Tables of what was recorded: rounds, sessions, devices, and where sessions started."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ebbflow.analysis.views.origins import origins
from ebbflow.analysis.views.presence import presence
from ebbflow.analysis.views.run_view import RunView, key_of
from ebbflow.report.export.columns import (
    ALGORITHM,
    KEY,
    METHOD,
    SEED,
    SESSION,
    TRANSITION,
    Column,
    ExportRow,
    number,
    text,
    whole,
)
from ebbflow.runs.summary import Key, transition

LOSS = number("loss", "mean loss on the session's test samples")


def _measures(views: Sequence[RunView]) -> tuple[str, ...]:
    """Return the measures that runs are judged by, and then the others that were recorded."""
    judged = [view.judge.name for view in views]
    others = [name for view in views for r in view.rounds for name in r.measures or ()]
    return tuple(dict.fromkeys([*judged, *others]))


def _scores(views: Sequence[RunView], about: str) -> tuple[Column, ...]:
    """Return a column for each measure that some run is judged by."""
    names = dict.fromkeys(view.judge.name for view in views)
    return tuple(number(name, about) for name in names)


def keyed(view: RunView, key: Key) -> ExportRow:
    """Return the cells that identify a session of a method."""
    return {**key._asdict(), "transition": transition(key.session, view.config.pilot.sessions)}


def in_order(view: RunView, keys: Iterable[Key]) -> list[Key]:
    """Return sessions of methods in the order of the settings."""
    algorithms, methods = view.config.algorithm, view.config.methods
    return sorted(
        keys, key=lambda k: (algorithms.index(k.algorithm), methods.index(k.method), *k[2:])
    )


def round_columns(views: Sequence[RunView]) -> tuple[Column, ...]:
    """Return the columns of the table of rounds."""
    return (
        *KEY,
        whole("round", "the round of the session, from 1 on"),
        *(number(name, "on the session's test samples") for name in _measures(views)),
        LOSS,
        number("lr", "the rate of the devices' steps"),
        whole("devices", "devices in the session"),
        whole("participants", "devices that trained in the round"),
    )


def round_rows(view: RunView) -> Iterator[ExportRow]:
    """Yield what each method achieved in each round."""
    for r in view.rounds:
        yield {
            **keyed(view, Key(r.algorithm, r.method, r.seed, r.session)),
            "round": r.round,
            **(r.measures or {}),
            view.judge.name: r.accuracy,
            "loss": r.loss,
            "lr": r.lr,
            "devices": r.devices,
            "participants": r.participants,
        }


def session_columns(views: Sequence[RunView]) -> tuple[Column, ...]:
    """Return the columns of the table of sessions."""
    return (
        SEED,
        SESSION,
        TRANSITION,
        whole("rounds", "rounds of training"),
        whole("devices", "devices in the session"),
        whole("joined", "of these, never here before"),
        whole("returned", "of these, here before, but not in the last session"),
        whole("left", "devices of the last session that are not here"),
        whole("samples", "training samples of all devices"),
        text("labels", "labels that the devices hold, comma-separated"),
    )


def session_rows(view: RunView) -> Iterator[ExportRow]:
    """Yield what each session consists of; it is the same for all methods."""
    for seed in view.seeds:
        for facts in presence(view, seed).sessions:
            yield {
                "seed": seed,
                **facts._asdict(),
                "labels": ", ".join(view.label_name(label) for label in facts.labels),
            }


def device_columns(views: Sequence[RunView]) -> tuple[Column, ...]:
    """Return the columns of the table of devices."""
    return (
        *KEY,
        whole("device", "the device's number"),
        text("name", "what the device is called"),
        text("visit", "joined (for the first time), stayed, or returned"),
        whole("samples", "training samples in this session"),
        *_scores(views, "of the session's final model on the device's own test samples, if any"),
    )


def device_rows(view: RunView) -> Iterator[ExportRow]:
    """Yield who was in each session, and how well its final model suits each device."""
    tested: dict[Key, dict[str, Any]] = {
        key_of(event): event.get("each", {}) for event in view.events if event["event"] == "tested"
    }
    visits = {}
    for seed in view.seeds:
        there = presence(view, seed)
        visits[seed] = dict(zip(there.devices, there.visits, strict=True))
    for key in in_order(view, view.starts):
        if key.seed not in visits:
            continue
        event = view.starts[key]
        each = tested.get(key, {})
        samples = dict(zip(event["devices"], event.get("samples", ()), strict=False))
        for device in event["devices"]:
            yield {
                **keyed(view, key),
                "device": device,
                "name": view.device_name(key.seed, device),
                "visit": visits[key.seed][device][key.session],
                "samples": samples.get(device),
                view.judge.name: each.get(str(device)),
            }


def start_columns(views: Sequence[RunView]) -> tuple[Column, ...]:
    """Return the columns of the table of starts."""
    return (
        ALGORITHM,
        METHOD,
        SEED,
        SESSION,
        TRANSITION,
        text("part", "a model that the start is mixed from, as in `final 3` or `carried`"),
        number("weight", "its weight in the mixture"),
        number("distance", "how far the signature of its session is, where measured"),
        *_scores(views, "of the start on the session's test samples, before any training"),
        LOSS,
        whole("probe_rounds", "auxiliary rounds before the start"),
        whole("asked", "devices that were asked about mixtures"),
    )


def start_rows(view: RunView) -> Iterator[ExportRow]:
    """Yield the parts that each start was mixed from."""
    found = {origin.key: origin for origin in origins(view)}
    for origin in (found[key] for key in in_order(view, found)):
        event = view.starts[origin.key]
        distances = {f"final {z}": value for z, value in origin.distances.items()}
        for part in dict.fromkeys([*origin.parts, *distances]):
            yield {
                **keyed(view, origin.key),
                "part": part,
                "weight": origin.parts.get(part, 0.0),
                "distance": distances.get(part),
                view.judge.name: event["accuracy"],
                "loss": event["loss"],
                "probe_rounds": event["probe_rounds"],
                "asked": len(event.get("asked", ())),
            }
