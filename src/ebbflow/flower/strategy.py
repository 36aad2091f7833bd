"""ebbflow's algorithms as Flower strategies, for nodes that run `ebbflow.flower.client`.

The server side of a round of the simulator: what is broadcast, who takes part, and the step from
the sum of the uploads. Nodes draw their mini-batches by name, and uploads are added in the order of
the devices' numbers, so a federation and the simulator's reference engine agree bit by bit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from ebbflow.algorithms import ALGORITHMS
from ebbflow.core import vector
from ebbflow.core.algorithm import Algorithm, Broadcast, LocalRun, Upload, add_up, mean_state
from ebbflow.core.errors import EbbflowError, unknown
from ebbflow.core.rates import polynomial_rates
from ebbflow.core.rng import generator
from ebbflow.core.types import ModelState, State
from ebbflow.data.batches import StepRule
from ebbflow.data.schedule import participants
from ebbflow.flower.checks import Expected, shapes_of
from ebbflow.flower.members import MembersGrid, Opening
from ebbflow.flower.wire import EXTRA, UPLOAD, tensors, upload_of, vectors

STATE = "state"
"""The record in which a node sends what it has kept."""
STATE_LOST = "the state after the upload"
"""Begins what a node says that cannot find the state that it should start from."""


@dataclass(frozen=True)
class Local:
    """How every device trains in a round; see ``[local]`` and ``[lr]`` of a simulation.

    Attributes:
        rounds: The rounds T over which the rate falls; later rounds keep the last rate.
        lr: A session's first rate.
        floor: The last rate, as a fraction of the first.
        power: How the rate falls in between.
        steps: The number e of local steps, or a range from which each device draws its own.
        batch: Samples in a mini-batch.
        rule: How mini-batches are drawn.
        momentum: Heavy-ball momentum, fresh every round.
        radius: The ball that the model stays in, if any.
        share: How many members take part in a round: all, a fraction, or a number.
    """

    rounds: int = 10
    lr: float = 0.1
    floor: float = 0.1
    power: float = 0.9
    steps: int | tuple[int, int] = 5
    batch: int = 32
    rule: StepRule = "one_pass"
    momentum: float = 0.9
    radius: float | None = None
    share: float | int | None = None

    def rate(self, t: int) -> float:
        """Return the rate of round t."""
        rates = polynomial_rates(self.lr, self.floor, self.power, self.rounds)
        return rates[min(t, self.rounds) - 1]


@dataclass(frozen=True)
class Probe:
    """The V short rounds from the pilot, whose displacement is a session's signature.

    What is None is as in the session's training. ``lr`` is half of the session's first rate, the
    same rate, or a number.
    """

    rounds: int = 1
    share: float | int | None = None
    steps: int | tuple[int, int] | None = None
    batch: int | None = None
    lr: float | Literal["half", "same"] = "half"


@dataclass(frozen=True)
class Training:
    """Trains sessions with one of ebbflow's algorithms; give it to `Sessions` as the strategy.

    Attributes:
        algorithm: The algorithm's name, as in a simulation.
        parameters: The algorithm's own parameters.
        local: How devices train.
        probing: How the probe is run.
        buffers: The names of the model's buffers, if it has any.
        states: Whether devices begin every session afresh (``reset``), or go on with what they
            remember from the last one that they took part in (``keep``).
    """

    algorithm: str = "fedavg"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    local: Local = Local()
    probing: Probe = Probe()
    buffers: frozenset[str] = frozenset()
    states: Literal["reset", "keep"] = "reset"

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise unknown(self.algorithm, ALGORITHMS, "algorithm", "Training(algorithm=...)")
        ALGORITHMS[self.algorithm].checked(dict(self.parameters))
        if self.states not in ("reset", "keep"):
            raise EbbflowError(f'states = "{self.states}" cannot be: give "reset" or "keep"')

    def __call__(self, opening: Opening) -> AlgorithmStrategy:
        """Return the strategy of a session."""
        return AlgorithmStrategy(self, opening, self.local, "local", "participants")

    def probe(self, opening: Opening) -> AlgorithmStrategy:
        """Return the strategy of a session's probe."""
        probing, local = self.probing, self.local
        rate = local.rate(1)
        lr = {"half": rate / 2, "same": rate}[probing.lr] if isinstance(probing.lr, str) else None
        flat = Local(
            rounds=1,
            lr=probing.lr if lr is None else lr,  # type: ignore[arg-type]  # a number then
            floor=1.0,
            steps=local.steps if probing.steps is None else probing.steps,
            batch=local.batch if probing.batch is None else probing.batch,
            rule=local.rule,
            momentum=local.momentum,
            radius=local.radius,
            share=probing.share,
        )
        return AlgorithmStrategy(self, opening, flat, "probe", "probe-participants")

    def method(self) -> dict[str, Any]:
        """Return what the states of server and devices belong to, as JSON has it."""
        entry = ALGORITHMS[self.algorithm]
        parameters = {**entry.defaults, **entry.checked(dict(self.parameters))}
        return {"algorithm": self.algorithm, "parameters": json.loads(json.dumps(parameters))}

    def built(self) -> Algorithm:
        """Return the algorithm."""
        return ALGORITHMS[self.algorithm].build(dict(self.parameters))


