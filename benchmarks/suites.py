"""W1 to W4: equal results first, then seconds, contenders taking turns."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path

import torch
from torch import Tensor

from benchmarks import works
from benchmarks.contenders import Gemm, PlainLoop, Products, Rounds, cores, fast_engine, starts
from benchmarks.memory import Peak
from benchmarks.peer_runs import Peer, PeerError, known_peers
from benchmarks.results import Check, Row, Suite
from benchmarks.timing import Contender, alternate, as_in_a_run, ratio, timed
from benchmarks.works import Work
from ebbflow.core.errors import EbbflowError
from ebbflow.core.local import Engine
from ebbflow.engines import Sequential, Vectorised
from ebbflow.models import at_precision, flops
from ebbflow.runs.environment import has_bf16, machine, versions

CHECKED_ROUNDS = 2
ONE = "ebbflow"
BF16 = "ebbflow, bfloat16"
LOCKSTEP = "ebbflow, four methods in lockstep"
APART = "ebbflow, four methods one by one"
PRODUCTS = "the products alone"
PLAIN = "plain loop in torch"
GEMM = "a product of 2048 × 2048"
# Largest difference between averaged models. A loop that averages models, not displacements, loses
# the last digits of a large table.
TOLERANCES = {"W1": 1e-6, "W2": 1e-5, "W3": 1e-5, "W4": 1e-4}
DOUBLE = 1e-6  # in double precision; some peers add up in single precision all the same
IN_DOUBLE = (
    "The difference is that of one round in double precision. In single precision rounding decides "
    "on which side of zero some units lie, and gradients jump: no two orders of summation agree."
)


class Contest:
    """Contenders on one work: each is checked against the reference, then all are timed."""

    def __init__(
        self, work: Work, rounds: int = CHECKED_ROUNDS, tolerance: float | None = None
    ) -> None:
        self.work = work
        self.rounds = rounds
        self.tolerance = TOLERANCES[work.name] if tolerance is None else tolerance
        self.contenders: dict[str, Contender] = {}
        self.rows: dict[str, Row] = {}
        self.versions: dict[str, str] = {}
        self.lost: dict[str, str] = {}

    @cached_property
    def reference(self) -> Tensor:
        """The model after the checked rounds, by the reference engine."""
        plain = Rounds(self.work, Sequential(self.work.model, self.work.examples, self.work.recipe))
        for _ in range(self.rounds):
            plain()
        return plain.models[0].theta

    def apart(self, theta: Tensor) -> float:
        """Return the largest difference between a model and the reference's."""
        return float((theta - self.reference).abs().max())

    def add(self, name: str, contender: Callable[[], object], theta: Callable[[], Tensor]) -> None:
        """Let a contender of this process run the checked rounds, and take it in."""
        with Peak() as peak:
            for _ in range(self.rounds):
                contender()
        difference = self.apart(theta())
        if not difference <= self.tolerance:
            raise EbbflowError(
                f"{self.work.name}: the model of {name} is {difference:.1e} away from the "
                "reference's: nothing is timed"
            )
        # The first has the process to itself; those after it would be charged for its memory.
        memory = None if self.rows else peak.bytes
        self.enter(name, timed(contender), Row(name=name, difference=difference, memory=memory))

    def enter(self, name: str, contender: Contender, row: Row) -> None:
        """Take in a contender that is checked already, or that has no model."""
        self.contenders[name] = contender
        self.rows[name] = row

    def add_plain_loop(self, *, options: tuple[int, ...]) -> None:
        """Take in the plain loop, on the number of threads that serves it best."""
        loops = {count: PlainLoop(self.work, count) for count in options}
        seconds = {}
        for count, loop in loops.items():
            name = f"{PLAIN}, {count} thread{'s' * (count > 1)}"
            self.add(name, loop, partial(getattr, loop, "theta"))
            seconds[name] = self.contenders[name]()
        for name in seconds:
            if name != min(seconds, key=seconds.__getitem__):
                del self.contenders[name], self.rows[name]

    def add_peers(
        self, folder: Path, scratch: Path, stack: ExitStack, exact: Contest | None = None
    ) -> None:
        """Start the peers of a folder and take in those that reach the same model.

        With ``exact`` a peer is checked there, in a process of its own, and only timed here.
        """
        for contest in (self, exact):
            if contest is not None:
                works.export(contest.work, scratch / contest.folder)
        for name, start in known_peers(folder).items():
            own = scratch / name
            own.mkdir()
            try:
                difference = None
                if exact is not None:
                    checked = Peer(name, start, scratch / exact.folder, own)
                    try:
                        difference = exact.distance(checked)
                    finally:
                        checked.stop()
                peer = Peer(name, start, scratch / self.folder, own)
                stack.callback(peer.stop)
                self._add_peer(peer, exact or self, difference)
            except PeerError as error:
                self.rows[name] = Row(name=name, peer=True, note=f"not measured: {error}")

    @property
    def folder(self) -> str:
        """Where the work is exported to."""
        return str(self.work.initial.theta.dtype)

    def distance(self, peer: Peer) -> float:
        """Let a peer run the checked rounds and return how far its model is from the reference."""
        for _ in range(self.rounds):
            peer()
        return self.apart(torch.from_numpy(peer.theta()).to(self.reference))

    def _add_peer(self, peer: Peer, judge: Contest, difference: float | None = None) -> None:
        self.versions |= peer.versions
        if difference is None:
            difference = judge.distance(peer)
        if not difference <= judge.tolerance:
            note = "not timed: its model is another one"
            self.rows[peer.name] = Row(name=peer.name, difference=difference, peer=True, note=note)
            return
        seconds = {}
        for option in peer.options:
            peer.option = option
            seconds[option] = min(peer(), peer())
        peer.option = min(seconds, key=seconds.__getitem__)
        note = "; ".join(part for part in (peer.option, peer.note) if part)
        memory = peer.memory()
        row = Row(name=peer.name, difference=difference, memory=memory, peer=True, note=note)
        self.enter(peer.name, partial(self._attempt, peer), row)

    def _attempt(self, peer: Peer) -> float:
        """Run a peer's round, or note that it is lost: the others go on without it."""
        if peer.name not in self.lost:
            try:
                return peer()
            except PeerError as error:
                self.lost[peer.name] = f"not measured: {error}"
        return math.nan

    def run(self, repeats: int) -> list[Row]:
        """Time everybody in turns and return the rows."""
        found = alternate(self.contenders, repeats)
        found |= {name: [] for name in self.lost}
        return [
            row.model_copy(
                update={"seconds": found.get(name, []), "note": self.lost.get(name, row.note)}
            )
            for name, row in self.rows.items()
        ]


