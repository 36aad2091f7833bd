"""The same rounds by this code and by that of an older commit, to see that none is slower.

The older code is taken from git into a temporary folder, where its kernels are compiled. Both then
train the same exported workload, each in a process of its own, and take turns. Where a process's
memory happens to lie makes it faster or slower than another by up to a tenth, and other work on the
machine disturbs both: so there are several pairs of processes, each turn is compared with the one
beside it, the median of these ratios stands for a pair, and the median of the pairs counts.
"""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import texts, workloads
from benchmarks.peer_runs import PACKAGES, ROOT, PeerProcess, RoundSpent, own_process
from benchmarks.results import Measurement, Requirement, Suite
from benchmarks.suites import CHECKED_ROUNDS, DOUBLE, TOLERANCES
from benchmarks.workloads import Workload
from ebbflow.core.errors import EbbflowError
from ebbflow.engines import native
from ebbflow.runs.environment import machine, versions

BASE = "8a45aed91d9d97728b59da66db182a24d22077bd"
"""The last commit that trained dense networks in mapped blocks, and had 256-bit kernels only."""
BOUND = 1.03
TURN = 0.1  # seconds of a turn at least, so that short rounds are repeated
BOX, LEAST_TURNS = 10.0, 3  # seconds of turns for every pair of processes, and how many at least

# hatchling calls the hook when a wheel is built, and need not be installed to compile the kernels.
_BUILD = """
import sys
from pathlib import Path
from types import ModuleType
name = "hatchling.builders.hooks.plugin.interface"
for length in range(1, 6):
    part = ".".join(name.split(".")[:length])
    sys.modules[part] = ModuleType(part)
sys.modules[name].BuildHookInterface = object
sys.path.insert(0, "")
from hatch_build import build
build(Path("src", "ebbflow", "engines", "native"))
"""


class ComparedWork(NamedTuple):
    """Rounds that both train, and how far their models may lie apart after the first ones.

    ``exact``: whether they are compared in double precision, because in single precision no two
    orders of summation agree.
    """

    name: str
    workload: Callable[[], Workload]
    tolerance: float
    algorithm: str = "fedavg"
    workers: int | None = None
    exact: bool = False


WORKS = (
    ComparedWork("W1", workloads.softmax_workload, TOLERANCES["W1"]),
    ComparedWork("W2", workloads.cnn_workload, DOUBLE, exact=True),
    ComparedWork("W3", workloads.resnet_workload, DOUBLE, workers=1, exact=True),
    ComparedWork("W4", workloads.text_workload, TOLERANCES["W4"]),
    *(
        ComparedWork(
            f"texts, {algorithm}",
            partial(workloads.text_workload, texts.TIMED),
            TOLERANCES["W4"],
            algorithm,
        )
        for algorithm in texts.ALGORITHMS
    ),
)


def commit_of(revision: str) -> str:
    """Return the commit that a revision names in this checkout."""
    named = f"{revision}^{{commit}}"
    done = _git("rev-parse", "--verify", "--quiet", "--end-of-options", named)
    if done.returncode:
        reason = f" ({_last_line(done.stderr)})" if done.stderr else ""
        raise EbbflowError(
            f"before: there is no commit {revision} in {ROOT}{reason}: a shallow clone gets its "
            "past by `git fetch --unshallow`, and --base names another commit"
        )
    return done.stdout.strip()


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "-C", str(ROOT), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise EbbflowError(f"before: git cannot be run ({error.strerror}): install it") from None


def check_out(commit: str, folder: Path) -> Path:
    """Put a commit's package into a folder, compile its kernels, and return where it is imported.

    An archive leaves nothing in the repository, even if this process is killed.
    """
    archive = folder.with_suffix(".zip")
    done = _git("archive", "--format=zip", f"--output={archive}", commit, "src", "hatch_build.py")
    if done.returncode:
        raise EbbflowError(f"before: {commit} is of no use here ({_last_line(done.stderr)})")
    with zipfile.ZipFile(archive) as files:
        files.extractall(folder)
    built = subprocess.run(
        [sys.executable, "-c", _BUILD], cwd=folder, capture_output=True, text=True, check=False
    )
    if built.returncode:
        raise EbbflowError(
            f"before: the kernels of {commit} cannot be compiled ({_last_line(built.stderr)})"
        )
    return folder / "src"


def _last_line(said: str) -> str:
    return (said.strip().splitlines() or ["it gave no reason"])[-1]


class Pair(NamedTuple):
    """A process with this code, and one with the older code."""

    now: PeerProcess
    before: PeerProcess

    def difference(self) -> float:
        """Train the first rounds, and return how far the models lie apart."""
        for process in self:
            for _ in range(CHECKED_ROUNDS):
                process()
        return float(np.abs(self.now.theta() - self.before.theta()).max())

    def turns(self, box: float) -> Iterator[tuple[RoundSpent, RoundSpent]]:
        """Yield what a round took now and before, in neighbouring turns, until the time is up."""
        rounds = math.ceil(TURN / min(process() for process in self))
        end = time.perf_counter() + box
        turn = 0
        while turn < LEAST_TURNS or time.perf_counter() < end:
            if turn % 2:  # who is first may have an advantage
                before, now = _turn(self.before, rounds), _turn(self.now, rounds)
            else:
                now, before = _turn(self.now, rounds), _turn(self.before, rounds)
            yield now, before
            turn += 1


