"""The parts of a launcher: settings, ports, paths, environments, signals, what a node says."""

from __future__ import annotations

import itertools
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ebbflow.core.errors import EbbflowError
from ebbflow.flower.launch import executor, host, ports, programs
from ebbflow.flower.launch.federation_settings import (
    SETTINGS,
    FederationSettings,
    Setting,
    read_settings,
)
from ebbflow.flower.launch.folder import FederationFolder
from ebbflow.flower.launch.launcher import Federation, NodeOrigin, clean
from ebbflow.flower.launch.processes import GRACE, Processes
from ebbflow.flower.launch.reaching import answers


def test_settings_are_read(tmp_path: Path) -> None:
    (tmp_path / SETTINGS).write_text(
        "[gate]\nhost = '0.0.0.0'\nport = 8443\nname = 'server.example.org'\n"
        "[nodes]\ncount = 5\npreload = ['torch']\nconfig = {data = 'a.csv'}\n"
        "[run]\nrounds = 3\nfast = true\nrate = 0.5\n"
    )
    found = read_settings(tmp_path)
    assert (found.gate.port, found.nodes.preload, found.link.port) == (8443, ("torch",), 0)
    assert found.run == {"rounds": 3, "fast": True, "rate": 0.5}
    assert Federation(tmp_path).address == "server.example.org:8443"
    (tmp_path / SETTINGS).write_text("")
    assert read_settings(tmp_path) == FederationSettings()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[gate]\nport = 70000", r"gate\.port: Input should be less than or equal to 65535"),
        ("[gate]\nhost = 'home'", r"gate\.host: 'home' is no address to listen on"),
        ("[gates]", r"gates: Extra inputs are not permitted"),
        ("[nodes]\ncount = '5'", r"nodes\.count: "),
        ("[run]\nlist = [1]", r"run\.list"),
        ("[", "is no TOML file"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / SETTINGS).write_text(text)
    with pytest.raises(EbbflowError, match=sentence):
        read_settings(tmp_path)


def test_a_folder_without_a_federation_is_named(tmp_path: Path) -> None:
    with pytest.raises(EbbflowError, match=r"holds no federation .*federate init"):
        Federation(tmp_path)
    with pytest.raises(EbbflowError, match=r"holds no federation .* nothing is ended"):
        clean(tmp_path, everything=True)
    assert tmp_path.is_dir()


