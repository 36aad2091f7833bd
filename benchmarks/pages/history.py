"""Times the choice among ten thousand past sessions of a ResNet-34, and the memory that it takes.

    python -m benchmarks.pages history

A signature has 21.7 million entries (87 MB); ten thousand of them fit on no ordinary disk. Most
past sessions are therefore synthetic sketches: 50 kinds of sessions, each sketch its kind's
direction with noise. A few are real, with full-length vectors in a history on disk, and of the same
kind as the current session; only these should be left to measure exactly. Everything runs on one
core. Comparing sketches must take less than 200 ms of processor time, in the median of seven.
Memory is read from /proc, so that this runs on Linux only.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks.memory import status
from ebbflow.core import sketch
from ebbflow.core.errors import EbbflowError
from ebbflow.core.rng import generator
from ebbflow.core.signature import DISTANCES, similarity_weights
from ebbflow.core.types import ModelState, PastSession, Sketch
from ebbflow.models import MODELS
from ebbflow.runs.history import Store

KINDS, REAL, NOISE = 50, 4, 0.3
LIMIT_MS, REPEATS = 200.0, 7


class SyntheticSession(PastSession):
    """A past session of another kind that has only a sketch.

    The projection of a random unit vector to k numbers has entries N(0, 1/k).
    """

    def __init__(self, session: int, plan: sketch.SketchPlan) -> None:
        object.__setattr__(self, "number", session)
        self._plan = plan

    @property
    def sketch(self) -> Sketch:
        """The sketch, drawn again at each call, since a history on disk is not in memory either."""
        parts = self._plan.parts
        widths = np.concatenate([np.full(part.numbers, part.numbers) for part in parts])
        kind = generator("benchmark", "kind", self.number % KINDS)
        noise = generator("benchmark", "noise", self.number)
        mixed = sum(
            factor * draw.standard_normal(self._plan.width, dtype=np.float32)
            for factor, draw in ((1.0, kind), (NOISE, noise))
        )
        values = (mixed / np.sqrt((1 + NOISE**2) * widths)).astype(np.float32)
        return Sketch(torch.from_numpy(values), torch.ones(len(parts), dtype=torch.float64))


def median_ms(run: Callable[[], object]) -> tuple[float, float]:
    """Return the median processor time and wall-clock time of a few calls, in milliseconds."""
    times = []
    for _ in range(REPEATS):
        began = time.process_time(), time.perf_counter()
        run()
        times.append((time.process_time() - began[0], time.perf_counter() - began[1]))
    processor, clock = (1000 * statistics.median(column) for column in zip(*times, strict=True))
    return processor, clock


def resident(field: str) -> float:
    """Return this process's memory in MiB: ``VmRSS`` now, ``VmHWM`` the peak since `reset_peak`."""
    return status(os.getpid(), field) / 2**20


def reset_peak() -> None:
    """Start measuring the peak of memory anew."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def print_table(count: int, scale: float) -> None:
    """Make the past sessions, compare, and print."""
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    model = MODELS["resnet34"]((3, 64, 64), 200)
    layout = model.layout
    plan = sketch.plan(layout, "per_tensor")

    def drawn(seed: int) -> torch.Tensor:
        kind, noise = (
            torch.randn(layout.total, generator=torch.Generator().manual_seed(part))
            for part in (0, seed)
        )
        return noise.mul_(NOISE).add_(kind)

    own = drawn(1)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder), layout, model.buffer_layout, plan)
        buffers = torch.zeros(model.buffer_layout.total)
        real = [
            store.write(PastSession(z, ModelState(drawn(z), buffers), drawn(z)))
            for z in range(2, 2 + REAL)
        ]
        before = resident("VmRSS")
        others = (SyntheticSession(z, plan) for z in range(2 + REAL, 2 + count))
        entries: list[PastSession] = [*real, *others]
        table = sketch.SketchTable(plan)
        table.lower_bounds(own, entries)  # fills the matrix of sketches, once per session
        after = resident("VmRSS")
        report(table, own, entries, scale)
        measure = DISTANCES["per_tensor"]
        bounds = table.lower_bounds(own, entries)
        reset_peak()
        began = time.process_time()

        def exact(i: int) -> float:
            signature = entries[i].signature
            if signature is None:
                raise EbbflowError(f"session {i} has to be measured exactly, but has only a sketch")
            return measure(own, signature, layout)

        distances = sketch.nearest_first(bounds, exact, scale)
        seconds = (time.process_time() - began) / len(distances)
        peak = resident("VmHWM") - after
    weights = similarity_weights(list(distances.values()), scale)
    print(f"  left to measure      {len(distances)} ({1 - len(distances) / count:.2%} ruled out)")
    print(f"  measuring one        {1000 * seconds:.0f} ms, read from disk")
    print(f"  distances            {min(distances.values()):.3f} to {max(distances.values()):.3f}")
    print(f"  largest weight       {weights.max():.3f}")
    print(f"  memory of sketches   {after - before:.0f} MiB")
    print(f"  and while measuring  {peak:.0f} MiB, mapped pages among them")


def report(
    table: sketch.SketchTable, own: torch.Tensor, entries: list[PastSession], scale: float
) -> None:
    """Print how long the current session's sketch and the comparison take."""
    sketched = sketch.sketch(own, table.plan)
    making = median_ms(lambda: sketch.sketch(own, table.plan))
    comparing = median_ms(lambda: table.compare(sketched, entries))
    parts = len(table.plan.parts)
    print(
        f"{len(entries)} past sessions, {len(own):,} parameters in {parts} tensors, R = {scale:g}"
    )
    print(f"  numbers per sketch   {table.plan.width} and {parts} norms")
    print("  comparing            {:.0f} ms of processor time, {:.0f} ms".format(*comparing))
    print("  own sketch before    {:.0f} ms of processor time, {:.0f} ms".format(*making))
    if comparing[0] >= LIMIT_MS:
        raise EbbflowError(f"comparing takes {comparing[0]:.0f} ms, more than {LIMIT_MS:.0f} ms")
