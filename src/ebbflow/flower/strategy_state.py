"""What a strategy remembers from round to round, by its type, so that it can be saved.

Flower's strategies keep their moments in attributes and have no way to save them. The table below
names these attributes. A type that is not in the table is refused by name, because going on with
half of a strategy's state would be wrong without anybody noticing. A strategy of your own can have
``state_dict`` and ``load_state_dict``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from flwr.serverapp import strategy as stock
from flwr.serverapp.strategy import Strategy
from torch import Tensor

from ebbflow.core.errors import EbbflowError
from ebbflow.flower.strategy import AlgorithmStrategy

MOMENTS = ("current_arrays", "m_t", "v_t")
REMEMBERED: dict[type[Strategy], tuple[str, ...]] = {
    stock.FedAvg: (),
    stock.FedProx: (),
    stock.FedMedian: (),
    stock.FedTrimmedAvg: (),
    stock.Krum: (),
    stock.MultiKrum: (),
    stock.Bulyan: (),
    stock.QFedAvg: ("current_arrays",),
    stock.FedAdagrad: MOMENTS,
    stock.FedAdam: MOMENTS,
    stock.FedYogi: MOMENTS,
    stock.FedAvgM: ("current_arrays", "momentum_vector"),
    stock.DifferentialPrivacyServerSideFixedClipping: ("current_arrays",),
    stock.DifferentialPrivacyClientSideFixedClipping: (),
    stock.DifferentialPrivacyServerSideAdaptiveClipping: ("current_arrays", "clipping_norm"),
    stock.DifferentialPrivacyClientSideAdaptiveClipping: ("clipping_norm",),
}
"""The attributes in which Flower's strategies remember something between rounds."""

Saved = tuple[dict[str, Any], dict[str, Tensor]]
"""Facts for JSON, and tensors by name."""


def refuse_unknown(strategy: Strategy) -> None:
    """Raise an error if what a strategy remembers could not be saved."""
    for each in chain_of(strategy):
        known = type(each) in REMEMBERED or isinstance(each, AlgorithmStrategy)
        if not known and not _saves_itself(each):
            raise EbbflowError(
                f"the strategy {type(each).__name__} is not known, so that what it remembers could "
                "not be saved: give it methods state_dict() and load_state_dict(state), or use one "
                f"of {', '.join(sorted(kind.__name__ for kind in REMEMBERED))}"
            )


def chain_of(strategy: Strategy) -> list[Strategy]:
    """Return a strategy and those that it wraps, the outermost first."""
    found, inner = [strategy], getattr(strategy, "strategy", None)
    while isinstance(inner, Strategy):
        found.append(inner)
        inner = getattr(inner, "strategy", None)
    return found


def accountant_of(strategy: Strategy) -> Any:
    """Return the accountant of a strategy that adds noise, if it has one."""
    return next((a for s in chain_of(strategy) if (a := getattr(s, "accountant", None))), None)


def adds_noise(strategy: Strategy) -> bool:
    """Whether a strategy adds noise: one of Flower's wrappers, or whatever has an accountant."""
    kinds = (kind for each in chain_of(strategy) for kind in type(each).__mro__)
    wrapped = any("DifferentialPrivacy" in kind.__name__ for kind in kinds)
    return wrapped or accountant_of(strategy) is not None


def refuse_survey(strategy: Strategy) -> None:
    """Raise an error if devices' losses would tell what a strategy hides by noise."""
    if adds_noise(strategy):
        raise EbbflowError(
            "Sessions(start=...) asks devices for losses, which this strategy adds no noise to: "
            'choose "warm_start" or "previous" with differential privacy'
        )


def saved(strategy: Strategy) -> Saved:
    """Return what a strategy remembers."""
    facts: dict[str, Any] = {"types": [type(each).__name__ for each in chain_of(strategy)]}
    tensors: dict[str, Tensor] = {}
    for place, each in enumerate(chain_of(strategy)):
        name = f"strategy/{place}"
        if isinstance(each, AlgorithmStrategy):
            facts["used"] = sorted(each.used.items())
            facts["begun"] = each.server is not None
            facts["training"] = _begun_with(each)
            tensors |= {f"{name}/{key}": value for key, value in (each.server or {}).items()}
        elif type(each) in REMEMBERED:
            values = {key: getattr(each, key) for key in REMEMBERED[type(each)]}
            facts[str(place)] = {k: _put(f"{name}/{k}", v, tensors) for k, v in values.items()}
        else:
            state = each.state_dict()  # type: ignore[attr-defined]
            facts[str(place)] = {k: _put(f"{name}/{k}", v, tensors) for k, v in state.items()}
    accountant = accountant_of(strategy)
    if accountant is not None:
        facts["accountant"] = accountant.state_dict()
    return facts, tensors


