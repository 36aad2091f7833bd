r"""A node: Flower's SuperNode, watched over, with an executor that is ready at once.

    python -m ebbflow.flower.launch.host --server 192.0.2.7:8443 --root-certificates ca.crt \
        --key node0 --folder flwr/node0 --node-config "partition-id=0"

The SuperNode is a child of this process and is started again when it ends unasked. For a minute the
server takes a node that was killed for one that is still there, and would refuse it (Flower's exit
code 305): so the server is told first that it was gone. If it is refused all the same, it is tried
again until it is let in. Whatever the SuperNode was doing is stopped first: two tasks of one node
never run at the same time.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ebbflow.core.files import make_folder, write_atomically
from ebbflow.flower.launch.executor import (
    CLIENT,
    Executor,
    end_with_parent,
    preload,
    say,
    until_told,
)
from ebbflow.flower.launch.parting import say_gone
from ebbflow.flower.launch.ports import LOOPBACK, free_port
from ebbflow.flower.launch.programs import forget_apps, program

STATE = "state.json"
IN, JOINING, REFUSED, ENDED = "in", "joining", "refused", "ended"
"""The states of a node."""
_GRACE = 6.0
_LOOK = 0.02
"""Seconds from one look at the SuperNode's log to the next."""
_BUSY = 1.0
"""For so many seconds after the SuperNode got a message, it is asked for tasks at every look."""
_IDLE = 3.0
"""Otherwise it is asked after so many seconds, should its log not have told."""
_WAITS = (0.5, 1.0, 2.0, 4.0, 5.0)
"""Seconds from one start of the SuperNode to the next, as long as it does not get in."""
_RECEIVED = b"Received successfully"
"""What the SuperNode writes when it has all of a message.

Its task can be taken before, but the app would not find the whole message, and would wait for a
second before it looks again.
"""
_IN = re.compile(rb"SuperNode ID: (\d+)")
_EXIT = re.compile(rb"Exit Code: (\d+)")
_REFUSED = b"305"
_UNTRUSTED = re.compile(rb"certificate|SSL|TLS", re.IGNORECASE)


@dataclass(frozen=True)
class NodeSettings:
    """What a node is."""

    server: str
    """Where its server's gate listens, as host:port."""
    root_certificates: Path
    key: Path
    folder: Path
    """Where the SuperNode keeps what it needs of Flower; nothing of value."""
    log: Path
    node_config: str = ""
    preload: tuple[str, ...] = ()


