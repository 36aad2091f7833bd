"""A real federation on one machine: its SuperLink, gate and nodes, taken up and down.

The SuperLink listens on 127.0.0.1 alone, with TLS and keys for nodes, and keeps its state in a
database: killed and started again within a minute, it goes on with its run. What nodes reach is the
gate in front of it. An executor of our own runs the server's part of the app, in processes that are
ready at once, and proves itself to the SuperLink by a secret. Everything is in the federation's
folder, and nothing in the user's own.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import tomli_w

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import make_folder, write_atomically
from ebbflow.flower.gate.command import parse_address
from ebbflow.flower.launch.control import Control, NoAnswerError, SeenRun
from ebbflow.flower.launch.ending import ending_by_signals
from ebbflow.flower.launch.executor import SERVER
from ebbflow.flower.launch.federation_settings import FederationSettings, Setting, read_settings
from ebbflow.flower.launch.folder import PRIVATE, FederationFolder, make_private, node_name
from ebbflow.flower.launch.host import IN, node_state
from ebbflow.flower.launch.ports import LOOPBACK, free_port, is_free
from ebbflow.flower.launch.process_table import everything
from ebbflow.flower.launch.processes import Child, Processes, end_all
from ebbflow.flower.launch.programs import (
    environment,
    forget_apps,
    program,
    require_flower,
    single_threaded,
)
from ebbflow.flower.launch.reaching import answers

LINK, EXECUTOR, GATE = "link", "executor", "gate"
"""The names of the server's processes."""
CONNECTION = "federation"
"""What the SuperLink is called in ``flwr/config.toml``, for those who use Flower's own commands."""
_LAYERS = {LINK: 0, EXECUTOR: 1, GATE: 1}
_NODES = 2
START_SECONDS = 60.0
"""So long a process has to come up, on a machine that is busy with others."""
_PORT_TRIES = 3
_INTERVAL = 0.1


@dataclass(frozen=True)
class NodeOrigin:
    """Where a node comes from if that is not the folder that its server is run from."""

    server: str = ""
    """Its server's gate, as host:port."""
    authority: Path | None = None
    """The certificate by which it knows its server."""
    key: Path | None = None
    config: Mapping[str, Setting] = field(default_factory=dict)
    """What the app is told on this node, beside its number and its folder."""

    def __post_init__(self) -> None:
        if self.server:  # Flower would try for ever
            parse_address(self.server, "--server")


