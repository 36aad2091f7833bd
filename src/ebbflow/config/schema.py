"""The settings of an experiment: the keys a user may write, and the values each may hold.

`ebbflow.config.merge` merges settings from files, presets and options; `ebbflow.config.resolve`
fills in the data set's defaults, and the result, `ebbflow.config.resolved`, is the configuration
that is run.
"""

from __future__ import annotations

import math
import sys
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from ebbflow.core.errors import unknown
from ebbflow.core.judging import TaskName
from ebbflow.data.traces import durations


def as_list(value: Any) -> Any:
    """Return a list unchanged, and any other value as a list of one."""
    return value if isinstance(value, list) else [value]


def _share(value: Any) -> Any:
    if isinstance(value, float) and not 0 < value <= 1:
        raise ValueError(
            "a fraction must lie above 0 and at most at 1; write a count without a point"
        )
    if isinstance(value, int) and not 1 <= value <= 10**12:
        raise ValueError("a count must be at least 1 and at most 1,000,000,000,000")
    return value


def _duration(value: Any) -> Any:
    """Return a length of time as it was written, if it is one."""
    if isinstance(value, str):
        durations.seconds(value)
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"give a number in the schedule's unit of time, or {durations.RULE}")
    if not 0 < value <= sys.float_info.max:  # a whole number may be beyond that
        raise ValueError("a length of time must be finite and greater than 0")
    return float(value)


def _unit(value: Any) -> Any:
    """Return a unit of time as it was written, if it is one."""
    if not isinstance(value, str):
        raise ValueError(f'a unit of time is a duration such as "1s" or "1h"; {durations.RULE}')
    durations.seconds(value)
    return value