def restore(strategy: Strategy, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Let a fresh strategy remember what was saved."""
    types = [type(each).__name__ for each in chain_of(strategy)]
    if types != facts["types"]:
        raise EbbflowError(
            f"the federation was saved with the strategy {' of '.join(facts['types'])}, and is "
            f"resumed with {' of '.join(types)}: resume it with the one it was begun with"
        )
    for place, each in enumerate(chain_of(strategy)):
        name = f"strategy/{place}"
        if isinstance(each, AlgorithmStrategy):
            _refuse_another(facts.get("training", {}), _begun_with(each))
            each.used = {int(device): str(upload) for device, upload in facts["used"]}
            if facts["begun"]:
                prefix = f"{name}/"
                each.server = {
                    key.removeprefix(prefix): value
                    for key, value in tensors.items()
                    if key.startswith(prefix)
                }
            continue
        values = {k: _take(f"{name}/{k}", v, tensors) for k, v in facts[str(place)].items()}
        if type(each) in REMEMBERED:
            for key, value in values.items():
                setattr(each, key, value)
        else:
            each.load_state_dict(values)  # type: ignore[attr-defined]
    restore_accountant(strategy, facts.get("accountant"))


def _begun_with(strategy: AlgorithmStrategy) -> dict[str, Any]:
    """Return what a session has to go on with."""
    return {**strategy.training.method(), "states": strategy.training.states}


def _refuse_another(begun: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise an error if a session goes on with another algorithm than it was begun with."""
    for name, value in begun.items():
        if given[name] != value:
            raise EbbflowError(
                f"the federation was saved with {name} = {json.dumps(value)}, and is resumed with "
                f"{json.dumps(given[name])}: resume it with what the session was begun with"
            )


def share_budget(payer: Strategy | None, other: Strategy | None) -> None:
    """Let another strategy's accountant know all that the first one has spent."""
    if payer is not None and other is not None:
        accountant = accountant_of(payer)
        restore_accountant(other, None if accountant is None else accountant.state_dict())


def restore_accountant(strategy: Strategy, spent: Mapping[str, Any] | None) -> None:
    """Let a strategy's accountant know what was spent before."""
    accountant = accountant_of(strategy)
    if accountant is not None and spent is not None:
        accountant.load_state_dict(dict(spent))


def _saves_itself(strategy: Strategy) -> bool:
    return all(callable(getattr(strategy, m, None)) for m in ("state_dict", "load_state_dict"))


def _put(name: str, value: Any, tensors: dict[str, Tensor]) -> Any:
    """Return a value as JSON, with its arrays among the tensors."""
    if value is None or isinstance(value, bool | int | float | str):
        return {"plain": value}
    if isinstance(value, ArrayRecord):
        for key, array in value.items():
            tensors[f"{name}/{key}"] = torch.from_numpy(np.array(array.numpy()))
        return {"record": list(value)}
    if isinstance(value, dict):
        for key, array in value.items():
            tensors[f"{name}/{key}"] = torch.from_numpy(np.array(array))
        return {"arrays": list(value)}
    if isinstance(value, list | tuple):
        for place, array in enumerate(value):
            tensors[f"{name}/{place}"] = torch.from_numpy(np.array(array))
        return {"list": len(value)}
    if isinstance(value, np.ndarray | torch.Tensor):
        tensors[name] = torch.as_tensor(np.array(value))
        return {"array": True}
    raise EbbflowError(
        f"{name} is a {type(value).__name__}, which cannot be saved: use numbers, texts and arrays"
    )


def _take(name: str, saved_as: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    """Return the value that was put."""
    ((kind, what),) = saved_as.items()
    if kind == "plain":
        return what
    if kind == "record":
        return ArrayRecord({key: Array(tensors[f"{name}/{key}"].numpy()) for key in what})
    if kind == "arrays":
        return {key: tensors[f"{name}/{key}"].numpy() for key in what}
    if kind == "list":
        return [tensors[f"{name}/{place}"].numpy() for place in range(what)]
    return tensors[name].numpy()
