"""W1 to W5: results are checked for equality first; then the contenders are timed in turns."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks import registers, workloads
from benchmarks.contenders import (
    EngineRounds,
    Gemm,
    PlainLoop,
    ProductsOnly,
    cores,
    fast_engine,
    starts,
)
from benchmarks.memory import PeakMemory
from benchmarks.peer_runs import PeerError, PeerProcess, known_peers
from benchmarks.results import Measurement, Requirement, Suite
from benchmarks.timing import Contender, alternate, as_in_a_run, ratio, timed
from benchmarks.workloads import Workload
from ebbflow.core.errors import EbbflowError
from ebbflow.core.local import Engine
from ebbflow.core.processor import instructions
from ebbflow.engines import Sequential, Vectorised
from ebbflow.models import at_precision, flops
from ebbflow.runs.environment import has_bf16, machine, versions

CHECKED_ROUNDS = 2
OURS = "ebbflow"
BF16 = "ebbflow, bfloat16"
LOCKSTEP = "ebbflow, four methods in lockstep"
ONE_BY_ONE = "ebbflow, four methods one by one"
PRODUCTS = "the products alone"
PLAIN = "plain loop in torch"
REGISTERS = "as many multiply-adds, in registers"
GEMM = "a product of 2048 × 2048"
# Largest allowed difference between averaged models. A loop that averages models instead of
# displacements loses the last digits of a large table.
TOLERANCES = {"W1": 1e-6, "W2": 1e-5, "W3": 1e-5, "W4": 1e-4, "W5": 1e-6}
DOUBLE = 1e-6  # in double precision; some peers still add up in single precision
IN_DOUBLE = (
    "The difference is that of one round in double precision. In single precision, rounding "
    "decides whether some units are above or below zero, so that gradients jump: no two orders of "
    "summation agree."
)


class Contest:
    """Contenders on one workload: each is checked against the reference, then all are timed."""

    def __init__(
        self, workload: Workload, rounds: int = CHECKED_ROUNDS, tolerance: float | None = None
    ) -> None:
        self.workload = workload
        self.rounds = rounds
        self.tolerance = TOLERANCES[workload.name] if tolerance is None else tolerance
        self.contenders: dict[str, Contender] = {}
        self.measurements: dict[str, Measurement] = {}
        self.versions: dict[str, str] = {}
        self.failures: dict[str, str] = {}

    @cached_property
    def reference(self) -> Tensor:
        """The model of the reference engine after the checked rounds."""
        workload = self.workload
        engine = Sequential(workload.model, workload.examples, workload.recipe)
        rounds = EngineRounds(workload, engine)
        for _ in range(self.rounds):
            rounds()
        return rounds.models[0].theta

    def difference(self, theta: Tensor) -> float:
        """Return the largest difference between an entry of a model and of the reference."""
        return float((theta - self.reference).abs().max())

    def add(self, name: str, contender: Callable[[], object], theta: Callable[[], Tensor]) -> None:
        """Check a contender of this process over the checked rounds, and enter it."""
        with PeakMemory() as peak:
            for _ in range(self.rounds):
                contender()
        difference = self.difference(theta())
        if not difference <= self.tolerance:
            raise EbbflowError(
                f"{self.workload.name}: the model of {name} differs from the reference by "
                f"{difference:.1e}, more than {self.tolerance:g}, so that nothing is timed"
            )
        # Only the first contender has the process to itself; later ones would include its memory.
        memory = None if self.measurements else peak.bytes
        self.enter(
            name, timed(contender), Measurement(name=name, difference=difference, memory=memory)
        )

    def enter(self, name: str, contender: Contender, measurement: Measurement) -> None:
        """Enter a contender that has been checked already or has no model."""
        self.contenders[name] = contender
        self.measurements[name] = measurement

    def add_plain_loop(self, *, options: tuple[int, ...]) -> None:
        """Enter the plain loop with the number of threads that makes it fastest."""
        loops = {count: PlainLoop(self.workload, count) for count in options}
        seconds = {}
        for count, loop in loops.items():
            name = f"{PLAIN}, {count} thread{'s' * (count > 1)}"
            self.add(name, loop, partial(getattr, loop, "theta"))
            seconds[name] = self.contenders[name]()
        for name in seconds:
            if name != min(seconds, key=seconds.__getitem__):
                del self.contenders[name], self.measurements[name]

    def add_peers(
        self, folder: Path, scratch: Path, stack: ExitStack, exact: Contest | None = None
    ) -> None:
        """Start the peers of a folder and enter those that reach the same model.

        With ``exact``, a peer is checked in that contest, in a separate process, and only timed in
        this one.
        """
        for contest in (self, exact):
            if contest is not None:
                workloads.export(contest.workload, scratch / contest.folder)
        for name, start in known_peers(folder).items():
            own = scratch / name
            own.mkdir()
            try:
                difference = None
                if exact is not None:
                    checked = PeerProcess(name, start, scratch / exact.folder, own)
                    try:
                        difference = exact.peer_difference(checked)
                    finally:
                        checked.stop()
                peer = PeerProcess(name, start, scratch / self.folder, own)
                stack.callback(peer.stop)
                self._add_peer(peer, exact or self, difference)
            except PeerError as error:
                self.measurements[name] = Measurement(
                    name=name, peer=True, note=f"not measured: {error}"
                )

    @property
    def folder(self) -> str:
        """The name of the folder that the workload is exported to."""
        return str(self.workload.initial.theta.dtype)

    def peer_difference(self, peer: PeerProcess) -> float:
        """Return how far a peer's model is from the reference after the checked rounds."""
        for _ in range(self.rounds):
            peer()
        return self.difference(torch.from_numpy(peer.theta()).to(self.reference))

    def _add_peer(self, peer: PeerProcess, judge: Contest, difference: float | None = None) -> None:
        self.versions |= peer.versions
        if difference is None:
            difference = judge.peer_difference(peer)
        if not difference <= judge.tolerance:
            note = "not timed: its model differs from the reference"
            self.measurements[peer.name] = Measurement(
                name=peer.name, difference=difference, peer=True, note=note
            )
            return
        seconds = {}
        for option in peer.options:
            peer.option = option
            seconds[option] = min(peer(), peer())
        peer.option = min(seconds, key=seconds.__getitem__)
        note = "; ".join(part for part in (peer.option, peer.note) if part)
        memory = peer.memory()
        measurement = Measurement(
            name=peer.name, difference=difference, memory=memory, peer=True, note=note
        )
        self.enter(peer.name, partial(self._attempt, peer), measurement)

    def _attempt(self, peer: PeerProcess) -> float:
        """Run a peer's round; if it fails, note why and go on without it."""
        if peer.name not in self.failures:
            try:
                return peer()
            except PeerError as error:
                self.failures[peer.name] = f"not measured: {error}"
        return math.nan

    def run(self, repeats: int) -> list[Measurement]:
        """Time all contenders in turns and return their measurements."""
        seconds = alternate(self.contenders, repeats)
        seconds |= {name: [] for name in self.failures}
        return [
            measurement.model_copy(
                update={
                    "seconds": seconds.get(name, []),
                    "note": self.failures.get(name, measurement.note),
                }
            )
            for name, measurement in self.measurements.items()
        ]


