"""What a run costs on the air, by its records and ``[wireless]``, and what one round would cost."""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from ebbflow.analysis.accounting import VALUES, basis_bytes, payload, sends_pilot
from ebbflow.analysis.cost import (
    MODELS,
    Errand,
    ModelSize,
    RoundCost,
    device_costs,
    draw_fleet,
    round_cost,
    sized_task,
    together,
    total,
)
from ebbflow.analysis.device_work import (
    RoundWork,
    SessionDevices,
    probe_work,
    recorded_devices,
    training_work,
)
from ebbflow.analysis.metrics import REFERENCE, Target, time_to_accuracy
from ebbflow.analysis.survey_costs import Survey, recorded_survey, survey_cost
from ebbflow.config.defaults import SETTINGS
from ebbflow.config.resolved import Config
from ebbflow.config.schema import StepCount, Wireless
from ebbflow.core import counters
from ebbflow.core.counters import FLOAT, Cost, Payload
from ebbflow.core.errors import EbbflowError, EbbflowWarning
from ebbflow.core.judging import judge_of
from ebbflow.core.rng import Name
from ebbflow.runs.checkpoint import check_complete
from ebbflow.runs.records import Round, read_events, read_rounds
from ebbflow.runs.summary import Key, transition
from ebbflow.starts import STARTS

SWEEPS: dict[str, tuple[float, ...]] = {
    "bandwidth": (50e6, 75e6, 100e6, 125e6, 150e6, 175e6, 200e6),
    "devices": (10, 25, 50, 100, 150, 200),
    "speed": (1, 2, 5, 10, 15, 20, 30),
}
"""What a sweep can vary, and the values it takes."""

TRAINING = (counters.PILOT, counters.MAIN)
PROBING = (counters.PROBE,)
UNEQUAL = (
    "the run did not record how many samples each device holds, so every device is charged with "
    "the mean: if devices are unequal, the slowest takes longer than this latency"
)


# --- the model -----------------------------------------------------------------------------------


def model_size(config: Config) -> ModelSize:
    """Return N_p and phi: as given in ``[wireless]``, else from the paper's table, else counted."""
    given = config.wireless
    if given.parameters is not None and given.complexity is not None:
        return ModelSize(given.parameters, given.complexity)
    known = _own_size(config)
    return ModelSize(given.parameters or known.parameters, given.complexity or known.complexity)


def _own_size(config: Config) -> ModelSize:
    """Return the size of the model that is trained, whatever ``[wireless]`` says."""
    kind = config.model.kind
    usual = config.dataset in MODELS and kind == SETTINGS[config.dataset].model
    return MODELS[config.dataset] if usual and kind not in config.parameters else _counted(config)


def _counted(config: Config) -> ModelSize:
    # Only models that are not in the table have to be built, and need torch.
    from ebbflow.data import datasets  # noqa: PLC0415
    from ebbflow.models import MODELS as BUILDERS  # noqa: PLC0415
    from ebbflow.models import flops  # noqa: PLC0415

    builder = BUILDERS.find(config.model.kind, "model.kind")
    try:
        choices = datasets.chosen(config.data, task=config.task)
        data = datasets.load(config.dataset, limit_train=1, limit_test=1, choices=choices)
    except EbbflowError as error:
        raise EbbflowError(
            f"the model of {config.dataset} cannot be counted ({error}), or set "
            "wireless.parameters and wireless.complexity"
        ) from None
    x = data.train.x[:1]
    given = config.parameters.get(builder.name, {})
    model = builder.build(given, tuple(x.shape[1:]), data.classes)
    operations = flops(model, x.long() if model.hints.bag_of_words is not None else x.float())
    return ModelSize(model.layout.total, operations / model.layout.total)


def task_of(config: Config, model: ModelSize, algorithm: str) -> Errand:
    """Return the task of a round by the configuration: e steps of B samples.

    Where the number of steps is drawn from a range, it is the middle of the range.
    """
    samples = _asked(config.local.steps, config.local.batch)
    return sized_task(config.wireless, model, payload(algorithm, model.parameters), samples)


def _asked(steps: StepCount, batch: int) -> float:
    """Return the samples that a device is asked to train on in a round."""
    mean = sum(steps) / 2 if isinstance(steps, list) else steps
    return mean * batch


# --- a run ---------------------------------------------------------------------------------------