@pytest.mark.parametrize(
    ("count", "number", "told", "partitions"),
    [(5, 3, {}, 5), (5, 5, {}, None), (0, 3, {}, None), (0, 3, {"num-partitions": 8}, 8)],
)
def test_a_node_is_told_of_how_many_it_is_one_only_if_that_is_known(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    number: int,
    told: dict[str, Setting],
    partitions: int | None,
) -> None:
    settings = FederationSettings.model_validate({"nodes": {"count": count}})
    federation, commands = Federation(tmp_path, settings), list[list[str]]()
    for path in (federation.folder.authority, federation.folder.key(number)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    monkeypatch.setattr(federation, "_start", lambda name, command, *_: commands.append(command))
    federation.start_node(number, NodeOrigin("127.0.0.1:1", config=told))
    (command,) = commands
    config = command[command.index("--node-config") + 1].split()
    assert f"partition-id={number}" in config
    said = [] if partitions is None else [f"num-partitions={partitions}"]
    assert [each for each in config if each.startswith("num-partitions=")] == said


def test_of_two_commands_that_start_a_node_one_is_refused_and_the_node_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = Federation(tmp_path, FederationSettings())
    for path in (federation.folder.authority, federation.folder.key(0)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    monkeypatch.setattr(
        federation, "_python", [sys.executable, "-c", "import time; time.sleep(600)", "--"]
    )
    origin = NodeOrigin(server="127.0.0.1:1")
    end, turn = Processes.end, itertools.count()

    def end_late(self: Processes, names: Iterable[str], grace: float = GRACE) -> list[str]:
        time.sleep(0.2 * (next(turn) % 2))  # as on a busy machine
        return end(self, names, grace)

    monkeypatch.setattr(Processes, "end", end_late)

    def started(_: int) -> str:
        try:
            federation.start_node(0, origin)
        except EbbflowError as error:
            return str(error)
        return ""

    try:
        for _ in range(4):  # it is killed, and two commands bring it back at the same moment
            with ThreadPoolExecutor(2) as pool:
                well, refused = sorted(pool.map(started, range(2)))
            assert well == ""
            assert re.match(r"node0 of .* is already running", refused)
            record = federation.processes.running("node0")
            assert record is not None
            os.kill(record.pid, signal.SIGKILL)
            while record.running:
                time.sleep(0.01)
    finally:
        federation.down()


def test_a_free_port_is_free_and_given_to_nobody_by_itself() -> None:
    low, high = ports._ephemeral()
    for _ in range(20):
        port = ports.free_port()
        assert ports.is_free(port)
        assert not low <= port <= high
    with socket.socket() as taken:
        taken.bind((ports.LOOPBACK, port))
        taken.listen()
        assert not ports.is_free(port)
    assert ports.is_free(port)


def test_ports_are_kept(tmp_path: Path) -> None:
    folder = FederationFolder(tmp_path)
    assert folder.ports() == {}
    folder.keep_port("link", 1)
    folder.keep_port("gate", 2)
    folder.keep_port("link", 3)
    assert folder.ports() == {"link": 3, "gate": 2}
    (tmp_path / "link" / "ports.json").write_text("[")
    assert folder.ports() == {}


def test_the_secret_is_kept_and_nobody_elses(tmp_path: Path) -> None:
    path = FederationFolder(tmp_path).secret()
    content = path.read_bytes()
    assert len(content) == 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert FederationFolder(tmp_path).secret().read_bytes() == content


def test_a_secret_that_was_not_written_in_full_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_: int) -> bytes:
        raise KeyboardInterrupt

    folder = FederationFolder(tmp_path)
    folder.link.mkdir()
    for module, name in ((secrets, "token_bytes"), (os, "fsync")):
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(module, name, killed)
            folder.secret()
        assert not list(folder.link.iterdir())
    assert folder.secret().stat().st_size == 32


@pytest.mark.parametrize("content", [b"", b"x" * 31, b"x" * 33])
def test_a_damaged_secret_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "link").mkdir()
    path = tmp_path / "link" / "secret"
    path.write_bytes(content)
    with pytest.raises(EbbflowError, match=f"has {len(content)} bytes instead of 32: .* delete"):
        FederationFolder(tmp_path).secret()
    path.unlink()
    assert FederationFolder(tmp_path).secret().stat().st_size == 32