def _suite(
    contest: Contest,
    measurements: list[Measurement],
    requirements: list[Requirement],
    notes: list[str] | None = None,
) -> Suite:
    return Suite(
        name=contest.workload.name,
        title=contest.workload.title,
        measurements=measurements,
        requirements=requirements,
        notes=notes or [],
        machine=machine(),
        versions=contest.versions | versions(),
    )


def _time_ratio(measurements: list[Measurement], one: str, other: str) -> float:
    seconds = {each.name: each.seconds for each in measurements}
    return ratio(seconds[one], seconds[other])


def fastest_peer(measurements: list[Measurement]) -> str | None:
    """Return the name of the peer with the shortest time, if any was timed."""
    timed_peers = [each for each in measurements if each.peer and each.seconds]
    return min(timed_peers, key=lambda peer: peer.median).name if timed_peers else None


def _faster_than_peers(
    measurements: list[Measurement], bound: float, ours: str = OURS
) -> list[Requirement]:
    fastest = fastest_peer(measurements)
    if fastest is None:
        return []
    what = f"speed of {ours} beside the fastest peer ({fastest})"
    return [
        Requirement(
            what=what, value=_time_ratio(measurements, fastest, ours), bound=bound, at_least=True
        )
    ]


class Bounds(NamedTuple):
    """What a suite of one model in lockstep should keep: see `_in_lockstep`."""

    peers: float
    products: float
    lockstep: float
    one_by_one: float


