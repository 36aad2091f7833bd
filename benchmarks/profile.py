"""Where the time goes: a sampling profiler over all threads.

Every sample takes, for each thread that computes, the innermost function of ebbflow on its stack,
and counts it towards a stage. Waiting threads are not counted. The package itself has no timers, so
that a profile costs little.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Self

import ebbflow
from benchmarks import workloads
from benchmarks.contenders import DrawsOnly, EngineRounds, GatherOnly, fast_engine, starts
from benchmarks.peer_runs import own_process
from benchmarks.peers.protocol import cores
from benchmarks.results import Measurement, Suite
from benchmarks.sampling import PeriodicSampler
from benchmarks.suites import PRODUCTS, Contest
from benchmarks.timing import as_in_a_run, timed
from benchmarks.workloads import Workload
from ebbflow import experiment
from ebbflow.config.merge import Layers
from ebbflow.core.types import Examples
from ebbflow.runs.environment import machine, versions

PACKAGE = Path(ebbflow.__file__).parent
INTERVAL = 0.002
SECONDS = 5.0
TESTED = 10_000
_WAITING = {"threading.py", "queue.py", "selectors.py", "socket.py", "connection.py"}
_IDLE = {("thread.py", "_worker"), ("_base.py", "result"), ("_base.py", "result_iterator")}

EVALUATION = "core/evaluate.py"
# A file counts towards the stage that names it, else towards the stage of its longest folder.
STAGES: dict[str, tuple[str, ...]] = {
    "mini-batches: draws": ("core/rng.py", "data/batches.py", "data/schedule.py"),
    "mini-batches: gather": ("core/batching.py", "core/inputs.py"),
    "evaluation": (EVALUATION,),
    "forward and backward": ("models/",),
    "local steps": ("core/", "algorithms/"),
    "fused local steps": (
        "engines/fused.py",
        "engines/dense.py",
        "engines/dense_passes.py",
        "engines/native/",
    ),
    "texts": ("engines/texts/",),
    "engine": ("engines/",),
    "rounds and server": (
        "aggregation/",
        "core/aggregation.py",
        "core/algorithm.py",
        "simulation/",
    ),
    "starts and signatures": ("sessions/", "starts/", "core/signature.py", "core/sketch.py"),
    "a real federation": ("flower/",),
    "many machines": ("cluster/",),
    "records and files": (
        "recording.py",
        "runs/",
        "core/files.py",
        "core/tensor_files.py",
        "report/",
        "trackers/",
    ),
    "set-up": ("experiment.py", "plugins.py", "api.py", "cli/", "config/", "data/", "sweeps/"),
    "analysis": ("analysis/", "outcomes/"),
}
OTHER = "other"


def stage_of(file: str) -> str:
    """Return the stage of a file of the package.

    >>> stage_of("models/softmax.py"), stage_of("data/batches.py"), stage_of("data/idx.py")
    ('forward and backward', 'mini-batches: draws', 'set-up')
    >>> stage_of("engines/texts/sparse.py"), stage_of("engines/vectorised.py")
    ('texts', 'engine')
    """
    places = {place: stage for stage, files in STAGES.items() for place in files}
    matching = [
        place
        for place in places
        if file == place or (place.endswith("/") and file.startswith(place))
    ]
    return places[max(matching, key=len)] if matching else OTHER


@cache
def _within(file: str) -> str | None:
    """Return the name of a file within the package; None for a file outside it."""
    path = Path(file)
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else None


def place_of(frame: FrameType | None) -> tuple[str, str] | None:
    """Return the file and function of a thread's innermost frame in ebbflow; None if it waits.

    A forward pass within an evaluation counts as evaluation, whatever the model.
    """
    if frame is None:
        return None
    innermost = frame.f_code.co_filename.rpartition("/")[2]
    if innermost in _WAITING or (innermost, frame.f_code.co_name) in _IDLE:
        return None
    place = None
    at: FrameType | None = frame
    while at is not None:
        file = _within(at.f_code.co_filename)
        if file is not None and (place is None or file == EVALUATION):
            place = file, at.f_code.co_name
        at = at.f_back
    return place or (OTHER, OTHER)


class StackSampler(PeriodicSampler):
    """Counts which functions the threads are in while the block runs."""

    def __init__(self, interval: float = INTERVAL) -> None:
        super().__init__(interval)
        self.places: Counter[tuple[str, str]] = Counter()
        self.samples = 0
        self._switch_interval = sys.getswitchinterval()

    def _sample(self) -> None:
        own = threading.get_ident()
        self.samples += 1
        for thread, frame in sys._current_frames().items():
            place = None if thread == own else place_of(frame)
            if place is not None:
                self.places[place] += 1

    def __enter__(self) -> Self:
        sys.setswitchinterval(self._interval / 4)  # else computing threads would delay samples
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        sys.setswitchinterval(self._switch_interval)

    def stages(self) -> dict[str, float]:
        """Return the share of each stage, and the average number of busy threads."""
        total = max(1, sum(self.places.values()))
        shares: Counter[str] = Counter()
        for (file, _), count in self.places.items():
            shares[stage_of(file)] += count
        by_stage = {stage: count / total for stage, count in shares.most_common()}
        return by_stage | {"busy threads": total / max(1, self.samples)}

    def functions(self, most: int = 12) -> dict[str, float]:
        """Return the shares of the functions that take the most time."""
        total = max(1, sum(self.places.values()))
        return {
            f"{file}: {name}": count / total
            for (file, name), count in self.places.most_common(most)
        }


def profiled(work: Callable[[], object], seconds: float = 0.0) -> StackSampler:
    """Profile a function, repeated until the given seconds have passed."""
    with StackSampler() as sampler:
        end = time.perf_counter() + seconds
        work()
        while time.perf_counter() < end:
            work()
    return sampler


def _parts(workload: Workload, repeats: int) -> list[Measurement]:
    """Time a round, and each of its parts alone."""
    with ExitStack() as stack, as_in_a_run():
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        engine, gather = fast_engine(workload), GatherOnly(workload, cores())
        for resource in (engine, gather):
            stack.callback(resource.close)
        count = min(TESTED, len(workload.examples))
        test = Examples(workload.examples.x[:count], workload.examples.y[:count])

        def evaluate() -> None:
            engine.evaluate([workload.initial], test)()

        contest = Contest(workload)
        parts: dict[str, Callable[[], object]] = {
            "a round of W1": EngineRounds(workload, engine),
            "drawing its mini-batches": DrawsOnly(workload),
            "gathering its rows": gather,
            f"evaluating one model on {count:,} samples": evaluate,
        }
        for name, part in parts.items():
            part()
            contest.enter(name, timed(part), Measurement(name=name))
        contest.add_part(PRODUCTS, own_process("benchmarks.alone", "products"), scratch, stack)
        return contest.run(repeats)


def _cell(settings: dict[str, object]) -> Callable[[], object]:
    layers = Layers()
    layers.add_preset("authors-code")
    for key, value in settings.items():
        layers.add_key(key, value, "bench")
    config = layers.config()
    return lambda: experiment.run(config)


MNIST = {
    "dataset": "mnist",
    "algorithm": ["fedprox"],
    "methods": ["warm_start", "continuous", "previous", "average"],
    "seeds": [100],
    "sessions": 5,
    "rounds": 10,
}


def profile(
    repeats: int,
    peers: Path | None = None,
    workload: Workload | None = None,
    cell: dict[str, object] | None = None,
    seconds: float = SECONDS,
) -> Suite:
    """Profile a round of W1 and a short MNIST cell."""
    timed_workload = workload or workloads.softmax_workload()
    samplers: dict[str, StackSampler] = {}
    measurements = _parts(timed_workload, repeats)
    with as_in_a_run():
        for name, models in (
            ("a round of W1, one method", [timed_workload.initial]),
            ("a round of W1, four methods", starts(timed_workload, 4)),
        ):
            engine = fast_engine(timed_workload)
            rounds = EngineRounds(timed_workload, engine, models)
            rounds()
            samplers[name] = profiled(rounds, seconds)
            engine.close()
    short = "an MNIST cell, five sessions of ten rounds, four starts"
    samplers[short] = profiled(_cell(cell or dict(MNIST)))
    shares = {}
    for name, sampler in samplers.items():
        shares[name] = sampler.stages()
        shares[f"{name}: functions"] = sampler.functions()
    return Suite(
        name="profile",
        title="where the time goes",
        measurements=measurements,
        notes=[
            "The first table times a round of W1 and its parts alone, in turns. The parts need not "
            "add up: workers overlap, and the fused kernel does several parts at once.",
            f"Every {1000 * INTERVAL:g} ms each computing thread is counted towards the innermost "
            "function of ebbflow on its stack; waiting threads are not counted.",
        ],
        shares=shares,
        machine=machine(),
        versions=versions(),
    )