def _turn(process: PeerProcess, rounds: int) -> RoundSpent:
    """Run some rounds and return what one of them took."""
    spent = [process.spend() for _ in range(rounds)]
    return RoundSpent(*(sum(of_each) / rounds for of_each in zip(*spent, strict=True)))


@contextmanager
def _pair(work: ComparedWork, older: Path, exported: Path, scratch: Path) -> Iterator[Pair]:
    """Start a process with this code and one with the older code."""
    arguments = (work.algorithm, *(() if work.workers is None else (str(work.workers),)))
    with ExitStack() as stack:
        processes = []
        for when, packages in (("now", PACKAGES), ("before", older)):
            start = own_process("benchmarks.rounds", *arguments, packages=packages)
            own = Path(tempfile.mkdtemp(prefix="process-", dir=scratch))
            process = PeerProcess(f"{work.name} {when}", start, exported, own)
            stack.callback(process.stop)
            processes.append(process)
        yield Pair(*processes)


def judge(work: ComparedWork, pair: Pair) -> float:
    """Return how far the models of a pair lie apart after the first rounds, if that is allowed."""
    difference = pair.difference()
    if not difference <= work.tolerance:
        raise EbbflowError(
            f"before: the models of {work.name} differ by {difference:.1e} from those of the older "
            f"code, more than {work.tolerance:g}, so that nothing is timed"
        )
    return difference


def compared(
    work: ComparedWork, older: Path, pairs: int, box: float
) -> tuple[list[Measurement], list[Requirement]]:
    """Return what both took, and how many times as much ours took as the older code."""
    differences, turns, memory = [], [], []
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        scratch = Path(name)
        workload = work.workload()
        if work.exact:
            workloads.export(workloads.in_double(workload), scratch / "exact")
            with _pair(work, older, scratch / "exact", scratch) as pair:
                differences.append(judge(work, pair))
        workloads.export(workload, scratch / "timed")
        for _ in range(pairs):
            with _pair(work, older, scratch / "timed", scratch) as pair:
                if work.exact:
                    pair.difference()  # it says nothing in single precision, but warms up
                else:
                    differences.append(judge(work, pair))
                turns.append(list(pair.turns(box)))
                memory.append([process.memory() for process in pair])
    rows = [
        Measurement(
            name=f"{work.name}, {when}",
            seconds=[statistics.median(each[place].seconds for each in of) for of in turns],
            memory=max(each[place] for each in memory),
        )
        for place, when in enumerate(("now", "before"))
    ]
    requirements = []
    for field, what in (("processor", "processor time"), ("seconds", "time")):
        ratios = [
            statistics.median(getattr(now, field) / getattr(old, field) for now, old in of)
            for of in turns
        ]
        value = statistics.median(ratios)
        requirements.append(
            Requirement(what=f"{work.name}, {what} beside the older code", value=value, bound=BOUND)
        )
    note = f"the clock's ratio in pairs: {', '.join(f'{each:.2f}' for each in sorted(ratios))}"
    rows[0] = rows[0].model_copy(update={"difference": max(differences), "note": note})
    return rows, requirements


def before(
    repeats: int,
    peers: Path | None = None,
    base: str = BASE,
    works: Sequence[ComparedWork] = WORKS,
    box: float = BOX,
) -> Suite:
    """Time rounds by this code beside those of an older commit.

    Args:
        repeats: How many pairs of processes each work has.
        peers: Not used: they have not changed.
        base: The older commit.
        works: What is trained.
        box: For how many seconds a pair of processes takes turns.
    """
    commit = commit_of(base)
    if reason := native.why_missing():
        raise EbbflowError(f"before: the kernels of this ebbflow are missing ({reason})")
    measurements: list[Measurement] = []
    requirements: list[Requirement] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        older = check_out(commit, Path(folder, "older"))
        for work in works:
            rows, both = compared(work, older, repeats, box)
            measurements += rows
            requirements += both
    return Suite(
        name="before",
        title=f"this code beside that of commit {commit[:7]}",
        measurements=measurements,
        requirements=requirements,
        notes=[
            "Both train the same exported workload, each in a process of its own, and take turns "
            f"of at least {TURN:g} s for {box:g} s. Each turn is compared with the one beside it; "
            "the median of these ratios stands for a pair of processes, and the median of "
            f"{repeats} pairs counts, for where a process's memory lies makes it faster or slower. "
            "Processor time stands beside the clock's, which other work on the machine disturbs. "
            "Times in the table are the medians of each pair. The difference is between the models "
            f"of both after {CHECKED_ROUNDS} rounds, in W2 and W3 in double precision. The texts "
            f"are those of {texts.TIMED} devices.",
        ],
        machine=machine(),
        versions=versions(),
    )
