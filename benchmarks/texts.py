"""Averaged embeddings under every algorithm: the sample space beside whole vectors."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path

from benchmarks import works
from benchmarks.contenders import Rounds, fast_engine
from benchmarks.memory import Peak
from benchmarks.results import GIGABYTE, Check, Row, Suite
from benchmarks.timing import alternate, as_in_a_run, ratio, timed
from benchmarks.works import Work
from ebbflow.core.errors import EbbflowError
from ebbflow.engines import Sequential
from ebbflow.runs.environment import machine, versions

ALGORITHMS = ("fedavg", "fedprox", "scaffold", "moon", "fedacg")
TIMED = 25  # devices: both take them one by one, and the plain way takes long
ALL = 100  # devices of the process whose memory is measured
CHECKED_DEVICES, CHECKED_ROUNDS = 4, 3
EQUAL = 1e-6  # between the models, in double precision
WHOLE = ", whole vectors"


def apart(algorithm: str, work: Work) -> float:
    """Return the largest difference between the two models after some rounds in float64."""
    exact = works.in_double(work)
    engine = fast_engine(exact)
    try:
        both = [
            Rounds(exact, each, algorithm=algorithm)
            for each in (Sequential(exact.model, exact.examples, exact.recipe), engine)
        ]
        for _ in range(CHECKED_ROUNDS):
            for rounds in both:
                rounds()
    finally:
        engine.close()
    plain, ours = (rounds.models[0].theta for rounds in both)
    return float((plain - ours).abs().max())


def _peak(algorithm: str, shape: tuple[int, ...]) -> int:
    """Train some rounds in this process and return its peak of anonymous memory."""
    with as_in_a_run(), Peak() as peak:
        work = works.text_work(ALL, *shape)
        engine = fast_engine(work)
        rounds = Rounds(work, engine, algorithm=algorithm)
        for _ in range(CHECKED_ROUNDS):
            rounds()
        engine.close()
    return peak.bytes


def texts(repeats: int, peers: Path | None = None, shape: tuple[int, ...] = ()) -> Suite:
    """Time a round of every algorithm in the sample space and on whole vectors, in turns.

    Args:
        repeats: Of which the median counts.
        peers: Not used: no peer trains texts without whole vectors.
        shape: Of the work, from the texts of a device on; by default that of W4.
    """
    timed_work = works.text_work(TIMED, *shape)
    checked_work = works.text_work(CHECKED_DEVICES, *shape)
    rows, checks = [], []
    for algorithm in ALGORITHMS:
        difference = apart(algorithm, checked_work)
        if not difference <= EQUAL:
            raise EbbflowError(
                f"texts: the models of {algorithm} are {difference:.1e} apart: nothing is timed"
            )
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            memory = process.submit(_peak, algorithm, shape).result()
        with ExitStack() as stack, as_in_a_run():
            engine = fast_engine(timed_work)
            stack.callback(engine.close)
            plain = Sequential(timed_work.model, timed_work.examples, timed_work.recipe)
            both = [Rounds(timed_work, each, algorithm=algorithm) for each in (engine, plain)]
            both[0]()  # texts are made sparse and compared with each other once
            names = (algorithm, algorithm + WHOLE)
            contenders = dict(zip(names, map(timed, both), strict=True))
            found = alternate(contenders, repeats)
        ours, whole = (found[name] for name in names)
        rows += [
            Row(name=names[0], seconds=ours, difference=difference, memory=memory),
            Row(name=names[1], seconds=whole),
        ]
        speed = ratio(whole, ours)
        checks += [
            Check(what=f"{algorithm}, speed", found=speed, bound=10, at_least=True),
            Check(
                what=f"{algorithm}, memory with {ALL} devices",
                found=memory / GIGABYTE,
                bound=2,
                unit="GB",
            ),
        ]
    return Suite(
        name="texts",
        title=f"W4 with {TIMED} devices, under every algorithm",
        rows=rows,
        checks=checks,
        notes=[
            "In the sample space, and on whole vectors with the reference engine, device after "
            f"device. The difference is between the models of {CHECKED_DEVICES} devices after "
            f"{CHECKED_ROUNDS} rounds in double precision; memory is that of a process of its own "
            f"that trains {ALL} devices."
        ],
        machine=machine(),
        versions=versions(),
    )
