"""The fast engine: blocks of devices mapped together, one single-threaded worker per core.

The result does not depend on how the work is cut. A device's own numbers are the same in any block
(a product over a batch of devices is taken device by device, and a short mini-batch is filled up
to a size that depends on that device alone), and uploads are added one by one in device order. The
block size and the number of workers are therefore free to follow the machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from ebbflow.core.algorithm import Broadcast, Upload, add_up, combine
from ebbflow.core.errors import EbbflowError
from ebbflow.core.evaluate import Score, count, parts, score
from ebbflow.core.feed import Feed, first
from ebbflow.core.local import Batch, Cohort, Lane, Recipe, Trained, train
from ebbflow.core.types import Examples, Model, ModelState, State

PAD = 16  # mini-batches are filled up to a multiple of so many rows
BLOCK_BYTES = 4 * 2**20  # what a block's mini-batch and vectors may take: about a core's cache
WINDOW_BYTES = 256 * 2**20  # of devices that are grouped by the shape of their steps


# MKL may otherwise choose another order of summation by a matrix's address, and so by a device's
# place in its block. It reads this at its first product; a user's own choice stands.
if torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"):
    os.environ.setdefault("MKL_CBWR", f"{torch.backends.cpu.get_cpu_capability()},STRICT")


class _Block(NamedTuple):
    """Devices that train together: their places in the cohort, and the rows of each step."""

    places: tuple[int, ...]
    rows: tuple[int, ...]


class Vectorised:
    """Train a cohort in blocks; the module's text says why the cut does not show.

    Args:
        model: The model to train.
        examples: The training set, on the device that computes.
        recipe: Momentum and projection.
        block: Devices per block; by default as many as fit the cache.
        workers: Threads, each of which computes on one core; by default one per core.
    """

    def __init__(
        self,
        model: Model,
        examples: Examples,
        recipe: Recipe,
        block: int | None = None,
        workers: int | None = None,
    ) -> None:
        if model.draws:
            self._refuse_draws(model)
        self._undisturbed = False
        self.model = model
        self.feed = Feed(examples, model)
        self.recipe = recipe
        self.block = block
        # One stream of work keeps a GPU busy; a CPU wants a worker per core.
        cores = 1 if examples.x.is_cuda else len(os.sched_getaffinity(0))
        self._pool = ThreadPoolExecutor(workers or cores, "ebbflow", _one_thread)

    def close(self) -> None:
        """Release the workers."""
        self._pool.shutdown()

    def __call__(self, lanes: Sequence[Lane], cohort: Cohort) -> list[Trained]:
        """Return, for every lane, the sum of the uploads and the participants' new states."""
        if not cohort.devices:
            raise EbbflowError(f"session {cohort.session}, round {cohort.round}: nobody takes part")
        untouched = None if self._undisturbed else torch.get_rng_state()
        totals: list[Upload | None] = [None] * len(lanes)
        clients: list[dict[int, State]] = [{} for _ in lanes]
        for window in self._windows(len(cohort.devices), len(lanes)):
            blocks = list(self._blocks(cohort, window))
            results = self._pool.map(lambda block: self._train(lanes, cohort, block), blocks)
            for uploads in _in_order(window, blocks, results, clients):
                for i, upload in enumerate(uploads):
                    totals[i] = add_up(totals[i], upload)
        if untouched is not None and not torch.equal(untouched, torch.get_rng_state()):
            self._refuse_draws(self.model)
        self._undisturbed = True
        return [(total, states) for total, states in zip(totals, clients, strict=True) if total]

    def evaluate(self, models: Sequence[ModelState], test: Examples) -> Callable[[], list[Score]]:
        """Evaluate the models on the workers, while the caller goes on with the next round.

        The parts go in order, each through every model: they are in the cache then.
        """
        counts = [
            [self._pool.submit(count, self.model, model, test, rows) for model in models]
            for rows in parts(test)
        ]

        def scores() -> list[Score]:
            return [
                score([part.result() for part in of_model], len(test))
                for of_model in zip(*counts, strict=True)
            ]

        return scores

    @staticmethod
    def _refuse_draws(model: Model) -> None:
        raise EbbflowError(
            f"the model {model.name} has random layers of its own, whose draws would depend on "
            'how the work is cut: use engine.kind = "sequential", or take draws as `noise`'
        )

    def _windows(self, devices: int, lanes: int) -> Iterator[range]:
        # Enough devices to keep the workers busy, whatever their size: uploads are let go at once.
        held = max(16, WINDOW_BYTES // (4 * self.model.layout.total * lanes))
        for start in range(0, devices, held):
            yield range(start, min(start + held, devices))

    def _blocks(self, cohort: Cohort, window: range) -> Iterator[_Block]:
        """Group the devices whose steps have the same sizes, and cut each group into blocks."""
        alike: dict[tuple[int, ...], list[int]] = {}
        for place in window:
            sizes = (len(rows) for rows in cohort.batches[place])
            # Batch statistics must never see a padded row.
            padded = sizes if self.model.batch_statistics else (-(-n // PAD) * PAD for n in sizes)
            alike.setdefault(tuple(padded), []).append(place)
        for rows, places in alike.items():
            size = self._block_size(max(rows, default=0))
            for at in range(0, len(places), size):
                yield _Block(tuple(places[at : at + size]), rows)

    def _block_size(self, rows: int) -> int:
        if not self.model.vectorise:
            return 1
        if self.block is not None:
            return self.block
        held = rows * self.feed.sample_bytes + 16 * self.model.layout.total
        return max(1, BLOCK_BYTES // held)

    def _train(self, lanes: Sequence[Lane], cohort: Cohort, block: _Block) -> list[Trained]:
        """Train one block in every lane, over mini-batches that are gathered once."""
        theta = lanes[0].shared.theta
        batches = [
            self.feed.batch(cohort, block.places, step, size, theta)
            for step, size in enumerate(block.rows)
        ]
        devices = [cohort.devices[place] for place in block.places]
        samples = torch.tensor([cohort.samples[place] for place in block.places]).to(theta)
        return [self._train_lane(lane, devices, batches, samples) for lane in lanes]

    def _train_lane(
        self, lane: Lane, devices: Sequence[int], batches: Sequence[Batch], samples: Tensor
    ) -> Trained:
        theta, buffers, extras = lane.shared
        fresh = lane.algorithm.init_client(lane.shared)
        states = [lane.clients.get(device, fresh) for device in devices]
        client = {name: torch.stack([state[name] for state in states]) for name in fresh}

        def one(
            theta: Tensor, buffers: Tensor, client: State, batches: Sequence[Batch], samples: Tensor
        ) -> tuple[Upload, State]:
            shared = Broadcast(theta, buffers, extras)
            return train(
                self.model, lane.algorithm, self.recipe, shared, client, batches, lane.lr, samples
            )

        if self.model.vectorise:
            # Every device gets its own copy of theta: the first step is then a product over a
            # batch of devices like all others, whose result no neighbour in the block can touch.
            count = len(devices)
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
        after = {
            device: {name: value[i] for name, value in client.items()}
            for i, device in enumerate(devices)
        }
        return upload, after


def _in_order(
    window: range,
    blocks: Sequence[_Block],
    results: Iterator[list[Trained]],
    clients: list[dict[int, State]],
) -> Iterator[list[Upload]]:
    """Yield every device's uploads, one for each lane, in the cohort's order.

    Devices of equal shape train together, so a block may come too early: its rows wait their turn.
    A row is let go as soon as it was handed on.
    """
    waiting: dict[int, list[Upload]] = {}
    turn = iter(window)
    place = next(turn, None)
    for block, trained in zip(blocks, results, strict=True):
        for states, (_, after) in zip(clients, trained, strict=True):
            states.update(after)
        for row, member in enumerate(block.places):
            waiting[member] = [
                combine(lambda field, row=row: field[row], upload) for upload, _ in trained
            ]
        while place in waiting:
            yield waiting.pop(place)
            place = next(turn, None)


def _one_thread() -> None:
    # Two threads in one product change some shapes' bits, and spinning threads starve beside a
    # busy neighbour: each worker computes alone.
    torch.set_num_threads(1)
