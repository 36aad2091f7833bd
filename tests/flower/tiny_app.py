"""The folder of a federation with a tiny app of stock Flower, for tests of its processes."""

from __future__ import annotations

from pathlib import Path

from ebbflow.flower.launch.identities import make_authority, make_node_key, make_server_certificate

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "tiny"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "nobody"

[tool.flwr.app.components]
serverapp = "tiny.server:app"
clientapp = "tiny.client:app"

[tool.flwr.app.config]
rounds = 2
nodes = 2
pause = 0.0

# `flwr run` would comment this out, and copy it into the user's settings.
[tool.flwr.federations]
default = "mine"
[tool.flwr.federations.mine]
address = "192.0.2.1:1"
"""
SERVER = """
import time

from flwr.app import ArrayRecord, Message, RecordDict
from flwr.serverapp import ServerApp
import numpy as np

app = ServerApp()


@app.main()
def main(grid, context):
    told = context.run_config
    while len(list(grid.get_node_ids())) < told["nodes"]:
        time.sleep(0.2)
    for number in range(told["rounds"]):
        content = RecordDict({"arrays": ArrayRecord([np.full(3, number, np.float32)])})
        messages = [
            Message(content, dst_node_id=node, message_type="train", group_id=str(number), ttl=30)
            for node in sorted(grid.get_node_ids())
        ]
        waiting = set(grid.push_messages(messages))
        answers = []
        while waiting:
            new = list(grid.pull_messages(waiting))
            waiting -= {message.metadata.reply_to_message_id for message in new}
            answers += new
            time.sleep(0.2)
        good = [each for each in answers if not each.has_error()]
        right = all(each.content["arrays"].to_numpy_ndarrays()[0][0] == number + 1 for each in good)
        print(f"round {number}: {len(good)} of {len(answers)}, right: {right}", flush=True)
        time.sleep(told["pause"])
"""
CLIENT = """
import os
import random
import time

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
import numpy as np

app = ClientApp()


@app.train()
def train(message, context):
    where = context.node_config["folder"]
    with open(os.path.join(where, "drawn.txt"), "a") as file:
        print(random.random(), np.random.rand(), file=file)
    print("at work", flush=True)
    time.sleep(context.run_config["pause"])
    (array,) = message.content["arrays"].to_numpy_ndarrays()
    content = {"arrays": ArrayRecord([array + 1]), "metrics": MetricRecord({"num-examples": 1})}
    return Message(RecordDict(content), reply_to=message)
"""


def make_federation(folder: Path, nodes: int = 2) -> Path:
    """Make a folder with keys, certificates, settings and the tiny app."""
    make_authority(folder / "certificates")
    make_server_certificate(folder / "certificates")
    for number in range(nodes):
        make_node_key(folder / "keys" / f"node{number}")
    settings = f"[nodes]\ncount = {nodes}\npreload = ['numpy']\n[run]\nnodes = {nodes}\n"
    (folder / "federation.toml").write_text(settings)
    package = folder / "app" / "tiny"
    package.mkdir(parents=True)
    for name, content in (("__init__", ""), ("server", SERVER), ("client", CLIENT)):
        (package / f"{name}.py").write_text(content)
    (folder / "app" / "pyproject.toml").write_text(PROJECT)
    return folder
