r"""The gate: what nodes reach of a Flower SuperLink, and nothing else.

In Flower 1.41 one port carries everything. Who reaches it can not only take part as a node, but
also register keys, start and stop runs, list them, and fetch the work of the server (the Control
and Runtime APIs), with nothing but the authority's certificate, which every node has. So the
SuperLink listens on 127.0.0.1, and nodes are given the address of the gate, which lets through the
requests of Flower's nodes (`ebbflow.flower.gate.rules`) and refuses the rest.

    python -m ebbflow.flower.gate.command --listen 192.0.2.7:8443 --to 127.0.0.1:8000 \
        --certificate server.crt --key server.key --root-certificates ca.crt --keys keys

Given the folder of the nodes' public keys, it hears nobody else: a request that names no key of
these is refused without a look at its body. The folder is followed: what is added or taken away
there counts a second later.

**What Flower checks itself**, if the SuperLink was started with ``--enable-supernode-auth``: that a
request carries a moment of the last five minutes, signed with a node's key; that the key is
registered, and belongs to the node that the request names; and that no node registers or
unregisters itself. So a stranger's key is refused, and so is a node that asks for another's
messages. It does not check in whose name messages are pushed; the gate does
(`ebbflow.flower.gate.messages`). The signature covers neither the request nor its body: whoever
broke TLS could use it for five minutes.

**What nobody checks.** Objects and messages are named by the SHA-256 of what they hold: a
registered node that knows such a name may fetch the object, or declare the message received,
whosever it is. Every registered node may send whatever it likes as its own results. A flood of
connections does not harm this machine, but may keep nodes out. And whoever has an account on the
machine of the SuperLink reaches it there without the gate.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import ssl
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from ebbflow.core.errors import EbbflowError
from ebbflow.flower.gate.rules import MIB, Limits

if TYPE_CHECKING:
    from ebbflow.flower.gate.listener import Listener

_BACKLOG = 256
_HIGHEST_PORT = 65535


@dataclass(frozen=True)
class Address:
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class GateSettings:
    """Where the gate stands. Without certificates it may stand on loopback alone."""

    listen: Address
    """Where nodes come to; port 0 takes a free one."""
    to: Address
    """Where the SuperLink listens: on this machine alone."""
    certificate: Path | None = None
    key: Path | None = None
    root_certificates: Path | None = None
    """The authority that has signed the SuperLink's certificate; without it, no TLS to there."""
    keys: Path | None = None
    """The folder of the public keys of all nodes that are heard; without it, any key is."""
    limits: Limits = field(default_factory=Limits)