Names = Annotated[list[str], BeforeValidator(as_list), Field(min_length=1)]
Seeds = Annotated[
    list[Annotated[int, Field(ge=0, lt=2**63)]],
    BeforeValidator(as_list),
    Field(min_length=1, max_length=1000),
]
# Ceilings are far above what anybody computes; beyond them a number is most likely a slip and would
# fill the memory before anything could be said about it.
Count = Annotated[int, Field(ge=1, le=10**12)]
RoundCount = Annotated[int, Field(ge=1, le=1_000_000)]
SessionCount = Annotated[int, Field(ge=1, le=100_000)]
DeviceCount = Annotated[int, Field(ge=1, le=1_000_000)]
WorkerCount = Annotated[int, Field(ge=1, le=4096)]
Counts = Annotated[list[RoundCount], BeforeValidator(as_list), Field(min_length=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float | int | None, BeforeValidator(_share)]
Duration = Annotated[float | str, BeforeValidator(_duration)]
"""A number in the schedule's own unit of time, or a text such as "2h30m", which stays a text."""
UnitOfTime = Annotated[str, BeforeValidator(_unit)]
ColumnName = Annotated[str, Field(min_length=1)]
PluginFiles = Annotated[
    list[Annotated[str, Field(min_length=1)]], BeforeValidator(as_list), Field(max_length=100)
]
"""Paths of plugins, relative to the file that names them; a run records ``path@sha256:digest``."""
PictureSide = Annotated[int, Field(ge=1, le=10_000)]
StepCount = RoundCount | Annotated[list[RoundCount], Field(min_length=2, max_length=2)]


def _parameter(value: Any) -> Any:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("a whole number must fit into 64 bits")
    return math.inf if value == "inf" else value


# JSON has no infinity: summary.json has the string "inf" instead, which a setting may be, too.
Parameter = Annotated[
    bool | int | float | str,
    BeforeValidator(_parameter),
    PlainSerializer(lambda value: "inf" if value == math.inf else value, when_used="json"),
]
Parameters = dict[str, dict[str, Parameter]]
"""Parameters of algorithms, starts and models, by their names."""


class Section(BaseModel):
    """A table of a configuration file; unknown keys and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class DataSettings(Section):
    """Which part of the data set is used, and how a user's own data are read.

    ``label`` and ``device`` are columns of a table: the labels, and whose each sample is. ``test``
    is a second file with the test samples, ``test_split`` the share of samples that become test
    samples, ``ignore`` columns that are left out. ``inputs``: whether whole numbers are numbers or
    tokens, and whether texts are cut into words or characters. ``size``: the height and width that
    pictures get. ``vocabulary``: the most tokens that texts are made of.
    """

    limit_train: Count | None = None
    limit_test: Count | None = None
    label: ColumnName | None = None
    device: ColumnName | None = None
    test: ColumnName | None = None
    test_split: Annotated[float, Field(gt=0, lt=1)] | None = None
    ignore: Annotated[list[ColumnName], BeforeValidator(as_list)] = []
    inputs: Literal["auto", "numbers", "tokens", "words", "characters"] = "auto"
    size: Annotated[list[PictureSide], Field(min_length=2, max_length=2)] | None = None
    vocabulary: Annotated[int, Field(ge=3, le=10_000_000)] = 30_000


class ModelSettings(Section):
    """Which model is trained, and a safetensors file that its weights start from."""

    kind: str | None = None
    weights: str | None = None


class PartitionSettings(Section):
    """Who holds which samples.

    ``devices`` is the number per session for the Dirichlet kinds and the total for the others
    (two_shard, half, partial_overlap, distinct), which do not use overlap and alpha. ``samples`` is
    the number that each device draws from a ``pool``, where samples are not divided.
    """

    kind: str = "dirichlet"
    overlap: Annotated[float, Field(ge=0, le=1)] | None = None
    alpha: Positive = 0.3
    devices: DeviceCount | None = None
    samples: Count | None = None


class ColumnSettings(Section):
    """What a trace calls its columns: ``time``, ``device`` and ``event``, or ``start`` and ``end``.

    None stands for our own name.
    """

    time: ColumnName | None = None
    device: ColumnName | None = None
    event: ColumnName | None = None
    start: ColumnName | None = None
    end: ColumnName | None = None


class ScheduleSettings(Section):
    """Which devices are present in which session.

    ``groups``: two device groups that alternate, as in the paper. ``trace``: a file of joins and
    leaves. ``random``: Poisson arrivals (by default as many as keep ``partition.devices`` present
    on average), random stays and returns. ``cut`` says how the last two are cut into sessions, and
    the key of that name when; an ``interval`` of None is one that nobody has chosen. ``unit`` is
    what a trace counts its time in, and ``odd`` what happens if it contradicts itself.
    """

    kind: Literal["groups", "trace", "random"] = "groups"
    file: str | None = None
    columns: ColumnSettings = ColumnSettings()
    unit: UnitOfTime | None = None
    odd: Literal["stop", "mend"] = "stop"
    cut: Literal["interval", "change", "newcomers"] = "interval"
    interval: Duration | None = 1.0
    change: Annotated[float, Field(ge=0)] = 0.5
    newcomers: Annotated[float, Field(ge=0, le=1)] = 0.3
    min_devices: Count = 1
    round_time: Duration | None = None
    arrivals: Positive | None = None
    stay: Duration = 2.0
    return_probability: Annotated[float, Field(ge=0, le=1)] = 0.5
    away: Duration = 2.0


class ParticipationSettings(Section):
    """The paper's A^(s,t): which of the devices present take part in a round.

    ``weighting``: all are equally likely and weighted by D_k, or drawn by D_k and weighted equally.
    """

    share: Share = None
    weighting: Literal["uniform", "weighted"] = "uniform"


class LocalSettings(Section):
    """A device's local training: e steps (a number, or a range drawn per device and round)."""

    steps: StepCount = 5
    batch: Count | None = None
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    rule: Literal["one_pass", "each_step"] = "one_pass"
    radius: Positive | None = None


class RateSettings(Section):
    """A session's first rate, and its floor as a fraction of the first rate."""

    initial: Positive | None = None
    floor: Annotated[float, Field(ge=0, le=1)] | None = None


class LearningRateSettings(RateSettings):
    """(lr0 - lr_min)(1 - t/T)^power + lr_min with lr_min = floor lr0, restarted in every session.

    ``algorithms`` holds the rates of single algorithms; ``file`` lists a rate for every round
    instead.
    """

    power: Positive = 0.9
    file: str | None = None
    algorithms: dict[str, RateSettings] = {}


class PilotSettings(Section):
    """The first P sessions and the pilot model built from them.

    ``carry_over``: session P+1 continues from the last pilot session's model (the paper's text) or
    starts afresh from the initial model (the authors' code).
    """

    sessions: SessionCount = 1
    rounds: RoundCount | None = None
    combine: Literal["average", "ema"] = "average"
    decay: Annotated[float, Field(ge=0, lt=1)] = 0.5
    carry_over: bool = True


class ProbeSettings(Section):
    """The V short rounds from the pilot on a subset A_grad, whose displacement is the signature.

    ``lr``: half of the session's first rate (the authors' code), the same rate, or a number.
    """

    rounds: RoundCount = 1
    share: Share = None
    steps: StepCount | None = None
    batch: Count | None = None
    lr: Positive | Literal["half", "same"] = "half"


class BoundarySettings(Section):
    """What happens to an algorithm's state when a session ends.

    ``reset``: server and devices start afresh. ``keep``: returning devices keep theirs, and the
    server's is rebuilt from the states of the devices present.
    """

    state: Literal["reset", "keep"] = "reset"


class HistorySettings(Section):
    """Which past sessions are kept: all, the last ``limit``, or the most diverse ``limit``.

    ``distance`` measures how diverse they are; by default it is the warm start's. ``on_damage``
    says whether a run with a damaged past session is not resumed, or goes on without that session.
    """

    keep: Literal["all", "last", "diverse"] = "all"
    limit: Count | None = None
    distance: str | None = None
    on_damage: Literal["stop", "skip"] = "stop"


class GuardSettings(Section):
    """Which updates are refused, and what happens when many are.

    ``not_finite``: updates that are not finite are refused, or stop the run. ``norm``: so many
    times the median norm of a round's updates is too large; every device is then trained by itself
    first. ``quorum``: the share of participants whose updates must be left; below it the model
    stays as it is. ``limit``: how many rounds in a row may be abandoned like that.
    """

    not_finite: Literal["refuse", "stop"] = "refuse"
    norm: Annotated[float, Field(gt=1, allow_inf_nan=False)] | None = None
    quorum: Annotated[float, Field(ge=0, le=1)] = 0.5
    limit: Annotated[int, Field(ge=0, le=1_000_000)] = 0


class AggregationSettings(Section):
    """How the server makes one update of those that devices sent.

    ``rule``: mean, median, trimmed_mean, multi_krum, clipped_mean, trust, or one of your own. All
    but the mean look at single updates. ``server_samples``: samples that the server has itself,
    where the rule needs them.
    """

    rule: str = "mean"
    server_samples: Count = 100


class PrivacySettings(Section):
    """Client-level differential privacy; without ``clip`` there is none.

    ``clip``: the longest that a device's message may be. ``noise``: the standard deviation of the
    noise on their sum, in units of ``clip``. ``answers``: the clip of what a device answers in a
    survey. ``delta``: the probability of a larger loss of privacy than is told.
    """

    clip: Positive | None = None
    noise: NotNegative = 1.0
    answers: Positive = 5.0
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5


Probability = Annotated[float, Field(ge=0, le=1)]
Factor = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]


