"""Other simulators on the same work, each in an environment and a process of its own.

A folder of environments holds ``peers.json``, which says how each one is started. A peer is told
what to do by lines of JSON on its standard input and answers on its standard output:

    it says        {"versions": {...}, "options": ["1", "2"], "note": "..."} when it is ready
    is told        {"do": "round", "option": "1"}     and answers {"seconds": 0.25}
    is told        {"do": "model", "path": "..."}     and answers {"path": "..."} once it is written
    is told        {"do": "stop"}                     and ends

`benchmarks/peers` has the environments and the other side of this conversation.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.memory import Peak, family
from ebbflow.core.errors import EbbflowError

PEERS = "peers.json"
PATIENCE = 600.0  # seconds for one answer: a first round may compile
GRACE = 20.0  # seconds to end by itself


class PeerError(EbbflowError):
    """A peer did not start, did not answer, or ended."""


def known_peers(folder: Path) -> dict[str, dict[str, Any]]:
    """Return how each peer of a folder is started: its interpreter, its module, where to run it."""
    path = folder / PEERS
    if not path.exists():
        raise EbbflowError(
            f"{folder} holds no {PEERS}: make the environments with "
            f"`python benchmarks/peers/install.py {folder}`"
        )
    found: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return found


class Peer:
    """One peer at work."""

    def __init__(
        self,
        name: str,
        start: dict[str, Any],
        work: Path,
        scratch: Path,
        patience: float = PATIENCE,
    ) -> None:
        self.name = name
        self.patience = patience
        self._scratch = scratch
        self._log = scratch / f"{name}.log"
        surroundings = {
            **{key: value for key, value in os.environ.items() if not _ours(key)},
            "PYTHONPATH": str(start["root"]),
            "HOME": str(scratch),
            "TMPDIR": str(scratch),
            **start.get("environment", {}),
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [start["python"], "-m", start["module"], str(work)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=start["root"],
                env=surroundings,
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
        found: dict[str, Any] = json.loads(line)
        return found

    def _ask(self, **request: Any) -> dict[str, Any]:
        stdin = self._process.stdin
        if stdin is None:  # never: it is a pipe
            raise PeerError(f"{self.name} cannot be told anything")
        if not stdin.closed:
            with contextlib.suppress(BrokenPipeError):  # then its last words say why
                stdin.write(json.dumps(request) + "\n")
                stdin.flush()
        return self._answer()

    def __call__(self) -> float:
        """Run one round and return its seconds, as the peer measured them."""
        return float(self._ask(do="round", option=self.option)["seconds"])

    def theta(self) -> NDArray[np.floating[Any]]:
        """Return the averaged model."""
        path = self._scratch / f"{self.name}.npy"
        self._ask(do="model", path=str(path))
        found: NDArray[np.floating[Any]] = np.load(path)
        return found

    def memory(self) -> int:
        """Run one round and return the peak of anonymous memory of all its processes, in bytes."""
        with Peak(self._process.pid) as peak:
            self()
        self._members.update(family(self._process.pid))
        return peak.bytes

    def stop(self, grace: float = GRACE) -> None:
        """End the peer and whatever it started, by force if it takes too long."""
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
            if _works_for(member, self._scratch):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
        self._listener.join(timeout=1)


def _ours(variable: str) -> bool:
    """Whether a variable of this process is none of a peer's: our modules, our engine's choice."""
    return variable.startswith("PYTHON") or variable == "MKL_CBWR"


def _works_for(pid: int, scratch: Path) -> bool:
    """Whether a process that is still there is one of the peer's: a number may be given again."""
    try:
        surroundings = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return f"HOME={scratch}".encode() in surroundings
