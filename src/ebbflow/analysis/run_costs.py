"""What a run costs on the air, from its records and ``[wireless]``, and what a round would cost."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ebbflow.analysis.cost import (
    MODELS,
    ModelSize,
    RoundCost,
    Task,
    device_costs,
    draw_fleet,
    round_cost,
    round_task,
    together,
    total,
)
from ebbflow.analysis.metrics import Target, time_to_accuracy
from ebbflow.config.defaults import SETTINGS
from ebbflow.config.resolved import Config
from ebbflow.config.schema import Wireless
from ebbflow.core import counters
from ebbflow.core.errors import EbbflowError
from ebbflow.core.rng import Name, generator
from ebbflow.runs.records import EVENTS, Round, read_lines, read_rounds
from ebbflow.runs.summary import transition

REFERENCE = "warm_start"
"""The method whose best accuracy in a session sets the target."""
SWEEPS: dict[str, tuple[float, ...]] = {
    "bandwidth": (50e6, 75e6, 100e6, 125e6, 150e6, 175e6, 200e6),
    "devices": (10, 25, 50, 100, 150, 200),
    "speed": (1, 2, 5, 10, 15, 20, 30),
}
"""What is varied in a sweep, and its values."""


# --- the model -----------------------------------------------------------------------------------


def model_size(config: Config) -> ModelSize:
    """Return N_p and phi: as ``[wireless]`` says, as the paper's table says, or counted."""
    given = config.wireless
    if given.parameters is not None and given.complexity is not None:
        return ModelSize(given.parameters, given.complexity)
    kind = config.model.kind or ""
    usual = config.dataset in MODELS and kind == SETTINGS[config.dataset].model
    known = MODELS[config.dataset] if usual and kind not in config.parameters else _counted(config)
    return ModelSize(given.parameters or known.parameters, given.complexity or known.complexity)


def _counted(config: Config) -> ModelSize:
    # Torch is needed for models that the table does not hold, and for no others.
    from ebbflow.data import datasets  # noqa: PLC0415
    from ebbflow.models import MODELS as BUILDERS  # noqa: PLC0415
    from ebbflow.models import flops  # noqa: PLC0415

    builder = BUILDERS.find(config.model.kind, "model.kind")
    try:
        data = datasets.load(config.dataset, limit_train=1, limit_test=1)
    except EbbflowError as error:
        raise EbbflowError(
            f"the model of {config.dataset} cannot be counted ({error}), or set "
            "wireless.parameters and wireless.complexity"
        ) from None
    x = data.train.x[:1]
    given = config.parameters.get(builder.name, {})
    model = builder.build(given, tuple(x.shape[1:]), data.classes)
    operations = flops(model, x.long() if model.bags is not None else x.float())
    return ModelSize(model.layout.total, operations / model.layout.total)


def task_of(config: Config, model: ModelSize, algorithm: str, *, probe: bool = False) -> Task:
    """Return what a device does in a round: e steps of B samples, the mean of a range of steps."""
    local = config.probe if probe else config.local
    steps = local.steps or 1
    mean = steps if isinstance(steps, int) else sum(steps) / 2
    batch = local.batch or 1
    return round_task(config.wireless, model, algorithm=algorithm, steps=mean, batch=batch)


# --- a run ---------------------------------------------------------------------------------------


class Usage(NamedTuple):
    """What one method spent in one session: its rounds, each with the accuracy, and its probe.

    ``participants`` are those of the largest round.
    """

    algorithm: str
    method: str
    seed: int
    session: int
    participants: int
    accuracies: tuple[float, ...]
    rounds: tuple[RoundCost, ...]
    probe: RoundCost


class Reached(NamedTuple):
    """When a method reached the target in a session, and what it had spent by then.

    ``rounds`` is T_rho, or None where the target was not reached; ``training`` is what these rounds
    cost, ``probe`` the session's auxiliary rounds, ``pilot`` its share of the pilot sessions: the
    (S - P)-th part of them, for whoever uses them.
    """

    algorithm: str
    method: str
    seed: int
    session: int
    transition: int | None
    goal: float
    rounds: int | None
    training: RoundCost
    probe: RoundCost
    pilot: RoundCost


