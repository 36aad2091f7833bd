"""Builds what all methods share under one seed, from a configuration and a data set.

The same configuration, data and seed give the same world to the bit, in any process.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ebbflow.config.resolved import Config
from ebbflow.core.client_states import StateFile
from ebbflow.core.errors import EbbflowError, unknown
from ebbflow.core.rng import torch_generator
from ebbflow.core.signature import DISTANCES
from ebbflow.core.types import Dataset, Model, ModelState, PastSession
from ebbflow.data.checks import data_warnings, refuse_texts
from ebbflow.models import MODELS, OF_ONE_INPUT, at_precision, lacking_warnings, load_weights
from ebbflow.runs import retention
from ebbflow.sessions.memory import SessionRules
from ebbflow.simulation.roster import plan_sessions
from ebbflow.simulation.task_choice import task_of
from ebbflow.simulation.world import World


def build_world(config: Config, dataset: Dataset, seed: int) -> World:
    """Return what all methods share under one seed."""
    sample_shape: Any = dataset.inputs or tuple(dataset.train.x.shape[1:])
    kind = config.model.kind
    refuse_texts(dataset, kind)
    parameters = config.parameters.get(kind, {})
    if dataset.inputs is not None and kind in OF_ONE_INPUT:
        sample_shape = (dataset.inputs.total,)  # one after another
    built = MODELS[kind].build(parameters, sample_shape, dataset.classes)
    model = replace(at_precision(built, config.precision), task=task_of(config, dataset))
    if config.privacy.clip is not None and model.buffer_layout.total:
        raise EbbflowError(
            f"privacy.clip = {config.privacy.clip:g} does not fit the model {model.name}, whose "
            "running statistics would reveal single devices: choose a model without them"
        )
    initial = model.initial(torch_generator(seed, "initial"))
    warnings = [*data_warnings(dataset, config.dataset)]
    if config.model.weights is not None:
        path = Path(config.model.weights)
        initial, lacking = load_weights(model, initial, path)
        warnings += lacking_warnings(model, path, lacking)
    initial = ModelState(initial.theta.to(config.device), initial.buffers.to(config.device))
    plan = plan_sessions(config, dataset, seed)
    states = StateFile(config.engine.state_memory * 2**20)
    rules = _rules(config, model)
    return World(
        config=config,
        seed=seed,
        dataset=dataset,
        model=model,
        initial=initial,
        sessions=plan.sessions,
        rules=rules,
        states=states,
        names=plan.names,
        warnings=(*warnings, *plan.warnings),
    )


def _rules(config: Config, model: Model) -> SessionRules:
    pilot = config.pilot
    keep = _retention(config, model)
    return SessionRules(pilot.sessions, pilot.combine, pilot.decay, pilot.carry_over, keep)


def _retention(config: Config, model: Model) -> retention.Retention:
    if config.history.keep == "last":
        return retention.keep_last(config.history.size)
    if config.history.keep == "diverse":
        if config.history.distance not in DISTANCES:
            raise unknown(config.history.distance, DISTANCES, "distance", "history.distance")
        measure = DISTANCES[config.history.distance]

        def apart(a: PastSession, b: PastSession) -> float:
            # A method that never probes has no signatures; its final models are compared instead.
            one, other = (past.signature for past in (a, b))
            if one is None or other is None:
                return measure(a.model.theta, b.model.theta, model.layout)
            return measure(one, other, model.layout)

        return retention.keep_diverse(config.history.size, apart)
    return retention.keep_all