class Fault(Section):
    """Something that goes wrong on devices, for a simulation to bring about.

    ``devices`` are those concerned: a share of each session's devices, drawn by name and as far as
    possible the same in all sessions, or a list of their numbers. ``rate`` is the probability that
    it happens to one of them in a round.
    """

    rate: Probability = 1.0
    devices: Probability | list[Annotated[int, Field(ge=0)]] = 1.0


class Dropout(Fault):
    """The update never arrives: the device is lost before, during or after its training."""

    when: Literal["before", "during", "after"] = "before"


class Straggler(Fault):
    """The update is late.

    The device needs 1 + d times its usual time, with d exponential of mean ``slowdown``; an update
    later than ``deadline`` times the usual time is not waited for.
    """

    slowdown: Factor = 2.0
    deadline: Annotated[float, Field(ge=1, le=1e12, allow_inf_nan=False)] = 2.0


class Vanishing(Fault):
    """The device is gone for so many rounds of the session."""

    rounds: RoundCount = 5


class Scaled(Fault):
    """The update is multiplied by ``factor``, or a multiple of it replaces what should be sent."""

    factor: Factor = 10.0


class Flipped(Scaled):
    """As `Scaled`; by default nothing becomes longer."""

    factor: Factor = 1.0


class FaultSettings(Section):
    """What goes wrong on devices, to try a method, a guard or an aggregation.

    Lost: ``dropout``, ``straggler``, ``vanishing``. Broken: ``nan`` and ``infinite`` (one entry of
    the update), ``wrong`` (a random vector ``factor`` times as long as the update), ``scaled`` (by
    ``factor``). Malicious: ``flipped`` (the update times -``factor``), ``noise`` (a random vector
    ``factor`` times as long is added), ``manipulated`` (-``factor`` times the mean of the others'
    updates), ``labels`` (trained on labels in reverse order).
    """

    dropout: Dropout | None = None
    straggler: Straggler | None = None
    vanishing: Vanishing | None = None
    labels: Fault | None = None
    scaled: Scaled | None = None
    flipped: Flipped | None = None
    noise: Flipped | None = None
    manipulated: Flipped | None = None
    wrong: Flipped | None = None
    nan: Fault | None = None
    infinite: Fault | None = None


