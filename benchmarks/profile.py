"""Where the time goes: every thread is looked at many times a second.

A look notes, for each thread that computes, the innermost function of ebbflow that it is in, and
counts it to a stage. Threads that wait are not counted. The library knows nothing of it, so a
profile costs little and needs no timers in the code.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Self

from benchmarks import works
from benchmarks.contenders import Draws, Gather, Products, Rounds, cores, fast_engine, starts
from benchmarks.results import Row, Suite
from benchmarks.suites import PRODUCTS
from benchmarks.timing import alternate, as_in_a_run, timed
from benchmarks.watching import Watching
from benchmarks.works import Work
from ebbflow import experiment
from ebbflow.config.merge import Layers
from ebbflow.core.types import Examples
from ebbflow.runs.environment import machine, versions

PACKAGE = Path(__file__).parents[1]
EVERY = 0.002
SECONDS = 5.0
TESTED = 10_000
_WAITING = {"threading.py", "queue.py", "selectors.py", "socket.py", "connection.py"}
_IDLE = {("thread.py", "_worker"), ("_base.py", "result"), ("_base.py", "result_iterator")}

EVALUATION = "core/evaluate.py"
# The innermost function of ours decides; a whole file where no function of it is named.
STAGES: dict[str, tuple[str, ...]] = {
    "mini-batches: draws": ("core/rng.py", "data/batches.py", "world.py", "data/schedule.py"),
    "mini-batches: gather": ("core/feed.py", "core/inputs.py"),
    "evaluation": (EVALUATION,),
    "forward and backward": ("models/",),
    "local steps": ("core/local.py", "algorithms/", "core/vector.py"),
    "fused local steps": ("engines/fused.py", "engines/native/__init__.py"),
    "texts by coefficients": ("engines/sample_space.py", "engines/coefficients.py"),
    "engine": ("engines/",),
    "sums and server": ("core/algorithm.py", "simulate.py"),
    "starts and signatures": ("initialisers/", "core/signature.py", "history/"),
    "records and files": ("runs.py", "records.py", "core/files.py", "report/"),
    "set-up": ("experiment.py", "data/", "methods.py", "config.py", "layers.py"),
}
OTHER = "other"


def stage_of(file: str) -> str:
    """Return the stage of a file of the package.

    >>> stage_of("models/softmax.py"), stage_of("data/batches.py"), stage_of("data/idx.py")
    ('forward and backward', 'mini-batches: draws', 'set-up')
    """
    exact = next((stage for stage, files in STAGES.items() if file in files), None)
    if exact is not None:
        return exact
    folder = file.partition("/")[0] + "/"
    return next((stage for stage, files in STAGES.items() if folder in files), OTHER)


@cache
def _within(file: str) -> str | None:
    """Return the name of a file within the package; None for those of others and of this one."""
    path = Path(file)
    if path.is_relative_to(PACKAGE) and not path.is_relative_to(PACKAGE / "bench"):
        return path.relative_to(PACKAGE).as_posix()
    return None


def place_of(frame: FrameType | None) -> tuple[str, str] | None:
    """Return file and function of the innermost frame of ours; None for a thread that waits.

    A forward pass of the evaluation belongs to the evaluation, whichever model's it is.
    """
    if frame is None:
        return None
    innermost = frame.f_code.co_filename.rpartition("/")[2]
    if innermost in _WAITING or (innermost, frame.f_code.co_name) in _IDLE:
        return None
    found = None
    at: FrameType | None = frame
    while at is not None:
        file = _within(at.f_code.co_filename)
        if file is not None and (found is None or file == EVALUATION):
            found = file, at.f_code.co_name
        at = at.f_back
    return found or (OTHER, OTHER)


class Looks(Watching):
    """Counts where the threads are while the block runs."""

    def __init__(self, every: float = EVERY) -> None:
        super().__init__(every)
        self.places: Counter[tuple[str, str]] = Counter()
        self.looks = 0
        self._interval = sys.getswitchinterval()

    def _look(self) -> None:
        own = threading.get_ident()
        self.looks += 1
        for thread, frame in sys._current_frames().items():
            place = None if thread == own else place_of(frame)
            if place is not None:
                self.places[place] += 1

    def __enter__(self) -> Self:
        sys.setswitchinterval(self._every / 4)  # or a thread that computes would hold us up
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        sys.setswitchinterval(self._interval)

    def stages(self) -> dict[str, float]:
        """Return the share of each stage, and how many threads were busy on average."""
        total = max(1, sum(self.places.values()))
        shares: Counter[str] = Counter()
        for (file, _), count in self.places.items():
            shares[stage_of(file)] += count
        found = {stage: count / total for stage, count in shares.most_common()}
        return found | {"busy threads": total / max(1, self.looks)}

    def functions(self, most: int = 12) -> dict[str, float]:
        """Return the share of the functions that take the most."""
        total = max(1, sum(self.places.values()))
        return {
            f"{file}: {name}": count / total
            for (file, name), count in self.places.most_common(most)
        }


def watched(work: Callable[[], object], seconds: float = 0.0) -> Looks:
    """Do something, again and again until so many seconds are over, and look."""
    with Looks() as looks:
        end = time.perf_counter() + seconds
        work()
        while time.perf_counter() < end:
            work()
    return looks


def _parts(work: Work, repeats: int) -> list[Row]:
    """Time a round, and what it consists of alone."""
    with ExitStack() as stack, as_in_a_run():
        engine = fast_engine(work)
        products, gather = Products(work, cores()), Gather(work, cores())
        for held in (engine, products, gather):
            stack.callback(held.close)
        count = min(TESTED, len(work.examples))
        test = Examples(work.examples.x[:count], work.examples.y[:count])

        def evaluate() -> None:
            engine.evaluate([work.initial], test)()

        contenders: dict[str, Callable[[], object]] = {
            "a round of W1": Rounds(work, engine),
            "drawing its mini-batches": Draws(work),
            "gathering its rows": gather,
            PRODUCTS: products,
            f"evaluating one model on {count:,} samples": evaluate,
        }
        for contender in contenders.values():
            contender()
        seconds = alternate({name: timed(part) for name, part in contenders.items()}, repeats)
    return [Row(name=name, seconds=found) for name, found in seconds.items()]


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
    work: Work | None = None,
    cell: dict[str, object] | None = None,
    seconds: float = SECONDS,
) -> Suite:
    """Say where the time of a round of W1 and of a short MNIST cell goes."""
    rounds_work = work or works.softmax_work()
    found: dict[str, Looks] = {}
    rows = _parts(rounds_work, repeats)
    with as_in_a_run():
        for name, models in (
            ("a round of W1, one method", [rounds_work.initial]),
            ("a round of W1, four methods", starts(rounds_work, 4)),
        ):
            engine = fast_engine(rounds_work)
            rounds = Rounds(rounds_work, engine, models)
            rounds()
            found[name] = watched(rounds, seconds)
            engine.close()
    short = "an MNIST cell, five sessions of ten rounds, four starts"
    found[short] = watched(_cell(cell or dict(MNIST)))
    shares = {}
    for name, looks in found.items():
        shares[name] = looks.stages()
        shares[f"{name}: functions"] = looks.functions()
    return Suite(
        name="profile",
        title="where our time goes",
        rows=rows,
        notes=[
            "The first table times parts of a round of W1 alone, in turns with the whole. They "
            "need not add up: workers overlap, and a fused kernel does several parts at once.",
            f"Every {1000 * EVERY:g} ms each thread that computes is counted to the innermost "
            "function of ours that it is in; threads that wait are not counted.",
        ],
        shares=shares,
        machine=machine(),
        versions=versions(),
    )
