"""A plain Flower app, written without a thought of ebbflow: the client of many tests."""

from __future__ import annotations

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from ebbflow.flower.local import Node
from ebbflow.flower.wire import metric_record
from tests.flower.watched import WatchedGrid


class Net(nn.Module):
    """Two layers, with BatchNorm and its integer counter."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(x)
        return out


def samples(device: int, count: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a device's samples; devices below 3 and the others follow different rules."""
    draw = np.random.default_rng(device)
    x = draw.normal(size=(count, 6)).astype("float32")
    y = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0) if device < 3 else (x[:, 2] > 0) + 1
    return torch.from_numpy(x), torch.from_numpy(np.asarray(y, dtype=np.int64))


def stock_app(device: int) -> ClientApp:
    """Return the app of a device."""
    app = ClientApp()

    def loaded(message: Message) -> nn.Module:
        torch.manual_seed(0)
        net = Net()
        arrays = message.content.array_records["arrays"]
        # A strategy that averages counters sends them back as numbers with a fraction.
        net.load_state_dict(arrays.to_torch_state_dict())
        return net

    @app.train()
    def train(message: Message, context: Context) -> Message:
        net, (x, y) = loaded(message), samples(device)
        optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        metrics = MetricRecord({"num-examples": len(y), "train_loss": loss.item()})
        content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        net, (x, y) = loaded(message).eval(), samples(device)
        with torch.no_grad():
            out = net(x)
        metrics = {
            "num-examples": len(y),
            "eval_loss": float(nn.functional.cross_entropy(out, y)),
            "eval_acc": float((out.argmax(1) == y).float().mean()),
        }
        return Message(RecordDict({"metrics": metric_record(metrics)}), reply_to=message)

    return app


def stock_grid(devices: int = 5) -> WatchedGrid:
    """Return nodes that run the app."""
    return WatchedGrid({100 + d: Node(stock_app(d), {}) for d in range(devices)})


def initial() -> ArrayRecord:
    """Return the initial model."""
    torch.manual_seed(1)
    return ArrayRecord(Net().state_dict())
