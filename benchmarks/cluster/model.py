"""A small discrete-event model of a round on many workers: what waits for what, and how long.

Workers take chunks in order, each as soon as it is free. What they fetch and send goes through the
driver's network link, one after another in each direction, and the driver adds up leaves in the
order of the cohort. Everything else happens side by side.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from ebbflow.cluster.chunks import cut, leaves_in_a_chunk
from ebbflow.cluster.dispatch import DEPTH


@dataclass(frozen=True)
class Costs:
    """Seconds and bytes that a round is made of.

    Attributes:
        device: Seconds to train one device on one core.
        test: Seconds to evaluate the model on one core.
        vector: Bytes of a model or of a leaf's sum.
        bandwidth: Bytes a second of the driver's link, in each direction.
        latency: Seconds of a message.
        send: Seconds in which the driver puts a round's models where workers can fetch them.
        receive: Seconds in which the driver unpacks one leaf and adds it up.
        unpack: Seconds in which a worker unpacks the round's models.
        pack: Seconds in which a worker makes one leaf ready to be sent.
        task: Seconds of the driver for each task.
    """

    device: float
    test: float
    vector: int
    bandwidth: float
    latency: float
    send: float
    receive: float
    unpack: float
    pack: float
    task: float


@dataclass(frozen=True)
class SimulatedRound:
    """What a round took, and how long everybody was busy in it.

    Attributes:
        seconds: From its beginning to its end.
        sending: In which the driver's link carried something to workers.
        receiving: In which it carried something to the driver, maybe at the same time.
        driver: In which the driver computed.
        busiest: In which the worker with most chunks trained.
    """

    seconds: float
    sending: float
    receiving: float
    driver: float
    busiest: float

    @property
    def link_busy(self) -> float:
        """The part of the round in which the busier direction of the driver's link was busy."""
        return max(self.sending, self.receiving) / self.seconds


def simulated(
    costs: Costs, devices: int, speeds: Sequence[float], threads: int = 1, leaf: int = 4
) -> SimulatedRound:
    """Return a round of so many devices on workers of these speeds, one for each.

    The evaluation of the round before comes first, divided among the workers.
    """
    workers = len(speeds)
    every = -(-devices // leaf)
    size = leaves_in_a_chunk(every, leaf, workers, threads, costs.vector)
    chunks = list(cut(devices, leaf, size))
    transfer = costs.vector / costs.bandwidth
    sent = costs.send  # when the link to workers is free
    free: list[tuple[float, int]] = []
    at_work = min(workers, len(chunks))
    for worker in range(at_work):
        # Every worker fetches the round's models once, and tests its part of the samples.
        sent += transfer
        fetched = sent + costs.latency + costs.unpack
        tested = costs.test / workers / min(threads, 4) / speeds[worker]
        heapq.heappush(free, (fetched + tested, worker))
    arrived: dict[int, float] = {}
    computed: list[tuple[float, int]] = []
    folded: list[float] = []
    window = 2 * DEPTH * workers
    for number, places in enumerate(chunks):
        began, worker = heapq.heappop(free)
        if number >= window:  # the driver has to add up before it hands out more
            _receive(costs, chunks, leaf, computed, arrived, folded, number - window)
            began = max(began, folded[number - window])
        turns = -(-len(places) // threads)
        leaves = -(-len(places) // leaf)
        done = began + turns * costs.device / speeds[worker] + leaves * costs.pack + costs.task
        heapq.heappush(computed, (done, number))
        heapq.heappush(free, (done, worker))
    _receive(costs, chunks, leaf, computed, arrived, folded, len(chunks) - 1)
    return SimulatedRound(
        seconds=folded[-1],
        sending=at_work * transfer,
        receiving=every * transfer,
        driver=costs.send + every * costs.receive + len(chunks) * costs.task,
        busiest=turns_of(chunks, threads, workers) * costs.device,
    )


def turns_of(chunks: Sequence[range], threads: int, workers: int) -> int:
    """Return how many devices, one after another, the worker with most chunks has to train."""
    turns = [-(-len(places) // threads) for places in chunks]
    return sum(turns[: -(-len(chunks) // workers)])


def _receive(
    costs: Costs,
    chunks: Sequence[range],
    leaf: int,
    computed: list[tuple[float, int]],
    arrived: dict[int, float],
    folded: list[float],
    last: int,
) -> None:
    """Let chunks arrive one after another, and add them up in order, up to the last one wanted."""
    down = max(arrived.values(), default=0.0)
    while len(folded) <= last:
        number = len(folded)
        while number not in arrived:
            done, which = heapq.heappop(computed)
            leaves = -(-len(chunks[which]) // leaf)
            down = max(down, done) + leaves * costs.vector / costs.bandwidth + costs.latency
            arrived[which] = down
        before = folded[-1] if folded else 0.0
        leaves = -(-len(chunks[number]) // leaf)
        folded.append(max(before, arrived[number]) + leaves * costs.receive)
