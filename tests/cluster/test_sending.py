"""Whatever is registered can be sent to a worker, and is the same there."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from ebbflow.algorithms import ALGORITHMS
from ebbflow.cluster.pool import PLUGINS
from ebbflow.core.algorithm import Algorithm, cross_entropy, weighted_upload
from ebbflow.core.local import Lane
from ebbflow.models import MODELS, from_module
from ebbflow.plugins import load_file
from tests.engines.paths import PATHS
from tests.engines.rounds import CLASSES, SHAPE, conv_normed, same_bits, vectorised

cloudpickle: Any = pytest.importorskip("ray.cloudpickle")


def sent(value: Any) -> Any:
    return cloudpickle.loads(cloudpickle.dumps(value))


@pytest.mark.parametrize("variant", ["scaffold", "feddyn", "moon-distilled", "stateful"])
def test_an_algorithm_trains_the_same_after_it_was_sent(variant: str) -> None:
    path = PATHS["fused"]
    who, lane = path.cohorts()[0], path.lane(variant)
    there = Lane(sent(lane.algorithm), *lane[1:])
    assert same_bits(*(vectorised(path.model, [each], who)[0] for each in (lane, there)))


def test_what_engines_look_for_in_an_algorithm_is_still_there() -> None:
    fedavg = sent(ALGORITHMS["fedavg"]())
    assert isinstance(fedavg, Algorithm)
    assert fedavg.objective is cross_entropy
    assert fedavg.upload is weighted_upload


@pytest.mark.parametrize("name", [name for name in MODELS if not name.startswith("resnet")])
def test_a_model_is_the_same_after_it_was_sent(name: str) -> None:
    shape = (6,) if name == "embedding" else SHAPE
    model = MODELS[name](shape, CLASSES)
    there = sent(model)
    state = model.initial(torch.Generator().manual_seed(1))
    draw = torch.Generator().manual_seed(2)
    x = torch.randint(1, 9, (3, *shape), generator=draw)
    x = x if name == "embedding" else x.float()
    outputs = [each.forward(*state, x, None, False)[0].logits for each in (model, there)]
    assert torch.equal(*outputs)


def test_a_network_with_dropout_and_statistics_is_the_same_after_it_was_sent() -> None:
    model = conv_normed()
    state, x = model.initial(torch.Generator().manual_seed(1)), torch.rand(4, *SHAPE)
    one, other = (each.forward(*state, x, None, True) for each in (model, sent(model)))
    assert torch.equal(one[0].logits, other[0].logits)
    assert torch.equal(one[1], other[1])


def test_a_users_own_module_is_sent_with_its_class() -> None:
    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.layer(x)
            return out

    model = sent(from_module(Own, "own"))
    assert model.layout.total == 10


def test_a_plugin_is_sent_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other process has a module of its name."""
    path = tmp_path / "mine.py"
    path.write_text("def halved(g, *_):\n    return scale * g\n\nscale = 0.5\n")
    load_file(path)
    name, module = next((n, m) for n, m in sys.modules.items() if n.endswith("/mine.py"))
    assert name.startswith(PLUGINS)
    assert isinstance(module, ModuleType)
    cloudpickle.register_pickle_by_value(module)
    try:
        written = cloudpickle.dumps(module.halved)
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    monkeypatch.delitem(sys.modules, name)
    assert cloudpickle.loads(written)(4.0) == 2.0