EngineKind = Literal["vectorised", "sequential", "ray"]
"""The engines that a user may ask for."""


def engine_kind(name: str | None, where: str) -> EngineKind | None:
    """Return the kind of engine of this name, if one is given.

    >>> engine_kind("ray", "--engine")
    'ray'
    """
    if name is None:
        return None
    for kind in get_args(EngineKind):
        if name == kind:
            found: EngineKind = kind
            return found
    raise unknown(name, get_args(EngineKind), "engine", where)


class EngineSettings(Section):
    """How the work is done; only ``kind`` and ``fused`` change results, and only by rounding.

    ``kind``: "ray" computes on a cluster what "vectorised" computes here, with the same bits.
    ``address``: the Ray cluster, "auto" or HOST:PORT; by default one that is there, or else one
    that is started on this machine for the run.
    ``fused``: whether softmax regression and dense networks use native kernels, if they were built.
    ``state_memory``: MiB of device states per method; beyond that they are kept in a mapped file.
    """

    kind: EngineKind = "vectorised"
    address: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    block: Count | None = None
    workers: WorkerCount | None = None
    fused: bool = True
    state_memory: Annotated[int, Field(ge=0, le=2**30)] = 256


class CheckpointSettings(Section):
    """How often a run is saved within a session; always after its first round and each session.

    ``share``: the part of the time that saving may take at most; a large model is then saved less
    often than every so many ``seconds``.
    """

    seconds: Positive = 30.0
    share: Annotated[float, Field(gt=0, le=1)] = 1.0


# One value for all devices, or a list of n in which device k has entry k mod n.
PerDevice = Positive | Annotated[list[Positive], Field(min_length=1)]
Speeds = NotNegative | Annotated[list[NotNegative], Field(min_length=1)]


class Wireless(Section):
    """What a round costs on the air: the paper's table Simulation Parameters, in SI units.

    Only `ebbflow cost` reads these values; they do not affect training. Values that may differ by
    device take a list, assigned to devices in turn. ``allocation``: the ``bandwidth`` W is shared
    equally by the participants, shared so that all finish together, or W for every device.
    ``downlink``: the server sends every device a copy of its own over that bandwidth, or one copy
    to all over the whole of W, at the rate of the worst. ``returning``: a survey sends all its
    models to all devices, or leaves out the final models of sessions that a device took part in.
    ``parameters`` and ``complexity`` are N_p and phi, by default from the paper's table or counted
    on the model.
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
    downlink: Literal["unicast", "multicast"] = "unicast"
    returning: Literal["send", "hold"] = "send"
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


class Settings(Section):
    """What a user may write about an experiment; None leaves a value to the data set's default."""

    dataset: str = "digits"
    task: TaskName = "classes"
    metrics: Annotated[list[str], BeforeValidator(as_list)] = []
    loss: str | None = None
    algorithm: Names = ["fedavg"]
    methods: Names = ["auto", "warm_start", "previous", "average"]
    seeds: Seeds = [100, 200, 300]
    sessions: SessionCount = 7
    rounds: RoundCount | None = None
    window: Counts = [10]
    evaluation: Literal["labels", "devices", "all", "auto"] = "labels"
    device: str = "cpu"
    precision: Literal["fp32", "bf16"] = "fp32"
    parameters: Parameters = {}
    plugins: PluginFiles = []
    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    partition: PartitionSettings = PartitionSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    participation: ParticipationSettings = ParticipationSettings()
    local: LocalSettings = LocalSettings()
    lr: LearningRateSettings = LearningRateSettings()
    pilot: PilotSettings = PilotSettings()
    probe: ProbeSettings = ProbeSettings()
    boundary: BoundarySettings = BoundarySettings()
    history: HistorySettings = HistorySettings()
    guard: GuardSettings = GuardSettings()
    faults: FaultSettings = FaultSettings()
    aggregation: AggregationSettings = AggregationSettings()
    privacy: PrivacySettings = PrivacySettings()
    engine: EngineSettings = EngineSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    wireless: Wireless = Wireless()


SHORTCUTS = {
    "dataset": "dataset",
    "task": "task",
    "metrics": "metrics",
    "label": "data.label",
    "device_column": "data.device",
    "test_split": "data.test_split",
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
"""Shortcuts of the command line and `ebbflow.compare`, and the keys they stand for."""
