"""Strangers at a real SuperLink: refused at the gate, and at Flower's own port let in.

Everything here runs Flower as it is: `flower-superlink` with TLS and ``--enable-supernode-auth``,
`flower-supernode`, and the gate between them, on loopback.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="federations need Flower: pip install 'ebbflow[flower]'")

import httpx
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.cli.build import build_fab_from_disk
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
)
from flwr.proto.fab_pb2 import Fab
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
    UnregisterNodeFleetRequest,
)
from flwr.proto.message_pb2 import Message, Metadata, ObjectTree
from flwr.proto.node_pb2 import Node
from flwr.proto.recorddict_pb2 import RecordDict
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    PushAppMessagesRequest,
)
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors.http.runtime_token import RuntimeTokenHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.runtime.runtime_http_client import RuntimeHttpClient
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from ebbflow.flower.launch.identities import make_authority, make_node_key
from tests.flower.gates import Certificates, free_port, make_certificates, wait_for

pytestmark = [
    pytest.mark.slow,
    # Of the library by which Flower chooses the files of an app.
    pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning"),
]

PROGRAMS = Path(sys.executable).parent
SUPERLINK = 1
"""The number by which Flower calls the SuperLink among nodes."""


@contextmanager
def running(command: list[str], log: Path, environment: Mapping[str, str]) -> Iterator[Any]:
    """Run a program in a process group of its own, of which nothing is left afterwards."""
    with (
        log.open("wb") as out,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(5)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


@dataclass
class Federation:
    """A SuperLink, a gate in front of it, and keys for nodes."""

    folder: Path
    certificates: Certificates
    link_port: int
    gate_port: int
    environment: dict[str, str]
    clients: ExitStack = field(default_factory=ExitStack)

    @property
    def trusted(self) -> dict[str, Any]:
        """What any node has: the authority's certificate."""
        return {"insecure": False, "root_certificates": self.certificates.authority.read_bytes()}

    def key(self, name: str) -> EllipticCurvePrivateKey:
        path = self.folder / "keys" / name
        if not path.exists():
            make_node_key(path)
        key = load_ssh_private_key(path.read_bytes(), None)
        assert isinstance(key, EllipticCurvePrivateKey)
        return key

    def public(self, name: str) -> bytes:
        return bytes(public_key_to_bytes(self.key(name).public_key()))

    def control(self, port: int) -> Any:
        return self.clients.enter_context(
            ControlHttpClient.from_server_address(
                f"127.0.0.1:{port}", interceptors=[], **self.trusted
            )
        )

    def runtime(self, port: int, token: str | None = None) -> Any:
        interceptors = [] if token is None else [RuntimeTokenHttpInterceptor(token)]
        return self.clients.enter_context(
            RuntimeHttpClient.from_server_address(
                f"127.0.0.1:{port}", interceptors=interceptors, **self.trusted
            )
        )

    def node(self, name: str, port: int) -> Any:
        key = self.key(name)
        return self.clients.enter_context(
            FleetHttpClient.from_server_address(
                f"127.0.0.1:{port}",
                interceptors=[NodeAuthHttpInterceptor(key, key.public_key())],
                **self.trusted,
            )
        )

    def register(self, name: str) -> int:
        request = RegisterNodeRequest(public_key=self.public(name))
        return int(self.control(self.link_port).RegisterNode(request).node_id)

    def states(self) -> dict[int, str]:
        listed = self.control(self.link_port).ListNodes(ListNodesRequest()).nodes_info
        return {info.node_id: info.status for info in listed}

    def supernode(self, name: str, *options: str) -> tuple[list[str], Path, dict[str, str]]:
        command = [
            str(PROGRAMS / "flower-supernode"),
            *("--superlink", f"127.0.0.1:{self.gate_port}"),
            *("--host", "127.0.0.1", "--port", str(free_port())),
            *("--isolation", "process", "--max-retries", "2"),
            *options,
        ]
        return command, self.folder / f"{name}.log", self.environment

    def start_run(self) -> int:
        request = StartRunRequest(fab=self.app())
        return int(self.control(self.link_port).StartRun(request).run_id)

    def app(self) -> Fab:
        """Return an app that does nothing."""
        folder = self.folder / "app"
        if not folder.exists():
            (folder / "idle").mkdir(parents=True)
            (folder / "pyproject.toml").write_text(PROJECT)
            (folder / "idle" / "__init__.py").write_text("")
            for part, name in (("server", "ServerApp"), ("client", "ClientApp")):
                text = f"from flwr.{part}app import {name}\n\napp = {name}()\n"
                (folder / "idle" / f"{part}.py").write_text(text)
        content = build_fab_from_disk(folder)
        return Fab(hash_str=hashlib.sha256(content).hexdigest(), content=content)


PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "idle"
version = "1.0.0"
description = "An app that does nothing."
license = "Apache-2.0"
dependencies = ["flwr>=1.41"]

[tool.flwr.app]
publisher = "stranger"

[tool.flwr.app.components]
serverapp = "idle.server:app"
clientapp = "idle.client:app"

[tool.flwr.app.config]
"""


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    certificates = make_certificates(tmp_path / "certificates")
    environment = {
        **os.environ,
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_HOME": str(tmp_path / "flwr"),
        "PYTHONUNBUFFERED": "1",
    }
    it = Federation(tmp_path, certificates, free_port(), free_port(), environment)
    link = [
        str(PROGRAMS / "flower-superlink"),
        *("--host", "127.0.0.1", "--port", str(it.link_port)),
        *("--ssl-ca-certfile", str(certificates.authority)),
        *("--ssl-certfile", str(certificates.certificate)),
        *("--ssl-keyfile", str(certificates.key)),
        *("--enable-supernode-auth", "--isolation", "process"),
        *("--database", str(tmp_path / "state.db")),
    ]
    gate = [
        *(sys.executable, "-m", "ebbflow.flower.gate"),
        *("--listen", f"127.0.0.1:{it.gate_port}", "--to", f"127.0.0.1:{it.link_port}"),
        *("--certificate", str(certificates.certificate), "--key", str(certificates.key)),
        *("--root-certificates", str(certificates.authority)),
        *("--keys", str(tmp_path / "keys")),
    ]
    (tmp_path / "keys").mkdir()
    with (
        running(link, tmp_path / "link.log", environment),
        running(gate, tmp_path / "gate.log", environment),
        it.clients,
    ):
        wait_for(lambda: _answers(it.link_port, certificates), 60)
        wait_for(lambda: "nodes come to" in (tmp_path / "gate.log").read_text(), 60)
        yield it


def _answers(port: int, certificates: Certificates) -> bool:
    try:
        url = f"https://127.0.0.1:{port}/health"
        return httpx.get(url, verify=certificates.trusted, trust_env=False).is_success
    except httpx.TransportError:
        return False


def status_of(ask: Callable[[], object]) -> int:
    """Return the status of the answer to a request of Flower's clients."""
    try:
        ask()
    except httpx.HTTPStatusError as error:
        return error.response.status_code
    return 200


