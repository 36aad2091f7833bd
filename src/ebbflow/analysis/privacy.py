"""What a run has spent of its devices' privacy, added up by Google's dp-accounting.

Neighbours differ in all data of one device, which may be replaced by any other (so that a clipped
sum changes by up to 2 C, and the noise z C is z/2 times that). Every round, auxiliary round and
question of a survey is a Gaussian mechanism on the devices that were drawn for it.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ebbflow.config.resolved import Config
from ebbflow.core import counters
from ebbflow.core.errors import EbbflowError
from ebbflow.data.schedule import drawn_count
from ebbflow.runs import records
from ebbflow.runs.checkpoint import check_complete
from ebbflow.runs.configuration import read_config


class Asked(NamedTuple):
    """So many devices of all that were present were drawn, and asked ``questions`` times."""

    drawn: int
    present: int
    questions: int


class Spent(NamedTuple):
    """The epsilon of each device of a method's run, the devices in order."""

    algorithm: str
    method: str
    seed: int
    devices: tuple[int, ...]
    epsilons: tuple[float, ...]

    @property
    def most(self) -> float:
        """The epsilon of the device that revealed most."""
        return max(self.epsilons)

    @property
    def median(self) -> float:
        """The epsilon of the device in the middle."""
        return statistics.median(self.epsilons)


def privacy_spent(folder: Path, delta: float | None = None) -> tuple[list[Spent], float]:
    """Return what every method of a run has spent so far, and the delta that it holds for."""
    config = read_config(folder)
    check_complete(folder)
    if config.privacy.clip is None:
        raise EbbflowError(
            f"{folder} was run without privacy: set privacy.clip and privacy.noise in a new run"
        )
    chosen = config.privacy.delta if delta is None else delta
    exposures = _exposures(config, records.read_events(folder))
    if not exposures:
        raise EbbflowError(f"{folder} holds no finished session yet: wait, or resume the run")
    known: dict[frozenset[tuple[Asked, int]], float] = {}
    found = []
    for key, by_device in exposures.items():
        for asked in by_device.values():
            pattern = frozenset(asked.items())
            if pattern not in known:
                known[pattern] = epsilon(asked, config.privacy.noise, chosen)
        devices = sorted(by_device)
        values = tuple(known[frozenset(by_device[device].items())] for device in devices)
        found.append(Spent(*key, tuple(devices), values))
    return found, chosen


def _exposures(
    config: Config, events: Iterable[Mapping[str, Any]]
) -> dict[tuple[str, str, int], dict[int, Counter[Asked]]]:
    """Return how often every device of every method may have been asked what."""
    starts: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    found: dict[tuple[str, str, int], dict[int, Counter[Asked]]] = {}
    for event in events:
        if event["event"] not in ("start", counters.EVENT):
            continue
        key = event["algorithm"], event["method"], event["seed"]
        if event["event"] == "start":
            starts[*key, event["session"]] = event
            continue
        start = starts[*key, event["session"]]
        for device in start["devices"]:
            counted = found.setdefault(key, {}).setdefault(device, Counter())
            counted.update(_of_session(config, start, event["stages"]))
    return found


def _of_session(
    config: Config, start: Mapping[str, Any], stages: Mapping[str, Mapping[str, int]]
) -> Counter[Asked]:
    present = len(start["devices"])
    asked: Counter[Asked] = Counter()
    for stage in (counters.PILOT, counters.MAIN):
        rounds = stages.get(stage, {}).get("broadcasts", 0)
        if rounds:  # participants are drawn anew in every round
            asked[Asked(drawn_count(present, config.participation.share), present, 1)] += rounds
    probes = stages.get(counters.PROBE, {}).get("broadcasts", 0)
    if probes:  # A_grad is drawn once for all of them
        asked[Asked(drawn_count(present, config.probe.share), present, probes)] += 1
    questions = stages.get(counters.SURVEY, {}).get("questions", 0)
    if questions > 1:  # the first only sends the models
        asked[Asked(len(start.get("asked", ())), present, questions - 1)] += 1
    return asked


def epsilon(asked: Mapping[Asked, int], noise: float, delta: float) -> float:
    """Return the epsilon of a device that may have been asked all this."""
    if noise == 0:
        return math.inf
    accounting = _accounting()
    accountant = accounting.rdp.RdpAccountant(
        neighboring_relation=accounting.NeighboringRelation.REPLACE_ONE
    )
    for (drawn, present, questions), times in asked.items():
        # m answers with noise of multiplier z reveal what one with z / sqrt(m) does.
        event = accounting.GaussianDpEvent(noise / 2 / math.sqrt(questions))
        if drawn < present:
            event = accounting.SampledWithoutReplacementDpEvent(present, drawn, event)
        accountant.compose(event, times)
    return float(accountant.get_epsilon(delta))


def _accounting() -> Any:
    try:
        import dp_accounting  # noqa: PLC0415 - an extra
    except ImportError:
        raise EbbflowError(
            'adding up privacy needs the package dp-accounting: pip install "ebbflow[privacy]"'
        ) from None
    return dp_accounting
