"""Metrics of a run, as pure functions of its records; docs/metrics.md defines them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from ebbflow.core.counters import EVENT, MAIN, SURVEY, Cost, Costs, read
from ebbflow.core.errors import EbbflowError
from ebbflow.runs.records import Round
from ebbflow.runs.summary import Curve, Key, curves, transition, window_accuracy

REFERENCE = "warm_start"
"""The method that the others are compared with, unless another is named."""
CONFIDENCE = 0.95
RESAMPLES = 9_999

# --- time to accuracy and accumulated gain -------------------------------------------------------

Of = Literal["peak", "final"]
"""What a target is a share of: the reference's highest accuracy in the session (the paper's
definition), or its last."""


@dataclass(frozen=True)
class Target:
    """The accuracy to reach: a share rho of a reference's, or a fixed one in percent.

    ``of`` is None for a fixed accuracy, which is the same in every session.
    """

    value: float
    of: Of | None = "peak"

    def level(self, reference: Curve) -> float:
        """Return the accuracy to reach, in percent.

        >>> [Target(0.95, of).level([20.0, 80.0, 60.0]) for of in ("peak", "final")]
        [76.0, 57.0]
        """
        if self.of is None:
            return self.value
        reached = max(reference) if self.of == "peak" else reference[-1]
        # Measures of which less is better are negative here: 95 % of the best error is above it.
        return self.value * reached if reached >= 0 else reached / self.value

    def __str__(self) -> str:
        if self.of is None:
            return f"{self.value:g} %"
        return f"{100 * self.value:g} % of {'peak' if self.of == 'peak' else 'final'}"


def parse_of(text: str) -> Of:
    """Return the point of a session that a user asked for."""
    points: dict[str, Of] = {"peak": "peak", "final": "final"}
    if text in points:
        return points[text]
    raise EbbflowError(f"--of {text!r} is not a point of a session: choose peak or final")


def parse_target(text: str, of: Of = "peak") -> Target:
    """Return the target that a user wrote: a share up to 1, above that an accuracy in percent.

    >>> parse_target("0.95"), parse_target("90")
    (Target(value=0.95, of='peak'), Target(value=90.0, of=None))
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 100:
        raise EbbflowError(
            f"--target {text!r} is not an accuracy: write a share of the reference's, as in 0.95, "
            "or a percentage above 1 and at most 100, as in 90"
        )
    return Target(value, of if value <= 1 else None)


def time_to_accuracy(curve: Curve, level: float, before: float = 0) -> float:
    """Return T_rho, the first round t in 1..T whose accuracy is at least ``level``; else infinity.

    ``before`` is added: the V auxiliary rounds that a method runs before its first round, or the
    part of a round that its survey takes.

    >>> time_to_accuracy([50.0, 70.0, 90.0], 70.0), time_to_accuracy([50.0, 70.0], 80.0)
    (2.0, inf)
    >>> time_to_accuracy([50.0, 70.0, 90.0], 70.0, before=1)
    3.0
    """
    return next((float(before + t) for t, a in enumerate(curve, start=1) if a >= level), math.inf)


def speed_up(theirs: float, ours: float) -> float:
    """Return how many times sooner we reach the target: T_rho of theirs over ours.

    Infinite if only we reach it, zero if only they do, nan if nobody does.

    >>> speed_up(11.0, 1.0), speed_up(math.inf, 3.0), speed_up(3.0, math.inf)
    (11.0, inf, 0.0)
    """
    return theirs / ours if math.isfinite(theirs) or math.isfinite(ours) else math.nan


def survey_rounds(stages: Costs, asked: int) -> float:
    """Return the bytes of a session's survey over those of one of its rounds of training.

    Every device is sent its own copy of what the server sends. Zero, if there was no survey.

    >>> a_round = Cost(uploads=10, broadcasts=1, bytes_up=400, bytes_down=40)
    >>> survey = Cost(broadcasts=6, bytes_up=8, bytes_down=120, questions=4)
    >>> survey_rounds({"survey": survey, "main": a_round + a_round}, asked=2)
    0.31
    """
    survey, main = stages.get(SURVEY, Cost()), stages.get(MAIN, Cost())
    if not main.bytes_up:
        return 0.0
    moved = survey.bytes_up + asked * survey.bytes_down
    of_a_round = main.bytes_up + main.uploads * main.bytes_down / main.broadcasts
    return moved * main.broadcasts / of_a_round