def w1(repeats: int, peers: Path | None = None, workload: Workload | None = None) -> Suite:
    """Time softmax regression: one method, four, the products alone, a plain loop, the peers."""
    products = 0.75 if instructions()["torch"] == "AVX512" else 0.95
    bounds = Bounds(peers=3, products=products, lockstep=3.5, one_by_one=1)
    return _in_lockstep(workload or workloads.softmax_workload(), bounds, repeats, peers)


def w5(repeats: int, peers: Path | None = None, workload: Workload | None = None) -> Suite:
    """Time the perceptron like W1's softmax regression."""
    bounds = Bounds(peers=2.5, products=1.4, lockstep=3, one_by_one=1)
    return _in_lockstep(workload or workloads.mlp_workload(), bounds, repeats, peers)


def _in_lockstep(workload: Workload, bounds: Bounds, repeats: int, peers: Path | None) -> Suite:
    """Time one method, four in lockstep and one by one, the products, a plain loop, the peers."""
    with ExitStack() as stack, as_in_a_run():
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))

        def engine() -> Engine:
            made = fast_engine(workload)
            stack.callback(made.close)
            return made

        contest = Contest(workload)
        one = EngineRounds(workload, engine())
        contest.add(OURS, one, lambda: one.models[0].theta)
        together = EngineRounds(workload, engine(), starts(workload, 4))
        shared = engine()
        alone = [EngineRounds(workload, shared, [model]) for model in starts(workload, 4)]
        together()
        for rounds in alone:
            rounds()
        difference = max(
            float((a.theta - b.models[0].theta).abs().max())
            for a, b in zip(together.models, alone, strict=True)
        )
        contest.enter(LOCKSTEP, timed(together), Measurement(name=LOCKSTEP, difference=difference))

        def one_by_one() -> None:
            for rounds in alone:
                rounds()

        contest.enter(ONE_BY_ONE, timed(one_by_one), Measurement(name=ONE_BY_ONE))
        products = ProductsOnly(workload, cores())
        stack.callback(products.close)
        products()
        contest.enter(PRODUCTS, timed(products), Measurement(name=PRODUCTS))
        contest.add_plain_loop(options=_thread_options())
        if (library := registers.compiled(scratch)) is not None:
            least = registers.Registers(library, products.multiply_adds, cores())
            stack.callback(least.close)
            contest.enter(REGISTERS, timed(least), Measurement(name=REGISTERS))
        if peers is not None:
            contest.add_peers(peers, scratch, stack)
        measurements = contest.run(repeats)
    requirements = [
        *_faster_than_peers(measurements, bounds.peers),
        Requirement(
            what="time beside the products alone",
            value=_time_ratio(measurements, OURS, PRODUCTS),
            bound=bounds.products,
        ),
        Requirement(
            what="four in lockstep beside one",
            value=_time_ratio(measurements, LOCKSTEP, OURS),
            bound=bounds.lockstep,
        ),
        Requirement(
            what="four in lockstep beside four one by one",
            value=_time_ratio(measurements, LOCKSTEP, ONE_BY_ONE),
            bound=bounds.one_by_one,
        ),
    ]
    notes = [
        "Mini-batches are drawn in advance for all contenders. The difference of the four methods "
        "in lockstep is from the same four run one by one."
    ]
    if REGISTERS in contest.contenders:
        of_four = 4 * _time_ratio(measurements, REGISTERS, OURS)
        notes.append(
            "The products' multiply-adds on numbers that never leave the registers are the least "
            f"that any program takes. Of four methods they take {of_four:.2f} times as long as the "
            "whole of one, so that no lockstep can be below that."
        )
    return _suite(contest, measurements, requirements, notes)


def contest_with_ours(
    workload: Workload, tolerance: float, stack: ExitStack, workers: int | None = None
) -> Contest:
    """Return a contest that our engine has entered after one checked round."""
    contest = Contest(workload, 1, tolerance)
    engine = fast_engine(workload, workers)
    stack.callback(engine.close)
    rounds = EngineRounds(workload, engine)
    contest.add(OURS, rounds, lambda: rounds.models[0].theta)
    return contest