def _suite(
    contest: Contest, rows: list[Row], checks: list[Check], notes: list[str] | None = None
) -> Suite:
    return Suite(
        name=contest.work.name,
        title=contest.work.title,
        rows=rows,
        checks=checks,
        notes=notes or [],
        machine=machine(),
        versions=contest.versions | versions(),
    )


def _against(rows: list[Row], ours: str, theirs: str) -> float:
    found = {row.name: row.seconds for row in rows}
    return ratio(found[ours], found[theirs])


def _fastest_peer(rows: list[Row]) -> str | None:
    timed_peers = [row for row in rows if row.peer and row.seconds]
    return min(timed_peers, key=lambda row: row.median).name if timed_peers else None


def _peer_check(rows: list[Row], bound: float, ours: str = ONE) -> list[Check]:
    fastest = _fastest_peer(rows)
    if fastest is None:
        return []
    what = f"speed of {ours} beside the fastest peer ({fastest})"
    return [Check(what=what, found=_against(rows, fastest, ours), bound=bound, at_least=True)]


def w1(repeats: int, peers: Path | None = None, work: Work | None = None) -> Suite:
    """Time softmax regression: one method, four, the products alone, a plain loop, the peers."""
    contest_work = work or works.softmax_work()
    with ExitStack() as stack, as_in_a_run():
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))

        def engine() -> Engine:
            made = fast_engine(contest_work)
            stack.callback(made.close)
            return made

        contest = Contest(contest_work)
        one = Rounds(contest_work, engine())
        contest.add(ONE, one, lambda: one.models[0].theta)
        together = Rounds(contest_work, engine(), starts(contest_work, 4))
        shared = engine()
        alone = [Rounds(contest_work, shared, [model]) for model in starts(contest_work, 4)]
        together()
        for rounds in alone:
            rounds()
        difference = max(
            float((a.theta - b.models[0].theta).abs().max())
            for a, b in zip(together.models, alone, strict=True)
        )
        contest.enter(LOCKSTEP, timed(together), Row(name=LOCKSTEP, difference=difference))

        def one_by_one() -> None:
            for rounds in alone:
                rounds()

        contest.enter(APART, timed(one_by_one), Row(name=APART))
        products = Products(contest_work, cores())
        stack.callback(products.close)
        products()
        contest.enter(PRODUCTS, timed(products), Row(name=PRODUCTS))
        contest.add_plain_loop(options=_thread_options())
        if peers is not None:
            contest.add_peers(peers, scratch, stack)
        rows = contest.run(repeats)
    checks = [
        *_peer_check(rows, 3),
        Check(
            what="time beside the products alone", found=_against(rows, ONE, PRODUCTS), bound=2.5
        ),
        Check(what="four in lockstep beside one", found=_against(rows, LOCKSTEP, ONE), bound=3.5),
        Check(
            what="four in lockstep beside four one by one",
            found=_against(rows, LOCKSTEP, APART),
            bound=1,
        ),
    ]
    notes = [
        "Mini-batches are drawn beforehand, for everybody. The difference of the four in lockstep "
        "is from the same four one by one."
    ]
    return _suite(contest, rows, checks, notes)