def accumulated_gain(ours: Curve, theirs: Curve) -> float:
    """Return G_total, the sum over rounds of our accuracy minus theirs, in percentage points.

    It is neither a ratio nor a percentage, and it grows with T. Divided by T it is the mean gain.

    >>> accumulated_gain([50.0, 70.0], [40.0, 75.0])
    5.0
    """
    if len(ours) != len(theirs):
        raise ValueError(f"curves of {len(ours)} and {len(theirs)} rounds cannot be subtracted")
    return math.fsum([*ours, *(-accuracy for accuracy in theirs)])


# --- over seeds ----------------------------------------------------------------------------------


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and standard deviation (ddof 1; nan for a single value).

    >>> mean_and_deviation([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    deviation = statistics.stdev(values) if len(values) > 1 else math.nan
    return statistics.fmean(values), deviation


class Interval(NamedTuple):
    """A mean over n seeds with its standard deviation (ddof 1) and a bootstrap interval.

    What one seed cannot give is nan. The interval is never wider than the range of the values;
    with three seeds it is exactly that range, and covers the centre of a symmetric distribution
    three times in four, not nineteen times in twenty.
    """

    n: int
    mean: float
    deviation: float
    low: float
    high: float


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Return the mean of values with its bootstrap percentile interval.

    An infinite value makes the mean infinite, and the deviation and the interval nan.

    >>> interval([1.0, 2.0, 6.0])
    Interval(n=3, mean=3.0, deviation=2.6457513110645907, low=1.0, high=6.0)
    """
    n = len(values)
    if not all(map(math.isfinite, values)):
        return Interval(n, math.fsum(values), math.nan, math.nan, math.nan)
    mean, deviation = mean_and_deviation(values)
    if n < 2:
        return Interval(n, mean, deviation, math.nan, math.nan)
    from scipy.stats import bootstrap  # noqa: PLC0415 - takes a second to import

    bounds = bootstrap(
        (np.asarray(values, dtype=np.float64),),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=confidence,
        method="percentile",
        random_state=np.random.default_rng(0),
    ).confidence_interval
    return Interval(n, mean, deviation, float(bounds.low), float(bounds.high))


class PairedTest(NamedTuple):
    """A comparison of two methods that saw the same draws under each of n seeds.

    ``wins`` counts the seeds under which our value is the higher one. ``p`` is the two-sided exact
    sign-flip permutation test of the mean difference, and ``least`` the smallest p that n seeds
    allow, 2^(1-n): with three seeds 0.25, so that nothing can be significant. ``t`` is the p-value
    of Student's paired test, which may be smaller but assumes a normal distribution that three
    values cannot confirm; it is nan if all differences are equal.
    """

    n: int
    wins: int
    p: float
    least: float
    t: float


def paired_test(ours: Sequence[float], theirs: Sequence[float]) -> PairedTest:
    """Test whether two methods differ, from their values under the same seeds.

    >>> paired_test([3.0, 4.0, 5.0], [1.0, 1.0, 1.0])._replace(t=0.0)
    PairedTest(n=3, wins=3, p=0.25, least=0.25, t=0.0)
    """
    if len(ours) != len(theirs) or not ours:
        raise ValueError(f"{len(ours)} and {len(theirs)} values cannot be paired")
    apart = np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64)
    n, wins = len(apart), int((apart > 0).sum())
    least = 2.0 ** (1 - n)
    if n < 2 or not np.isfinite(apart).all():
        return PairedTest(n, wins, math.nan, least, math.nan)
    from scipy.stats import permutation_test, ttest_1samp  # noqa: PLC0415 - slow to import

    # All 2^n signs while they are few, otherwise a random sample of them.
    permuted = permutation_test(
        (apart,),
        np.mean,
        permutation_type="samples",
        n_resamples=np.inf if n <= 12 else RESAMPLES,
        random_state=np.random.default_rng(0),
    )
    varies = bool(np.ptp(apart) > 1e-12 * np.abs(apart).max())
    t = float(ttest_1samp(apart, 0.0).pvalue) if varies else math.nan
    return PairedTest(n, wins, float(permuted.pvalue), least, t)


# --- a whole run ---------------------------------------------------------------------------------


class Speed(NamedTuple):
    """Times to accuracy of one method at one transition (None: the mean over all), by seed.

    ``levels`` are the accuracies to reach, ``rounds`` is T_rho, and ``speed_ups`` says how many
    times sooner the reference gets there. ``with_probe`` and ``speed_ups_with_probe`` count the
    auxiliary rounds as well, and a survey as the part of a round that it takes.
    """

    algorithm: str
    method: str
    transition: int | None
    session: int | None
    target: Target
    levels: list[float]
    rounds: list[float]
    with_probe: list[float]
    speed_ups: list[float]
    speed_ups_with_probe: list[float]


class WindowAccuracy(NamedTuple):
    """Window accuracies of one method at one transition (None: the mean over all), by seed."""

    algorithm: str
    method: str
    transition: int | None
    session: int | None
    window: int
    accuracies: list[float]


class Gain(NamedTuple):
    """The reference's gain over one method at one transition (None: the mean over all), by seed.

    ``gains`` is G_total, ``per_round`` is G_total / T.
    """

    algorithm: str
    method: str
    transition: int | None
    session: int | None
    gains: list[float]
    per_round: list[float]


@dataclass(frozen=True)
class Comparison:
    """The curves of a run's methods in the sessions in which they can differ.

    ``probe_rounds`` holds V for the sessions that were probed, and for those with a survey the part
    of a round that it took (`survey_rounds`). A session counts once every method has finished it
    under every seed.
    """

    curves: Mapping[Key, Curve]
    probe_rounds: Mapping[Key, float]
    pilot: int
    methods: Sequence[str]
    reference: str

    def __post_init__(self) -> None:
        if self.reference not in self.methods:
            raise EbbflowError(
                f"--reference {self.reference!r} is not a method of this run: choose one of "
                f"{', '.join(self.methods)}"
            )

    def algorithms(self) -> list[str]:
        """Return the algorithms in alphabetical order."""
        return sorted(self._seeds)

    def seeds(self, algorithm: str) -> list[int]:
        """Return the seeds under which an algorithm has finished a transition."""
        return sorted(self._seeds[algorithm])

    @cached_property
    def _seeds(self) -> dict[str, set[int]]:
        seeds: dict[str, set[int]] = {}
        for key in self.curves:
            seeds.setdefault(key.algorithm, set()).add(key.seed)
        return seeds

    def sessions(self, algorithm: str) -> list[int]:
        """Return the sessions from the first transition on that are finished everywhere."""
        seeds = self.seeds(algorithm)
        sessions = {key.session for key in self.curves if key.algorithm == algorithm}
        return [
            s
            for s in sorted(sessions)
            if transition(s, self.pilot) is not None
            and all(
                Key(algorithm, m, seed, s) in self.curves for m in self.methods for seed in seeds
            )
        ]

    def windows(self, windows: Sequence[int]) -> list[WindowAccuracy]:
        """Return the window accuracies by algorithm, window, transition and method."""
        scores = []
        for algorithm in self.algorithms():
            for window in windows:
                each = [
                    self._window(algorithm, method, session, window)
                    for session in self.sessions(algorithm)
                    for method in self.methods
                ]
                scores += each
                for method in self.methods if each else ():
                    own = [score.accuracies for score in each if score.method == method]
                    means = _by_seed(own, statistics.fmean)
                    scores.append(WindowAccuracy(algorithm, method, None, None, window, means))
        return scores

    def _window(self, algorithm: str, method: str, session: int, window: int) -> WindowAccuracy:
        own = [self.curves[Key(algorithm, method, s, session)] for s in self.seeds(algorithm)]
        scores = [window_accuracy(curve, window) for curve in own]
        number = transition(session, self.pilot)
        return WindowAccuracy(algorithm, method, number, session, window, scores)

    def speeds(self, targets: Sequence[Target]) -> list[Speed]:
        """Return the times to accuracy by algorithm, target, transition and method."""
        speeds = []
        for algorithm in self.algorithms():
            for target in targets:
                each = [
                    self._speed(algorithm, method, session, target)
                    for session in self.sessions(algorithm)
                    for method in self.methods
                ]
                speeds += each
                speeds += [
                    _over_transitions([speed for speed in each if speed.method == method])
                    for method in (self.methods if each else ())
                ]
        return speeds

    def _speed(self, algorithm: str, method: str, session: int, target: Target) -> Speed:
        def times(name: str, *, probed: bool) -> list[float]:
            keys = [Key(algorithm, name, seed, session) for seed in self.seeds(algorithm)]
            return [
                time_to_accuracy(
                    self.curves[key], level, self.probe_rounds.get(key, 0) if probed else 0
                )
                for key, level in zip(keys, levels, strict=True)
            ]

        levels = [
            target.level(self.curves[Key(algorithm, self.reference, seed, session)])
            for seed in self.seeds(algorithm)
        ]
        plain, probed = times(method, probed=False), times(method, probed=True)
        ours, ours_probed = times(self.reference, probed=False), times(self.reference, probed=True)
        return Speed(
            algorithm,
            method,
            transition(session, self.pilot),
            session,
            target,
            levels,
            plain,
            probed,
            list(map(speed_up, plain, ours)),
            list(map(speed_up, probed, ours_probed)),
        )

    def gains(self) -> list[Gain]:
        """Return the reference's gains by algorithm, transition and other method."""
        gains = []
        others = [method for method in self.methods if method != self.reference]
        for algorithm in self.algorithms():
            each = [
                self._gain(algorithm, method, session)
                for session in self.sessions(algorithm)
                for method in others
            ]
            gains += each
            for method in others if each else ():
                own = [gain for gain in each if gain.method == method]
                gains.append(
                    Gain(
                        algorithm,
                        method,
                        None,
                        None,
                        _by_seed([gain.gains for gain in own], statistics.fmean),
                        _by_seed([gain.per_round for gain in own], statistics.fmean),
                    )
                )
        return gains

    def _gain(self, algorithm: str, method: str, session: int) -> Gain:
        gains, per_round = [], []
        for seed in self.seeds(algorithm):
            ours = self.curves[Key(algorithm, self.reference, seed, session)]
            gain = accumulated_gain(ours, self.curves[Key(algorithm, method, seed, session)])
            gains.append(gain)
            per_round.append(gain / len(ours))
        return Gain(algorithm, method, transition(session, self.pilot), session, gains, per_round)


def _by_seed(lists: Sequence[list[float]], over: Callable[[list[float]], float]) -> list[float]:
    return [over(list(values)) for values in zip(*lists, strict=True)]


def _over_transitions(speeds: Sequence[Speed]) -> Speed:
    """Return the means over transitions for each seed, geometric means for ratios."""
    return speeds[0]._replace(
        transition=None,
        session=None,
        levels=_by_seed([speed.levels for speed in speeds], statistics.fmean),
        rounds=_by_seed([speed.rounds for speed in speeds], statistics.fmean),
        with_probe=_by_seed([speed.with_probe for speed in speeds], statistics.fmean),
        speed_ups=_by_seed([speed.speed_ups for speed in speeds], typical_ratio),
        speed_ups_with_probe=_by_seed(
            [speed.speed_ups_with_probe for speed in speeds], typical_ratio
        ),
    )


def typical_ratio(ratios: Sequence[float]) -> float:
    """Return the geometric mean: the mean of A over B is the reciprocal of that of B over A.

    One infinity makes it infinite and one zero makes it zero; both together, or a nan, give nan.

    >>> typical_ratio([2.0, 8.0]), typical_ratio([2.0, math.inf]), typical_ratio([0.0, 4.0])
    (4.0, inf, 0.0)
    """
    if any(map(math.isnan, ratios)) or (0.0 in ratios and math.inf in ratios):
        return math.nan
    if 0.0 in ratios or math.inf in ratios:
        return 0.0 if 0.0 in ratios else math.inf
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))


def compared(
    rounds: Iterable[Round],
    events: Iterable[Mapping[str, Any]],
    *,
    pilot: int,
    methods: Sequence[str],
    reference: str,
) -> Comparison:
    """Compare the methods of a run, which need not be finished.

    Only complete sessions count, for the peak of a session under way is not known yet. The event
    "start" says how many rounds a session has.
    """
    lengths: dict[Key, int] = {}
    probe_rounds: dict[Key, float] = {}
    asked: dict[Key, int] = {}
    for event in events:
        if event["event"] not in ("start", EVENT):
            continue
        key = Key(event["algorithm"], event["method"], event["seed"], event["session"])
        if event["event"] == EVENT:
            if asked.get(key):
                before = probe_rounds.get(key, 0)
                probe_rounds[key] = before + survey_rounds(read(event["stages"]), asked[key])
            continue
        lengths[key] = event["rounds"]
        asked[key] = len(event.get("asked", ()))
        if event["probe_rounds"]:
            probe_rounds[key] = event["probe_rounds"]
    whole = {
        key: curve
        for key, curve in curves(rounds).items()
        if len(curve) == lengths.get(key, len(curve)) and transition(key.session, pilot) is not None
    }
    return Comparison(whole, probe_rounds, pilot, methods, reference)
