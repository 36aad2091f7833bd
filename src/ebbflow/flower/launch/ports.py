"""Ports of this machine that nobody uses."""

from __future__ import annotations

import random
import socket
from collections.abc import Container
from pathlib import Path

from ebbflow.core.errors import EbbflowError

LOOPBACK = "127.0.0.1"
_LOWEST, _HIGHEST = 10240, 65535
_EPHEMERAL = (32768, 60999)
"""What Linux gives to connections that ask for no port, unless it is told otherwise."""
_TRIES = 200
_RANDOM = random.SystemRandom()


def free_port(taken: Container[int] = (), host: str = LOOPBACK) -> int:
    """Return a port that is free, and that the system gives to nobody unless asked for it.

    Flower's servers cannot be handed an open socket, so between the choice and their start somebody
    else might take the port. Out of the range from which every outgoing connection gets its own,
    that takes somebody who asks for this very number; who starts a server looks whether it came up.
    """
    low, high = _ephemeral()
    below, above = range(_LOWEST, min(low, _HIGHEST)), range(max(high + 1, _LOWEST), _HIGHEST + 1)
    choices = [*below, *above] or [*range(_LOWEST, _HIGHEST + 1)]
    for _ in range(_TRIES):
        port: int = _RANDOM.choice(choices)
        if port not in taken and is_free(port, host):
            return port
    raise EbbflowError(f"no free port was found on {host}: name one in federation.toml")


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether a server could listen on a port now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        # As servers do: connections of an earlier server that are still fading are in nobody's way.
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
            trial.listen(1)
        except OSError:
            return False
    return True


def _ephemeral() -> tuple[int, int]:
    try:
        low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        return int(low), int(high)
    except (OSError, ValueError):  # macOS has no such file; its range is 49152 to 65535
        return _EPHEMERAL[0], _HIGHEST