class Host:
    """Keeps a SuperNode running, and runs its tasks."""

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        make_folder(settings.folder)
        self._secret = settings.folder / "secret"
        self._port = 0
        self._node: subprocess.Popen[bytes] | None = None
        self._executor: Executor | None = None
        self._tries = 0
        self._seen = 0
        """How much of the SuperNode's log was read."""
        self._said = b""
        """What this SuperNode has written until it was in."""
        self._inside = False
        before = node_state(settings.folder)
        self._number = int(str(before.get("number", 0)))
        """The number that the server has given to the node, once it was in."""
        self._ghost = before.get("state") == IN
        """Whether the server may take the node for one that is still there."""
        self._next_start = self._asked = 0.0
        self._received = -_BUSY

    def step(self) -> float:
        """Do what is due, and return the seconds until it should be called again."""
        now = time.monotonic()
        if self._node is None:
            if now >= self._next_start:
                self._start(now)
            return _LOOK
        news = self._read_log()
        if _RECEIVED in news:
            self._received = now
        if not self._inside:
            self._said += news
            if found := _IN.search(self._said):
                self._inside, self._tries, self._number = True, 0, int(found[1])
                self._tell(IN, f"the node is in, with the number {self._number}")
        code = self._node.poll()
        if code is not None:
            self._ended(code, now)
        elif self._inside and self._executor is not None:
            due = 0.0 if now - self._received < _BUSY and not self._executor.tasks else _IDLE
            if now - self._asked >= due:
                self._asked = now
                self._executor.step()
        return _LOOK

    def close(self) -> None:
        """Let the node leave, and end what it was doing."""
        if self._node is not None:
            self._node.terminate()
        if self._executor is not None:
            self._executor.close()
        if self._node is not None:
            try:
                self._node.wait(_GRACE)
            except subprocess.TimeoutExpired:
                self._node.kill()
                self._node.wait()
        self._tell(ENDED, "the node has left")

    def _start(self, now: float) -> None:
        settings = self._settings
        if self._ghost:
            self._ghost = False
            say_gone(settings.server, settings.root_certificates, settings.key, self._number)
        self._port = free_port()
        forget_apps(settings.folder)
        self._secret.unlink(missing_ok=True)
        handle = os.open(self._secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(handle, secrets.token_bytes(32))
        os.close(handle)
        make_folder(settings.log.parent)
        me = os.getpid()
        with settings.log.open("ab") as log:
            self._seen = log.tell()
            self._node = subprocess.Popen(
                supernode_command(settings, self._port, self._secret),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=lambda: end_with_parent(me),  # noqa: PLW1509 - there are no threads here
            )
        self._executor = Executor(f"{LOOPBACK}:{self._port}", self._secret, CLIENT)
        self._said, self._inside = b"", False
        if self._tries:
            say(f"asks {settings.server} again")
        else:
            self._tell(JOINING, f"asks {settings.server} to be let in")

    def _ended(self, code: int, now: float) -> None:
        """Plan the next start of a SuperNode that has ended though nobody asked it to."""
        self._node = None
        if self._executor is not None:
            self._executor.close()
            self._executor = None
        wait = _WAITS[min(self._tries, len(_WAITS) - 1)]
        self._tries += 1
        self._next_start = now + wait
        self._ghost = self._inside
        self._tell(*_reason(code, self._said, self._inside))

    def _read_log(self) -> bytes:
        """Return what the SuperNode has written since the last time."""
        try:
            size = self._settings.log.stat().st_size
            if size <= self._seen:
                return b""
            with self._settings.log.open("rb") as log:
                log.seek(self._seen)
                news = log.read()
        except OSError:
            return b""
        self._seen += len(news)
        return news

    def _tell(self, state: str, sentence: str) -> None:
        say(sentence)
        content = {"state": state, "says": sentence, "pid": os.getpid(), "number": self._number}
        write_atomically(self._settings.folder / STATE, json.dumps(content).encode())


def supernode_command(settings: NodeSettings, port: int, secret: Path) -> list[str]:
    """Return how a SuperNode is started whose tasks only a holder of the secret can take."""
    command = [
        *program("flower-supernode"),
        *("--superlink", settings.server),
        *("--root-certificates", str(settings.root_certificates)),
        *("--auth-supernode-private-key", str(settings.key)),
        *("--isolation", "process", "--superexec-auth-secret-file", str(secret)),
        *("--host", LOOPBACK, "--port", str(port)),
    ]
    return [*command, "--node-config", settings.node_config] if settings.node_config else command


def node_state(folder: Path) -> Mapping[str, object]:
    """Return what a node's host last said of itself, or nothing if it has not begun."""
    try:
        content = json.loads((folder / STATE).read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _reason(code: int, said: bytes, inside: bool) -> tuple[str, str]:
    """Return the state of a node whose SuperNode has ended, and a sentence for its log."""
    number = _EXIT.findall(said)
    if code < 0:
        return JOINING, f"the SuperNode was ended by {signal.Signals(-code).name}: starting again"
    if inside or not number:
        return JOINING, f"the SuperNode ended with code {code}: starting again"
    if number[-1] == _REFUSED and _UNTRUSTED.search(said):
        return REFUSED, "the server does not show the certificate that this node trusts: again"
    if number[-1] == _REFUSED:
        return REFUSED, (
            "the server refuses this node: it was there less than a minute ago, or its key is not "
            "registered; again"
        )
    return REFUSED, f"the SuperNode ended with Flower's exit code {number[-1].decode()}: again"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a node until it is asked to end."""
    parser = argparse.ArgumentParser(
        prog="python -m ebbflow.flower.launch.host", description=__doc__
    )
    parser.add_argument("--server", required=True, help="where the gate listens, as host:port")
    parser.add_argument("--root-certificates", type=Path, required=True)
    parser.add_argument("--key", type=Path, required=True, help="the node's private key")
    parser.add_argument("--folder", type=Path, required=True, help="for what Flower needs")
    parser.add_argument("--log", type=Path, required=True, help="of the SuperNode")
    parser.add_argument("--node-config", default="", help="as flower-supernode takes it")
    parser.add_argument("--preload", action="append", default=[], metavar="MODULE")
    given = vars(parser.parse_args(arguments))
    host = Host(NodeSettings(**{**given, "preload": tuple(given["preload"])}))
    host.step()  # while the SuperNode starts, the rest is imported
    preload(given["preload"])
    try:
        until_told(host.step)
    finally:
        host.close()


if __name__ == "__main__":
    main()
