"""A finished run beside Theorem 1: what was measured, and what the bounds say.

The run is made again, in memory: draws are functions of names, so every w^(s,t) comes back, and
with it F^(s)(w^(s,t)), the gradients of all devices, and the constants of the assumptions at these
models. The rounds' accuracies are compared with the records to make sure.
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
from ebbflow.analysis.bound import Array, Constants, Devices, Terms
from ebbflow.analysis.constants import Gradients, Problem, dissimilarity
from ebbflow.config.resolved import Config
from ebbflow.core.errors import EbbflowError
from ebbflow.core.types import ModelState, Session
from ebbflow.data import datasets
from ebbflow.runs import records
from ebbflow.runs.records import Round
from ebbflow.simulation.callbacks import Callback
from ebbflow.simulation.tracks import Track
from ebbflow.simulation.world import World

Result = TypeVar("Result")
HALF = 0.5  # the Lambda of rounds whose rate is too large for any


class Line(NamedTuple):
    """One round of one method: the losses on either side, and the gradients at w^(s,t).

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


class Beginning(NamedTuple):
    """Where one method starts a session: F at w^(s,1), at w^(s-1,T+1), and the least loss known."""

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
        """Whether the start is no worse than the carried-over model; None where there is none."""
        return None if self.carried is None else self.start <= self.carried


@dataclass
class Place:
    """A session under one seed: its devices, and the constants at the models that were seen."""

    samples: Array
    batch: Array
    dispersion: Array
    steps: NDArray[np.int64]
    upper: float | None
    sharpness: float = 0.0
    theta: float = 0.0
    variances: Array = field(default_factory=lambda: np.zeros(0))


class Verdict(NamedTuple):
    """One method: the measured average, the bounds, and how many rounds are within the condition.

    ``sharp`` is the corrected bound with the mini-batches' variance as it was measured, instead of
    through Theta and the features' dispersion.
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
    """All that `examine` finds out about a run."""

    lines: list[Line]
    beginnings: list[Beginning]
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
            "starts": [{**b._asdict(), "gap": b.gap, "holds": b.holds} for b in self.beginnings],
            "notes": self.notes,
        }

    def limits(self) -> dict[str, float]:
        """Return the largest rates that the two theorems allow."""
        of = self.constants
        return {
            "printed": bound.printed_rate(self.steps, of.beta, of.zeta_1),
            "corrected": bound.corrected_rate(self.steps, of.beta, of.zeta_1),
        }


def chosen(folder: Path, seeds: Sequence[int]) -> Config:
    """Return a run's configuration with only these seeds; with all of them where none is named."""
    config = experiment.read_config(folder)
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
    """Make a run again and compare what it did with Theorem 1.

    Args:
        folder: A run folder.
        seeds: Only these; by default all of the run's.
        iterations: Of the full-batch training that looks for w^(s)*.
        zeta_1: Of the dissimilarity assumption; zeta_2 is the least that goes with it.
        callbacks: Others that follow the run, such as a progress display.
    """
    config = chosen(folder, seeds)
    if zeta_1 < 1:
        raise EbbflowError(f"--zeta1 {zeta_1:g} is below 1, which Assumption 2 excludes: raise it")
    data = datasets.load(
        config.dataset, limit_train=config.data.limit_train, limit_test=config.data.limit_test
    )
    before = records.read_json(folder / records.ENVIRONMENT).get("dataset", {})
    if before.get("digest") not in (None, experiment.fingerprint(data)):
        raise EbbflowError(
            f"the data set {data.name} is not the one that {folder} was made with (its digest "
            "differs): restore the data"
        )
    measuring = _Measuring(config, iterations)
    again = experiment.run(config, dataset=data, callbacks=[measuring, *callbacks])
    notes = [*_outside(config, measuring.places.values())]
    notes += _compared(again.rounds, records.read_rounds(folder))
    return _findings(measuring, zeta_1, notes)


