"""What docs/federation.md shows works as it stands, in order, on loopback."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "ebbflow[flower]"')

import tomli_w
import torch
from flwr.app import Message, MessageType

from ebbflow.core.rng import torch_generator
from ebbflow.core.types import Examples
from ebbflow.flower import Sessions, after_rounds, client_app
from ebbflow.flower.launch.launcher import Federation
from ebbflow.flower.launch.ports import free_port, is_free
from ebbflow.flower.launch.process_table import everything, marked
from ebbflow.flower.launch.processes import recorded
from ebbflow.flower.local import Node
from ebbflow.flower.wire import model_arrays
from ebbflow.models import softmax
from ebbflow.runs.records import read_lines
from tests.cli.test_json import documented
from tests.flower.stock import initial, stock_grid
from tests.flower.watched import WatchedGrid
from tests.site.snippets import ROOT, Listing, commands, listings

PAGE = "federation.md"
TEXT = (ROOT / "docs" / PAGE).read_text("utf-8")
GROUPS = ((0, 1, 2), (2, 3, 4))


def written_in(*languages: str) -> list[Listing]:
    return [each for each in listings(PAGE, TEXT) if each.language in languages]


# --- Python ---------------------------------------------------------------------------------------


class Changing(WatchedGrid):
    """Nodes in two groups that take turns, after so many rounds each."""

    TURN = 2

    def __init__(self, nodes: Mapping[int, Node]) -> None:
        super().__init__(nodes)
        self._rounds = 0
        self._change()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        keys = super().push_messages(messages)
        self._rounds += messages[0].metadata.message_type == MessageType.TRAIN
        self._change()
        return keys

    def _change(self) -> None:
        here = GROUPS[self._rounds // self.TURN % 2]
        for device, node in enumerate(sorted(self.nodes)):
            self.nodes[node].online = device in here


def digits(device: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = np.random.default_rng(device)
    x = draw.normal(size=(40, 64)).astype("float32")
    return torch.from_numpy(x), torch.from_numpy((np.abs(x[:, 0]) * 4).astype(int).clip(0, 9))


def own_grid(folder: Path) -> WatchedGrid:
    """Return nodes that run the app which the page makes, each on samples of its own."""
    model = softmax((64,), 10)
    return WatchedGrid(
        {
            100 + d: Node(client_app(model, Examples(*digits(d)), folder=folder / f"node{d}"))
            for d in range(5)
        }
    )


def finished_sessions(history: Path) -> int:
    return sum(event["event"] == "over" for event in read_lines(history / "events.jsonl"))


def test_python_on_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dp_accounting", reason='needs pip install "ebbflow[privacy]"')
    from tests.flower.test_privacy import accountant  # noqa: PLC0415

    monkeypatch.chdir(tmp_path)
    x, y = digits(0)
    names: dict[str, Any] = {"grid": Changing(stock_grid().nodes), "arrays": initial()}
    names |= {"x": x, "y": y}
    names["accountant"] = accountant()
    stock, node, own, private = written_in("python")

    exec(compile(stock.text, stock.place, "exec"), names)
    assert finished_sessions(tmp_path / "history") == 4
    assert np.isfinite(names["result"].arrays["layers.0.weight"].numpy()).all()
    reasons = [e["said"] for e in read_lines(tmp_path / "history" / "events.jsonl")]
    assert any("have joined" in said or "has joined" in said for said in reasons), reasons

    exec(compile(node.text, node.place, "exec"), names)
    exec(compile(own.text, own.place, "exec"), names)
    grid = own_grid(tmp_path)
    grid.nodes[100] = Node(names["app"])
    model = softmax((64,), 10)
    begun = model_arrays(model, model.initial(torch_generator(1, "initial")))
    shutil.rmtree("history")
    run_shorter(names["sessions"], grid, begun)
    assert list((tmp_path / "node").glob("local-*.safetensors"))

    shutil.rmtree("history")
    exec(compile(private.text, private.place, "exec"), names)
    run_shorter(names["sessions"], stock_grid(), initial())
    assert names["accountant"].get_privacy_spent().epsilon > 0


def run_shorter(sessions: Sessions, grid: WatchedGrid, arrays: Any) -> None:
    """Run what the page only makes, with two rounds a session."""
    sessions.trigger = after_rounds(2)
    sessions.run(grid, arrays)
    assert finished_sessions(sessions.history) == 4


# --- commands -------------------------------------------------------------------------------------

EBBFLOW = str(Path(sys.executable).parent / "ebbflow")
SHORT = {"sessions": 2, "rounds": 1, "start": "previous"}
WAIT = 400.0
"""Seconds for whatever a machine that is busy with others has to do."""


def on_loopback(text: str, port: int) -> str:
    """Return a command or settings with addresses of this machine, and a port that is free."""
    for name in ("fl.example.org", "0.0.0.0"):
        text = text.replace(name, "127.0.0.1")
    return text.replace("8443", str(port))


def words_of(command: str, port: int) -> list[str]:
    program, *words = shlex.split(on_loopback(command, port), comments=True)
    assert program == "ebbflow"
    return [EBBFLOW, *words]


def run_command(words: list[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=WAIT)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


@contextmanager
def in_another_terminal(words: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command beside others; in the end interrupt it as Ctrl-C would."""
    with log.open("wb") as out, subprocess.Popen(words, stdout=out, stderr=out) as child:
        try:
            yield child
        finally:
            if child.poll() is None:
                child.send_signal(signal.SIGINT)
            child.wait(60)


