"""W1 to W5: results are checked for equality first; then the contenders are timed in turns."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks import registers, workloads
from benchmarks.alone import Gemm
from benchmarks.contenders import EngineRounds, fast_engine, starts
from benchmarks.memory import PeakMemory
from benchmarks.peer_runs import PeerError, PeerProcess, known_peers, own_process
from benchmarks.peers.protocol import cores, mkl_setting
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
    "The difference is that of the first rounds in double precision. In single precision, rounding "
    "decides whether some units are above or below zero, so that gradients jump: no two orders of "
    "summation agree."
)


class DifferentModelError(EbbflowError):
    """A contender does not reach the reference's model."""

    def __init__(self, message: str, difference: float = math.nan) -> None:
        super().__init__(message)  # another process gets the message first, then the attributes
        self.difference = difference


class Contest:
    """Contenders on one workload: each is checked against the reference, then all are timed.

    Args:
        workload: What they train.
        rounds: After how many rounds models are compared at least.
        tolerance: How far a model may be from the reference's.
        others: How far that of another contender than ours may be, if it is checked more closely in
            another contest; by default as far as ours.
    """

    def __init__(
        self,
        workload: Workload,
        rounds: int = CHECKED_ROUNDS,
        tolerance: float | None = None,
        others: float | None = None,
    ) -> None:
        self.workload = workload
        self.rounds = rounds
        self.tolerance = TOLERANCES[workload.name] if tolerance is None else tolerance
        self.others = self.tolerance if others is None else others
        self.contenders: dict[str, Contender] = {}
        self.measurements: dict[str, Measurement] = {}
        self.versions: dict[str, str] = {}
        self.failures: dict[str, str] = {}
        self._references: list[Tensor] = []

    @cached_property
    def _reference_rounds(self) -> EngineRounds:
        workload = self.workload
        engine = Sequential(workload.model, workload.examples, workload.recipe)
        return EngineRounds(workload, engine)

    def reference(self, rounds: int) -> Tensor:
        """Return the model of the reference engine after so many rounds."""
        while len(self._references) < rounds:
            self._reference_rounds()
            self._references.append(self._reference_rounds.models[0].theta)
        return self._references[rounds - 1]

    def difference(self, theta: Tensor, rounds: int | None = None) -> float:
        """Return the largest difference between an entry of a model and of the reference."""
        reference = self.reference(rounds or self.rounds)
        return float((theta.to(reference) - reference).abs().max())

    def judge(self, name: str, difference: float, tolerance: float | None = None) -> None:
        """Refuse a contender whose model is too far from the reference."""
        allowed = self.tolerance if tolerance is None else tolerance
        if not difference <= allowed:
            raise DifferentModelError(
                f"{self.workload.name}: the model of {name} differs from the reference by "
                f"{difference:.1e}, more than {allowed:g}, so that nothing is timed",
                difference,
            )

    def add(self, name: str, contender: Callable[[], object], theta: Callable[[], Tensor]) -> None:
        """Check a contender of this process over the checked rounds, and enter it."""
        with PeakMemory() as peak:
            for _ in range(self.rounds):
                contender()
        difference = self.difference(theta())
        self.judge(name, difference)
        # Only the first contender has the process to itself; later ones would include its memory.
        memory = None if self.measurements else peak.bytes
        self.enter(
            name, timed(contender), Measurement(name=name, difference=difference, memory=memory)
        )

    def enter(self, name: str, contender: Contender, measurement: Measurement) -> None:
        """Enter a contender that has been checked already or has no model."""
        self.contenders[name] = contender
        self.measurements[name] = measurement

    def add_plain_loop(
        self,
        scratch: Path,
        stack: ExitStack,
        exact: Contest | None = None,
        only: str | None = None,
    ) -> None:
        """Enter the plain loop with the number of threads that makes it fastest."""
        start = own_process("benchmarks.alone", "plain loop")
        self.add_process(PLAIN, start, scratch, stack, exact=exact, only=only)

    def add_peers(
        self, folder: Path, scratch: Path, stack: ExitStack, exact: Contest | None = None
    ) -> None:
        """Start the peers of a folder and enter those that reach the same model."""
        for name, start in known_peers(folder).items():
            try:
                process = self.add_process(name, start, scratch, stack, exact=exact)
            except DifferentModelError as error:
                self.measurements[name] = Measurement(
                    name=name,
                    difference=error.difference,
                    peer=True,
                    note="not timed: its model differs from the reference",
                )
            except PeerError as error:
                self.measurements[name] = Measurement(
                    name=name, peer=True, note=f"not measured: {error}"
                )
            else:
                measurement = self.measurements[name].model_copy(update={"peer": True})
                self.enter(name, partial(self._attempt, process), measurement)

    def add_process(
        self,
        name: str,
        start: dict[str, Any],
        scratch: Path,
        stack: ExitStack,
        *,
        exact: Contest | None = None,
        only: str | None = None,
    ) -> PeerProcess:
        """Check a contender in a process of its own, and enter it by the fastest of its ways.

        With ``exact``, it is checked in that contest too, in a separate process, and the difference
        that was found there is reported. ``only`` names the way to run a round if others do not
        count.
        """
        difference = None
        if exact is not None:
            checked = exact.started(name, start, scratch)
            try:
                difference = exact.process_difference(checked, only)
            finally:
                checked.stop()
            exact.judge(name, difference)
        process = self.started(name, start, scratch)
        stack.callback(process.stop)
        self.versions |= process.versions
        found = self.process_difference(process, only)
        self.judge(name, found, self.others)
        seconds = {}
        for option in _ways(process, only):
            process.option = option
            seconds[option] = min(process(), process())
        process.option = min(seconds, key=seconds.__getitem__)
        measurement = Measurement(
            name=name,
            difference=found if difference is None else difference,
            memory=process.memory(),
            note="; ".join(part for part in (process.option, process.note) if part),
        )
        self.enter(name, process, measurement)
        return process

    def add_part(self, name: str, start: dict[str, Any], scratch: Path, stack: ExitStack) -> None:
        """Enter a part of a round, alone in a process of its own; it has no model to check."""
        process = self.started(name, start, scratch)
        stack.callback(process.stop)
        process()
        self.enter(name, process, Measurement(name=name, note=process.note))

    def started(self, name: str, start: dict[str, Any], scratch: Path) -> PeerProcess:
        """Start a process on this workload, which is exported for the first one."""
        folder = scratch / str(self.workload.initial.theta.dtype)
        if not folder.exists():
            workloads.export(self.workload, folder)
        own = Path(tempfile.mkdtemp(prefix="process-", dir=scratch))
        return PeerProcess(name, start, folder, own)

    def process_difference(self, process: PeerProcess, only: str | None = None) -> float:
        """Return how far a process's model is from the reference, after a round in each way."""
        ways = _ways(process, only)
        rounds = max(self.rounds, len(ways))
        for turn in range(rounds):
            process.option = ways[turn % len(ways)]
            process()
        return self.difference(torch.from_numpy(process.theta()), rounds)

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


