"""What a node does: a plain Flower client, the same with sessions and without."""

from __future__ import annotations

from typing import Any

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from mnist_app.task import Net, fit, load, score

app = ClientApp()


def _loaded(content: Any) -> Net:
    net = Net()
    net.load_state_dict(content["arrays"].to_torch_state_dict())
    return net


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the network on the node's samples."""
    content: Any = message.content
    net, node = _loaded(content), context.node_config
    data = load(int(node["partition-id"]), int(node["num-partitions"]))
    turn = int(content["config"]["server-round"])
    loss = fit(net, data, float(context.run_config.get("lr", 0.1)), seed=turn)
    metrics = MetricRecord({"num-examples": len(data[1]), "train_loss": loss})
    reply = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
    return Message(reply, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Test the network on the node's own test samples."""
    net, node = _loaded(message.content), context.node_config
    data = load(int(node["partition-id"]), int(node["num-partitions"]), train=False)
    loss, accuracy = score(net, data)
    metrics = MetricRecord({"num-examples": len(data[1]), "eval_loss": loss, "eval_acc": accuracy})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
