"""A real federation on loopback, taken up, killed in parts, and taken down without a trace."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="real federations need Flower: pip install 'ebbflow[flower]'")

import httpx
from flwr.common.config import parse_config_args
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE

from ebbflow.core.errors import EbbflowError
from ebbflow.flower.launch.federation_settings import Setting
from ebbflow.flower.launch.host import IN, REFUSED, node_state
from ebbflow.flower.launch.launcher import (
    EXECUTOR,
    GATE,
    LINK,
    Federation,
    NodeOrigin,
    clean,
    taken_up,
    written,
)
from ebbflow.flower.launch.ports import is_free
from ebbflow.flower.launch.process_table import everything, marked
from ebbflow.flower.launch.processes import LOCK, recorded
from tests.flower.tiny_app import PROJECT, make_federation
from tests.test_cli import EXECUTABLE, process


def test_a_nodes_configuration_arrives_as_it_was() -> None:
    config: dict[str, Setting] = {"partition-id": 0, "rate": 0.5, "fast": True}
    config |= {"folder": "/a b/c'd", "own": 'say "x"', "back": "a\\b"}
    assert parse_config_args([written(config)]) == config
    for text in ("both ' and \"", "two\nlines"):
        with pytest.raises(EbbflowError, match="cannot be passed to a node"):
            written({"text": text})


slow = pytest.mark.slow


def soon(holds: Callable[[], object], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


def nothing_is_left(folder: Path, mark: str, ports: dict[str, int]) -> None:
    assert marked(mark, everything()) == []
    assert recorded(folder) == ()
    assert all(is_free(port) for port in ports.values())


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return an empty home, which must be empty in the end."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        patch.delenv("FLWR_HOME", raising=False)
        yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture(scope="module")
def federation(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    folder = make_federation(tmp_path_factory.mktemp("f"))
    found = Federation(folder)
    with taken_up(found, range(2)):
        mark, ports = found.processes.mark, found.folder.ports()
        yield found
    nothing_is_left(folder, mark, ports)


def rounds(federation: Federation) -> list[str]:
    lines = federation.folder.log(EXECUTOR).read_text().splitlines()
    return [line for line in lines if line.startswith("round ")]


def results(federation: Federation, **settings: float) -> list[str]:
    """Run the app and return what its server says of its rounds."""
    before = len(rounds(federation))
    seen = federation.wait(federation.submit(settings), 120)
    assert seen.succeeded, seen
    return rounds(federation)[before:]


@slow
def test_an_app_runs_and_its_files_stay_as_they_were(federation: Federation) -> None:
    expected = [f"round {number}: 2 of 2, right: True" for number in range(3)]
    assert results(federation, rounds=3) == expected
    assert (federation.folder.app / "pyproject.toml").read_text() == PROJECT
    # Each message is answered by a process that was forked; each must draw for itself.
    drawn = [(federation.folder.node_data(n) / "drawn.txt").read_text() for n in range(2)]
    numbers = [number for text in drawn for number in text.split()]
    assert len(set(numbers)) == len(numbers) == 12


@slow
def test_no_command_line_shows_a_token(federation: Federation) -> None:
    run = federation.submit({"rounds": 1, "pause": 5.0})

    def lines() -> list[bytes]:
        own = marked(federation.processes.mark, everything())
        paths = [Path(f"/proc/{each.pid}/cmdline") for each in own]
        return [path.read_bytes() for path in paths if path.exists()]

    # SuperLink, executor, gate, two of each node, and their tasks, each of which may come later.
    soon(lambda: len(lines()) >= 10)
    assert not any(b"--token" in line for line in lines())
    assert federation.wait(run, 60).succeeded


@slow
def test_no_stranger_on_this_machine_takes_a_task(federation: Federation) -> None:
    link = f"https://127.0.0.1:{federation.folder.ports()[LINK]}"
    own = marked(federation.processes.mark, everything())
    words = [Path(f"/proc/{each.pid}/cmdline").read_bytes().split(b"\0") for each in own]
    nodes = [w[w.index(b"--port") + 1].decode() for w in words if b"--superlink" in w]
    assert len(nodes) == 2
    body = AcquireTaskRequest(supported_task_types=["flwr-clientapp", "flwr-serverapp"])
    for place in (link, *(f"http://127.0.0.1:{port}" for port in nodes)):
        answer = httpx.post(
            f"{place}/v1/runtime/acquire-task",
            content=body.SerializeToString(),
            headers={"content-type": PROTOBUF_MEDIA_TYPE},
            verify=False,
            trust_env=False,
        )
        assert answer.status_code == 401, answer.text


@slow
def test_a_killed_superlink_that_is_back_soon_loses_nothing(federation: Federation) -> None:
    before = len(rounds(federation))
    run = federation.submit({"rounds": 4, "pause": 0.5})
    soon(lambda: len(rounds(federation)) > before)
    old = federation.processes.running(LINK)
    federation.kill(LINK)
    assert federation.processes.running(LINK) is None
    time.sleep(3)
    federation.up()
    assert federation.processes.running(LINK) != old
    assert federation.wait(run, 150).succeeded
    assert rounds(federation)[before:] == [f"round {n}: 2 of 2, right: True" for n in range(4)]


@slow
def test_a_killed_gate_is_started_again(federation: Federation) -> None:
    link, address = federation.processes.running(LINK), federation.address
    federation.kill(GATE)
    federation.up()
    assert federation.processes.running(GATE) is not None
    assert (federation.processes.running(LINK), federation.address) == (link, address)
    assert len(results(federation, rounds=1)) == 1


@slow
def test_a_supernode_that_dies_is_started_again(federation: Federation) -> None:
    host = federation.processes.running("node1")
    assert host is not None
    (node,) = (
        each
        for each in marked(federation.processes.mark, everything(), "node1")
        if b"flower-supernode" in Path(f"/proc/{each.pid}/cmdline").read_bytes()
    )
    os.kill(node.pid, signal.SIGKILL)
    soon(lambda: node_state(federation.folder.node_home(1))["state"] != IN)
    # At once, and not after the minute for which Flower takes it for one that is still there.
    federation.wait_for_nodes([1], 25)
    assert federation.processes.running("node1") == host
    assert results(federation, rounds=1) == ["round 0: 2 of 2, right: True"]


@slow
def test_a_killed_node_comes_back(federation: Federation) -> None:
    federation.kill("node0")
    assert marked(federation.processes.mark, everything(), "node0") == []
    with federation.control() as control:  # nobody has told the server
        assert [node.status for node in control.nodes()] == ["online", "online"]
    federation.start_node(0)
    with pytest.raises(EbbflowError, match=r"node0 of .* is already running"):
        federation.start_node(0)
    federation.wait_for_nodes([0], 25)
    assert results(federation, rounds=1) == ["round 0: 2 of 2, right: True"]


@slow
def test_a_killed_node_that_has_forgotten_itself_is_tried_until_it_is_let_in(
    federation: Federation,
) -> None:
    federation.kill("node0")
    home = federation.folder.node_home(0)
    shutil.rmtree(home)
    federation.start_node(0)
    soon(lambda: node_state(home).get("state") == REFUSED)
    assert "Exit Code: 305" in federation.folder.log("node0-supernode").read_text()
    federation.wait_for_nodes([0])
    assert results(federation, rounds=1) == ["round 0: 2 of 2, right: True"]


@slow
def test_a_node_that_leaves_is_gone_at_once(federation: Federation) -> None:
    federation.stop_node(1)
    with federation.control() as control:
        assert sorted(node.status for node in control.nodes()) == ["offline", "online"]
    assert results(federation, rounds=1, nodes=1) == ["round 0: 1 of 1, right: True"]
    federation.start_node(1)
    federation.wait_for_nodes([1], 30)


@slow
def test_an_app_that_fails_is_said_to(federation: Federation) -> None:
    seen = federation.wait(federation.submit({"pause": -1.0, "rounds": 1}), 60)
    assert (seen.finished, seen.outcome) == (True, "failed")
    assert "sleep length must be non-negative" in seen.details
    with pytest.raises(EbbflowError, match="the SuperLink refuses to run"):
        federation.submit({"nosuch": 1})


PROGRAM = """
    import sys, time
    from pathlib import Path
    from ebbflow.flower.launch.launcher import Federation, taken_up
    federation = Federation(Path(sys.argv[1]))
    with taken_up(federation, [0]):
        federation.submit({"nodes": 1, "rounds": 100, "pause": 0.5})
        print("up", flush=True)
        time.sleep(600)
