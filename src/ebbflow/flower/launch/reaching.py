"""Whether a server with our certificate listens at an address of this machine."""

from __future__ import annotations

import http.client
import socket
import ssl
from pathlib import Path

from ebbflow.flower.launch.ports import LOOPBACK

_SECONDS = 3.0
_ANYWHERE = {"0.0.0.0": LOOPBACK, "::": "::1"}


def answers(host: str, port: int, authority: Path, path: str | None = None) -> bool:
    """Whether a server there shows a certificate of this authority, and has this page if named.

    Whoever else may have taken the port has no such certificate.
    """
    context = ssl.create_default_context(cafile=str(authority))
    # It is the port of this machine that counts, not the name it is asked by.
    context.check_hostname = False
    host = _ANYWHERE.get(host, host)
    try:
        if path is None:
            with (
                socket.create_connection((host, port), _SECONDS) as plain,
                context.wrap_socket(plain),
            ):
                return True
        connection = http.client.HTTPSConnection(host, port, timeout=_SECONDS, context=context)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == http.client.OK
        finally:
            connection.close()
    except (OSError, http.client.HTTPException):
        return False
