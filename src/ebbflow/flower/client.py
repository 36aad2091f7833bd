"""A Flower ClientApp from a model and a device's examples, or from a user's own train function.

The node trains with the reference engine and draws its mini-batches by name (seed, purpose,
session, round, device), so that it computes, bit for bit, what the simulator would compute for this
device.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from ebbflow.algorithms import ALGORITHMS
from ebbflow.core.algorithm import Algorithm, Broadcast
from ebbflow.core.errors import EbbflowError
from ebbflow.core.evaluate import evaluate
from ebbflow.core.local import Cohort, Lane, Recipe
from ebbflow.core.objectives import for_task
from ebbflow.core.rng import generator
from ebbflow.core.types import Examples, Indices, Model, State
from ebbflow.data.batches import StepRule, draw_steps, local_batches
from ebbflow.engines.sequential import Sequential
from ebbflow.flower.node import KeptAnswer, NodeDisk, examples_digest, question_digest
from ebbflow.flower.strategy import STATE, STATE_LOST, upload_name
from ebbflow.flower.survey_node import answered
from ebbflow.flower.wire import (
    EXAMPLES,
    UPLOAD,
    metric_record,
    model_state,
    tensors,
    upload_record,
    vectors,
)

NodeFolder = Path | str | Callable[[Context], Path | str]
ModelSource = Model | Callable[[Context], Model]
ExamplesSource = Examples | Callable[[Context], Examples]


def folder_of_node(context: Context) -> Path:
    """Return the folder named by ``folder`` in the node's configuration."""
    folder = context.node_config.get("folder")
    if not isinstance(folder, str) or not folder:
        raise EbbflowError(
            "the node's configuration has no folder: start the SuperNode with --node-config "
            "'folder=\"...\"', or give client_app(folder=...)"
        )
    return Path(folder)


def client_app(
    model: ModelSource,
    examples: ExamplesSource,
    *,
    test: ExamplesSource | None = None,
    folder: NodeFolder = folder_of_node,
    algorithm: Algorithm | None = None,
    classes: int | None = None,
) -> ClientApp:
    """Return a ClientApp that trains a model on a device's examples.

    Args:
        model: The model, or what makes it from the node's context.
        examples: What the device trains on, or what loads it.
        test: What the device tests models on; without it, evaluation answers with the training
            loss and accuracy.
        folder: Where the node keeps its answers and its state.
        algorithm: The algorithm, if it is not one of those that have a name.
        classes: The number of labels, for a survey that makes labels count alike; by default as
            many as the model has outputs.
    """
    app = ClientApp()

    def device(context: Context) -> Device:
        own = folder(context) if callable(folder) else folder
        return Device(
            _given(model, context), _given(examples, context), NodeDisk(own), algorithm, classes
        )

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return Message(device(context).train(message.content), reply_to=message)

    @app.evaluate()
    def evaluation(message: Message, context: Context) -> Message:
        tested = None if test is None else _given(test, context)
        return Message(device(context).evaluate(message.content, tested), reply_to=message)

    return app


TrainFunction = Callable[[torch.nn.Module, ConfigRecord, Context], tuple[int, dict[str, float]]]
"""Trains a module in place and returns the number of samples, and any metrics."""


def client_app_from(
    module: Callable[[Context], torch.nn.Module],
    train: TrainFunction,
    evaluate: TrainFunction | None = None,
) -> ClientApp:
    """Return a ClientApp from functions that train and test an ``nn.Module``.

    It is a plain Flower app for plain Flower strategies: the arrays of a message are loaded into
    the module, and its ``state_dict`` is sent back.
    """
    app = ClientApp()

    def loaded(message: Message, context: Context) -> tuple[torch.nn.Module, ConfigRecord]:
        (arrays,) = message.content.array_records.values()
        built = module(context)
        built.load_state_dict(arrays.to_torch_state_dict())
        configs = list(message.content.config_records.values())
        return built, configs[0] if configs else ConfigRecord()

    @app.train()
    def training(message: Message, context: Context) -> Message:
        built, config = loaded(message, context)
        count, metrics = train(built, config, context)
        return Message(
            RecordDict(
                {
                    "arrays": ArrayRecord(built.state_dict()),
                    "metrics": MetricRecord({EXAMPLES: count, **metrics}),
                }
            ),
            reply_to=message,
        )

    if evaluate is not None:

        @app.evaluate()
        def evaluation(message: Message, context: Context) -> Message:
            built, config = loaded(message, context)
            count, metrics = evaluate(built, config, context)
            record = MetricRecord({EXAMPLES: count, **metrics})
            return Message(RecordDict({"metrics": record}), reply_to=message)

    return app


