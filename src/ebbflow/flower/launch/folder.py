"""Where things are in the folder of a federation.

::

    federation.toml     the settings of its processes
    app/                the Flower app
    certificates/       ca.crt, ca.key, server.crt, server.key
    keys/               node0, node0.pub, node1, ...
    flwr/               what Flower would keep in the user's own folder; node0/ ... for each node
    link/               the SuperLink's database, its ports and the secret of its executor
    logs/               a log for each process
    nodes/node0/        what node 0 keeps on its disk: its data and its state
    run/                what the server's part of the app keeps
    processes.json      what is running

``flwr``, ``link``, ``nodes``, ``run`` are for their owner alone: Flower's database has the tokens
of tasks, and what nodes and server keep tells of the samples.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import make_folder, write_atomically, write_new
from ebbflow.flower.launch.federation_settings import SETTINGS
from ebbflow.flower.launch.processes import LOCK, RECORDS

PRIVATE = 0o700
"""The mode of a folder that its owner alone can look into."""
_SECRET = 32
_NODE = re.compile(r"node(\d+)\.pub")
_RUNTIME = ("flwr", "link", LOCK)
"""What processes need while they run, and nobody afterwards."""


def node_name(number: int) -> str:
    """Return what node ``number`` is called, in paths and among processes."""
    return f"node{number}"


def make_private(path: Path) -> None:
    """Make a folder of running processes for its owner alone, also if it was others' to read."""
    make_folder(path, PRIVATE)
    if path.stat().st_mode & ~PRIVATE & 0o777:
        path.chmod(PRIVATE)


@dataclass(frozen=True)
class FederationFolder:
    """The folder of a federation, with an absolute path."""

    path: Path

    @property
    def app(self) -> Path:
        """The Flower app."""
        return self.path / "app"

    @property
    def authority(self) -> Path:
        """The certificate by which nodes know the server."""
        return self.path / "certificates" / "ca.crt"

    @property
    def certificate(self) -> Path:
        """The server's certificate."""
        return self.path / "certificates" / "server.crt"

    @property
    def certificate_key(self) -> Path:
        """The key of the server's certificate."""
        return self.path / "certificates" / "server.key"

    @property
    def home(self) -> Path:
        """What Flower takes for its own folder on the server's side."""
        return self.path / "flwr"

    @property
    def link(self) -> Path:
        """What the SuperLink keeps."""
        return self.path / "link"

    @property
    def run(self) -> Path:
        """What the server's part of the app keeps."""
        return self.path / "run"

    @property
    def keys(self) -> Path:
        """The nodes' keys; the gate hears nobody whose public key is not there."""
        return self.path / "keys"

    def key(self, number: int) -> Path:
        """Return the private key of a node."""
        return self.keys / node_name(number)

    def node_home(self, number: int) -> Path:
        """Return what Flower takes for its own folder on a node."""
        return self.home / node_name(number)

    def node_data(self, number: int) -> Path:
        """Return the folder in which a node keeps its data and its state."""
        return self.path / "nodes" / node_name(number)

    def log(self, name: str) -> Path:
        """Return the log of a process."""
        return self.path / "logs" / f"{name}.log"

    def public_keys(self) -> dict[int, Path]:
        """Return the public keys of all nodes that may come, by the nodes' numbers."""
        found = {}
        for path in sorted(self.keys.glob("*.pub")):
            if match := _NODE.fullmatch(path.name):
                found[int(match[1])] = path
        return dict(sorted(found.items()))

    def secret(self) -> Path:
        """Return the secret that the SuperLink shares with its executor; make it if need be."""
        path = self.link / "secret"
        make_private(self.link)
        with suppress(FileExistsError):
            write_new(path, secrets.token_bytes(_SECRET), 0o600)
        size = path.stat().st_size
        if size != _SECRET:
            raise EbbflowError(
                f"{path} is damaged: it has {size} bytes instead of {_SECRET}: end what runs by "
                f"`ebbflow federate down {self.path}` and delete the file, then another is made"
            )
        return path

    def ports(self) -> dict[str, int]:
        """Return the ports that were chosen when the federation was first taken up."""
        try:
            found = json.loads((self.link / "ports.json").read_bytes())
            return {str(name): int(port) for name, port in found.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            return {}

    def keep_port(self, name: str, port: int) -> None:
        """Remember a port: processes that are still running know it."""
        make_private(self.link)
        content = json.dumps({**self.ports(), name: port}).encode()
        write_atomically(self.link / "ports.json", content)

    def require(self, *files: Path) -> None:
        """Raise an error if one of these files is missing."""
        for path in files:
            if not path.is_file():
                raise EbbflowError(
                    f"{path} is missing: `ebbflow federate init` makes the keys, certificates and "
                    "the app of a federation"
                )

    def require_own(self) -> None:
        """Raise an error if nothing shows that the folder is a federation's, or a node's."""
        # A node on another machine has no settings; its processes leave a lock.
        if not any((self.path / name).is_file() for name in (SETTINGS, RECORDS, LOCK)):
            raise EbbflowError(
                f"{self.path} holds no federation ({SETTINGS} is missing), so nothing is ended or "
                "deleted: name the folder of one"
            )

    def remove_runtime(self) -> None:
        """Delete what only running processes need; data, models, keys and settings stay."""
        for name in _RUNTIME:
            path = self.path / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        if (self.path / RECORDS).exists():
            raise EbbflowError(f"{self.path} was taken up again meanwhile: take it down first")

    def remove(self) -> None:
        """Delete the whole folder, if it is that of a federation."""
        if not (self.path / SETTINGS).is_file():
            raise EbbflowError(
                f"{self.path} holds no federation ({SETTINGS} is missing): delete it yourself if "
                "it is of no use"
            )
        shutil.rmtree(self.path)
