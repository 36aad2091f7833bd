"""The configuration of an experiment: what can be said, what is refused, what the defaults are.

`resolve` fills in what depends on the data set; the result is written beside the run's records.
`ebbflow.config.merge` says how a configuration is put together from files, presets and settings.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from ebbflow.config.defaults import OWN_DATA, OWN_RATES, RATES, SETTINGS
from ebbflow.core.errors import EbbflowError
from ebbflow.data.names import ALIASES


def as_list(value: Any) -> Any:
    """Return a single value as a list of one."""
    return value if isinstance(value, list) else [value]


def _share(value: Any) -> Any:
    if isinstance(value, float) and not 0 < value <= 1:
        raise ValueError(
            "a fraction must lie above 0 and at most at 1; write a count without a point"
        )
    if isinstance(value, int) and value < 1:
        raise ValueError("a count must be at least 1")
    return value


Names = Annotated[list[str], BeforeValidator(as_list), Field(min_length=1)]
Seeds = Annotated[
    list[Annotated[int, Field(ge=0, lt=2**63)]], BeforeValidator(as_list), Field(min_length=1)
]
Count = Annotated[int, Field(ge=1)]
Counts = Annotated[list[Count], BeforeValidator(as_list), Field(min_length=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float | int | None, BeforeValidator(_share)]
StepCount = Count | Annotated[list[Count], Field(min_length=2, max_length=2)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Data(_Section):
    """Which part of the data set is used."""

    limit_train: Count | None = None
    limit_test: Count | None = None


class ModelChoice(_Section):
    """Which model is trained, and a safetensors file that its weights start from."""

    kind: str | None = None
    weights: str | None = None


class Partition(_Section):
    """Who holds which samples.

    ``devices`` is the number per session for the Dirichlet kinds and the number in all for the
    others (two_shard, half, partial_overlap, distinct), which have no use for overlap and alpha.
    ``samples`` is what each device draws from a ``pool``, where samples are not divided.
    """

    kind: str = "dirichlet"
    overlap: Annotated[float, Field(ge=0, le=1)] | None = None
    alpha: Positive = 0.3
    devices: Count | None = None
    samples: Count | None = None


class ScheduleChoice(_Section):
    """Who is here in which session.

    ``groups``: two device groups that alternate, as in the paper. ``trace``: a file of joins and
    leaves. ``random``: Poisson arrivals (by default as many as keep ``partition.devices`` present),
    random stays and returns. ``cut`` says where the last two are cut into sessions.
    """

    kind: Literal["groups", "trace", "random"] = "groups"
    file: str | None = None
    cut: Literal["interval", "change"] = "interval"
    interval: Positive = 1.0
    change: Annotated[float, Field(ge=0)] = 0.5
    min_devices: Count = 1
    round_time: Positive | None = None
    arrivals: Positive | None = None
    stay: Positive = 2.0
    return_probability: Annotated[float, Field(ge=0, le=1)] = 0.5
    away: Positive = 2.0


class Participation(_Section):
    """The paper's A^(s,t): which of those present take part in a round."""

    share: Share = None
    weighting: Literal["uniform", "weighted"] = "uniform"


class Local(_Section):
    """A device's local training: e steps (a number, or a range drawn per device and round)."""

    steps: StepCount = 5
    batch: Count | None = None
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    rule: Literal["one_pass", "each_step"] = "one_pass"
    radius: Positive | None = None


class Rate(_Section):
    """A session's first rate, and its floor as a fraction of that."""

    initial: Positive | None = None
    floor: Annotated[float, Field(ge=0, le=1)] | None = None


class LearningRate(Rate):
    """(lr0 - lr_min)(1 - t/T)^power + lr_min with lr_min = floor lr0, restarted in every session.

    ``algorithms`` holds rates of single algorithms; ``file`` a rate for every round instead.
    """

    power: Positive = 0.9
    file: str | None = None
    algorithms: dict[str, Rate] = {}


class Pilot(_Section):
    """The first P sessions and the pilot model made of them.

    ``carry_over``: session P+1 goes on from the last pilot model (the text) or starts afresh from
    the initial model (the authors' code).
    """

    sessions: Count = 1
    rounds: Count | None = None
    combine: Literal["average", "ema"] = "average"
    decay: Annotated[float, Field(ge=0, lt=1)] = 0.5
    carry_over: bool = True