class AlgorithmStrategy(Strategy):
    """One of ebbflow's algorithms at the server, for the rounds of one session.

    ``used`` says, by device, which upload the server has used last: a node goes on from the state
    that it had after that one.
    """

    def __init__(
        self, training: Training, opening: Opening, local: Local, purpose: str, drawing: str
    ) -> None:
        self.training, self.opening, self.local = training, opening, local
        self.purpose, self.drawing = purpose, drawing
        self.algorithm = training.built()
        self.server: State | None = None
        self.used: dict[int, str] = {}
        self._model: ModelState | None = None
        self._shared: Broadcast | None = None
        self._numbers: dict[int, int] = {}

    def summary(self) -> None:
        """Say nothing: Sessions does."""

    def begin(self, model: ModelState) -> None:
        """Set the server's state up for a session that starts with this model."""
        self.server = self.algorithm.init_server(model.theta, self.opening.population)

    def rejoin(self, model: ModelState, kept: Mapping[int, State]) -> None:
        """Set the server's state up from the states of the members, fresh ones for newcomers."""
        assert self.algorithm.rejoin is not None
        members = sorted(self.opening.members)
        fresh = self._fresh_state(model)
        sizes = [self.opening.members[device] for device in members]
        mean = mean_state([kept.get(device, fresh) for device in members], sizes)
        self.server = self.algorithm.rejoin(model.theta, self.opening.population, mean)

    def _fresh_state(self, model: ModelState) -> State:
        """Return the state of a device that has not taken part before."""
        return self.algorithm.init_client(Broadcast(model.theta, model.buffers, {}))

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return a message for each participant: the model, and how to train."""
        if not isinstance(grid, MembersGrid):
            raise EbbflowError(
                "this strategy needs the members of a session: run it by Sessions(...).run(grid, "
                "arrays)"
            )
        form = self.opening.form
        self._model = form.state(arrays)
        if self.server is None:
            self.begin(self._model)
        assert self.server is not None
        theta, extras = self.algorithm.broadcast(self._model.theta, self.server)
        self._shared = Broadcast(theta, self._model.buffers, extras)
        records = {"arrays": form.arrays(ModelState(theta, self._model.buffers))}
        if extras:
            records["extras"] = vectors(extras)
        self._numbers = dict(grid.devices)
        nodes = grid.node_of
        messages = []
        for device in self._participants(server_round):
            if device in nodes:
                own = ConfigRecord({**config, **self._instructions(server_round, device)})
                content = RecordDict({**records, "config": own})
                messages.append(
                    Message(content, nodes[device], MessageType.TRAIN, group_id=str(server_round))
                )
        return messages

    def _participants(self, t: int) -> tuple[int, ...]:
        """Draw A^(s,t), as the simulator does."""
        members, opening = sorted(self.opening.members), self.opening
        # A probe asks the same devices in all of its rounds.
        drawn = 0 if self.purpose == "probe" else t
        draw = generator(opening.seed, self.drawing, opening.session, drawn)
        sizes = [opening.members[device] for device in members]
        return participants(draw, members, sizes, self.local.share, "uniform")

    def _instructions(self, t: int, device: int) -> dict[str, Any]:
        local = self.local
        steps = [local.steps] * 2 if isinstance(local.steps, int) else list(local.steps)
        return {
            "server-round": t,
            "algorithm": self.training.algorithm,
            "parameters": json.dumps(dict(self.training.parameters), sort_keys=True),
            "seed": self.opening.seed,
            "purpose": self.purpose,
            "session": self.opening.session,
            "device": device,
            "lr": local.rate(t),
            "steps": steps,
            "batch": local.batch,
            "rule": local.rule,
            "momentum": local.momentum,
            "radius": math.inf if local.radius is None else local.radius,
            "used": self.used.get(device, ""),
        }

    def expected(self) -> Expected:
        """Return what an upload must be like."""
        assert self._shared is not None
        shared, theta = self._shared, self._shared.theta
        one = torch.ones(()).to(theta)
        run = LocalRun(theta, shared.buffers, 1, 1.0, 1.0, one, torch.zeros_like(theta))
        upload, _ = self.algorithm.upload(shared, self.algorithm.init_client(shared), run)
        named = {"delta": upload.delta, "buffers": upload.buffers}
        named |= {EXTRA + name: value for name, value in upload.extras.items()}
        return Expected(shapes_of(vectors(named)), upload_lengths, UPLOAD)

    def expected_state(self, model: ModelState) -> Expected:
        """Return what a device's state must be like, if it has kept one."""
        return Expected(shapes_of(vectors(self._fresh_state(model))), state_lengths, STATE)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take the server's step from the sum of the uploads, added in the devices' order."""
        arrived = {self._numbers[reply.metadata.src_node_id]: reply for reply in replies}
        if not arrived or self._model is None or self.server is None:
            return None, None
        total: Upload | None = None
        for device in sorted(arrived):
            total = add_up(total, upload_of(arrived[device].content))
            self.used[device] = upload_name(self.opening.session, server_round)
        assert total is not None
        theta, self.server = self.algorithm.server_step(self._model.theta, self.server, total)
        if self.local.radius is not None:
            theta = vector.project(theta, self.local.radius)
        model = ModelState(theta, total.buffers / total.samples)
        metrics = MetricRecord({"devices": len(arrived), "samples": float(total.samples)})
        return self.opening.form.arrays(model), metrics

    def note_failures(self, failed: Mapping[int, str]) -> None:
        """Let devices that have lost their state begin again with a fresh one."""
        for device, reason in failed.items():
            if STATE_LOST in reason:
                self.used.pop(device, None)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask nobody: give Sessions an ``evaluate_fn`` for a test at the server."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return nothing."""
        return None


def upload_lengths(content: RecordDict) -> dict[str, float]:
    """Return how far an upload moves the model, and the length of all else in it, per sample."""
    upload = upload_of(content)
    parts = {"update": upload.delta, "array buffers": upload.buffers}
    parts |= {f"array {EXTRA}{name}": value for name, value in upload.extras.items()}
    return {name: float((part / upload.samples).double().norm()) for name, part in parts.items()}


def state_lengths(content: RecordDict) -> dict[str, float]:
    """Return the length of each array of real numbers in a device's state."""
    named = tensors(content.array_records[STATE])
    real = {name: value for name, value in named.items() if value.is_floating_point()}
    return {f"array {name}": float(value.double().norm()) for name, value in real.items()}


def upload_name(session: int, t: int) -> str:
    """Return what an upload is called between server and node."""
    return f"{session}-{t}"
