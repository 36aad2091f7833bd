"""The fast engine: blocks of devices mapped together, one single-threaded worker per core.

The result does not depend on how the work is divided. A device's own numbers are the same in any
block (a product over a batch of devices is taken device by device, and a short mini-batch is padded
to a size that depends on that device alone), and uploads are added up in fixed leaves (`leaves`).
The block size and the number of workers can therefore be whatever is fastest on the machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import NamedTuple, Never

import torch
from torch import Tensor
from torch.func import vmap

from ebbflow.core.algorithm import Broadcast, Upload, combine, mean_state
from ebbflow.core.batching import Feed, first
from ebbflow.core.errors import EbbflowError, HookError, TrainingError
from ebbflow.core.evaluate import Score, Tally, count, parts, scores
from ebbflow.core.local import (
    Batch,
    Cohort,
    Lane,
    Recipe,
    Route,
    RoutePath,
    Trained,
    stacked,
    states_of,
    train,
)
from ebbflow.core.types import Examples, Model, ModelState, State
from ebbflow.engines.dense import DenseLayers, why_not_dense
from ebbflow.engines.failures import failures_named, place_of, refuse_lack_of_memory
from ebbflow.engines.fused import Fused, why_no_kernel
from ebbflow.engines.leaves import (
    LEAF,
    DenseTotal,
    LeafStretch,
    LeafSum,
    Total,
    folded,
    leaf_sums,
    split_lanes,
)
from ebbflow.engines.sequential import Sequential
from ebbflow.engines.tuning import BlockTuner

PAD = 16  # mini-batches are padded to a multiple of so many rows
BLOCK_BYTES = 32 * 2**20  # the most that a block may take; the best size is measured
GPU_BLOCK_BYTES = 256 * 2**20  # a GPU has no such cache to stay in, and wants more work at once
WINDOW_BYTES = 256 * 2**20  # of uploads held at once, whose devices are grouped by step sizes


# MKL may otherwise choose another order of summation by a matrix's address, and so by a device's
# place in its block. It reads this at its first product; a user's own choice stands.
if torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"):
    os.environ.setdefault("MKL_CBWR", f"{torch.backends.cpu.get_cpu_capability()},STRICT")


class _DeviceBlock(NamedTuple):
    """Devices that train together: their places in the cohort, and the rows of each step."""

    places: tuple[int, ...]
    rows: tuple[int, ...]


_BlockResult = tuple[Upload, State]
"""What a block gives a lane: uploads and new states, both with a first axis for the devices."""


class Vectorised:
    """Trains a cohort in blocks of devices; see the module's text.

    Args:
        model: The model to train.
        examples: The training set, on the device that computes.
        recipe: Momentum and projection.
        block: Devices per block; by default the size that proves fastest.
        workers: Threads, each of which computes on one core; by default one per core.
        fused: Whether to use native kernels for what they can do, where they were built.
        vectorise: Whether devices are mapped together; by default where it pays for the model.
        dense: Whether to use closed forms for a dense network.

    ``leaf`` is the number of devices in a leaf. A cohort may be cut behind any leaf, and its parts
    be given to `leaves` anywhere: `folded` adds up the same leaves.
    """

    leaf = LEAF

    def __init__(
        self,
        model: Model,
        examples: Examples,
        recipe: Recipe,
        block: int | None = None,
        workers: int | None = None,
        vectorise: bool | None = None,
        fused: bool = True,
        dense: bool = True,
    ) -> None:
        if model.hints.own_draws:
            self._refuse_draws(model)
        self._undisturbed = False
        self._maps = model.hints.maps(examples.x.is_cuda) if vectorise is None else vectorise
        self._as_built = model
        self.model = model.mapped() if self._maps else model
        self.feed = Feed(examples, model)
        self.recipe = recipe
        self.block = block
        self._tuners: dict[int, BlockTuner] = {}  # by the number of lanes
        self._no_kernel = why_no_kernel(model, examples) if fused else "the kernel is switched off"
        self._fused = None if self._no_kernel else Fused(model, examples, recipe)
        self._not_dense = why_not_dense(model, examples) if dense else "closed forms are not wanted"
        self._dense = (
            None if self._not_dense else DenseLayers(model, self.feed, recipe, native=fused)
        )
        # One stream of work keeps a GPU busy; a CPU wants a worker per core.
        cores = 1 if examples.x.is_cuda else len(os.sched_getaffinity(0))
        self.workers = workers or cores
        self._pool = ThreadPoolExecutor(self.workers, "ebbflow", _one_thread)

    def close(self) -> None:
        """Release the workers."""
        self._pool.shutdown()

    def __call__(self, lanes: Sequence[Lane], cohort: Cohort) -> list[Trained]:
        """Return, for every lane, the sum of the uploads and the participants' new states."""
        cohort.refuse_nobody()
        try:
            return self.folded(lanes, self.leaves(lanes, cohort))
        except (EbbflowError, HookError):
            raise
        except Exception as error:  # of a hook, of a model, or because vmap cannot map them
            failure = error
        return self.raise_explained(failure, lanes, cohort)

    def leaves(self, lanes: Sequence[Lane], cohort: Cohort) -> Iterator[LeafStretch]:
        """Train every lane by the fastest way that it can go, and yield the leaves' sums."""
        mapped = partial(self._mapped, cohort=cohort)
        if self._fused is not None:
            by_kernel = [not self._fused.refusal(lane) for lane in lanes]
            kernel = partial(self._fused.leaves, self._pool, self.workers, cohort=cohort)
            return split_lanes(lanes, by_kernel, kernel, mapped)
        if self._dense is not None:
            closed = [not self._dense.refusal(lane) for lane in lanes]
            return split_lanes(lanes, closed, partial(self._closed, cohort=cohort), mapped)
        return mapped(lanes)

    def folded(self, lanes: Sequence[Lane], leaves: Iterable[LeafStretch]) -> list[Trained]:
        """Return, for every lane, what the leaves of a cohort add up to."""
        return folded(lanes, leaves, self._total)

    def portable(self, stretch: LeafStretch) -> LeafStretch:
        """Return leaves in the form in which they may go to another process."""
        return stretch

    def _total(self, lane: Lane, like: LeafSum) -> Total:
        """Return an empty total for such leaves of a lane."""
        return DenseTotal()

    def raise_explained(self, failure: Exception, lanes: Sequence[Lane], cohort: Cohort) -> Never:
        """Raise the best error there is for a round in which a hook, a model or vmap failed."""
        refuse_lack_of_memory(failure, place_of(cohort))
        self.explain(lanes, cohort)  # raises if the reference fails as well
        if isinstance(failure, RuntimeError):
            raise TrainingError(
                f"{place_of(cohort)}: {str(failure).splitlines()[0]} (with engine.kind = "
                '"sequential" the same round goes through: use that)'
            ) from failure
        raise failure

    def mean_state(self, states: Sequence[State], samples: Sequence[int]) -> State:
        """Return the mean of device states, weighted by D_k."""
        return mean_state(states, samples)

    def explain(self, lanes: Sequence[Lane], cohort: Cohort) -> None:
        """Train the round again with the reference engine, which names the device at fault."""
        Sequential(self._as_built, self.feed.examples, self.recipe)(lanes, cohort)

    def route(self, lane: Lane, cohort: Cohort) -> Route:
        """Return how the lane is trained, and why not in the faster way that its model has."""
        path: RoutePath = "mapped blocks" if self._maps else "one device at a time"
        if self.model.hints.linear:
            reason = self._fused.refusal(lane) if self._fused is not None else self._no_kernel
            return Route(path, reason) if reason else Route("fused kernel")
        if self.model.hints.dense is not None:
            reason = self._dense.refusal(lane) if self._dense is not None else self._not_dense
            return Route(path, reason) if reason else Route("dense layers")
        return Route(path)

    def _closed(self, lanes: Sequence[Lane], cohort: Cohort) -> Iterator[LeafStretch]:
        """Train a dense network by its closed form."""
        assert self._dense is not None
        windows = self._windows(len(cohort.devices), len(lanes))
        with self._draws_watched():
            yield from self._dense.leaves(self._pool, windows, lanes, cohort)

    def _mapped(self, lanes: Sequence[Lane], cohort: Cohort) -> Iterator[LeafStretch]:
        """Train in torch, in blocks of devices that are mapped together."""
        with self._draws_watched():
            yield from self._mapped_windows(lanes, cohort)

    def _mapped_windows(self, lanes: Sequence[Lane], cohort: Cohort) -> Iterator[LeafStretch]:
        for window in self._windows(len(cohort.devices), len(lanes)):
            drawn = cohort.held(window)
            blocks = list(self._blocks(drawn, window, len(lanes)))
            results = self._pool.map(partial(self._timed, lanes, drawn), blocks)
            devices = cohort.devices[window.start : window.stop]
            yield from leaf_sums(_in_order(window, blocks, results), devices)

    @contextmanager
    def _draws_watched(self) -> Iterator[None]:
        """Refuse what draws from torch's generator, in the first round."""
        untouched = None if self._undisturbed else torch.get_rng_state()
        yield
        if untouched is not None and not torch.equal(untouched, torch.get_rng_state()):
            self._refuse_draws(self.model)
        self._undisturbed = True

    def evaluate(self, models: Sequence[ModelState], test: Examples) -> Callable[[], list[Score]]:
        """Evaluate the models on the workers, while the caller goes on with the next round.

        The parts of the test set go in order, each through every model while it is in the cache.
        """
        tallies = self.tallies(models, test, parts(test))

        def wait() -> list[Score]:
            with failures_named(lambda: "evaluation"):
                return scores(tallies(), test, self.model.task)

        return wait

    def tallies(
        self, models: Sequence[ModelState], test: Examples, rows: Sequence[range]
    ) -> Callable[[], list[list[Tally]]]:
        """Begin to count what parts of a test set add to the models' scores.

        The returned function waits for the tallies: for every part, one for each model.
        """
        count = self._counting(models, test)
        counts = [[self._pool.submit(count, model, part) for model in models] for part in rows]

        def wait() -> list[list[Tally]]:
            with failures_named(lambda: "evaluation"):
                return [[one.result() for one in of_part] for of_part in counts]

        return wait

    def _counting(
        self, models: Sequence[ModelState], test: Examples
    ) -> Callable[[ModelState, range], Tally]:
        """Return what counts the rows of one part with one model."""
        if self._dense is not None and (counting := self._dense.counting(models, test)) is not None:
            return counting
        return lambda model, rows: count(self.model, model, test, rows)

    @staticmethod
    def _refuse_draws(model: Model) -> None:
        raise EbbflowError(
            f"the model {model.name} has random layers of its own, whose draws would depend on "
            'how the work is divided: use engine.kind = "sequential", or take draws as `noise`'
        )

    def _windows(self, devices: int, lanes: int) -> Iterator[range]:
        # Enough devices to keep the workers busy, whatever their size: uploads are let go at once.
        held = max(16, WINDOW_BYTES // (4 * self.model.layout.total * lanes))
        held -= held % LEAF
        for start in range(0, devices, held):
            yield range(start, min(start + held, devices))

    def _blocks(self, cohort: Cohort, window: range, lanes: int) -> Iterator[_DeviceBlock]:
        """Group the devices whose steps have the same sizes, and cut each group into blocks."""
        alike: dict[tuple[int, ...], list[int]] = {}
        for place in window:
            sizes = (len(rows) for rows in cohort.batches[place])
            # Batch statistics must never see a padded row.
            padded = sizes if self.model.batch_statistics else (-(-n // PAD) * PAD for n in sizes)
            alike.setdefault(tuple(padded), []).append(place)
        for rows, places in alike.items():
            left = iter(places)
            for length in self._lengths(max(rows, default=0), lanes, len(places)):
                yield _DeviceBlock(tuple(islice(left, length)), rows)

    def _lengths(self, rows: int, lanes: int, devices: int) -> Iterator[int]:
        """Return the lengths of the blocks that so many devices are cut into."""
        fixed = self.block if self._maps else 1
        if fixed is not None:
            return (min(fixed, devices - at) for at in range(0, devices, fixed))
        if lanes not in self._tuners:
            held = rows * self.feed.sample_bytes + 16 * self.model.layout.total
            room = GPU_BLOCK_BYTES if self.feed.examples.x.is_cuda else BLOCK_BYTES
            self._tuners[lanes] = BlockTuner(room // held)
        return self._tuners[lanes].lengths(devices, self.workers)

    def _timed(
        self, lanes: Sequence[Lane], cohort: Cohort, block: _DeviceBlock
    ) -> list[_BlockResult]:
        began = time.perf_counter()
        trained = self._train(lanes, cohort, block)
        if tuner := self._tuners.get(len(lanes)):
            count = len(block.places)
            tuner.took(count, count * sum(block.rows), time.perf_counter() - began)
        return trained

    def _train(
        self, lanes: Sequence[Lane], cohort: Cohort, block: _DeviceBlock
    ) -> list[_BlockResult]:
        """Train one block in every lane, over mini-batches that are gathered once."""
        theta = lanes[0].shared.theta
        batches = [
            self.feed.batch(cohort, block.places, step, size, theta)
            for step, size in enumerate(block.rows)
        ]
        devices = [cohort.devices[place] for place in block.places]
        samples = torch.tensor([cohort.weight(place) for place in block.places]).to(theta)
        return [self._train_lane(lane, devices, batches, samples) for lane in lanes]

    def _train_lane(
        self, lane: Lane, devices: Sequence[int], batches: Sequence[Batch], samples: Tensor
    ) -> _BlockResult:
        theta, buffers, extras = lane.shared
        client = stacked(states_of(lane, devices))

        def one(
            theta: Tensor, buffers: Tensor, client: State, batches: Sequence[Batch], samples: Tensor
        ) -> tuple[Upload, State]:
            shared = Broadcast(theta, buffers, extras)
            return train(
                self.model, lane.algorithm, self.recipe, shared, client, batches, lane.lr, samples
            )

        if self._maps:
            # Every device gets its own copy of theta: the first step is then a product over a
            # batch of devices like all others, whose result no neighbour in the block can touch.
            count = len(devices)
            # vmap wants an axis's number in the place of every tensor.
            mapped = [Batch(0, 0, 0, None if b.noise is None else 0) for b in batches]  # type: ignore[arg-type]
            upload, client = vmap(one, in_dims=(0, 0, 0, mapped, 0))(
                theta.expand(count, -1).clone(),
                buffers.expand(count, -1).clone(),
                client,
                batches,
                samples,
            )
        else:
            alone = {name: value[0] for name, value in client.items()}
            own = [first(batch) for batch in batches]
            upload, client = one(theta, buffers, alone, own, samples[0])
            upload = combine(lambda field: field.unsqueeze(0), upload)
            client = {name: value.unsqueeze(0) for name, value in client.items()}
        return upload, client


def _in_order(
    window: range, blocks: Sequence[_DeviceBlock], results: Iterator[list[_BlockResult]]
) -> Iterator[list[tuple[Upload, State]]]:
    """Yield every device's upload and new state, one pair for each lane, in the cohort's order.

    Devices with steps of the same sizes train together, so a block may be ready before its turn:
    its uploads wait. An upload is released as soon as it has been yielded.
    """
    waiting: dict[int, list[tuple[Upload, State]]] = {}
    turn = iter(window)
    place = next(turn, None)
    for block, trained in zip(blocks, results, strict=True):
        for row, member in enumerate(block.places):
            waiting[member] = [_row(one, row) for one in trained]
        while place in waiting:
            yield waiting.pop(place)
            place = next(turn, None)


def _row(trained: _BlockResult, row: int) -> tuple[Upload, State]:
    upload, after = trained
    state = {name: value[row] for name, value in after.items()}
    return combine(lambda field: field[row], upload), state


def _one_thread() -> None:
    # Two threads in one product change some shapes' bits, and spinning threads starve beside a
    # busy neighbour: each worker computes alone.
    torch.set_num_threads(1)