def mkl_note() -> str:
    """Return under which setting of MKL contenders are timed, in words."""
    if "MKL_CBWR" not in os.environ:  # on processors of other kinds
        return "MKL_CBWR is not set for any contender."
    return (
        f"ebbflow is timed as it runs, with {mkl_setting()}: it asks MKL for the same bits "
        "wherever a matrix lies, which costs MKL speed on Intel's processors. The plain loop, the "
        "products and the other simulators have processes of their own, in which that variable is "
        "not set."
    )


def _ways(process: PeerProcess, only: str | None) -> list[str]:
    return process.options if only is None else [only]


def suite_of(
    contest: Contest,
    measurements: list[Measurement],
    requirements: list[Requirement],
    notes: list[str] | None = None,
) -> Suite:
    """Return the suite that a contest has come to."""
    return Suite(
        name=contest.workload.name,
        title=contest.workload.title,
        measurements=measurements,
        requirements=requirements,
        notes=notes or [],
        machine=machine(),
        versions=contest.versions | versions(),
    )


def time_ratio(measurements: list[Measurement], one: str, other: str) -> float:
    """Return how many times as long one contender took as another."""
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
            what=what, value=time_ratio(measurements, fastest, ours), bound=bound, at_least=True
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
        for _ in range(contest.rounds):
            together()
            for rounds in alone:
                rounds()
        contest.enter(
            LOCKSTEP,
            timed(together),
            Measurement(name=LOCKSTEP, difference=no_difference(workload, together, alone)),
        )

        def one_by_one() -> None:
            for rounds in alone:
                rounds()

        contest.enter(ONE_BY_ONE, timed(one_by_one), Measurement(name=ONE_BY_ONE))
        contest.add_part(PRODUCTS, own_process("benchmarks.alone", "products"), scratch, stack)
        contest.add_plain_loop(scratch, stack)
        if (library := registers.compiled(scratch)) is not None:
            least = registers.Registers(library, workload.multiply_adds, cores())
            stack.callback(least.close)
            contest.enter(REGISTERS, least, Measurement(name=REGISTERS))
        if peers is not None:
            contest.add_peers(peers, scratch, stack)
        measurements = contest.run(repeats)
    requirements = [
        *_faster_than_peers(measurements, bounds.peers),
        Requirement(
            what="time beside the products alone",
            value=time_ratio(measurements, OURS, PRODUCTS),
            bound=bounds.products,
        ),
        Requirement(
            what="four in lockstep beside one",
            value=time_ratio(measurements, LOCKSTEP, OURS),
            bound=bounds.lockstep,
        ),
        Requirement(
            what="four in lockstep beside four one by one",
            value=time_ratio(measurements, LOCKSTEP, ONE_BY_ONE),
            bound=bounds.one_by_one,
        ),
    ]
    notes = [
        "Mini-batches are drawn in advance for all contenders. The difference of the four methods "
        "in lockstep is from the same four run one by one: nothing is timed unless it is zero.",
        mkl_note(),
    ]
    if REGISTERS in contest.contenders:
        notes.append(least_time(measurements))
    return suite_of(contest, measurements, requirements, notes)