def run_costs(config: Config, model: ModelSize, folder: Path) -> list[Usage]:
    """Return what every method of a run spent in every session."""
    rounds = read_rounds(folder)
    if not rounds:
        raise EbbflowError(f"{folder} holds no finished round yet: wait, or resume the run")
    return usages(config, model, rounds, list(read_lines(folder / EVENTS)))


def usages(
    config: Config, model: ModelSize, rounds: Iterable[Round], events: Iterable[Mapping[str, Any]]
) -> list[Usage]:
    """Return what every method spent in every session, from the records of a run.

    Devices are where `draw_fleet` puts them by name, so methods that are compared see one channel.
    """
    starts: dict[tuple[str, str, int, int], Mapping[str, Any]] = {}
    counted: dict[tuple[str, str, int, int], Mapping[str, Any]] = {}
    for event in events:
        if event["event"] in ("start", counters.EVENT):
            key = event["algorithm"], event["method"], event["seed"], event["session"]
            (starts if event["event"] == "start" else counted)[key] = event
    curves: dict[tuple[str, str, int, int], list[Round]] = {}
    for r in rounds:
        curves.setdefault((r.algorithm, r.method, r.seed, r.session), []).append(r)

    @cache
    def cost(seed: int, session: int, t: Name, devices: tuple[int, ...], task: Task) -> RoundCost:
        fleet = draw_fleet(config.wireless, devices, seed, session, t)
        return round_cost(config.wireless, fleet, task)

    found = []
    for key, curve in curves.items():
        group, method, seed, session = key
        distils = (
            method == "continuous"
            and config.parameters.get("continuous", {}).get("base", "fedavg") == "fedavg"
        )
        algorithm = "fedavg" if distils else group
        start = starts.get(key, {})
        present = tuple(start.get("devices") or range(curve[0].devices))
        stages = counters.read(counted[key]["stages"]) if key in counted else {}
        training = _task(config, model, algorithm, stages)
        spent = tuple(
            cost(seed, session, r.round, _taking_part(config, present, r), training) for r in curve
        )
        auxiliary = _task(config, model, algorithm, stages, probe=True)
        drawn = _drawn(config, present, seed, session, 0, "probe-participants", config.probe.share)
        probes = [
            cost(seed, session, f"probe-{v}", drawn, auxiliary)
            for v in range(1, int(start.get("probe_rounds", 0)) + 1)
        ]
        accuracies = tuple(r.accuracy for r in curve)
        most = max(r.participants for r in curve)
        found.append(Usage(*key, most, accuracies, spent, total([RoundCost(), *probes])))
    return found


def _task(
    config: Config,
    model: ModelSize,
    algorithm: str,
    stages: counters.Costs,
    *,
    probe: bool = False,
) -> Task:
    """Return what a device did in a round: by what the run counted, where it did, else by e B."""
    names = (counters.PROBE,) if probe else (counters.PILOT, counters.MAIN)
    spent = [stages[name] for name in names if name in stages]
    uploads = sum(stage.uploads for stage in spent)
    if not uploads:
        return task_of(config, model, algorithm, probe=probe)
    samples = sum(stage.samples for stage in spent) / uploads
    return round_task(config.wireless, model, algorithm=algorithm, steps=samples, batch=1)


def _taking_part(config: Config, present: tuple[int, ...], r: Round) -> tuple[int, ...]:
    share = None if r.participants == len(present) else r.participants
    return _drawn(config, present, r.seed, r.session, r.round, "participants", share)


def _drawn(
    config: Config,
    present: tuple[int, ...],
    seed: int,
    session: int,
    t: int,
    purpose: str,
    share: float | int | None,
) -> tuple[int, ...]:
    """Return who took part, as the run drew them.

    Where larger shards are drawn more often they are others, for records hold no shards.
    """
    if share is None:
        return present
    from ebbflow.data.schedule import participants  # noqa: PLC0415 - needs torch

    draw = generator(seed, purpose, session, t)
    return participants(draw, present, [1] * len(present), share, "uniform")