def soon(holds: Callable[[], object], log: Path) -> None:
    until = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.2)


def change_settings(folder: Path, *changes: dict[str, dict[str, Any]]) -> None:
    """Write settings of a federation over those that it has."""
    path = folder / "federation.toml"
    settings = tomllib.loads(path.read_text("utf-8"))
    for change in changes:
        for section, values in change.items():
            settings[section] = {**settings.get(section, {}), **values}
    path.write_text(tomli_w.dumps(settings), encoding="utf-8")


def shown_files() -> list[str]:
    """Return the files that the page says a node's machine needs."""
    (layout,) = written_in("")
    return [line.split()[0] for line in layout.text.splitlines()]


def carry_over(server: Path, number: int) -> Path:
    """Make the folder of a node on another machine, with what the page lists."""
    for name in shown_files():
        file = Path(name.replace("3", str(number)))
        source = server / file.relative_to(file.parts[0])
        file.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, file)
        else:
            shutil.copyfile(source, file)
            file.chmod(0o600)
    return Path(file.parts[0])


def rounds_of(folder: Path) -> list[dict[str, Any]]:
    lines = read_lines(folder / "run" / "history" / "rounds.jsonl")
    return [line for line in lines if line["round"]]


def nothing_is_left(folder: Path, mark: str) -> bool:
    ports = Federation(folder).folder.ports().values()
    return not marked(mark, everything()) and not recorded(folder) and all(map(is_free, ports))


def test_every_command_is_one_that_is_run() -> None:
    found = [command for each in written_in("console") for command in commands(each.text)]
    assert [re.sub(r" (wards|hospital|ward3).*| \W.*", "", command) for command in found] == [
        "pip install",
        *(f"ebbflow federate {name}" for name in ("demo", "init", "run", "init", "run", "node")),
        *(f"ebbflow federate {name}" for name in ("status", "down", "resume")),
    ]


def test_a_federation_that_is_made_is_told_in_json(tmp_path: Path) -> None:
    printed = run_command([EBBFLOW, "federate", "init", str(tmp_path / "wards"), "--json"])
    assert list(json.loads(printed)) == documented()["federate init"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_commands_of_the_page_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))
    port = free_port()
    found = [command for each in written_in("console") for command in commands(each.text)]
    _, demo, init, run, *elsewhere = found

    printed = run_command([*words_of(demo, port), "--sessions", "2", "--rounds", "1"])
    assert "final models of federation and simulator: the same to the last bit" in printed
    assert Path("runs/federation/federation.png").stat().st_size > 10_000

    run_command(words_of(init, port))
    change_settings(Path("wards"), {"run": SHORT})
    run_command(words_of(run, port))
    assert [line["used"] for line in rounds_of(Path("wards"))] == [[0, 1, 2, 3, 4]] * 2
    assert Path("wards/app/federation_app/task.py").is_file()
    assert recorded(Path("wards")) == ()

    two_machines(elsewhere, port)
    assert list(home.iterdir()) == []


def two_machines(found: list[str], port: int) -> None:
    init, run, node, status, down, resume = found
    server = Path("hospital")
    run_command(words_of(init, port))
    (settings,) = written_in("toml")
    # So many rounds that the server is taken down in the middle of the first session.
    shown = tomllib.loads(on_loopback(settings.text, port))
    change_settings(server, shown, {"run": {**SHORT, "rounds": 1000}})
    with ExitStack() as others:
        first = others.enter_context(in_another_terminal(words_of(run, port), Path("run.log")))
        soon(lambda: not is_free(port), Path("run.log"))
        mark = Federation(server).processes.mark
        for number in (3, 4):  # a session needs two
            carry_over(server, number)
            own = {"ward3": f"ward{number}", "3": str(number)}
            words = [own.get(word, word) for word in words_of(node, port)]
            log = Path(f"node{number}.log")
            others.enter_context(in_another_terminal(words, log))
            soon(lambda log=log: "is in" in log.read_text(), log)  # type: ignore[misc]
        soon(lambda: rounds_of(server), Path("run.log"))
        seen = run_command(words_of(status, port))
        assert re.search(r"^gate +process \d+", seen, re.MULTILINE), seen
        assert len(re.findall(r"^node [34] +online$", seen, re.MULTILINE)) == 2, seen
        assert "ended link, executor, gate" in run_command(words_of(down, port))
        assert nothing_is_left(server, mark)
        first.send_signal(signal.SIGINT)
        assert first.wait(90) != 0

        change_settings(server, {"run": SHORT})
        before = len(rounds_of(server))
        told = json.loads(run_command([*words_of(resume, port), "--json"]))
        assert list(told) == documented()["federate resume"]
        rounds = rounds_of(server)
        assert len(rounds) >= before > 0
        assert {line["session"] for line in rounds} == {1, 2}
        assert all(line["used"] == [3, 4] for line in rounds if not line["abandoned"])
    assert nothing_is_left(server, mark)
    assert os.listdir("ward3/nodes/node3")  # noqa: PTH208 - data, and what it has to remember