def test_only_a_registered_key_behind_tls_gets_in(federation: Federation, tmp_path: Path) -> None:
    registered = federation.register("registered")
    federation.key("unregistered")
    other = make_authority(tmp_path / "other")
    trusted = ("--root-certificates", str(federation.certificates.authority))
    keys = tmp_path / "keys"

    def key(name: str) -> tuple[str, str]:
        return ("--auth-supernode-private-key", str(keys / name))

    refused = {
        "no key": (*trusted,),
        "unregistered key": (*trusted, *key("unregistered")),
        "no TLS": ("--insecure",),
        "no TLS with a key": ("--insecure", *key("registered")),
        "another authority": ("--root-certificates", str(other.public), *key("registered")),
    }
    said = {
        "no key": "412 Precondition Failed",  # it draws one, which the gate does not know
        "unregistered key": "Failed to activate SuperNode",
        "no TLS": "Failed to initialize the connection",
        "no TLS with a key": "requires a secure TLS connection",
        "another authority": "CERTIFICATE_VERIFY_FAILED",
    }
    with ExitStack() as stack:
        processes = {
            name: stack.enter_context(running(*federation.supernode(name, *options)))
            for name, options in refused.items()
        }
        for name, process in processes.items():
            assert process.wait(90) != 0, name
            assert said[name] in (tmp_path / f"{name}.log").read_text(), name
    assert federation.states() == {registered: "registered"}
    journal = (tmp_path / "gate.log").read_text()
    assert "its key is not among those of the nodes" in journal

    with running(*federation.supernode("in", *trusted, *key("registered"))) as process:
        wait_for(lambda: federation.states() == {registered: "online"}, 60)
        time.sleep(4)  # it has asked for messages by then
        assert process.poll() is None
        assert federation.states() == {registered: "online"}
    since = (tmp_path / "gate.log").read_text().removeprefix(journal)
    assert "refused" not in since, "a node's own requests were refused"
    assert not re.search("WARNING|ERROR|retrying", (tmp_path / "in.log").read_text())
    access = (tmp_path / "link.log").read_text()
    for route in ("activate-node", "deactivate-node"):
        assert f'"POST /v1/fleet/{route} HTTP/1.1" 200' in access


def test_a_stranger_at_the_gate_and_at_flowers_own_port(federation: Federation) -> None:
    """What only the owner should do: the gate refuses it, and a stock SuperLink does not."""
    gate, link = federation.gate_port, federation.link_port
    at_the_gate = {
        "register-node": lambda: federation.control(gate).RegisterNode(
            RegisterNodeRequest(public_key=federation.public("stranger"))
        ),
        "start-run": lambda: federation.control(gate).StartRun(
            StartRunRequest(fab=federation.app())
        ),
        "list-runs": lambda: federation.control(gate).ListRuns(ListRunsRequest()),
        "acquire-task": lambda: federation.runtime(gate).AcquireTask(
            AcquireTaskRequest(supported_task_types=["flwr-serverapp"])
        ),
    }
    assert {name: status_of(ask) for name, ask in at_the_gate.items()} == dict.fromkeys(
        at_the_gate, 404
    )
    with httpx.Client(verify=federation.certificates.trusted, trust_env=False) as client:
        for path in ("/health", "/docs", "/openapi.json"):
            assert client.get(f"https://127.0.0.1:{gate}{path}").status_code == 404
            assert client.get(f"https://127.0.0.1:{link}{path}").status_code == 200
    access = (federation.folder / "link.log").read_text()
    assert not re.search(r"/v1/(control|runtime)/", access), "something came through"
    journal = (federation.folder / "gate.log").read_text()
    assert "refused POST /v1/control/start-run from 127.0.0.1" in journal

    # Not even with a key of one's own, as long as nobody has registered it.
    stranger = federation.node("stranger", gate)
    key = federation.public("stranger")
    activate = ActivateNodeRequest(public_key=key, heartbeat_interval=30)
    assert status_of(lambda: stranger.RegisterNode(RegisterNodeFleetRequest(public_key=key))) == 412
    assert status_of(lambda: stranger.ActivateNode(activate)) == 412
    assert federation.states() == {}

    # Stock Flower: with nothing but the certificate that every node has.
    owner = federation.control(link)
    registered = owner.RegisterNode(RegisterNodeRequest(public_key=key)).node_id
    assert stranger.ActivateNode(activate).node_id == registered
    assert federation.states() == {registered: "online"}
    run = owner.StartRun(StartRunRequest(fab=federation.app())).run_id
    assert set(owner.ListRuns(ListRunsRequest()).run_dict) == {run}
    task = federation.runtime(link).AcquireTask(
        AcquireTaskRequest(supported_task_types=["flwr-serverapp"])
    )
    assert task.task.run_id == run
    assert task.token, "the server's own work, and the right to do it"


