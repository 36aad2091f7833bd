"""Averaged embeddings under every algorithm: in the sample space and on whole vectors."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from benchmarks import workloads
from benchmarks.contenders import EngineRounds, fast_engine
from benchmarks.memory import PeakMemory
from benchmarks.results import GIGABYTE, Measurement, Requirement, Suite
from benchmarks.run import in_new_process
from benchmarks.timing import alternate, as_in_a_run, ratio, timed
from benchmarks.workloads import Workload
from ebbflow.core.errors import EbbflowError
from ebbflow.engines import Sequential
from ebbflow.runs.environment import machine, versions

ALGORITHMS = ("fedavg", "fedprox", "scaffold", "moon", "fedacg")
TIMED = 25  # devices: fewer than in W4, because whole vectors take long
ALL = 100  # devices in the process whose memory is measured
CHECKED_DEVICES, CHECKED_ROUNDS = 4, 3
TOLERANCE = 1e-6  # largest allowed difference between the models, in double precision
WHOLE = ", whole vectors"


def model_difference(algorithm: str, workload: Workload) -> float:
    """Return the largest difference between the two models after a few rounds in float64."""
    exact = workloads.in_double(workload)
    engine = fast_engine(exact)
    try:
        both = [
            EngineRounds(exact, each, algorithm=algorithm)
            for each in (Sequential(exact.model, exact.examples, exact.recipe), engine)
        ]
        for _ in range(CHECKED_ROUNDS):
            for rounds in both:
                rounds()
    finally:
        engine.close()
    reference, ours = (rounds.models[0].theta for rounds in both)
    return float((reference - ours).abs().max())


def _peak(algorithm: str, shape: tuple[int, ...]) -> int:
    """Train a few rounds in this process and return its peak of anonymous memory."""
    with as_in_a_run(), PeakMemory() as peak:
        workload = workloads.text_workload(ALL, *shape)
        engine = fast_engine(workload)
        rounds = EngineRounds(workload, engine, algorithm=algorithm)
        for _ in range(CHECKED_ROUNDS):
            rounds()
        engine.close()
    return peak.bytes


def texts(repeats: int, peers: Path | None = None, shape: tuple[int, ...] = ()) -> Suite:
    """Time a round of each algorithm in the sample space and on whole vectors, in turns.

    Args:
        repeats: How often each round is timed.
        peers: Not used: every peer trains whole vectors.
        shape: Arguments of `text_workload` after the number of devices; by default those of W4.
    """
    timed_workload = workloads.text_workload(TIMED, *shape)
    checked_workload = workloads.text_workload(CHECKED_DEVICES, *shape)
    measurements, requirements = [], []
    for algorithm in ALGORITHMS:
        difference = model_difference(algorithm, checked_workload)
        if not difference <= TOLERANCE:
            raise EbbflowError(
                f"texts: the models of {algorithm} differ by {difference:.1e}, more than "
                f"{TOLERANCE:g}, so that nothing is timed"
            )
        memory = in_new_process(f"the memory of {algorithm}", _peak, algorithm, shape)
        with ExitStack() as stack, as_in_a_run():
            engine = fast_engine(timed_workload)
            stack.callback(engine.close)
            reference = Sequential(
                timed_workload.model, timed_workload.examples, timed_workload.recipe
            )
            both = [
                EngineRounds(timed_workload, each, algorithm=algorithm)
                for each in (engine, reference)
            ]
            both[0]()  # the first call makes the texts sparse and compares them with each other
            names = (algorithm, algorithm + WHOLE)
            contenders = dict(zip(names, map(timed, both), strict=True))
            seconds = alternate(contenders, repeats)
        ours, whole = (seconds[name] for name in names)
        measurements += [
            Measurement(name=names[0], seconds=ours, difference=difference, memory=memory),
            Measurement(name=names[1], seconds=whole),
        ]
        speed = ratio(whole, ours)
        requirements += [
            Requirement(what=f"{algorithm}, speed", value=speed, bound=10, at_least=True),
            Requirement(
                what=f"{algorithm}, memory with {ALL} devices",
                value=memory / GIGABYTE,
                bound=2,
                unit="GB",
            ),
        ]
    return Suite(
        name="texts",
        title=f"W4 with {TIMED} devices, under every algorithm",
        measurements=measurements,
        requirements=requirements,
        notes=[
            "In the sample space, and on whole vectors with the reference engine, device after "
            f"device. The difference is between the models of {CHECKED_DEVICES} devices after "
            f"{CHECKED_ROUNDS} rounds in double precision; memory is that of a process of its own "
            f"that trains {ALL} devices."
        ],
        machine=machine(),
        versions=versions(),
    )