def reached(config: Config, spent: Sequence[Usage], target: Target) -> list[Reached]:
    """Return for every session after the pilot when each method reached the target.

    A share is one of the warm start's accuracy in that session and under that seed; where it was
    not run, of that of the method with the highest.
    """
    curves: dict[tuple[str, int, int], tuple[float, ...]] = {}
    has_reference = {usage.algorithm for usage in spent if usage.method == REFERENCE}
    for usage in spent:
        if usage.method == REFERENCE or usage.algorithm not in has_reference:
            where = usage.algorithm, usage.seed, usage.session
            curves[where] = max(curves.get(where, ()), usage.accuracies, key=_highest)
    pilot, sessions = config.pilot.sessions, max(usage.session for usage in spent)
    pilots: dict[tuple[str, str, int], list[RoundCost]] = {}
    probing = {usage[:3] for usage in spent if usage.probe != RoundCost()}
    for usage in spent:
        if usage.session <= pilot and (config.pilot.carry_over or usage[:3] in probing):
            pilots.setdefault(usage[:3], []).extend(usage.rounds)
    found = []
    for usage in spent:
        if usage.session <= pilot:
            continue
        goal = target.level(curves[usage.algorithm, usage.seed, usage.session])
        first = time_to_accuracy(usage.accuracies, goal)
        rounds = int(first) if math.isfinite(first) else None
        shared = total([RoundCost(), *pilots.get(usage[:3], [])]).times(1 / (sessions - pilot))
        found.append(
            Reached(
                *usage[:4],
                transition(usage.session, pilot),
                goal,
                rounds,
                total([RoundCost(), *usage.rounds[: rounds or 0]]),
                usage.probe,
                shared,
            )
        )
    return found


def _highest(curve: Sequence[float]) -> float:
    return max(curve, default=-math.inf)


# --- without a run -------------------------------------------------------------------------------


class Estimate(NamedTuple):
    """A round over many draws: means, the latency's deviation, and the parts of a device's time.

    ``down``, ``computation`` and ``up`` are seconds of the mean device.
    """

    cost: RoundCost
    deviation: float
    down: float
    computation: float
    up: float


def estimate(
    wireless: Wireless, task: Task, devices: int, *, seed: int = 100, draws: int = 20
) -> Estimate:
    """Return what a round costs, over so many draws of positions, shadowing and fading."""
    costs, parts = [], []
    for t in range(1, draws + 1):
        fleet = draw_fleet(wireless, range(devices), seed, 1, t)
        found = device_costs(wireless, fleet, task)
        costs.append(together(wireless, task, found))
        parts.append((found.down.mean(), found.computation.mean(), found.up.mean()))
    latencies = [cost.latency for cost in costs]
    return Estimate(
        total(costs).times(1 / draws),
        statistics.stdev(latencies) if draws > 1 else math.nan,
        *(float(math.fsum(column) / draws) for column in zip(*parts, strict=True)),
    )


class Point(NamedTuple):
    """One value of what is varied, one method, and the cost of its rounds."""

    value: float
    method: str
    cost: RoundCost


def sweep(
    config: Config,
    task: Task,
    variable: str,
    rounds: Mapping[str, float],
    *,
    devices: int,
    draws: int = 20,
) -> list[Point]:
    """Return what so many rounds of each method cost while one thing is varied.

    The speed shows only where every slot is followed, so that is done for it.
    """
    found = []
    for value in SWEEPS[variable]:
        changed: dict[str, Any] = {variable: value} if variable in Wireless.model_fields else {}
        if variable == "speed":
            changed["fading"] = "slots"
        wireless = config.wireless.model_copy(update=changed)
        count = int(value) if variable == "devices" else devices
        cost = estimate(wireless, task, count, seed=config.seeds[0], draws=draws).cost
        found += [Point(value, method, cost.times(times)) for method, times in rounds.items()]
    return found