def no_difference(
    workload: Workload, together: EngineRounds, alone: Sequence[EngineRounds]
) -> float:
    """Return the difference of methods in lockstep from the same one by one, which must be zero."""
    difference = max(
        float((a.theta - b.models[0].theta).abs().max())
        for a, b in zip(together.models, alone, strict=True)
    )
    if difference != 0:  # nor may it be no number
        raise EbbflowError(
            f"{workload.name}: the models of four methods in lockstep differ by {difference:.1e} "
            "from those of the same methods one by one, and should be equal bit by bit, so that "
            "nothing is timed"
        )
    return difference


def least_time(measurements: list[Measurement]) -> str:
    """Return what limits four methods in lockstep, in words."""
    rows = {each.name: each for each in measurements}
    one, four = rows[OURS].median, rows[LOCKSTEP].median
    floor = min(rows[REGISTERS].seconds) / one
    shared = max(0.0, (4 * one - four) / (3 * one))  # the times are measured, and so not exact
    return (
        "The products' multiply-adds on numbers that never leave the registers are the least that "
        f"any program takes: at best {floor:.2f} of the time of one method, so that no lockstep of "
        f"four can be below {4 * floor:.2f} times one. What all methods share, such as the rows "
        "gathered once, is F = (4 one - four) / 3 of the times measured, which is "
        f"{shared:.2f} of one. As long as they share no more than that, four in lockstep cannot be "
        f"below (4 - 3 F / one) = {4 - 3 * shared:.2f} times one."
    )


def contest_with_ours(
    workload: Workload,
    tolerance: float,
    stack: ExitStack,
    workers: int | None = None,
    others: float | None = None,
) -> Contest:
    """Return a contest that our engine has entered after one checked round."""
    contest = Contest(workload, 1, tolerance, others)
    engine = fast_engine(workload, workers)
    stack.callback(engine.close)
    rounds = EngineRounds(workload, engine)
    contest.add(OURS, rounds, lambda: rounds.models[0].theta)
    return contest


def copy_differences(contest: Contest, exact: Contest) -> None:
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
        contest = contest_with_ours(contest_workload, TOLERANCES["W2"], stack, others=math.inf)
        exact = contest_with_ours(workloads.in_double(contest_workload), DOUBLE, stack)
        copy_differences(contest, exact)
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
        notes = [
            IN_DOUBLE,
            "In bfloat16 the model differs, by the figure in its row.",
            mkl_note(),
        ]
    else:
        notes = [
            IN_DOUBLE,
            "This processor has no bfloat16 instructions: operands are rounded to bfloat16 and "
            "multiplied in float32, which shows the effect on the model but saves no time.",
            mkl_note(),
        ]
    return suite_of(contest, measurements, requirements, notes)


def w3(repeats: int, peers: Path | None = None, workload: Workload | None = None) -> Suite:
    """Time one step of ResNet-18 on one thread, beside a plain matrix product."""
    contest_workload = workload or workloads.resnet_workload()
    with ExitStack() as stack, as_in_a_run():
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        contest = contest_with_ours(
            contest_workload, TOLERANCES["W3"], stack, workers=1, others=math.inf
        )
        exact = contest_with_ours(workloads.in_double(contest_workload), DOUBLE, stack, workers=1)
        copy_differences(contest, exact)
        contest.add_plain_loop(scratch, stack, exact, only="1 thread")
        contest.add_part(GEMM, own_process("benchmarks.alone", "gemm"), scratch, stack)
        measurements = contest.run(repeats)
    step = (
        3
        * flops(contest_workload.model, contest_workload.examples.x[:2])
        * len(contest_workload.examples)
    )
    measurements = [
        each.model_copy(update={"operations": Gemm.operations() if each.name == GEMM else step})
        for each in measurements
    ]
    notes = [
        IN_DOUBLE,
        "A step is counted as three forward passes, two operations for each multiply-add of a "
        "convolution or a product.",
        mkl_note(),
    ]
    return suite_of(contest, measurements, [], notes)


def w4(repeats: int, peers: Path | None = None, workload: Workload | None = None) -> Suite:
    """Time averaged embeddings beside a loop whose gradients are as large as the table."""
    contest_workload = workload or workloads.text_workload()
    with ExitStack() as stack, as_in_a_run():
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        contest = Contest(contest_workload, rounds=1)
        engine = fast_engine(contest_workload)
        stack.callback(engine.close)
        rounds = EngineRounds(contest_workload, engine)
        contest.add(OURS, rounds, lambda: rounds.models[0].theta)
        contest.add_plain_loop(scratch, stack)
        measurements = contest.run(repeats)
    requirement = Requirement(
        what="speed beside the plain loop",
        value=time_ratio(measurements, PLAIN, OURS),
        bound=10,
        at_least=True,
    )
    return suite_of(contest, measurements, [requirement], [mkl_note()])