class Usage(NamedTuple):
    """What one method spent in one session: each of its rounds, all probe rounds, the survey.

    ``accuracies`` are those after each round, ``participants`` is the number of devices in the
    largest round. ``sends_pilot`` says whether the survey sent the pilot model.
    """

    algorithm: str
    method: str
    seed: int
    session: int
    participants: int
    accuracies: tuple[float, ...]
    rounds: tuple[RoundCost, ...]
    probe: RoundCost
    survey: RoundCost = RoundCost()
    sends_pilot: bool = False


class Reached(NamedTuple):
    """When a method reached the target in a session, and what it had spent by then.

    ``rounds`` is T_rho, or None if the target was not reached. ``training`` is the cost of these
    rounds, ``probe`` that of the session's auxiliary rounds, ``survey`` that of asking devices.
    ``pilot`` is the session's share of the pilot sessions, their (S - P)-th part, if the
    method uses them.
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
    survey: RoundCost
    pilot: RoundCost


def run_costs(config: Config, model: ModelSize, folder: Path) -> list[Usage]:
    """Return what every method of a run spent in every session."""
    check_complete(folder)
    rounds = read_rounds(folder)
    if not rounds:
        raise EbbflowError(f"{folder} holds no finished round yet: wait, or resume the run")
    return usages(config, model, rounds, read_events(folder))


def usages(
    config: Config, model: ModelSize, rounds: Iterable[Round], events: Iterable[Mapping[str, Any]]
) -> list[Usage]:
    """Return what every method spent in every session, from the records of a run.

    What is sent is what the run recorded, and the work of a device follows from the samples that it
    holds. Devices are placed by name (`draw_fleet`), so all methods see the same channel.
    """
    judge = judge_of(config.task, config.metrics)
    starts, counted = _starts_and_costs(events)
    curves: dict[Key, list[Round]] = {}
    for r in rounds:
        curves.setdefault(Key(r.algorithm, r.method, r.seed, r.session), []).append(r)
    recorded = _recorded_payloads(config, counted)
    surveys = _surveys(config, model, starts, counted)

    @cache
    def work_of(present: SessionDevices, t: int, count: int | None) -> RoundWork:
        if count is None:
            return probe_work(config, present, t)
        return training_work(config, present, t, count)

    @cache
    def cost_of(
        seed: int, session: int, t: Name, work: RoundWork, sent: Payload, mean: float
    ) -> RoundCost:
        fleet = draw_fleet(config.wireless, work.devices, seed, session, t)
        samples = mean if work.samples is None else work.samples
        task = sized_task(config.wireless, model, sent, samples)
        return round_cost(config.wireless, fleet, task)

    spent = []
    for key, curve in curves.items():
        start, stages = starts.get(key), counted.get(key, {})
        where = key.seed, key.session
        if start is None:
            present = SessionDevices(*where, tuple(range(curve[0].devices)))
        else:
            present = recorded_devices(start)
        if present.samples is None and stages:
            warnings.warn(UNEQUAL, EbbflowWarning, stacklevel=2)
        usual = payload(key.algorithm, model.parameters)
        sent, sent_probing = (
            recorded.get((key.algorithm, key.method, names), usual) for names in (TRAINING, PROBING)
        )
        mean, mean_probing = _mean_samples(config, stages)
        costs = tuple(
            cost_of(*where, r.round, work_of(present, r.round, r.participants), sent, mean)
            for r in curve
        )
        probes = [
            cost_of(*where, f"probe-{v}", work_of(present, v, None), sent_probing, mean_probing)
            for v in range(1, int((start or {}).get("probe_rounds", 0)) + 1)
        ]
        accuracies = tuple(judge.rising(r.accuracy) for r in curve)
        most = max(r.participants for r in curve)
        survey = surveys.get(key)
        spent.append(
            Usage(
                *key,
                most,
                accuracies,
                costs,
                total([RoundCost(), *probes]),
                survey_cost(config.wireless, model, survey, *where) if survey else RoundCost(),
                sends_pilot(start or {}),
            )
        )
    return spent


def mean_tasks(config: Config, model: ModelSize, folder: Path, algorithm: str) -> dict[str, Errand]:
    """Return the task of a mean device in a round of training by method, from a run's records."""
    _, counted = _starts_and_costs(read_events(folder))
    payloads = _recorded_payloads(config, counted)
    usual = payload(algorithm, model.parameters)
    tasks = {}
    for method in config.methods:
        stages: counters.Costs = {}
        for key, costs in counted.items():
            if (key.algorithm, key.method) == (algorithm, method):
                for stage, cost in costs.items():
                    stages = counters.charged(stages, stage, cost)
        sent = payloads.get((algorithm, method, TRAINING), usual)
        samples, _ = _mean_samples(config, stages)
        tasks[method] = sized_task(config.wireless, model, sent, samples)
    return tasks


