"""Flower's programs: where they are, and the environment in which they mind their own business."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import make_folder
from ebbflow.flower.launch.ports import LOOPBACK

SILENCE = {
    # No word to anybody on the internet, and no package installed behind the user's back.
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    # If a program of Flower's is used in place of `ebbflow.flower.launch.executor`.
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05",
}
_SOCKETS_FIT = 70
"""The longest path of a folder in which the name of a socket, of up to 107 signs, has room."""
ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Several threads in one product change the bits of some shapes, and nodes share a machine."""


def require_flower() -> None:
    """Raise an error if Flower is not installed."""
    if importlib.util.find_spec("flwr") is None:
        raise EbbflowError(
            'federations need Flower, which is not installed: `pip install "ebbflow[flower]"`'
        )


def program(name: str) -> list[str]:
    """Return how to start a program that comes with Flower."""
    require_flower()
    beside = shutil.which(name, path=scripts()) or shutil.which(name)
    if beside is None:
        raise EbbflowError(
            f"{name} is missing beside {sys.executable}, though Flower is installed: install it "
            'again by `pip install --force-reinstall "ebbflow[flower]"`'
        )
    return [beside]


def scripts() -> str:
    """Return the folder of the programs that belong to this Python."""
    return os.pathsep.join([str(Path(sys.executable).parent), sysconfig.get_path("scripts")])


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a process of a federation.

    Flower keeps everything in ``home`` and nothing in the user's own folder. Temporary files go
    there too, so that they can be found if a process is killed, unless the path would be too long
    for the sockets that Python's `multiprocessing` makes there.
    """
    ours = {**os.environ, **_private(), "FLWR_HOME": str(home), "PYTHONUNBUFFERED": "1"}
    ours["PATH"] = os.pathsep.join([scripts(), os.environ.get("PATH", os.defpath)])
    temporary = home / "tmp"
    if len(str(temporary)) <= _SOCKETS_FIT:
        make_folder(temporary)
        ours["TMPDIR"] = str(temporary)
    return ours


@contextmanager
def private_environment() -> Iterator[None]:
    """Keep Flower to itself in this process too: it reads these variables as it is imported."""
    before = {name: os.environ.get(name) for name in _private()}
    os.environ.update(_private())
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _private() -> dict[str, str]:
    """Return the variables that keep Flower from telling, asking and fetching."""
    # What stays on this machine goes through no proxy.
    here = {
        name: ",".join(filter(None, [os.environ.get(name), LOOPBACK, "localhost"]))
        for name in ("NO_PROXY", "no_proxy")
    }
    return {**SILENCE, **here}


def single_threaded(variables: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which numerical libraries use one thread, unless told otherwise."""
    return {**dict.fromkeys(ONE_THREAD, "1"), **variables}


def forget_apps(home: Path) -> None:
    """Delete the apps that Flower has unpacked in its folder.

    If it was killed unpacking one, it would take what there is for the whole app from then on.
    """
    shutil.rmtree(home / "apps", ignore_errors=True)