class _Measuring(Callback):
    """Measures every model of a simulation as it passes."""

    def __init__(self, config: Config, iterations: int) -> None:
        self.config = config
        self.iterations = iterations
        self.lines: list[Line] = []
        self.places: dict[tuple[int, int], Place] = {}
        self.starts: list[tuple[Beginning, tuple[int, tuple[int, ...]]]] = []
        self.least: dict[tuple[int, tuple[int, ...]], float] = {}
        self._searched: set[tuple[int, tuple[int, ...]]] = set()
        self._problems: dict[tuple[int, tuple[int, ...]], Problem] = {}
        self._here: dict[tuple[str, str], Gradients] = {}
        self._last: dict[tuple[str, str], ModelState] = {}

    def session_started(
        self, world: World, session: Session, events: Sequence[dict[str, Any]]
    ) -> None:
        """Prepare F^(s)."""
        key = (world.seed, session.devices)
        if key not in self._problems:
            while len(self._problems) >= 2:  # two groups that alternate are all that is worth it
                del self._problems[next(iter(self._problems))]
            shards = [session.shards[device] for device in session.devices]
            self._problems[key] = Problem.of(world.model, world.dataset.train, shards)
        if session.index == 1:
            self._here, self._last = {}, {}
        self.places[world.seed, session.index] = _place(self.config, self._problems[key])

    def round_finished(
        self, world: World, session: Session, tracks: Sequence[Track], rounds: Sequence[Round]
    ) -> None:
        """Measure w^(s,t+1) of every method, and w^(s,1) in the first round."""
        key = (world.seed, session.devices)
        problem, place = self._problems[key], self.places[world.seed, session.index]
        if rounds[0].round == 1:
            starts = [track.start.model if track.start else track.model for track in tracks]
            last = [self._last.get(_name(r), w) for r, w in zip(rounds, starts, strict=True)]
            found = _once([*starts, *last], problem.gradients)
            carried = [at.loss for at in found[len(starts) :]]
            for r, at, before in zip(rounds, found, carried, strict=False):
                self._here[_name(r)] = at
                start = Beginning(
                    r.algorithm,
                    r.method,
                    r.seed,
                    r.session,
                    at.loss,
                    before if _name(r) in self._last else None,
                    math.nan,
                )
                self.starts.append((start, key))
            _once(starts, lambda model: _sharpen(place, problem, model))
        models = [track.model for track in tracks]
        for r, after in zip(rounds, _once(models, problem.gradients), strict=True):
            at = self._here[_name(r)]
            spread = float(problem.shares @ at.squares)
            self.lines.append(Line(*r[:5], r.lr, at.loss, after.loss, at.square, spread))
            self._here[_name(r)] = after
            self.least[key] = min(self.least.get(key, math.inf), at.loss, after.loss)
        if rounds[0].round == session.rounds:
            _once(models, lambda model: _sharpen(place, problem, model))
            self._last = {_name(r): model for r, model in zip(rounds, models, strict=True)}

    def session_finished(self, world: World, session: Session, tracks: Sequence[Track]) -> None:
        """Look for w^(s)*, once for the same devices."""
        key = (world.seed, session.devices)
        if key not in self._searched:
            self._searched.add(key)
            best = self._problems[key].optimum(tracks[0].model, self.iterations)
            self.least[key] = min(self.least[key], best)


def _name(r: Round) -> tuple[str, str]:
    return r.algorithm, r.method


def _once(models: Sequence[ModelState], measure: Callable[[ModelState], Result]) -> list[Result]:
    """Apply a function to models, once to those that are the same."""
    done: list[tuple[ModelState, Result]] = []
    found = []
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
        found.append(result)
    return found


def _place(config: Config, problem: Problem) -> Place:
    samples = problem.counts.astype(np.float64)
    batch = np.minimum(samples, config.local.batch or 1)
    steps = config.local.steps if isinstance(config.local.steps, int) else config.local.steps[1]
    made = np.full(len(samples), steps, dtype=np.int64)
    if config.local.rule == "one_pass":
        made = np.minimum(made, np.ceil(samples / batch).astype(np.int64))
    return Place(
        samples,
        batch,
        problem.dispersion(),
        made,
        problem.smoothness(),
        variances=np.zeros(len(samples)),
    )


def _sharpen(place: Place, problem: Problem, model: ModelState) -> bool:
    """Raise the estimates of a session to what one more model says."""
    place.sharpness = max(place.sharpness, problem.sharpness(model, problem.steepest()))
    # nan, where there are no features, stays.
    place.theta = float(np.maximum(place.theta, problem.variability(model)))
    place.variances = np.maximum(place.variances, problem.variances(model))
    return True