class ProbeChoice(_Section):
    """The V short rounds from the pilot on a subset A_grad, whose displacement is the signature.

    ``lr``: half of the session's first rate (the authors' code), the same rate, or a number.
    """

    rounds: Count = 1
    share: Share = None
    steps: StepCount | None = None
    batch: Count | None = None
    lr: Positive | Literal["half", "same"] = "half"


# JSON has no infinity: in summary.json it is the word "inf", which a configuration may say too.
Scale = Annotated[
    float,
    Field(ge=0),
    BeforeValidator(lambda value: math.inf if value == "inf" else value),
    PlainSerializer(lambda value: "inf" if value == math.inf else value, when_used="json"),
]


class WarmStart(_Section):
    """How the signature is compared with past ones, and R, how much the distance counts.

    ``signature``: measure the distance to every past session, or first rule out by short sketches
    those that cannot count.
    """

    distance: str = "per_tensor"
    scale: Scale | None = None
    signature: Literal["exact", "sketch"] = "exact"


class Continuous(_Section):
    """Distillation from the previous model: what it counts, its temperature, its target.

    ``base``: FedAvg whatever the algorithm, as in the paper's tables, or the algorithm itself.
    ``target``: the teacher's probabilities, or mixed with the labels as in the original loss.
    ``first``: who teaches session P+1 after a fresh start: nobody, or a network of zeros, which
    holds every label for equally likely (the authors' code, whose teacher is not filled yet).
    """

    kl: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    temperature: Positive = 1.0
    base: Literal["fedavg", "algorithm"] = "fedavg"
    target: Literal["teacher", "mixed"] = "teacher"
    first: Literal["none", "uniform"] = "none"


class Boundary(_Section):
    """What becomes of an algorithm's state when a session ends.

    ``reset``: server and devices start afresh. ``keep``: devices that come back have theirs, and
    the server's is made anew from those of the devices that are here.
    """

    state: Literal["reset", "keep"] = "reset"


class HistoryChoice(_Section):
    """Which past sessions are kept: all, the last ``limit``, or the most diverse ``limit``."""

    keep: Literal["all", "last", "diverse"] = "all"
    limit: Count | None = None


class EngineChoice(_Section):
    """How the work is done; of all this only ``kind`` and ``fused`` change results, by rounding.

    ``fused``: whether softmax regression uses the native kernel, where that was built.
    ``state_memory``: MiB of what a method's devices remember, beyond which a mapped file holds it.
    """

    kind: Literal["vectorised", "sequential"] = "vectorised"
    block: Count | None = None
    workers: Count | None = None
    fused: bool = True
    state_memory: Annotated[int, Field(ge=0)] = 256


class Checkpoint(_Section):
    """How often the run is saved within a session (it always is at a session's end)."""

    seconds: Positive = 30.0


# One value for all devices, or a list dealt out in turn: device k has number k mod n of it.
PerDevice = Positive | Annotated[list[Positive], Field(min_length=1)]
Speeds = NotNegative | Annotated[list[NotNegative], Field(min_length=1)]


class Wireless(_Section):
    """What a round costs on the air: the paper's table Simulation Parameters, in SI units.

    Nothing here changes what is learned: `ebbflow cost` reads it. Values that may differ by device
    take a list, dealt out in turn. ``allocation``: the system's ``bandwidth`` W shared equally by
    the participants, shared so that all finish together, or W for every device. ``parameters`` and
    ``complexity`` are N_p and phi, by default those of the paper's table or counted on the model.
    """

    carrier: Positive = 3.5e9
    radius: Positive = 250.0
    min_distance: Positive = 10.0
    distance: PerDevice | None = None
    height_server: Positive = 10.0
    height_device: Positive = 1.5
    height_environment: NotNegative = 1.0
    shadowing: NotNegative = 4.0
    speed: Speeds = 10.0
    redraw: Literal["round", "session", "run"] = "round"
    bandwidth: Positive = 100e6
    allocation: Literal["equal", "finish_together", "per_device"] = "equal"
    noise: Annotated[float, Field(allow_inf_nan=False)] = -174.0
    power_server: Positive = 20.0
    power_device: PerDevice = 0.2
    power_receive: PerDevice = 0.1
    slot: Positive = 0.5e-3
    fading: Literal["auto", "slots", "ergodic"] = "auto"
    cpu: PerDevice = 1e9
    flops_per_cycle: PerDevice = 8.0
    capacitance: PerDevice = 1e-28
    parameters: Count | None = None
    complexity: Positive | None = None
    passes: Positive = 1.0
    compression: Literal["none", "fp16", "int8"] = "none"
    latency: Literal["slowest", "mean"] = "slowest"


