"""The Ray cluster that a run computes on: one that is there already, or one started for the run."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import socket
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from ebbflow.core.errors import EbbflowError

_CURRENT = Path("/tmp/ray/ray_current_cluster")
"""Where `ray start` writes the address of a cluster."""
_USUAL = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray would otherwise warn of how a later version will treat processes without a GPU.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Workers compute in the place of this process, and so at its priority; Ray's usual one is low.
    "RAY_worker_niceness": "0",
    "RAY_raylet_start_wait_time_s": "120",  # for a machine that is busy
}
_LONGEST = 40
"""Letters of a folder's path with which the names of Ray's sockets are not yet too long."""


_LOOPBACK_ONLY = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""What lets Ray take 127.0.0.1 for what it is; by the name, it was made for other systems."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_REACHED_SECONDS = 5.0
LOCAL = "local"
"""The address of a cluster that is started for whoever asks, whatever others there are."""
_OPTION = "engine.address"


def imported(*, on_loopback: bool = False) -> ModuleType:
    """Return Ray, or raise a sentence if it is not installed; it reports to nobody.

    ``on_loopback``: whether 127.0.0.1 is to be taken for what it is. Ray would otherwise replace it
    by an address that others can reach, where nobody may listen.
    """
    for name, value in _USUAL.items():
        os.environ.setdefault(name, value)
    if on_loopback:
        os.environ.update(_LOOPBACK_ONLY)
    try:
        import ray  # noqa: PLC0415 - only a run on a cluster needs it
    except ImportError as error:
        raise EbbflowError(
            f'engine.kind = "ray" and `ebbflow sweep --ray` need Ray ({error}): install it by '
            '`pip install "ebbflow[ray]"`'
        ) from None
    if on_loopback:  # it reads the variable when it is imported, which may have been long ago
        vars(import_module("ray._private.ray_constants"))["ENABLE_RAY_CLUSTER"] = False
    module: ModuleType = ray
    return module


@contextmanager
def connected(address: str | None, option: str = _OPTION) -> Iterator[ModuleType]:
    """Connect to a cluster until the block ends.

    Args:
        address: "auto" is any cluster that runs on this machine. None is the one that RAY_ADDRESS
            names or that `ray start` has started here, or else one that is started for the block
            and ended with it, as by "local"; those that other programs started for themselves are
            left alone. Where this program has connected to a cluster itself, that one is used.
        option: Where the user names the address.
    """
    known = known_address(address)
    ray = imported(on_loopback=_on_loopback(known, option))
    if ray.is_initialized():
        yield ray
        return
    with _signals_kept(), careless():
        folder = _joined_or_started(ray, known, option)
    try:
        yield ray
    finally:
        with careless():
            ray.shutdown()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def known_address(address: str | None) -> str:
    """Return the address of the cluster to join; an empty text if one is to be started."""
    known = address or os.environ.get("RAY_ADDRESS") or _started_by_hand()
    return "" if known == LOCAL else known


def shared_address(address: str | None) -> str:
    """Return the address of a cluster that others may share, the same on all of its machines.

    An empty text if a run would start a cluster of its own.
    """
    known = known_address(address)
    if known == "auto":
        known = _started_by_hand() or known
    host, _, port = known.rpartition(":")
    return f"{_own_address()}:{port}" if host in _LOOPBACK else known


def refuse_unreachable(address: str | None, option: str = _OPTION) -> None:
    """Raise an error if there is no cluster at an address, without connecting to it."""
    _on_loopback(known_address(address), option)


def _on_loopback(address: str, option: str = _OPTION) -> bool:
    """Return whether a cluster is to be reached by 127.0.0.1 alone.

    An address at which nobody listens is refused: Ray would try for many minutes.
    """
    if not address or address == "auto":
        return False
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal():
        raise EbbflowError(
            f'{option}: "{address}" is no address of a Ray cluster: give that of its head node as '
            "HOST:PORT, on a machine of the cluster"
        )
    if not _listens(host, int(port)):
        raise EbbflowError(
            f"there is no Ray cluster at {address}: start one by `ray start --head`, correct "
            f"{option} or RAY_ADDRESS, or leave both out to use this machine alone"
        )
    return host in _LOOPBACK and not _listens(_own_address(), int(port))


def _listens(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=_REACHED_SECONDS):
            return True
    except OSError:
        return False


def _own_address() -> str:
    """Return the address by which others reach this machine, if it has one; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(("192.0.2.1", 9))  # an address that belongs to nobody
            address: str = asked.getsockname()[0]
            return address
        except OSError:
            return "127.0.0.1"


def _joined_or_started(ray: Any, known: str, option: str) -> Path | None:
    """Connect to a cluster; return the folder of one that was started."""
    usual = {"logging_level": logging.ERROR, "log_to_driver": False}
    if known:
        try:
            ray.init(address=known, **usual)
        except ConnectionError as error:
            raise EbbflowError(
                f"there is no Ray cluster at {known} ({_first_line(error)}): start one by `ray "
                f"start --head`, correct {option} or RAY_ADDRESS, or leave both out to use this "
                "machine alone"
            ) from None
        except (RuntimeError, ValueError) as error:  # other versions of Ray or Python, no address
            raise EbbflowError(
                f"the Ray cluster at {known} cannot be joined ({_first_line(error)}): correct "
                f"{option}, or install the same versions of Python and Ray everywhere"
            ) from None
        return None
    folder = Path(tempfile.mkdtemp(prefix="ebbflow-"))
    if len(str(folder)) > _LONGEST:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="ebbflow-", dir="/tmp"))
    ray.init(
        address="local",
        num_cpus=len(os.sched_getaffinity(0)),
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        _temp_dir=str(folder),
        **usual,
    )
    return folder


def _started_by_hand() -> str:
    """Return the address of the cluster that `ray start --head` has started here, if it runs."""
    try:
        address = _CURRENT.read_text(encoding="ascii").strip()
        host, _, port = address.rpartition(":")
        return address if _listens(host, int(port)) else ""
    except (OSError, ValueError):  # there is none
        return ""


@contextmanager
def careless() -> Iterator[None]:
    """Say nothing of files that Ray leaves open when it starts and ends processes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()  # or some of them were found later


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Undo what Ray does about signals: a run that is told to stop saves its last round."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")