def _findings(watcher: _Measuring, zeta_1: float, notes: list[str]) -> Findings:
    places, lines = watcher.places, watcher.lines
    uppers = [place.upper for place in places.values() if place.upper is not None]
    sharpness = max(place.sharpness for place in places.values())
    known = len(uppers) == len(places)
    zeta_2 = dissimilarity([n.spread for n in lines], [n.square for n in lines], zeta_1)
    thetas = [place.theta for place in places.values()]
    featured = all(math.isfinite(theta) for theta in thetas)
    if not featured:
        notes.append(
            "Theta is not finite (equal features with different labels, or token numbers), so that "
            "all bounds use the mini-batches' variance as it was measured"
        )
    theta = max(thetas) if featured else math.nan
    constants = Constants(max(uppers) if known else sharpness, theta, zeta_1, zeta_2)
    names = dict.fromkeys((n.algorithm, n.method) for n in lines)
    verdicts = [
        _verdict([n for n in lines if (n.algorithm, n.method) == name], places, constants)
        for name in names
    ]
    beginnings = [start._replace(least=watcher.least[key]) for start, key in watcher.starts]
    steps = max(int(place.steps.max()) for place in places.values())
    eta = max(n.eta for n in lines)
    return Findings(lines, beginnings, verdicts, constants, sharpness, known, eta, steps, notes)


def _verdict(
    lines: Sequence[Line], places: dict[tuple[int, int], Place], run: Constants
) -> Verdict:
    printed, corrected, sharp, holds = [], [], [], [0, 0]
    for n in lines:
        place = places[n.seed, n.session]
        of = run._replace(theta=place.theta)
        variance = (1 - place.batch / place.samples) / place.batch * place.variances
        measured = Devices(place.samples, place.batch, place.dispersion, variance)
        assumed = Devices(place.samples, place.batch, place.dispersion)
        if not math.isfinite(run.theta):
            assumed = measured
        steps = int(place.steps.max())
        this = bound.Round(n.eta, steps, n.before - n.after, assumed)
        slacks = [
            slack(n.eta, steps, of.beta, of.zeta_1)
            for slack in (bound.printed_slack, bound.corrected_slack)
        ]
        holds = [count + (slack < 1) for count, slack in zip(holds, slacks, strict=True)]
        one, two = (slack if slack < 1 else HALF for slack in slacks)
        printed.append(bound.printed_terms(this, of, one))
        corrected.append(bound.corrected_terms(this, of, two))
        sharp.append(bound.corrected_terms(this._replace(devices=measured), of, two))
    return Verdict(
        lines[0].algorithm,
        lines[0].method,
        math.fsum(n.square for n in lines) / len(lines),
        bound.mean_terms(printed),
        bound.mean_terms(corrected),
        bound.mean_terms(sharp),
        len(lines),
        *holds,
    )


def _outside(config: Config, places: Iterable[Place]) -> list[str]:
    """Return in what the run is not what the theorem speaks of."""
    found = []
    local = config.local
    if local.momentum:
        found.append(
            f"the run has momentum {local.momentum:g} and the bounds are for momentum 0: what is "
            "measured is the run's own, and (a) is larger than plain SGD's"
        )
    if local.rule == "one_pass":
        found.append(
            'local.rule = "one_pass" draws without replacement over a whole pass; the theorem has '
            'a fresh draw in every step ("each_step")'
        )
    steps = {int(step) for place in places for step in place.steps}
    if len(steps) > 1:
        found.append(
            f"devices make {min(steps)} to {max(steps)} steps; the theorem has one number for all, "
            "here the session's largest"
        )
    if config.participation.share is not None:
        found.append("devices take part at random; the theorem has full participation")
    others = [name for name in config.algorithm if name != "fedavg"]
    if others:
        found.append(f"the theorem speaks of FedAvg, not of {', '.join(others)}")
    if "continuous" in config.methods:
        found.append("continuous trains on another loss (it distils) than F^(s), which is measured")
    if local.radius is not None:
        found.append("a projection that acts (local.radius) is not in the proof")
    return found


def _compared(again: Sequence[Round], before: Sequence[Round]) -> list[str]:
    """Compare the rounds made again with the recorded ones."""
    recorded = {r[:5]: r for r in before}
    common = [(r, recorded[r[:5]]) for r in again if r[:5] in recorded]
    different = sum(abs(r.loss - old.loss) > 1e-4 * abs(old.loss) for r, old in common)
    if different:
        return [
            f"{different} of {len(common)} rounds came out differently from the records (another "
            "machine or version): the numbers are those of the run made again"
        ]
    return [] if len(common) == len(again) else ["the run is not finished; it was made again whole"]