def _starts_and_costs(
    events: Iterable[Mapping[str, Any]],
) -> tuple[dict[Key, Mapping[str, Any]], dict[Key, counters.Costs]]:
    """Return the events "start" and the counted costs of a run by session."""
    starts: dict[Key, Mapping[str, Any]] = {}
    counted: dict[Key, counters.Costs] = {}
    for event in events:
        if event["event"] in ("start", counters.EVENT):
            key = Key(event["algorithm"], event["method"], event["seed"], event["session"])
            if event["event"] == "start":
                starts[key] = event
            else:
                counted[key] = counters.read(event["stages"])
    return starts, counted


def _recorded_payloads(
    config: Config, counted: Mapping[Key, counters.Costs]
) -> dict[tuple[str, str, tuple[str, ...]], Payload]:
    """Return the bytes of an upload and of a broadcast by algorithm, method and kind of round."""
    payloads: dict[tuple[str, str, tuple[str, ...]], Payload] = {}
    for key, stages in counted.items():
        for names in (TRAINING, PROBING):
            cost = sum((stages[name] for name in names if name in stages), start=Cost())
            if cost.bytes_up and cost.bytes_down:
                payloads[key.algorithm, key.method, names] = Payload(
                    cost.bytes_up // cost.uploads, cost.bytes_down // cost.broadcasts
                )
    if not payloads or config.wireless.parameters is None:
        return payloads
    # The user asks what a model of another size would cost.
    scale = config.wireless.parameters / _own_size(config).parameters
    return {
        name: Payload(round(scale * sent.up), round(scale * sent.down))
        for name, sent in payloads.items()
    }


def _surveys(
    config: Config,
    model: ModelSize,
    starts: Mapping[Key, Mapping[str, Any]],
    counted: Mapping[Key, counters.Costs],
) -> dict[Key, Survey]:
    """Return the surveys of a run by session.

    A session under way is charged with what the method's last survey counted.
    """
    asking = {key: start for key, start in starts.items() if start.get("asked")}
    if not asking:
        return {}
    own = model if config.wireless.parameters is None else _own_size(config)
    last = {key[:2]: stages for key, stages in counted.items() if counters.SURVEY in stages}
    surveys = {}
    for key, start in asking.items():
        stages = counted.get(key) or last.get(key[:2], {})
        if counters.SURVEY in stages:
            surveys[key] = recorded_survey(
                config.wireless,
                start,
                stages[counters.SURVEY],
                sizes=_basis_sizes(config, own.parameters, key, stages),
                scale=model.parameters / own.parameters,
                holders=partial(_final_holders, config, starts, key),
            )
    return surveys


def _basis_sizes(
    config: Config, parameters: int, key: Key, stages: counters.Costs
) -> tuple[int, ...]:
    """Return the bytes of each model of a survey; none, if its compression is not known."""
    usual = STARTS[key.method].defaults if key.method in STARTS else {}
    compression: Any = {**usual, **config.parameters.get(key.method, {})}.get("compression")
    if compression not in VALUES:
        return ()
    main = stages.get(counters.MAIN, Cost())
    sent = main.bytes_down // max(1, main.broadcasts)
    buffers = max(0, sent - payload(key.algorithm, parameters).down) // FLOAT
    return basis_bytes(parameters, stages[counters.SURVEY].broadcasts, compression, buffers)


def _final_holders(
    config: Config, starts: Mapping[Key, Mapping[str, Any]], key: Key, session: int
) -> Collection[int]:
    """Return the devices that hold a past session's final model, as they took part in it."""
    if session == config.pilot.sessions and not config.pilot.carry_over:
        return ()  # what comes after it starts afresh
    return frozenset(starts.get(key._replace(session=session), {}).get("devices", ()))


def _mean_samples(config: Config, stages: counters.Costs) -> tuple[float, float]:
    """Return the mean samples of a device in a round of training, and in one of the probe."""
    means = []
    for names, local in ((TRAINING, config.local), (PROBING, config.probe)):
        cost = sum((stages[name] for name in names if name in stages), start=Cost())
        asked = _asked(local.steps, local.batch)
        means.append(cost.samples / cost.uploads if cost.uploads else asked)
    return means[0], means[1]


