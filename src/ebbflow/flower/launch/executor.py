"""Takes tasks from a SuperLink or a SuperNode and runs each in a process that is ready at once.

Flower's own ``flower-superexec`` starts a new Python for every message, which imports Flower, torch
and the app before it does anything: two to three seconds of a processor for each node and round.
This one imports them once and forks. It speaks the same protocol and runs the same commands
(``flwr-clientapp``, ``flwr-serverapp``). It proves itself by a secret that only it and the
SuperLink or SuperNode can read, so that no other user of the machine can take its tasks; and unlike
Flower's it puts no task's token into a command line, where every user could read it.

What is imported must start no thread: a forked process has only the one that forked it.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from ebbflow.core.errors import EbbflowError
from ebbflow.core.names import printable

CLIENT, SERVER = "flwr-clientapp", "flwr-serverapp"
_COMMANDS = {
    CLIENT: ("flwr.supernode.cli", "flwr_clientapp"),
    SERVER: ("flwr.superlink.cli", "flwr_serverapp"),
}
_ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
INTERVAL = 0.5
"""Seconds from one question for tasks to the next."""
_GRACE = 6.0
"""Seconds that a task has to end: Flower ends itself after five."""
_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of Linux: which signal a process gets when its parent ends."""


class Executor:
    """Runs the tasks of one kind that a SuperLink or SuperNode at an address hands out."""

    def __init__(
        self, address: str, secret: Path, kind: str, root_certificates: Path | None = None
    ) -> None:
        self._address, self._kind, self._certificates = address, kind, root_certificates
        self._client = _runtime_client(address, secret, root_certificates)
        module, name = _COMMANDS[kind]
        self._command: Callable[[], None] = getattr(importlib.import_module(module), name)
        self._tasks: set[int] = set()
        self._heard = True

    @property
    def tasks(self) -> int:
        """How many tasks are running."""
        return len(self._tasks)

    def step(self) -> bool:
        """Ask for a task, and start it if there is one; return whether there was."""
        self._forget_ended()
        token = self._acquire()
        if token is None:
            return False
        me, pid = os.getpid(), os.fork()
        if pid == 0:
            self._run(token, me)
        self._tasks.add(pid)
        return True

    def stop(self, grace: float = _GRACE) -> None:
        """End all tasks."""
        until = time.monotonic() + grace
        for pid in self._tasks:
            os.kill(pid, signal.SIGTERM)  # a child that was not waited for keeps its number
        while self._tasks and time.monotonic() < until:
            time.sleep(0.02)
            self._forget_ended()
        for pid in self._tasks:
            os.kill(pid, signal.SIGKILL)
        while self._tasks:
            time.sleep(0.01)
            self._forget_ended()

    def close(self) -> None:
        """End all tasks, and the connection."""
        self.stop()
        self._client.close()

    def _acquire(self) -> str | None:
        """Return the token of a task that is now ours, or None."""
        import httpx  # noqa: PLC0415 - only a machine with Flower has these
        from flwr.proto.runtime_pb2 import AcquireTaskRequest  # noqa: PLC0415

        try:
            answer = self._client.AcquireTask(AcquireTaskRequest(supported_task_types=[self._kind]))
        except httpx.HTTPError as error:  # it is not there yet, or is being started again
            if self._heard:
                say(f"{self._address} does not answer ({type(error).__name__}): asking on")
            self._heard = False
            return None
        if not self._heard:
            say(f"{self._address} answers")
        self._heard = True
        return str(answer.token) if answer.HasField("task") and answer.token else None

    def _forget_ended(self) -> None:
        for pid in [*self._tasks]:
            if os.waitpid(pid, os.WNOHANG)[0]:
                self._tasks.remove(pid)

    def _run(self, token: str, parent: int) -> NoReturn:
        """Run a task in this process, which was forked for it."""
        code = 1
        try:
            end_with_parent(parent)
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            _draw_afresh()
            # Not what others see: the command line of this process stays that of its parent.
            sys.argv = [self._kind, "--runtime-api-address", self._address, "--token", token]
            sys.argv += (
                ["--root-certificates", str(self._certificates)]
                if self._certificates
                else ["--insecure"]
            )
            self._command()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            import traceback  # noqa: PLC0415

            traceback.print_exc()
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)  # the parent's connection must not be closed from here


def preload(modules: Sequence[str]) -> None:
    """Import what tasks will need; what is missing here is said, and left to the app."""
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError as error:
            say(f"{name} cannot be imported beforehand ({error})")


def end_with_parent(parent: int) -> None:
    """Ask Linux to send this process SIGTERM when its parent ends; elsewhere do nothing.

    Elsewhere a process whose parent was killed stays until its federation is taken down.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, int(signal.SIGTERM))
        if os.getppid() != parent:  # it was quicker
            os._exit(1)


def say(sentence: str) -> None:
    """Write a line to the log."""
    with suppress(OSError):
        print(f"{time.strftime('%Y-%m-%dT%H:%M:%S')}  {printable(sentence)}", flush=True)


def _draw_afresh() -> None:
    """Give this process random numbers of its own: forked ones would all draw the same."""
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


def _runtime_client(address: str, secret: Path, root_certificates: Path | None) -> Any:
    from flwr.supercore.interceptors import (  # noqa: PLC0415 - only a machine with Flower has it
        RuntimeVersionHttpInterceptor,
        SuperExecAuthHttpInterceptor,
    )
    from flwr.supercore.runtime import RuntimeHttpClient  # noqa: PLC0415

    return RuntimeHttpClient.from_server_address(
        server_address=address,
        insecure=root_certificates is None,
        root_certificates=root_certificates.read_bytes() if root_certificates else None,
        interceptors=[
            RuntimeVersionHttpInterceptor(component_name="SuperExec"),
            SuperExecAuthHttpInterceptor(
                master_secret=secret.read_bytes(), protected_methods={_ACQUIRE}
            ),
        ],
    )


def until_told(step: Callable[[], float]) -> None:
    """Do something again and again, after as many seconds as it says, until asked to end."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(0)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    while True:
        time.sleep(step())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run an executor until it is asked to end."""
    parser = argparse.ArgumentParser(
        prog="python -m ebbflow.flower.launch.executor", description=__doc__
    )
    parser.add_argument("--address", required=True, help="of the SuperLink or SuperNode")
    parser.add_argument("--secret", type=Path, required=True, help="the file that both can read")
    parser.add_argument("--kind", choices=[*_COMMANDS], required=True, help="of the tasks to run")
    parser.add_argument("--root-certificates", type=Path, help="to know the SuperLink by")
    parser.add_argument("--preload", action="append", default=[], metavar="MODULE")
    given = parser.parse_args(arguments)
    try:
        executor = Executor(given.address, given.secret, given.kind, given.root_certificates)
    except OSError as error:
        raise EbbflowError(f"{error.filename}: {error.strerror}") from None
    preload(given.preload)
    say(f"takes tasks of {given.address}")

    def step() -> float:
        return 0.02 if executor.step() else INTERVAL

    try:
        until_told(step)
    finally:
        executor.close()


if __name__ == "__main__":
    main()