def message(run: int, sender: int, to: int, name: str, reply_to: str = "") -> tuple[Any, Any]:
    """Return a message as it is pushed, and the list of its objects."""
    metadata = Metadata(
        run_id=run,
        message_id=name * 64,
        src_node_id=sender,
        dst_node_id=to,
        reply_to_message_id=reply_to * 64,
        ttl=100.0,
        message_type="train",
        created_at=time.time(),
    )
    pushed = Message(metadata=metadata, content=RecordDict())
    return pushed, ObjectTree(object_id=name * 64)


def push(node: int, pushed: tuple[Any, Any]) -> Any:
    """Return the request by which a node pushes a message."""
    return PushMessagesRequest(
        node=Node(node_id=node), messages_list=[pushed[0]], message_object_trees=[pushed[1]]
    )


def test_what_a_registered_node_may_do_in_the_name_of_another(federation: Federation) -> None:
    gate, link = federation.gate_port, federation.link_port
    one, other = federation.register("one"), federation.register("other")
    run = federation.start_run()
    task = federation.runtime(link).AcquireTask(
        AcquireTaskRequest(supported_task_types=["flwr-serverapp"])
    )
    server = federation.runtime(link, task.token)
    server.PullTaskInput(PullTaskInputRequest())  # the run is running now
    bad, good = federation.node("one", gate), federation.node("other", gate)
    for name, node in (("one", bad), ("other", good)):
        key = federation.public(name)
        node.ActivateNode(ActivateNodeRequest(public_key=key, heartbeat_interval=30))

    # What Flower checks itself: whose the request is.
    others = Node(node_id=other)
    assert status_of(lambda: bad.PullMessages(PullMessagesRequest(node=others))) == 401
    assert status_of(lambda: bad.DeactivateNode(DeactivateNodeRequest(node_id=other))) == 401
    own = UnregisterNodeFleetRequest(node_id=one)
    assert status_of(lambda: bad.UnregisterNode(own)) == 412

    def pulled(node: Any, number: int) -> list[str]:
        found = node.PullMessages(PullMessagesRequest(node=Node(node_id=number))).messages_list
        return [each.metadata.message_id[0] for each in found]

    def answers(name: str) -> list[int]:
        asked = PullAppMessagesRequest(message_ids=[name * 64])
        return [each.metadata.src_node_id for each in server.PullMessages(asked).messages_list]

    def ask(to: int, name: str) -> None:
        pushed, tree = message(run, SUPERLINK, to, name)
        request = PushAppMessagesRequest(messages_list=[pushed], message_object_trees=[tree])
        assert list(server.PushMessages(request).message_ids) == [name * 64]

    # What it does not check, and the gate does: whose the messages in it are.
    instruction = push(one, message(run, SUPERLINK, other, "a"))
    assert status_of(lambda: bad.PushMessages(instruction)) == 400
    assert pulled(good, other) == []
    ask(other, "b")
    forged = push(one, message(run, other, SUPERLINK, "c", reply_to="b"))
    assert status_of(lambda: bad.PushMessages(forged)) == 400
    assert answers("b") == []

    # At Flower's own port both succeed.
    direct = federation.node("one", link)
    assert status_of(lambda: direct.PushMessages(instruction)) == 200
    assert sorted(pulled(good, other) + pulled(good, other)) == ["a", "b"]
    assert status_of(lambda: direct.PushMessages(forged)) == 200
    assert answers("b") == [other], "an answer that the node never gave"

    # And a node's own answer passes the gate.
    ask(one, "d")
    assert pulled(bad, one) == ["d"]
    bad.PushMessages(push(one, message(run, one, SUPERLINK, "e", reply_to="d")))
    assert answers("d") == [one]