def parse_address(text: str, option: str) -> Address:
    """Return the address that an option names.

    >>> parse_address("[::1]:8443", "--listen")
    Address(host='::1', port=8443)
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not (host and colon and port.isdecimal() and int(port) <= _HIGHEST_PORT):
        raise EbbflowError(
            f"{option} {text!r} is no address: give a host and a port, as in 127.0.0.1:8443 or "
            "[::1]:8443"
        )
    return Address(host, int(port))


class GateServer:
    """The gate on its socket, which is bound when this is made and served by `run`."""

    def __init__(self, settings: GateSettings) -> None:
        check_settings(settings)
        self._settings = settings
        self._inside = _towards_superlink(settings)
        self._outside = _towards_nodes(settings)
        self._listening = _bound(settings.listen)
        self.address = Address(settings.listen.host, self._listening.getsockname()[1])
        self._listener: Listener | None = None
        self._stopped = False

    def run(self, announce: Callable[[], object]) -> None:
        """Serve until `stop`, SIGINT or SIGTERM; call `announce` when nodes may come."""
        # Only who runs a gate needs what comes with Flower.
        from ebbflow.flower.gate.journal import Journal  # noqa: PLC0415
        from ebbflow.flower.gate.keys import Keyring  # noqa: PLC0415
        from ebbflow.flower.gate.listener import Listener, new_loop  # noqa: PLC0415
        from ebbflow.flower.gate.service import Gate  # noqa: PLC0415
        from ebbflow.flower.gate.superlink import SuperLink  # noqa: PLC0415

        limits, journal, folder = self._settings.limits, Journal(), self._settings.keys
        keyring = None if folder is None else Keyring(folder, journal)
        scheme = "http" if self._inside is None else "https"

        async def serve() -> None:
            superlink = SuperLink(f"{scheme}://{self._settings.to}", self._inside, limits)
            gate = Gate(superlink, limits, journal, keyring)
            self._listener = Listener(gate, self._outside, limits, journal, announce)
            self._listener.should_exit = self._stopped
            try:
                await self._listener.serve([self._listening])
            finally:
                await superlink.aclose()

        with asyncio.Runner(loop_factory=lambda: new_loop(limits, journal)) as runner:
            runner.run(serve())
        journal.close()

    def stop(self) -> None:
        """Let `run` finish what it is answering and return; from any thread, at any time."""
        self._stopped = True
        if self._listener is not None:
            self._listener.should_exit = True


def check_settings(settings: GateSettings) -> None:
    """Refuse settings under which the gate would protect nothing, or let nobody in."""
    if not is_loopback(settings.to.host):
        raise EbbflowError(
            f"--to {settings.to} is not on this machine, where the gate could be walked around: "
            "start the SuperLink with `--host 127.0.0.1`, and the gate beside it"
        )
    if (settings.certificate is None) != (settings.key is None):
        raise EbbflowError("--certificate and --key belong together: give both, or neither")
    if settings.keys is not None and not settings.keys.is_dir():
        raise EbbflowError(
            f"--keys {settings.keys} is no folder: name that of the nodes' public keys"
        )
    encrypted = settings.certificate is not None and settings.root_certificates is not None
    if not (encrypted or is_loopback(settings.listen.host)):
        raise EbbflowError(
            f"--listen {settings.listen} can be reached from outside, which needs TLS: give "
            "--certificate, --key and --root-certificates, or listen on 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host, whatever its name stands for.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    return all(ip_address(found.partition("%")[0]).is_loopback for found in _addresses(host))


def _addresses(host: str) -> list[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise EbbflowError(f"the host {host!r} is not known here: give its IP address") from error
    return [str(entry[4][0]) for entry in found]


def _bound(address: Address) -> socket.socket:
    host = _addresses(address.host)[0]
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, address.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise EbbflowError(
            f"--listen {address}: the gate cannot listen there ({error.strerror}): choose a free "
            "port, and an address of this machine"
        ) from error
    # asyncio does this only for sockets that it has made itself, and answers would wait 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _towards_nodes(settings: GateSettings) -> ssl.SSLContext | None:
    if settings.certificate is None or settings.key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        # Without a password here, OpenSSL would ask the terminal for one.
        context.load_cert_chain(settings.certificate, settings.key, password="")
    except OSError as error:
        raise EbbflowError(
            f"--certificate {settings.certificate} and --key {settings.key} cannot be used "
            f"({error.strerror or error}): give two PEM files that belong together, the key "
            "without a password"
        ) from error
    return context


def _towards_superlink(settings: GateSettings) -> ssl.SSLContext | None:
    if settings.root_certificates is None:
        return None
    try:
        return ssl.create_default_context(cafile=settings.root_certificates)
    except OSError as error:
        raise EbbflowError(
            f"--root-certificates {settings.root_certificates} cannot be used "
            f"({error.strerror or error}): give the PEM file of the authority that has signed the "
            "SuperLink's certificate"
        ) from error


def _parsed(arguments: Sequence[str] | None) -> GateSettings:
    parser = argparse.ArgumentParser(
        prog="python -m ebbflow.flower.gate",
        description="Let nodes through to a Flower SuperLink, and nobody else.",
    )
    limits = Limits()
    parser.add_argument("--listen", required=True, metavar="HOST:PORT", help="where nodes come to")
    parser.add_argument("--to", required=True, metavar="HOST:PORT", help="where the SuperLink is")
    parser.add_argument("--certificate", type=Path, metavar="FILE", help="of this server, PEM")
    parser.add_argument("--key", type=Path, metavar="FILE", help="of the certificate, PEM")
    parser.add_argument(
        "--root-certificates", type=Path, metavar="FILE", help="the SuperLink's authority, PEM"
    )
    parser.add_argument(
        "--keys", type=Path, metavar="DIR", help="of the public keys of all nodes that are heard"
    )
    parser.add_argument(
        "--largest-body",
        type=int,
        default=limits.largest_body // MIB,
        metavar="MIB",
        help="of what a node pushes or pulls at once (%(default)s)",
    )
    parser.add_argument(
        "--connections",
        type=int,
        default=limits.connections,
        metavar="N",
        help="at the same time (%(default)s)",
    )
    given = parser.parse_args(arguments)
    for option, value in (
        ("--largest-body", given.largest_body),
        ("--connections", given.connections),
    ):
        if value < 1:
            raise EbbflowError(f"{option} {value} lets nothing through: give 1 or more")
    return GateSettings(
        listen=parse_address(given.listen, "--listen"),
        to=parse_address(given.to, "--to"),
        certificate=given.certificate,
        key=given.key,
        root_certificates=given.root_certificates,
        keys=given.keys,
        limits=Limits(largest_body=given.largest_body * MIB, connections=given.connections),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the gate from the command line, and return its exit code."""
    try:
        settings = _parsed(arguments)
        server = GateServer(settings)
        nodes = "http" if settings.certificate is None else "https"
        ready = f"gate: nodes come to {nodes}://{server.address}, the SuperLink is at {settings.to}"
        server.run(lambda: print(ready, flush=True))
    except EbbflowError as error:
        print(f"gate: {error}", file=sys.stderr)
        return 2
    return 0