class Config(_Section):
    """One experiment: every combination of methods, algorithms and seeds on one setting."""

    dataset: str = "digits"
    algorithm: Names = ["fedavg"]
    methods: Names = ["warm_start", "previous", "average"]
    seeds: Seeds = [100, 200, 300]
    sessions: Count = 7
    rounds: Count | None = None
    window: Counts = [10]
    device: str = "cpu"
    precision: Literal["fp32", "bf16"] = "fp32"
    parameters: dict[str, dict[str, bool | int | float | str]] = {}
    data: Data = Data()
    model: ModelChoice = ModelChoice()
    partition: Partition = Partition()
    schedule: ScheduleChoice = ScheduleChoice()
    participation: Participation = Participation()
    local: Local = Local()
    lr: LearningRate = LearningRate()
    pilot: Pilot = Pilot()
    probe: ProbeChoice = ProbeChoice()
    warm_start: WarmStart = WarmStart()
    continuous: Continuous = Continuous()
    boundary: Boundary = Boundary()
    history: HistoryChoice = HistoryChoice()
    engine: EngineChoice = EngineChoice()
    checkpoint: Checkpoint = Checkpoint()
    wireless: Wireless = Wireless()


POOLED = 600  # samples that a device draws from a pool: MNIST's 60,000 over 100 devices
LABEL_KINDS = frozenset({"two_shard", "half", "partial_overlap", "distinct"})
"""Partitions by label, whose number of devices is the total."""

SHORTCUTS = {
    "dataset": "dataset",
    "algorithm": "algorithm",
    "partition": "partition.kind",
    "overlap": "partition.overlap",
    "alpha": "partition.alpha",
    "devices": "partition.devices",
    "sessions": "sessions",
    "pilot": "pilot.sessions",
    "rounds": "rounds",
    "seeds": "seeds",
    "methods": "methods",
    "window": "window",
}
"""The names that the command line and `ebbflow.compare` take, and the keys they stand for."""


def resolve(config: Config) -> Config:
    """Fill in everything that was left to the data set, and check what keys say of each other."""
    dataset = ALIASES.get(config.dataset, config.dataset)
    usual = SETTINGS.get(dataset, OWN_DATA)
    groups = config.schedule.kind == "groups"
    dirichlet = config.partition.kind not in LABEL_KINDS
    pooled = config.partition.kind == "pool"
    overlap = config.partition.overlap
    partition = config.partition.model_copy(
        update={
            "overlap": (0.0 if overlap is None and groups else overlap) if dirichlet else None,
            "samples": config.partition.samples or (POOLED if pooled else None),
            "devices": None
            if config.schedule.kind == "trace"
            else config.partition.devices or usual.devices,
        }
    )
    local = config.local.model_copy(update={"batch": config.local.batch or usual.batch})
    lr = config.lr.model_copy(
        update={
            "algorithms": config.lr.algorithms
            | {name: _rate(config.lr, dataset, name) for name in config.algorithm}
        }
    )
    main_rounds = config.rounds or usual.rounds
    resolved = config.model_copy(
        update={
            "dataset": dataset,
            "rounds": main_rounds,
            "partition": partition,
            "local": local,
            "lr": lr,
            "pilot": config.pilot.model_copy(update={"rounds": config.pilot.rounds or main_rounds}),
            "probe": config.probe.model_copy(
                update={
                    "steps": config.probe.steps or local.steps,
                    "batch": config.probe.batch or local.batch,
                }
            ),
            "warm_start": config.warm_start.model_copy(
                update={
                    "scale": usual.scale
                    if config.warm_start.scale is None
                    else config.warm_start.scale
                }
            ),
            "model": config.model.model_copy(update={"kind": config.model.kind or usual.model}),
            "continuous": config.continuous.model_copy(
                update={"kl": usual.kl if config.continuous.kl is None else config.continuous.kl}
            ),
        }
    )
    for problem in _contradictions(config, resolved):
        raise EbbflowError(problem)
    return resolved