class Federation:
    """The processes of the federation in a folder."""

    def __init__(self, folder: Path, settings: FederationSettings | None = None) -> None:
        self.settings = settings if settings is not None else read_settings(folder)
        self.folder = FederationFolder(folder.absolute())
        self._processes: Processes | None = None
        self._python = [sys.executable, "-m"]

    @property
    def processes(self) -> Processes:
        """What was started here; from the first look on, the folder names its processes."""
        if self._processes is None:
            self._processes = Processes(self.folder.path)
        return self._processes

    @property
    def address(self) -> str:
        """Where nodes come to, as host:port."""
        gate = self.settings.gate
        port = gate.port or self.folder.ports().get(GATE, 0)
        name = gate.name or (LOOPBACK if gate.host in ("0.0.0.0", "::") else gate.host)
        return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"

    def up(self) -> None:
        """Start whatever is not running of SuperLink, executor and gate, and let the nodes in."""
        require_flower()
        folder = self.folder
        folder.require(folder.authority, folder.certificate, folder.certificate_key)
        before = folder.ports().get(LINK)
        self.start_link()
        if folder.ports()[LINK] != before:  # those that knew the old port are of no use
            self.processes.end([EXECUTOR, GATE])
        self.start_executor()
        self.start_gate()
        with self.control() as control:
            for path in folder.public_keys().values():
                control.register(path)

    def start_link(self) -> None:
        """Start the SuperLink, on the database and the port that it had before."""
        folder = self.folder
        if self.processes.running(LINK):
            return
        secret = folder.secret()

        def command(port: int) -> list[str]:
            return [
                *program("flower-superlink"),
                *("--host", LOOPBACK, "--port", str(port)),
                *("--ssl-ca-certfile", str(folder.authority)),
                *("--ssl-certfile", str(folder.certificate)),
                *("--ssl-keyfile", str(folder.certificate_key)),
                *("--enable-supernode-auth", "--isolation", "process"),
                *("--superexec-auth-secret-file", str(secret)),
                *("--database", str(folder.link / "state.db")),
                "--disable-runtime-dependency-installation",
            ]

        port = self._listen(LINK, command, LOOPBACK, self.settings.link.port, "/health")
        connection = {"address": f"{LOOPBACK}:{port}", "root-certificates": str(folder.authority)}
        content = {"superlink": {"default": CONNECTION, CONNECTION: connection}}
        write_atomically(folder.home / "config.toml", tomli_w.dumps(content).encode())

    def start_executor(self) -> None:
        """Start what runs the server's part of the app."""
        folder = self.folder
        if self.processes.running(EXECUTOR):
            return
        self.processes.end([EXECUTOR])  # a server that has outlived its executor
        forget_apps(folder.home)
        command = [
            *(*self._python, "ebbflow.flower.launch.executor", "--kind", SERVER),
            *("--address", f"{LOOPBACK}:{folder.ports()[LINK]}"),
            *("--secret", str(folder.secret()), "--root-certificates", str(folder.authority)),
        ]
        self._start(EXECUTOR, command, folder.home)

    def start_gate(self) -> None:
        """Start the gate, on the port that it had before."""
        folder, gate = self.folder, self.settings.gate
        if self.processes.running(GATE):
            return
        make_folder(folder.keys)

        def command(port: int) -> list[str]:
            host = f"[{gate.host}]" if ":" in gate.host else gate.host
            return [
                *(*self._python, "ebbflow.flower.gate", "--listen", f"{host}:{port}"),
                *("--to", f"{LOOPBACK}:{folder.ports()[LINK]}"),
                *("--certificate", str(folder.certificate), "--key", str(folder.certificate_key)),
                *("--root-certificates", str(folder.authority)),
                *("--keys", str(folder.keys)),
            ]

        self._listen(GATE, command, gate.host, gate.port)

    def start_node(self, number: int, origin: NodeOrigin | None = None) -> Child:
        """Start a node on this machine; `wait_for_nodes` says when it is in."""
        folder, name = self.folder, node_name(number)
        server, authority, key, told = self._origin(number, origin or NodeOrigin())
        folder.require(authority, key)
        make_folder(folder.node_data(number), PRIVATE)
        config = {
            "partition-id": number,
            **self._partitions(number),
            "folder": str(folder.node_data(number)),
            **self.settings.nodes.config,
            **told,
        }
        command = [
            *(*self._python, "ebbflow.flower.launch.host", "--server", server),
            *("--root-certificates", str(authority), "--key", str(key)),
            *("--folder", str(folder.node_home(number))),
            *("--log", str(folder.log(f"{name}-supernode"))),
            *("--node-config", written(config)),
        ]
        for module in self.settings.nodes.preload:
            command += ["--preload", module]
        return self._start(name, command, folder.node_home(number), _NODES)

    def _partitions(self, number: int) -> dict[str, Setting]:
        """Return how many nodes the data are divided among, if that is known on this machine."""
        count = self.settings.nodes.count
        # A guess would let an app divide its data wrongly, and say nothing.
        return {"num-partitions": count} if number < count else {}

    def wait_for_nodes(self, numbers: Iterable[int], seconds: float = 150.0) -> None:
        """Wait until nodes are in; one that was killed less than a minute ago takes that long."""
        until = time.monotonic() + seconds
        for number in numbers:
            name = node_name(number)
            while (host := self.processes.running(name)) is not None:
                state = node_state(self.folder.node_home(number))
                if state.get("pid") == host.pid and state.get("state") == IN:
                    break
                if time.monotonic() > until:
                    said = state.get("says", "it has not begun")
                    raise EbbflowError(
                        f"{name} is not in after {seconds:g} s ({said}): see "
                        f"{self.folder.log(f'{name}-supernode')}"
                    )
                time.sleep(_INTERVAL)
            else:
                raise EbbflowError(f"{name} has ended: see {self.folder.log(name)}")

    def stop_node(self, number: int) -> None:
        """Let a node leave; the server knows at once."""
        self.processes.end([node_name(number)])

    def kill(self, name: str) -> None:
        """End a process and all that it has started as a power cut would: nobody is told."""
        self.processes.end([name], grace=0)

    def has_tasks(self) -> bool:
        """Whether a process of the executor runs the server's part of an app."""
        executor = self.processes.running(EXECUTOR)
        return executor is not None and any(each.parent == executor.pid for each in everything())

    def control(self) -> Control:
        """Return a connection to the SuperLink, to be closed."""
        port = self.folder.ports().get(LINK)
        if port is None:
            raise EbbflowError(
                f"{self.folder.path} was never taken up: `ebbflow federate up {self.folder.path}`"
            )
        return Control(f"{LOOPBACK}:{port}", self.folder.authority)

    def submit(self, settings: Mapping[str, Setting] | None = None) -> int:
        """Start the app with its settings in ``federation.toml``, and these; return the run."""
        with self.control() as control:
            return control.start_run(self.folder.app, {**self.settings.run, **(settings or {})})

    def wait(
        self,
        run: int,
        seconds: float | None = None,
        *,
        watch: Callable[[SeenRun], object] = lambda seen: None,
        patience: float = 60.0,
    ) -> SeenRun:
        """Wait for a run's end and return how it ended; ``watch`` is told twice a second.

        While the SuperLink is away, for up to ``patience`` seconds, nothing is told.
        """
        began = heard = time.monotonic()
        with self.control() as control:
            while True:
                try:
                    seen = control.run(run)
                    heard = time.monotonic()
                    watch(seen)
                    if seen.finished:
                        return seen
                except NoAnswerError:
                    if time.monotonic() - heard > patience:
                        raise
                if seconds is not None and time.monotonic() - began > seconds:
                    raise EbbflowError(
                        f"run {run} has not ended after {seconds:g} s: see "
                        f"{self.folder.log(EXECUTOR)}"
                    )
                time.sleep(_INTERVAL * 5)

    def down(self) -> list[str]:
        """End everything; return the names of what was running."""
        return end_all(self.folder.path) if self._processes is None else self._processes.end_all()

    def _origin(
        self, number: int, given: NodeOrigin
    ) -> tuple[str, Path, Path, Mapping[str, Setting]]:
        """Return a node's server, authority, key and settings, as given or as in this folder."""
        if not given.server and GATE not in self.folder.ports() and not self.settings.gate.port:
            raise EbbflowError(
                f"{self.folder.path} was never taken up, so node {number} knows no server: "
                f"`ebbflow federate up {self.folder.path}`, or name its server by --server"
            )
        authority = given.authority or self.folder.authority
        key = given.key or self.folder.key(number)
        return given.server or self.address, authority.absolute(), key.absolute(), given.config

    def _start(self, name: str, command: list[str], home: Path, layer: int | None = None) -> Child:
        make_private(self.folder.home)
        make_folder(home, PRIVATE)
        return self.processes.start(
            name,
            command,
            environment=single_threaded(environment(home)),
            log=self.folder.log(name),
            layer=_LAYERS[name] if layer is None else layer,
        )

    def _listen(
        self,
        name: str,
        command: Callable[[int], list[str]],
        host: str,
        fixed: int,
        page: str | None = None,
    ) -> int:
        """Start a server and wait until it answers; return its port.

        A port that was chosen here and is taken by somebody else meanwhile is chosen anew.
        """
        kept = self.folder.ports()
        for _ in range(_PORT_TRIES):
            port = fixed or kept.pop(name, 0)
            if not (port and is_free(port, host)):
                if fixed:
                    raise EbbflowError(
                        f"port {fixed} of {host} is in use, so {name} cannot listen there: name "
                        "another in federation.toml, or 0 for any that is free"
                    )
                port = free_port(kept.values(), host)
            self.folder.keep_port(name, port)
            child = self._start(name, command(port), self.folder.home)
            until = time.monotonic() + START_SECONDS
            while child.code is None and time.monotonic() < until:
                if answers(host, port, self.folder.authority, page):
                    return port
                time.sleep(_INTERVAL)
            self.kill(name)
        raise EbbflowError(f"{name} did not come up: see {self.folder.log(name)}")