def _with_us(work: Work, tolerance: float, stack: ExitStack, workers: int | None = None) -> Contest:
    """Return a contest in which our engine has run one checked round."""
    contest = Contest(work, 1, tolerance)
    engine = fast_engine(work, workers)
    stack.callback(engine.close)
    rounds = Rounds(work, engine)
    contest.add(ONE, rounds, lambda: rounds.models[0].theta)
    return contest


def _take_differences(contest: Contest, exact: Contest) -> None:
    """Report the differences that were found in double precision."""
    for name, row in exact.rows.items():
        contest.rows[name] = contest.rows[name].model_copy(update={"difference": row.difference})


def w2(repeats: int, peers: Path | None = None, work: Work | None = None) -> Suite:
    """Time the convolutional network in single precision."""
    contest_work = work or works.cnn_work()
    with ExitStack() as stack, as_in_a_run():
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        contest = _with_us(contest_work, math.inf, stack)
        exact = _with_us(works.in_double(contest_work), DOUBLE, stack)
        _take_differences(contest, exact)
        lower = at_precision(contest_work.model, "bf16")
        engine = Vectorised(lower, contest_work.examples, contest_work.recipe)
        stack.callback(engine.close)
        rounded = Rounds(contest_work, engine)
        for _ in range(contest.rounds):
            rounded()
        difference = contest.apart(rounded.models[0].theta)
        note = "difference in single precision"
        contest.enter(BF16, timed(rounded), Row(name=BF16, difference=difference, note=note))
        if peers is not None:
            contest.add_peers(peers, scratch, stack, exact)
        rows = contest.run(repeats)
    checks = _peer_check(rows, 1)
    if has_bf16():
        checks += _peer_check(rows, 2, BF16)
        notes = [IN_DOUBLE, "In bfloat16 the model is another one, by the difference."]
    else:
        notes = [
            IN_DOUBLE,
            "This processor has no instructions for bfloat16: products take operands that are "
            "rounded to it and are computed in float32, which shows what bfloat16 does to a model "
            "and gains no time.",
        ]
    return _suite(contest, rows, checks, notes)


def w3(repeats: int, peers: Path | None = None, work: Work | None = None) -> Suite:
    """Time one step of ResNet-18 on one thread, beside what a plain product reaches."""
    contest_work = work or works.resnet_work()
    with ExitStack() as stack, as_in_a_run():
        contest = _with_us(contest_work, math.inf, stack, workers=1)
        contest.add_plain_loop(options=(1,))
        exact = _with_us(works.in_double(contest_work), DOUBLE, stack, workers=1)
        exact.add_plain_loop(options=(1,))
        _take_differences(contest, exact)
        gemm = Gemm()
        gemm()
        contest.enter(GEMM, timed(gemm), Row(name=GEMM))
        rows = contest.run(repeats)
    step = 3 * flops(contest_work.model, contest_work.examples.x[:2]) * len(contest_work.examples)
    rows = [
        row.model_copy(update={"operations": gemm.operations if row.name == GEMM else step})
        for row in rows
    ]
    notes = [
        IN_DOUBLE,
        "A step is counted as three forward passes, two operations for each multiply-add of a "
        "convolution or a product.",
    ]
    return _suite(contest, rows, [], notes)


def w4(repeats: int, peers: Path | None = None, work: Work | None = None) -> Suite:
    """Time averaged embeddings beside a loop whose gradients are as large as the table."""
    contest_work = work or works.text_work()
    with ExitStack() as stack, as_in_a_run():
        contest = Contest(contest_work, rounds=1)
        engine = fast_engine(contest_work)
        stack.callback(engine.close)
        rounds = Rounds(contest_work, engine)
        contest.add(ONE, rounds, lambda: rounds.models[0].theta)
        contest.add_plain_loop(options=_thread_options())
        rows = contest.run(repeats)
    (plain,) = (row.name for row in rows if row.name.startswith(PLAIN))
    found = _against(rows, plain, ONE)
    check = Check(what="speed beside the plain loop", found=found, bound=10, at_least=True)
    return _suite(contest, rows, [check])


def _thread_options() -> tuple[int, ...]:
    return (1,) if cores() == 1 else (1, cores())