class Device:
    """One device: its model, its examples and its disk."""

    def __init__(
        self,
        model: Model,
        examples: Examples,
        disk: NodeDisk,
        algorithm: Algorithm | None = None,
        classes: int | None = None,
    ) -> None:
        self.model, self.examples, self.disk = model, examples, disk
        self.algorithm, self.classes = algorithm, classes

    def train(self, content: RecordDict) -> RecordDict:
        """Train for a round, or give the answer again that was given to the same message."""
        config = content.config_records["config"]
        purpose, used = str(config["purpose"]), str(config["used"])
        upload = upload_name(int(_n(config, "session")), int(_n(config, "server-round")))
        # The same seed on other samples is another federation's question.
        question = f"{question_digest(content)} {examples_digest(self.examples)}"
        before = self.disk.answer(purpose, upload)
        if before is None or before.question != question:
            before = self._trained(content, config, question, used)
            self.disk.keep(purpose, upload, before, used)
        return RecordDict(
            {UPLOAD: vectors(before.arrays), "metrics": metric_record(before.metrics)}
        )

    def _trained(
        self, content: RecordDict, config: ConfigRecord, question: str, used: str
    ) -> KeptAnswer:
        model, device = self.model, int(_n(config, "device"))
        extras = tensors(content.array_records["extras"]) if "extras" in content else {}
        shared = Broadcast(*model_state(model, content.array_records["arrays"]), extras)
        radius = _n(config, "radius")
        recipe = Recipe(_n(config, "momentum"), None if math.isinf(radius) else radius)
        engine = Sequential(model, self.examples, recipe)
        lane = Lane(self._algorithm(config), shared, _n(config, "lr"), self._state(config, device))
        ((upload, states),) = engine([lane], self._cohort(config, device))
        sent = upload_record(upload)
        (metrics,) = sent.metric_records.values()
        numbers = {name: float(cast(float, value)) for name, value in metrics.items()}
        return KeptAnswer(question, tensors(sent.array_records[UPLOAD]), numbers, states[device])

    def _algorithm(self, config: ConfigRecord) -> Algorithm:
        if self.algorithm is not None:
            return for_task(self.algorithm, self.model.task)
        name = str(config["algorithm"])
        if name not in ALGORITHMS:
            raise EbbflowError(
                f"the server trains with the algorithm {name!r}, which this node does not have: "
                "give it to client_app(algorithm=...), or install the server's version of ebbflow"
            )
        built = ALGORITHMS[name].build(json.loads(str(config["parameters"])))
        return for_task(built, self.model.task)

    def _state(self, config: ConfigRecord, device: int) -> dict[int, State]:
        """Return the state after the upload that the server used last; none for a fresh one."""
        used = str(config["used"])
        if not used:
            return {}
        answer = self.disk.answer(str(config["purpose"]), used)
        if answer is None:
            raise EbbflowError(
                f"{STATE_LOST} {used} is not on this node's disk: it begins with a fresh state in "
                "the next round"
            )
        return {device: answer.state}

    def _cohort(self, config: ConfigRecord, device: int) -> Cohort:
        """Return this device's round, drawn by name."""
        seed, purpose = int(_n(config, "seed")), str(config["purpose"])
        session, t = int(_n(config, "session")), int(_n(config, "server-round"))
        count = len(self.examples)
        draw = generator(seed, purpose, session, t, device)
        low, high = cast(list[int], config["steps"])
        steps = draw_steps(draw, low if low == high else (low, high))
        rule = cast(StepRule, config["rule"])
        rows = np.arange(count)
        drawn = local_batches(draw, rows, steps, int(_n(config, "batch")), rule)
        smallest = 2 if self.model.batch_statistics else 1
        batches: tuple[Indices, ...] = tuple(each for each in drawn if len(each) >= smallest)
        return Cohort(session, t, (device,), (batches,), (count,), (seed, purpose), (rows,))

    def evaluate(self, content: RecordDict, test: Examples | None) -> RecordDict:
        """KeptAnswer a question: of a survey, or how good a model is."""
        configs = content.config_records
        config = configs["config"] if "config" in configs else ConfigRecord()
        count = len(self.examples)
        kind = str(config.get("question", ""))
        if kind == "hello":
            return RecordDict({"metrics": metric_record({EXAMPLES: count})})
        if kind == "state":
            kept = self._state(config, 0)[0]
            return RecordDict({STATE: vectors(kept), "metrics": metric_record({EXAMPLES: count})})
        if kind:
            return answered(
                kind, content, config, self.model, self.examples, self.disk, self.classes
            )
        state = model_state(self.model, content.array_records["arrays"])
        examples = self.examples if test is None else test
        score = evaluate(self.model, state, examples)
        metrics = {EXAMPLES: len(examples), "loss": score.loss, "accuracy": score.accuracy}
        return RecordDict({"metrics": metric_record(metrics)})


def _n(config: ConfigRecord, key: str) -> float:
    """Return a number of a message."""
    return cast(float, config[key])


def _given(source: Any, context: Context) -> Any:
    """Return a model or examples, made now if they are given as a function."""
    return source if isinstance(source, Model | Examples) else source(context)
