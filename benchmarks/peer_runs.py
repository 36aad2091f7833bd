"""Other simulators on the same workload, each in an environment and a process of its own.

A folder of environments holds ``peers.json``, which says how each peer is started. The driver sends
requests as lines of JSON to a peer's standard input, and the peer answers on its standard output:

    once ready, it sends    {"versions": {...}, "options": ["1", "2"], "note": "..."}
    {"do": "round", "option": "1"}    is answered by {"seconds": 0.25, "processor": 0.5}
    {"do": "model", "path": "..."}    is answered by {"path": "..."} once the file is written
    {"do": "stop"}                    ends the peer

`benchmarks/peers` has the environments and the peers' side of this protocol. Contenders of our own
that need a process of their own are run in the same way: see `own_process`.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import ebbflow
from benchmarks.memory import PeakMemory, family
from ebbflow.core.errors import EbbflowError

PEERS = "peers.json"
PATIENCE = 600.0  # seconds for one answer: a first round may compile
GRACE = 20.0  # seconds that a peer has to end after a stop


ROOT = Path(__file__).parents[1]
PACKAGES = Path(ebbflow.__file__).parents[1]
"""The folder from which this process imports ebbflow."""


class PeerError(EbbflowError):
    """A peer did not start, did not answer, or ended early."""


def known_peers(folder: Path) -> dict[str, dict[str, Any]]:
    """Return how each peer of a folder is started: interpreter, module and working folder."""
    path = folder / PEERS
    if not path.exists():
        raise EbbflowError(
            f"{folder} holds no {PEERS}: make the environments with "
            f"`python benchmarks/peers/install.py {folder}`"
        )
    peers: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return peers


def own_process(
    module: str,
    *arguments: str,
    packages: Path = PACKAGES,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return how a contender of ours is started in a process of its own.

    Args:
        module: The module that speaks the peers' side of the protocol.
        arguments: What it is told besides the folder of the workload.
        packages: The folder from which it imports ebbflow.
        environment: Environment variables besides those of this process.
    """
    return {
        "python": sys.executable,
        "module": module,
        "arguments": arguments,
        "root": str(ROOT),
        "environment": {
            "PYTHONPATH": os.pathsep.join((str(packages), str(ROOT))),
            **(environment or {}),
        },
    }


class RoundSpent(NamedTuple):
    """What a round took: seconds by the clock and of the processor."""

    seconds: float
    processor: float


class PeerProcess:
    """A running peer."""

    def __init__(
        self,
        name: str,
        start: dict[str, Any],
        workload: Path,
        scratch: Path,
        patience: float = PATIENCE,
    ) -> None:
        self.name = name
        self.patience = patience
        self._scratch = scratch
        self._log = scratch / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    start["python"],
                    "-m",
                    start["module"],
                    str(workload),
                    *start.get("arguments", ()),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=start["root"],
                env=peer_environment(start, scratch),
                start_new_session=True,
                text=True,
            )
        self._members: set[int] = {self._process.pid}
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._listener = threading.Thread(
            target=self._listen, args=(self._process.stdout,), daemon=True
        )
        self._listener.start()
        try:
            hello = self._answer()
            self.versions: dict[str, str] = hello["versions"]
            self.options: list[str] = hello["options"]
            self.note: str = hello.get("note", "")
        except BaseException:
            self.stop(grace=0)
            raise
        self.option = self.options[0]

    def _listen(self, stdout: IO[str]) -> None:
        with stdout:
            for line in stdout:
                self._lines.put(line)
        self._lines.put(None)

    def _answer(self) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=self.patience)
        except queue.Empty:
            raise PeerError(f"{self.name} gave no answer within {self.patience:g} s") from None
        if line is None:
            last = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise PeerError(f"{self.name} ended: {last[-1] if last else 'it left no message'}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _ask(self, **request: Any) -> dict[str, Any]:
        stdin = self._process.stdin
        if stdin is None:  # never: it is a pipe
            raise PeerError(f"{self.name} has no standard input")
        if not stdin.closed:
            with contextlib.suppress(BrokenPipeError):  # then _answer says why it ended
                stdin.write(json.dumps(request) + "\n")
                stdin.flush()
        return self._answer()

    def __call__(self) -> float:
        """Run one round and return its seconds, as the peer measured them."""
        return self.spend().seconds

    def spend(self) -> RoundSpent:
        """Run one round and return what it took, as the peer measured it."""
        answer = self._ask(do="round", option=self.option)
        return RoundSpent(float(answer["seconds"]), float(answer["processor"]))

    def theta(self) -> NDArray[np.floating[Any]]:
        """Return the averaged model."""
        path = self._scratch / f"{self.name}.npy"
        self._ask(do="model", path=str(path))
        theta: NDArray[np.floating[Any]] = np.load(path)
        return theta

    def memory(self) -> int:
        """Run one round and return the peak of anonymous memory of all its processes, in bytes."""
        with PeakMemory(self._process.pid) as peak:
            self()
        self._members.update(family(self._process.pid))
        return peak.bytes

    def stop(self, grace: float = GRACE) -> None:
        """End the peer and its descendants, by force if they take too long."""
        self._members.update(family(self._process.pid))
        stdin = self._process.stdin
        if stdin is not None:
            with contextlib.suppress(OSError):
                stdin.write(json.dumps({"do": "stop"}) + "\n")
                stdin.close()
        try:
            self._process.wait(timeout=grace)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for member in self._members - {self._process.pid}:
            if belongs_to_peer(member, self._scratch):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
        self._listener.join(timeout=1)


def peer_environment(start: dict[str, Any], scratch: Path) -> dict[str, str]:
    """Return the environment variables of a peer; its home is a folder that is thrown away."""
    return {
        **{key: value for key, value in os.environ.items() if not _is_ours(key)},
        "PYTHONPATH": str(start["root"]),
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        **start.get("environment", {}),
    }


def _is_ours(variable: str) -> bool:
    """Whether an environment variable is meant for this process only."""
    return variable.startswith("PYTHON") or variable == "MKL_CBWR"


def belongs_to_peer(pid: int, scratch: Path) -> bool:
    """Whether a process is the peer's: its number may have been given to another one."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return f"HOME={scratch}".encode() in variables