def written(config: Mapping[str, Setting]) -> str:
    """Return a node's configuration as ``flower-supernode --node-config`` reads it.

    >>> written({"partition-id": 0, "folder": "a b", "fast": True})
    'partition-id=0 folder="a b" fast=true'
    """
    parts = []
    for key, value in config.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if isinstance(value, str):
            # Flower looks for the next quotation mark, and what is between is read as TOML.
            quote = "'" if "\\" in text or '"' in text else '"'
            if quote in text or not text.isprintable():
                raise EbbflowError(
                    f"{key} = {text!r} cannot be passed to a node: Flower takes no text with both "
                    "kinds of quotation marks or with control characters"
                )
            text = f"{quote}{text}{quote}"
        parts.append(f"{key}={text}")
    return " ".join(parts)


def down(folder: Path) -> list[str]:
    """End everything that runs for the federation in a folder; return the names of what ran."""
    return end_all(folder.absolute())


def clean(folder: Path, *, everything: bool = False) -> list[str]:
    """Take a federation down and delete what only running processes need, or the whole folder."""
    found = FederationFolder(folder.absolute())
    found.require_own()
    names = down(folder)
    if everything:
        found.remove()
    else:
        found.remove_runtime()
    return names


@contextmanager
def taken_up(federation: Federation, nodes: Iterable[int] = ()) -> Iterator[Federation]:
    """Take a federation up with some of its nodes, and down again however the block ends.

    That includes Ctrl-C and a request to end (SIGTERM), which raise `KeyboardInterrupt` and
    `SystemExit` in the block. Only SIGKILL leaves processes behind: `down` ends them then.
    """
    with ending_by_signals() as leaving:
        try:
            federation.up()
            numbers = list(nodes)
            for number in numbers:
                federation.start_node(number)
            federation.wait_for_nodes(numbers)
            yield federation
        finally:
            with leaving():
                federation.down()
