"""W1 to W4: equal results first, then seconds, contenders taking turns."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ebbflow.bench import works
from ebbflow.bench.contenders import Gemm, PlainLoop, Products, Rounds, cores, starts
from ebbflow.bench.machine import has_bf16, machine, versions
from ebbflow.bench.memory import Peak
from ebbflow.bench.peers import Peer, PeerError, known_peers
from ebbflow.bench.results import Check, Row, Suite
from ebbflow.bench.timing import Contender, alternate, as_in_a_run, ratio, timed
from ebbflow.bench.works import Work
from ebbflow.core.errors import EbbflowError
from ebbflow.engines import Sequential, Vectorised
from ebbflow.models import at_precision, flops

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
DOUBLE = 1e-9  # the same in double precision


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

    def add_peers(self, folder: Path, scratch: Path, stack: ExitStack) -> None:
        """Start the peers of a folder and take in those that reach the same model."""
        exported = scratch / "work"
        works.export(self.work, exported)
        for name, start in known_peers(folder).items():
            own = scratch / name
            own.mkdir()
            try:
                peer = Peer(name, start, exported, own)
                stack.callback(peer.stop)
                self._add_peer(peer)
            except PeerError as error:
                self.rows[name] = Row(name=name, peer=True, note=f"not measured: {error}")

    def _add_peer(self, peer: Peer) -> None:
        for _ in range(self.rounds):
            peer()
        difference = self.apart(torch.from_numpy(peer.theta().astype(np.float32)))
        self.versions |= peer.versions
        if not difference <= self.tolerance:
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

        def engine() -> Vectorised:
            made = Vectorised(contest_work.model, contest_work.examples, contest_work.recipe)
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
    notes = ["The difference of the four in lockstep is from the same four one by one."]
    return _suite(contest, rows, checks, notes)


def w2(repeats: int, peers: Path | None = None, work: Work | None = None) -> Suite:
    """Time the convolutional network in single precision."""
    contest_work = work or works.cnn_work()
    with ExitStack() as stack, as_in_a_run():
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        contest = Contest(contest_work)
        engine = Vectorised(contest_work.model, contest_work.examples, contest_work.recipe)
        stack.callback(engine.close)
        rounds = Rounds(contest_work, engine)
        contest.add(ONE, rounds, lambda: rounds.models[0].theta)
        lower = at_precision(contest_work.model, "bf16")
        engine = Vectorised(lower, contest_work.examples, contest_work.recipe)
        stack.callback(engine.close)
        rounded = Rounds(contest_work, engine)
        for _ in range(contest.rounds):
            rounded()
        difference = contest.apart(rounded.models[0].theta)
        contest.enter(BF16, timed(rounded), Row(name=BF16, difference=difference))
        if peers is not None:
            contest.add_peers(peers, scratch, stack)
        rows = contest.run(repeats)
    checks = _peer_check(rows, 1)
    if has_bf16():
        checks += _peer_check(rows, 1, BF16)
        notes = ["In bfloat16 the model is another one, by as much as the difference says."]
    else:
        notes = [
            "This processor has no instructions for bfloat16: products take operands that are "
            "rounded to it and are computed in float32, which shows what bfloat16 does to a model "
            "and gains no time."
        ]
    return _suite(contest, rows, checks, notes)


def w3(repeats: int, peers: Path | None = None, work: Work | None = None) -> Suite:
    """Time one step of ResNet-18 on one thread, beside what a plain product reaches."""
    contest_work = work or works.resnet_work()
    with ExitStack() as stack, as_in_a_run():

        def contest_on(of: Work, tolerance: float) -> Contest:
            found = Contest(of, 1, tolerance)
            engine = Vectorised(of.model, of.examples, of.recipe, workers=1)
            stack.callback(engine.close)
            rounds = Rounds(of, engine)
            found.add(ONE, rounds, lambda: rounds.models[0].theta)
            found.add_plain_loop(options=(1,))
            return found

        contest = contest_on(contest_work, math.inf)
        exact = contest_on(works.in_double(contest_work), DOUBLE)
        gemm = Gemm()
        gemm()
        contest.enter(GEMM, timed(gemm), Row(name=GEMM))
        rows = contest.run(repeats)
    step = 3 * flops(contest_work.model, contest_work.examples.x[:2]) * len(contest_work.examples)
    rows = [
        row.model_copy(
            update={
                "operations": gemm.operations if row.name == GEMM else step,
                "difference": exact.rows[row.name].difference if row.name in exact.rows else None,
            }
        )
        for row in rows
    ]
    notes = [
        "The difference is that of a step in double precision. In single precision rounding "
        "decides on which side of zero some units lie, and gradients jump.",
        "A step is counted as three forward passes, two operations for each multiply-add of a "
        "convolution or a product.",
    ]
    return _suite(contest, rows, [], notes)


def w4(repeats: int, peers: Path | None = None, work: Work | None = None) -> Suite:
    """Time averaged embeddings beside a loop whose gradients are as large as the table."""
    contest_work = work or works.text_work()
    with ExitStack() as stack, as_in_a_run():
        contest = Contest(contest_work, rounds=1)
        engine = Vectorised(contest_work.model, contest_work.examples, contest_work.recipe)
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