"""


@slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_launcher_that_is_ended_leaves_nothing(
    number: signal.Signals, home: Path, tmp_path: Path
) -> None:
    folder = make_federation(tmp_path / "f", nodes=1)
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "up\n"
        federation = Federation(folder)
        mark, ports = federation.processes.mark, federation.folder.ports()
        soon(lambda: rounds(federation))
        program.send_signal(number)
        assert program.wait(60) != 0
    if number == signal.SIGKILL:
        assert len(marked(mark, everything())) >= 5
        done = process("federate", "clean", str(folder), "--json")
        assert set(json.loads(done.stdout)["ended"]) == {LINK, EXECUTOR, GATE, "node0"}
    nothing_is_left(folder, mark, ports)
    kept = {"app", "certificates", "federation.toml", "keys", "logs", "nodes"}
    running = {"flwr", "link", LOCK} if number != signal.SIGKILL else set()
    assert {path.name for path in folder.iterdir()} == kept | running
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


@slow
def test_the_commands_take_it_up_show_it_and_take_it_down(home: Path, tmp_path: Path) -> None:
    folder = make_federation(tmp_path / "f")

    def ebbflow(*words: str) -> str:
        done = process("federate", *words)
        assert done.returncode == 0, done
        return done.stdout

    found = json.loads(ebbflow("up", str(folder), "--json"))
    assert list(found) == ["address", "processes"]
    assert [each["name"] for each in found["processes"]] == [LINK, EXECUTOR, GATE]
    assert all(each["running"] for each in found["processes"])
    again = ebbflow("up", str(folder))
    assert again.splitlines()[0] == f"nodes come to {found['address']}"
    # A node of another machine has nothing but its key and the certificate.
    elsewhere = tmp_path / "elsewhere"
    for name in ("certificates/ca.crt", "keys/node1"):
        (elsewhere / name).parent.mkdir(parents=True)
        (elsewhere / name).write_bytes((folder / name).read_bytes())
    with subprocess.Popen(
        [
            *(EXECUTABLE, "federate", "node", str(elsewhere), "1", "--json"),
            *("--server", found["address"], "--config", "data=ward.csv"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    ) as node:
        assert node.stdout is not None
        shown = "".join(node.stdout.readline() for _ in range(5))
        assert json.loads(shown)["state"] == "in"
        status = json.loads(ebbflow("status", str(folder), "--json"))
        assert [each["status"] for each in status["nodes"]] == ["registered", "online"]
        assert status["runs"] == []
        node.send_signal(signal.SIGINT)
        assert node.wait(30) == 130
    status = json.loads(ebbflow("status", str(folder), "--json"))
    assert [each["status"] for each in status["nodes"]] == ["registered", "offline"]
    mark, ports = Federation(folder).processes.mark, Federation(folder).folder.ports()
    assert ebbflow("down", str(folder)) == "ended link, executor, gate\n"
    assert ebbflow("down", str(folder)) == "nothing was running\n"
    nothing_is_left(folder, mark, ports)
    clean(folder, everything=True)
    assert not folder.exists()


@slow
def test_a_federation_that_does_not_come_up_leaves_nothing(home: Path, tmp_path: Path) -> None:
    folder = make_federation(tmp_path / "f")
    (folder / "certificates" / "server.key").write_text("rubbish")
    done = process("federate", "up", str(folder))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"ebbflow: link did not come up: see {folder}/logs/link.log\n"
    assert recorded(folder) == ()


@slow
def test_a_node_whose_key_is_not_registered_is_not_let_in(
    federation: Federation, tmp_path: Path
) -> None:
    stranger = make_federation(tmp_path / "f", nodes=1)
    ours = federation.folder.authority.read_bytes()
    (stranger / "certificates" / "ca.crt").write_bytes(ours)
    other = Federation(stranger)
    try:
        other.start_node(0, NodeOrigin(server=federation.address))
        home = other.folder.node_home(0)
        soon(lambda: node_state(home).get("state") == REFUSED)
        with pytest.raises(EbbflowError, match=r"node0 is not in after 3 s \(.*not registered"):
            other.wait_for_nodes([0], 3)
    finally:
        other.down()
