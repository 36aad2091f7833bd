"""A plain Flower app on MNIST: three changed lines at the server, none at the client."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "ebbflow[flower]"')

from ebbflow.flower.local import Node
from ebbflow.flower.saving import EVENTS, ROUNDS, HistoryFolder
from tests.flower.watched import WatchedGrid

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower_mnist"
PACKAGE = EXAMPLE / "mnist_app"
MNIST = Path(os.environ.get("EBBFLOW_DATA", "")) / "mnist" / "train-images-idx3-ubyte.gz"
needs_mnist = pytest.mark.skipif(
    not MNIST.exists(), reason="needs MNIST in the folder named by EBBFLOW_DATA"
)


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Import the app as Flower does, with an empty folder as the present one."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.chdir(tmp_path)
    yield importlib.import_module
    for name in [name for name in sys.modules if name.partition(".")[0] == "mnist_app"]:
        del sys.modules[name]


def grid(app: Any) -> WatchedGrid:
    client = app("mnist_app.client").app
    return WatchedGrid(
        {k: Node(client, {"partition-id": k, "num-partitions": 4}) for k in range(4)}
    )


def numbers(result: Any) -> np.ndarray:
    arrays = result.arrays.values()
    return np.concatenate([array.numpy().astype(float).reshape(-1) for array in arrays])


def test_three_lines_differ() -> None:
    plain, sessions = (
        (PACKAGE / name).read_text().splitlines()[1:]  # below the first docstring
        for name in ("server.py", "server_with_sessions.py")
    )
    differing = [
        line
        for line in difflib.ndiff(plain, sessions)
        if line.startswith("+ ") and line.strip("+ ")
    ]
    assert len(differing) == 3, differing


@needs_mnist
@pytest.mark.parametrize("strategy", ["FedAvg", "FedAdam", "FedTrimmedAvg"])
def test_sessions_history_and_resume(app: Any, tmp_path: Path, strategy: str) -> None:
    server = app("mnist_app.server_with_sessions")
    nodes = grid(app)

    def leaving(messages: list[Any]) -> None:
        """From the second session on, those with the high digits are there and no others."""
        path = tmp_path / "history" / EVENTS
        over = path.read_text().count('"over"') if path.exists() else 0
        for node, one in nodes.nodes.items():
            one.online = (node < 2) == (over % 2 == 0)

    nodes.before_push = leaving
    leaving([])
    import torch  # noqa: PLC0415 - after Flower, as in the app

    torch.manual_seed(0)
    whole = server.train(nodes, strategy, 2)
    folder = HistoryFolder(tmp_path / "history")
    rounds, events = folder.lines(ROUNDS), folder.lines(EVENTS)
    folder.close()
    assert len([line for line in rounds if line["round"]]) == 4 * 2
    assert {event["event"] for event in events} >= {"session", "start", "over"}
    assert (tmp_path / "history" / "past" / "session-0002.safetensors").exists()

    class Killed(BaseException):
        pass

    (tmp_path / "history").rename(tmp_path / "before")
    torch.manual_seed(0)
    pushes = 0

    def dying(messages: list[Any]) -> None:
        nonlocal pushes
        leaving(messages)
        pushes += 1
        if pushes == 7:
            raise Killed

    nodes.before_push = dying
    for _ in range(3):
        pushes = 0
        with pytest.raises(Killed):
            server.train(nodes, strategy, 2)
    nodes.before_push = leaving
    parts = server.train(nodes, strategy, 2)
    assert (numbers(parts) == numbers(whole)).all()


@needs_mnist
def test_plain_flower_still_works(app: Any) -> None:
    result = app("mnist_app.server").train(grid(app), "FedAvg", 2)
    assert result.evaluate_metrics_clientapp[2]["eval_acc"] > 0.3