def reached(config: Config, spent: Sequence[Usage], target: Target) -> list[Reached]:
    """Return when each method reached the target, for every session after the pilot.

    A share refers to the accuracy of `REFERENCE` in the same session under the same seed, or, if
    that was not run, of the method with the highest accuracy.
    """
    judge = judge_of(config.task, config.metrics)
    if target.of is None:
        target = Target(judge.rising(target.value), None)
    curves: dict[tuple[str, int, int], tuple[float, ...]] = {}
    has_reference = {usage.algorithm for usage in spent if usage.method == REFERENCE}
    for usage in spent:
        if usage.method == REFERENCE or usage.algorithm not in has_reference:
            where = usage.algorithm, usage.seed, usage.session
            curves[where] = max(curves.get(where, ()), usage.accuracies, key=_highest)
    pilot, sessions = config.pilot.sessions, max(usage.session for usage in spent)
    pilots: dict[tuple[str, str, int], list[RoundCost]] = {}
    users = {usage[:3] for usage in spent if usage.probe != RoundCost() or usage.sends_pilot}
    for usage in spent:
        if usage.session <= pilot and (config.pilot.carry_over or usage[:3] in users):
            pilots.setdefault(usage[:3], []).extend(usage.rounds)
    results = []
    for usage in spent:
        if usage.session <= pilot:
            continue
        goal = target.level(curves[usage.algorithm, usage.seed, usage.session])
        first = time_to_accuracy(usage.accuracies, goal)
        rounds = int(first) if math.isfinite(first) else None
        shared = total([RoundCost(), *pilots.get(usage[:3], [])]).times(1 / (sessions - pilot))
        results.append(
            Reached(
                *usage[:4],
                transition(usage.session, pilot),
                judge.rising(goal),
                rounds,
                total([RoundCost(), *usage.rounds[: rounds or 0]]),
                usage.probe,
                usage.survey,
                shared,
            )
        )
    return results


def _highest(curve: Sequence[float]) -> float:
    return max(curve, default=-math.inf)


# --- without a run -------------------------------------------------------------------------------


class RoundEstimate(NamedTuple):
    """The mean cost of a round over many draws, and the standard deviation of its latency.

    ``down``, ``computation`` and ``up`` are the mean seconds of a device.
    """

    cost: RoundCost
    deviation: float
    draws: int
    down: float
    computation: float
    up: float

    @property
    def error(self) -> float:
        """The standard error of the mean latency."""
        return self.deviation / math.sqrt(self.draws)


def estimate(
    wireless: Wireless, task: Errand, devices: int, *, seed: int = 100, draws: int = 20
) -> RoundEstimate:
    """Return the mean cost of a round over draws of positions, shadowing and fading."""
    costs, parts = [], []
    for t in range(1, draws + 1):
        fleet = draw_fleet(wireless, range(devices), seed, 1, t)
        each = device_costs(wireless, fleet, task)
        costs.append(together(wireless, task, each))
        parts.append((each.down.mean(), each.computation.mean(), each.up.mean()))
    latencies = [cost.latency for cost in costs]
    return RoundEstimate(
        total(costs).times(1 / draws),
        statistics.stdev(latencies) if draws > 1 else math.nan,
        draws,
        *(float(math.fsum(column) / draws) for column in zip(*parts, strict=True)),
    )


class SweepPoint(NamedTuple):
    """One value of the quantity that is varied, one method, and the cost of its rounds."""

    value: float
    method: str
    cost: RoundCost


def sweep(
    config: Config,
    task: Errand,
    variable: str,
    rounds: Mapping[str, float],
    *,
    devices: int,
    draws: int = 20,
) -> list[SweepPoint]:
    """Return the cost of ``rounds`` of each method for every value of one quantity.

    The speed of devices matters only if every slot is followed, so a sweep over it does that.
    """
    points = []
    for value in SWEEPS[variable]:
        changed: dict[str, Any] = {variable: value} if variable in Wireless.model_fields else {}
        if variable == "speed":
            changed["fading"] = "slots"
        wireless = config.wireless.model_copy(update=changed)
        count = int(value) if variable == "devices" else devices
        cost = estimate(wireless, task, count, seed=config.seeds[0], draws=draws).cost
        points += [SweepPoint(value, method, cost.times(times)) for method, times in rounds.items()]
    return points