def _copy_differences(contest: Contest, exact: Contest) -> None:
    """Report the differences that were measured in double precision."""
    for name, checked in exact.measurements.items():
        contest.measurements[name] = contest.measurements[name].model_copy(
            update={"difference": checked.difference}
        )


def w2(repeats: int, peers: Path | None = None, workload: Workload | None = None) -> Suite:
    """Time the convolutional network in single precision."""
    contest_workload = workload or workloads.cnn_workload()
    with ExitStack() as stack, as_in_a_run():
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        contest = contest_with_ours(contest_workload, math.inf, stack)
        exact = contest_with_ours(workloads.in_double(contest_workload), DOUBLE, stack)
        _copy_differences(contest, exact)
        lower = at_precision(contest_workload.model, "bf16")
        engine = Vectorised(lower, contest_workload.examples, contest_workload.recipe)
        stack.callback(engine.close)
        rounded = EngineRounds(contest_workload, engine)
        for _ in range(contest.rounds):
            rounded()
        difference = contest.difference(rounded.models[0].theta)
        note = "difference in single precision"
        contest.enter(
            BF16, timed(rounded), Measurement(name=BF16, difference=difference, note=note)
        )
        if peers is not None:
            contest.add_peers(peers, scratch, stack, exact)
        measurements = contest.run(repeats)
    requirements = _faster_than_peers(measurements, 1)
    if has_bf16():
        requirements += _faster_than_peers(measurements, 2, BF16)
        notes = [IN_DOUBLE, "In bfloat16 the model differs, by the figure in its row."]
    else:
        notes = [
            IN_DOUBLE,
            "This processor has no bfloat16 instructions: operands are rounded to bfloat16 and "
            "multiplied in float32, which shows the effect on the model but saves no time.",
        ]
    return _suite(contest, measurements, requirements, notes)


def w3(repeats: int, peers: Path | None = None, workload: Workload | None = None) -> Suite:
    """Time one step of ResNet-18 on one thread, beside a plain matrix product."""
    contest_workload = workload or workloads.resnet_workload()
    with ExitStack() as stack, as_in_a_run():
        contest = contest_with_ours(contest_workload, math.inf, stack, workers=1)
        contest.add_plain_loop(options=(1,))
        exact = contest_with_ours(workloads.in_double(contest_workload), DOUBLE, stack, workers=1)
        exact.add_plain_loop(options=(1,))
        _copy_differences(contest, exact)
        gemm = Gemm()
        gemm()
        contest.enter(GEMM, timed(gemm), Measurement(name=GEMM))
        measurements = contest.run(repeats)
    step = (
        3
        * flops(contest_workload.model, contest_workload.examples.x[:2])
        * len(contest_workload.examples)
    )
    measurements = [
        each.model_copy(update={"operations": gemm.operations if each.name == GEMM else step})
        for each in measurements
    ]
    notes = [
        IN_DOUBLE,
        "A step is counted as three forward passes, two operations for each multiply-add of a "
        "convolution or a product.",
    ]
    return _suite(contest, measurements, [], notes)


def w4(repeats: int, peers: Path | None = None, workload: Workload | None = None) -> Suite:
    """Time averaged embeddings beside a loop whose gradients are as large as the table."""
    contest_workload = workload or workloads.text_workload()
    with ExitStack() as stack, as_in_a_run():
        contest = Contest(contest_workload, rounds=1)
        engine = fast_engine(contest_workload)
        stack.callback(engine.close)
        rounds = EngineRounds(contest_workload, engine)
        contest.add(OURS, rounds, lambda: rounds.models[0].theta)
        contest.add_plain_loop(options=_thread_options())
        measurements = contest.run(repeats)
    (plain,) = (each.name for each in measurements if each.name.startswith(PLAIN))
    speed = _time_ratio(measurements, plain, OURS)
    requirement = Requirement(
        what="speed beside the plain loop", value=speed, bound=10, at_least=True
    )
    return _suite(contest, measurements, [requirement])


def _thread_options() -> tuple[int, ...]:
    return (1,) if cores() == 1 else (1, cores())