def _rate(lr: LearningRate, dataset: str, algorithm: str) -> Rate:
    table = RATES.get(dataset, OWN_RATES)
    # The authors published their variant's rates under the name of SCAFFOLD; see docs/method.md.
    initial, floor = table.get(algorithm, table[""])
    own = lr.algorithms.get(algorithm, Rate())
    given = [rate for rate in (own.initial, lr.initial) if rate is not None]
    floors = [rate for rate in (own.floor, lr.floor) if rate is not None]
    return Rate(initial=given[0] if given else initial, floor=floors[0] if floors else floor)


def _contradictions(config: Config, resolved: Config) -> Iterator[str]:
    yield from _misplaced(config)
    if resolved.pilot.sessions > resolved.sessions:
        yield (
            f"pilot.sessions = {resolved.pilot.sessions} is more than sessions = "
            f"{resolved.sessions}: raise sessions or lower pilot.sessions"
        )
    if config.history.keep != "all" and config.history.limit is None:
        yield f'history.keep = "{config.history.keep}" needs history.limit, the number to keep'
    if config.history.keep == "all" and config.history.limit is not None:
        yield (
            f'history.limit = {config.history.limit} has no use with history.keep = "all": set '
            'history.keep to "last" or "diverse", or leave the limit out'
        )
    lists: tuple[tuple[str, Sequence[int | str]], ...] = (
        ("seeds", config.seeds),
        ("methods", config.methods),
        ("algorithm", config.algorithm),
        ("window", config.window),
    )
    for name, values in lists:
        twice = [value for value in values if list(values).count(value) > 1]
        if twice:
            yield f"{name} = {values} names {twice[0]} more than once: name each one once"
    if config.partition.samples is not None and config.partition.kind != "pool":
        yield (
            f"partition.samples = {config.partition.samples} has no use with partition.kind = "
            f'"{config.partition.kind}", which divides all samples: leave it out, or use "pool"'
        )
    for name, steps in (("local.steps", config.local.steps), ("probe.steps", config.probe.steps)):
        if isinstance(steps, list) and steps[0] > steps[1]:
            yield f"{name} = {steps} must be a range [fewest, most]"
    if isinstance(config.warm_start.scale, float) and math.isnan(config.warm_start.scale):
        yield "warm_start.scale = nan is no number to weigh by: give R, from 0 to inf"
    yield from _impossible(config.wireless)


def _impossible(wireless: Wireless) -> Iterator[str]:
    """Yield what no cell can be like."""
    if wireless.min_distance >= wireless.radius:
        yield (
            f"wireless.min_distance = {wireless.min_distance:g} leaves no room for devices in a "
            f"cell of wireless.radius = {wireless.radius:g}: lower it"
        )
    for name, height in (
        ("height_server", wireless.height_server),
        ("height_device", wireless.height_device),
    ):
        if height <= wireless.height_environment:
            yield (
                f"wireless.{name} = {height:g} is not above wireless.height_environment = "
                f"{wireless.height_environment:g}: raise the one or lower the other"
            )


def _misplaced(config: Config) -> Iterator[str]:
    """Yield what is said of a schedule that has no use for it."""
    if config.schedule.kind == "trace":
        if config.schedule.file is None:
            yield 'schedule.kind = "trace" needs schedule.file: name a CSV or JSON Lines file'
        if config.partition.devices is not None:
            yield (
                f"partition.devices = {config.partition.devices} has no use with a trace, which "
                "says itself who is here: leave it out"
            )
    elif config.schedule.file is not None:
        yield (
            f'schedule.file = "{config.schedule.file}" is only read with schedule.kind = "trace"; '
            "set that or leave the file out"
        )


def nearest(name: str, known: Iterable[str], what: str, where: str) -> EbbflowError:
    """Return the error for an unknown name, with the nearest known one and the list of all."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}? " if close else ""
    return EbbflowError(f"{where}: there is no {what} {name!r}: {hint}known are {', '.join(names)}")