@pytest.fixture
def open_to_all() -> Iterator[None]:
    """Let what is made be everybody's, unless something is said."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path, *names: str) -> dict[str, str]:
    """Return who may look into folders."""
    return {name: f"{(folder / name).stat().st_mode & 0o777:o}" for name in names}


@pytest.mark.usefixtures("open_to_all")
def test_nobody_else_looks_into_what_processes_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = Federation(tmp_path / "f", FederationSettings())
    for path in (federation.folder.authority, federation.folder.key(3)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    monkeypatch.setattr(Processes, "start", lambda *_, **__: None)
    federation.folder.secret()
    federation.start_node(3, NodeOrigin("127.0.0.1:1"))
    private = ("link", "flwr", "flwr/node3", "nodes", "nodes/node3")
    assert modes(tmp_path / "f", *private) == dict.fromkeys(private, "700")
    # What an earlier version has made is closed; a folder with somebody's data is theirs.
    for name in private:
        (tmp_path / "f" / name).chmod(0o755)
    federation.folder.keep_port("link", 1)
    federation.start_node(3, NodeOrigin("127.0.0.1:1"))
    found = modes(tmp_path / "f", "link", "flwr", "nodes/node3")
    assert found == {"link": "700", "flwr": "700", "nodes/node3": "755"}


def test_nodes_are_known_by_their_public_keys(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    for name in ("node10.pub", "node2.pub", "node2", "other.pub"):
        (tmp_path / "keys" / name).touch()
    assert list(FederationFolder(tmp_path).public_keys()) == [2, 10]


def test_cleaning_leaves_what_somebody_may_want(tmp_path: Path) -> None:
    for name in ("app", "keys", "flwr/apps", "link", "nodes", "logs", "run"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / SETTINGS).touch()
    kept = {SETTINGS, "app", "keys", "nodes", "logs", "run"}
    assert clean(tmp_path) == []
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_cleaning_leaves_folders_of_other_projects_alone(tmp_path: Path) -> None:
    for name in ("flwr/src/a", "link/b"):
        (tmp_path / name).mkdir(parents=True)
    for everything in (False, True):
        with pytest.raises(EbbflowError, match=r"holds no federation \(federation.toml is missing"):
            clean(tmp_path, everything=everything)
    assert (tmp_path / "flwr/src/a").is_dir() and (tmp_path / "link/b").is_dir()


def test_a_node_on_another_machine_is_cleaned(tmp_path: Path) -> None:
    (tmp_path / "flwr/node3").mkdir(parents=True)
    Processes(tmp_path)
    assert clean(tmp_path) == []
    assert not (tmp_path / "flwr").exists()


def test_the_environment_is_silent_and_keeps_to_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLWR_HOME", "elsewhere")
    monkeypatch.setenv("NO_PROXY", "example.org")
    found = programs.single_threaded(programs.environment(tmp_path))
    assert found["FLWR_HOME"] == str(tmp_path)
    assert found["FLWR_TELEMETRY_ENABLED"] == "0"
    assert found["NO_PROXY"] == "example.org,127.0.0.1,localhost"
    assert found["OMP_NUM_THREADS"] == os.environ.get("OMP_NUM_THREADS", "1")
    # Names of sockets have 107 signs: a path that is too long for them is not used.
    deep = tmp_path / ("x" * 80)
    assert programs.environment(deep).get("TMPDIR") == os.environ.get("TMPDIR")


def test_this_process_gets_its_environment_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    before = dict(os.environ)
    with programs.private_environment():
        assert os.environ["FLWR_TELEMETRY_ENABLED"] == "0"
    assert dict(os.environ) == before


def test_nobody_with_another_certificate_answers(tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="it comes with Flower")
    from ebbflow.flower.launch.identities import make_authority  # noqa: PLC0415

    authority = make_authority(tmp_path / "certificates").public
    with socket.socket() as silent:
        silent.bind((ports.LOOPBACK, 0))
        port = silent.getsockname()[1]
        assert not answers(ports.LOOPBACK, port, authority)


@pytest.mark.parametrize(
    ("code", "said", "inside", "state", "sentence"),
    [
        (-9, b"", True, host.JOINING, "ended by SIGKILL"),
        (1, b"", True, host.JOINING, "ended with code 1"),
        (1, b"Traceback", False, host.JOINING, "ended with code 1"),
        (1, b"Exit Code: 305\n[code: 1] no", False, host.REFUSED, "key is not registered"),
        (1, b"Exit Code: 305\ncertificate verify", False, host.REFUSED, "does not show"),
        (1, b"Exit Code: 302\nno key", False, host.REFUSED, "exit code 302"),
    ],
)
def test_why_a_supernode_has_ended_is_said(
    code: int, said: bytes, inside: bool, state: str, sentence: str
) -> None:
    found, told = host._reason(code, said, inside)
    assert (found, sentence in told) == (state, True)


def test_forked_tasks_draw_numbers_of_their_own() -> None:
    program = """
        import os, random
        import numpy
        from ebbflow.flower.launch.executor import _draw_afresh
        for _ in range(3):
            if os.fork() == 0:
                _draw_afresh()
                print(random.random(), numpy.random.rand(), flush=True)
                os._exit(0)
            os.wait()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    )
    numbers = done.stdout.split()
    assert len(set(numbers)) == len(numbers) == 6


def test_what_cannot_be_imported_beforehand_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    executor.preload(["json", "nosuch.module"])
    assert "nosuch.module cannot be imported beforehand" in capsys.readouterr().out


SIGNALS = """
    import os, signal, sys, time
    from ebbflow.flower.launch.ending import ending_by_signals
    number = int(sys.argv[1])
    with ending_by_signals() as leaving:
        try:
            os.kill(os.getpid(), number)
            time.sleep(5)
        except BaseException as error:
            print(type(error).__name__, flush=True)
            raise
        finally:
            with leaving():
                os.kill(os.getpid(), signal.SIGTERM)  # again, while everything is being ended
                print("ended", flush=True)
"""


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGINT, "KeyboardInterrupt"), (signal.SIGTERM, "SystemExit")]
)
def test_a_second_signal_waits_until_all_is_ended(number: signal.Signals, name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SIGNALS), str(int(number))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == [name, "ended"]
    assert done.returncode == 143
