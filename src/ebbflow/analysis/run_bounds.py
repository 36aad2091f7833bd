"""A finished run beside Theorem 1: what was measured, and what the bounds say.

The run is repeated in memory. Draws are functions of names, so every w^(s,t) comes back, and with
it F^(s)(w^(s,t)), the gradients of all devices, and the constants of the assumptions at these
models. To make sure, the losses of the rounds are compared with the records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from ebbflow import experiment
from ebbflow.analysis import bound
from ebbflow.analysis.accounting import keeps
from ebbflow.analysis.bound import Array, Constants, Devices, Terms
from ebbflow.analysis.constants import Gradients, Problem, dissimilarity
from ebbflow.config.resolved import Config
from ebbflow.core.errors import EbbflowError
from ebbflow.core.judging import LABELLED
from ebbflow.core.types import ModelState
from ebbflow.data import datasets
from ebbflow.runs import records
from ebbflow.runs.checkpoint import check_complete
from ebbflow.runs.configuration import read_config
from ebbflow.runs.environment import fingerprint
from ebbflow.runs.records import Round
from ebbflow.simulation.callbacks import (
    Callback,
    RoundFinished,
    SessionFinished,
    SessionStarted,
)

Result = TypeVar("Result")
HALF = 0.5  # the Lambda used for rounds whose rate is too large for the condition
THEOREM_ALGORITHM = "fedavg"  # the theorem is about no other


class MeasuredRound(NamedTuple):
    """One round of one method: the losses before and after it, and the gradients at w^(s,t).

    ``square`` is ||grad F||^2 and ``spread`` is sum_k p_k ||grad F_k||^2.
    """

    algorithm: str
    method: str
    seed: int
    session: int
    round: int
    eta: float
    before: float
    after: float
    square: float
    spread: float


class StartGap(NamedTuple):
    """F where one method starts a session, w^(s,1), and at w^(s-1,T+1), and the least F known."""

    algorithm: str
    method: str
    seed: int
    session: int
    start: float
    carried: float | None
    least: float

    @property
    def gap(self) -> float:
        """F^(s)(w^(s,1)) - F^(s)(w^(s)*)."""
        return self.start - self.least

    @property
    def holds(self) -> bool | None:
        """Whether the start is no worse than the carried-over model; None if there is none."""
        return None if self.carried is None else self.start <= self.carried


@dataclass
class SessionConstants:
    """The devices of a session under one seed, and the constants at the models that were seen."""

    samples: Array
    batch: Array
    dispersion: Array
    steps: NDArray[np.int64]
    upper: float | None
    sharpness: float = 0.0
    theta: float = 0.0
    variances: Array = field(default_factory=lambda: np.zeros(0))


class Verdict(NamedTuple):
    """One method: the measured average, the bounds, and how many rounds meet the conditions.

    ``sharp`` is the corrected bound with the measured variance of the mini-batches, instead of the
    one that follows from Theta and the dispersion of the features.
    """

    algorithm: str
    method: str
    measured: float
    printed: Terms
    corrected: Terms
    sharp: Terms
    rounds: int
    printed_holds: int
    corrected_holds: int


@dataclass(frozen=True)
class Findings:
    """The outcome of `examine`."""

    rounds: list[MeasuredRound]
    gaps: list[StartGap]
    verdicts: list[Verdict]
    constants: Constants
    sharpness: float
    upper: bool
    eta: float
    steps: int
    notes: list[str]

    def as_json(self) -> dict[str, Any]:
        """Return what ``ebbflow bound --json`` prints."""
        verdicts = [
            {
                **verdict._asdict(),
                **{
                    name: {**terms._asdict(), "total": terms.total}
                    for name, terms in verdict._asdict().items()
                    if isinstance(terms, Terms)
                },
            }
            for verdict in self.verdicts
        ]
        return {
            "constants": {**self.constants._asdict(), "sharpness": self.sharpness},
            "rate": {"eta": self.eta, "steps": self.steps, **self.limits()},
            "bounds": verdicts,
            "starts": [{**b._asdict(), "gap": b.gap, "holds": b.holds} for b in self.gaps],
            "notes": self.notes,
        }

    def limits(self) -> dict[str, float]:
        """Return the largest rate that each of the two theorems allows."""
        of = self.constants
        return {
            "printed": bound.printed_rate(self.steps, of.beta, of.zeta_1),
            "corrected": bound.corrected_rate(self.steps, of.beta, of.zeta_1),
        }


def chosen(folder: Path, seeds: Sequence[int]) -> Config:
    """Return the configuration of a run with these seeds only, or with all if none is given."""
    config = read_config(folder)
    check_complete(folder)
    for seed in seeds:
        if seed not in config.seeds:
            known = ", ".join(map(str, config.seeds))
            raise EbbflowError(f"--seed {seed} is not in {folder}: it has {known}")
    return config.model_copy(update={"seeds": list(dict.fromkeys(seeds)) or config.seeds})


def examine(
    folder: Path,
    *,
    seeds: Sequence[int] = (),
    iterations: int = 300,
    zeta_1: float = 1.0,
    callbacks: Sequence[Callback] = (),
) -> Findings:
    """Repeat a run and compare it with Theorem 1.

    Args:
        folder: A run folder.
        seeds: The seeds to repeat; by default all of the run's.
        iterations: Iterations of the full-batch search for w^(s)*.
        zeta_1: The constant of the dissimilarity assumption; zeta_2 is the least that goes with it.
        callbacks: Others that follow the run, such as a progress display.
    """
    config = chosen(folder, seeds)
    if zeta_1 < 1:
        raise EbbflowError(f"--zeta1 {zeta_1:g} is below 1, which Assumption 2 excludes: raise it")
    if config.task not in LABELLED or config.loss is not None:
        what = f'task = "{config.task}"' if config.loss is None else f'loss = "{config.loss}"'
        raise EbbflowError(
            f"{folder} was run with {what}, and the constants of the bound are those of "
            "cross-entropy: run it with classes, or leave the bound out"
        )
    data = datasets.configured(config.dataset, config.data, task=config.task)
    before = records.read_sealed(folder / records.ENVIRONMENT).get("dataset", {})
    if before.get("digest") not in (None, fingerprint(data)):
        raise EbbflowError(
            f"the data set {data.name} is not the one that {folder} was made with (its digest "
            "differs): restore the data"
        )
    measuring = _Measuring(config, iterations)
    again = experiment.run(config, dataset=data, callbacks=[measuring, *callbacks])
    notes = [*_outside(config, measuring.sessions.values())]
    notes += _compared(again.rounds, records.read_rounds(folder))
    return _findings(measuring, zeta_1, notes)


class _Measuring(Callback):
    """Measures every model of a simulation while it runs."""

    def __init__(self, config: Config, iterations: int) -> None:
        self.config = config
        self.iterations = iterations
        self.rounds: list[MeasuredRound] = []
        self.sessions: dict[tuple[int, int], SessionConstants] = {}
        self.starts: list[tuple[StartGap, tuple[int, tuple[int, ...]]]] = []
        self.least: dict[tuple[int, tuple[int, ...]], float] = {}
        self._searched: set[tuple[int, tuple[int, ...]]] = set()
        self._problems: dict[tuple[int, tuple[int, ...]], Problem] = {}
        self._here: dict[tuple[str, str], Gradients] = {}
        self._last: dict[tuple[str, str], ModelState] = {}

    def session_started(self, event: SessionStarted) -> None:
        """Prepare F^(s)."""
        world, session = event.world, event.session
        key = (world.seed, session.devices)
        if key not in self._problems:
            while len(self._problems) >= 2:  # enough for two groups that take turns
                del self._problems[next(iter(self._problems))]
            shards = [session.shards[device] for device in session.devices]
            self._problems[key] = Problem.of(world.model, world.dataset.train, shards)
        if session.index == 1:
            self._here, self._last = {}, {}
        self.sessions[world.seed, session.index] = _session_constants(
            self.config, self._problems[key]
        )

    def round_finished(self, event: RoundFinished) -> None:
        """Measure w^(s,t+1) of every method, and w^(s,1) in the first round."""
        rounds, tracks, session = event.results, event.tracks, event.session
        key = (event.seed, session.devices)
        problem, here = self._problems[key], self.sessions[event.seed, session.index]
        if event.round == 1:
            starts = [track.start.model if track.start else track.model for track in tracks]
            last = [self._last.get(_name(r), w) for r, w in zip(rounds, starts, strict=True)]
            measured = _once([*starts, *last], problem.gradients)
            carried = [at.loss for at in measured[len(starts) :]]
            for r, at, before in zip(rounds, measured, carried, strict=False):
                self._here[_name(r)] = at
                start = StartGap(
                    r.algorithm,
                    r.method,
                    r.seed,
                    r.session,
                    at.loss,
                    before if _name(r) in self._last else None,
                    math.nan,
                )
                self.starts.append((start, key))
            _once(starts, lambda model: _sharpen(here, problem, model))
        models = [track.model for track in tracks]
        for r, after in zip(rounds, _once(models, problem.gradients), strict=True):
            at = self._here[_name(r)]
            spread = float(problem.shares @ at.squares)
            self.rounds.append(MeasuredRound(*r[:5], r.lr, at.loss, after.loss, at.square, spread))
            self._here[_name(r)] = after
            self.least[key] = min(self.least.get(key, math.inf), at.loss, after.loss)
        if event.round == session.rounds:
            _once(models, lambda model: _sharpen(here, problem, model))
            self._last = {_name(r): model for r, model in zip(rounds, models, strict=True)}

    def session_finished(self, event: SessionFinished) -> None:
        """Search for w^(s)*, once for each set of devices."""
        key = (event.seed, event.devices)
        if key not in self._searched:
            self._searched.add(key)
            best = self._problems[key].optimum(event.tracks[0].model, self.iterations)
            self.least[key] = min(self.least[key], best)


def _name(r: Round) -> tuple[str, str]:
    return r.algorithm, r.method


def _once(models: Sequence[ModelState], measure: Callable[[ModelState], Result]) -> list[Result]:
    """Apply a function to models, but only once to models that are equal."""
    done: list[tuple[ModelState, Result]] = []
    results = []
    for model in models:
        same = next(
            (
                result
                for other, result in done
                if all(torch.equal(a, b) for a, b in zip(other, model, strict=True))
            ),
            None,
        )
        result = measure(model) if same is None else same
        if same is None:
            done.append((model, result))
        results.append(result)
    return results


def _session_constants(config: Config, problem: Problem) -> SessionConstants:
    samples = problem.counts.astype(np.float64)
    batch = np.minimum(samples, config.local.batch)
    steps = config.local.steps if isinstance(config.local.steps, int) else config.local.steps[1]
    made = np.full(len(samples), steps, dtype=np.int64)
    if config.local.rule == "one_pass":
        made = np.minimum(made, np.ceil(samples / batch).astype(np.int64))
    return SessionConstants(
        samples,
        batch,
        problem.dispersion(),
        made,
        problem.smoothness(),
        variances=np.zeros(len(samples)),
    )


def _sharpen(session: SessionConstants, problem: Problem, model: ModelState) -> bool:
    """Raise the estimates of a session to those at one more model."""
    session.sharpness = max(session.sharpness, problem.sharpness(model, problem.steepest()))
    # np.maximum keeps nan, which stands for data without features.
    session.theta = float(np.maximum(session.theta, problem.variability(model)))
    session.variances = np.maximum(session.variances, problem.variances(model))
    return True


def _findings(watcher: _Measuring, zeta_1: float, notes: list[str]) -> Findings:
    sessions, rounds = watcher.sessions, watcher.rounds
    uppers = [s.upper for s in sessions.values() if s.upper is not None]
    sharpness = max(s.sharpness for s in sessions.values())
    known = len(uppers) == len(sessions)
    zeta_2 = dissimilarity([r.spread for r in rounds], [r.square for r in rounds], zeta_1)
    thetas = [s.theta for s in sessions.values()]
    featured = all(math.isfinite(theta) for theta in thetas)
    if not featured:
        notes.append(
            "Theta is not finite (equal features with different labels, or token numbers), so all "
            "bounds use the measured variance of the mini-batches"
        )
    theta = max(thetas) if featured else math.nan
    constants = Constants(max(uppers) if known else sharpness, theta, zeta_1, zeta_2)
    names = dict.fromkeys((r.algorithm, r.method) for r in rounds)
    verdicts = [
        _verdict([r for r in rounds if (r.algorithm, r.method) == name], sessions, constants)
        for name in names
    ]
    gaps = [start._replace(least=watcher.least[key]) for start, key in watcher.starts]
    steps = max(int(s.steps.max()) for s in sessions.values())
    eta = max(r.eta for r in rounds)
    return Findings(rounds, gaps, verdicts, constants, sharpness, known, eta, steps, notes)


def _verdict(
    rounds: Sequence[MeasuredRound],
    sessions: dict[tuple[int, int], SessionConstants],
    run: Constants,
) -> Verdict:
    printed, corrected, sharp, holds = [], [], [], [0, 0]
    for r in rounds:
        here = sessions[r.seed, r.session]
        of = run._replace(theta=here.theta)
        variance = (1 - here.batch / here.samples) / here.batch * here.variances
        measured = Devices(here.samples, here.batch, here.dispersion, variance)
        assumed = Devices(here.samples, here.batch, here.dispersion)
        if not math.isfinite(run.theta):
            assumed = measured
        steps = int(here.steps.max())
        this = bound.TheoremRound(r.eta, steps, r.before - r.after, assumed)
        slacks = [
            slack(r.eta, steps, of.beta, of.zeta_1)
            for slack in (bound.printed_slack, bound.corrected_slack)
        ]
        holds = [count + (slack < 1) for count, slack in zip(holds, slacks, strict=True)]
        one, two = (slack if slack < 1 else HALF for slack in slacks)
        printed.append(bound.printed_terms(this, of, one))
        corrected.append(bound.corrected_terms(this, of, two))
        sharp.append(bound.corrected_terms(this._replace(devices=measured), of, two))
    return Verdict(
        rounds[0].algorithm,
        rounds[0].method,
        math.fsum(r.square for r in rounds) / len(rounds),
        bound.mean_terms(printed),
        bound.mean_terms(corrected),
        bound.mean_terms(sharp),
        len(rounds),
        *holds,
    )


def _outside(config: Config, sessions: Iterable[SessionConstants]) -> list[str]:
    """Return in which ways the run differs from what the theorem assumes."""
    notes = []
    local = config.local
    if local.momentum:
        notes.append(
            f"the run has momentum {local.momentum:g} and the bounds are for momentum 0: what is "
            "measured is the run's own, and (a) is larger than with plain SGD"
        )
    if local.rule == "one_pass":
        notes.append(
            'local.rule = "one_pass" draws without replacement over a whole pass; the theorem '
            'assumes a fresh draw in every step ("each_step")'
        )
    steps = {int(step) for session in sessions for step in session.steps}
    if len(steps) > 1:
        notes.append(
            f"devices make {min(steps)} to {max(steps)} steps; the theorem assumes the same number "
            "for all, for which the session's largest is used"
        )
    if config.participation.share is not None:
        notes.append("devices take part at random; the theorem assumes full participation")
    others = [name for name in config.algorithm if name != THEOREM_ALGORITHM]
    if others:
        notes.append(f"the theorem is about FedAvg, not about {', '.join(others)}")
    for method in config.methods:
        if "teacher" in keeps(method):
            notes.append(f"{method} distils, and so trains on another loss than the measured F^(s)")
    if local.radius is not None:
        notes.append("the proof does not allow a projection that has an effect (local.radius)")
    return notes


def _compared(again: Sequence[Round], before: Sequence[Round]) -> list[str]:
    """Compare the repeated rounds with the recorded ones."""
    recorded = {r[:5]: r for r in before}
    common = [(r, recorded[r[:5]]) for r in again if r[:5] in recorded]
    different = sum(abs(r.loss - old.loss) > 1e-4 * abs(old.loss) for r, old in common)
    if different:
        return [
            f"{different} of {len(common)} rounds differ from the records (another machine or "
            "version): the numbers are those of the repeated run"
        ]
    return (
        [] if len(common) == len(again) else ["the run is not finished; it was repeated to its end"]
    )
