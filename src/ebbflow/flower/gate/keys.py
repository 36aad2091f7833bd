"""Whose requests are heard at all: the public keys in a folder, as nodes' requests carry them.

The SuperLink checks that whoever names a key has signed with it. The gate only looks whether the
key is one of those that are expected, before it reads anything else of a request.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

from ebbflow.core.errors import EbbflowError
from ebbflow.flower.gate.journal import Journal

HEADER = "flwr-public-key"
_SECONDS = 1.0
"""The folder is looked at again so often at most, however many strangers ask."""


class Keyring:
    """The public keys in a folder; those that come later count, those that go do not."""

    def __init__(
        self, folder: Path, journal: Journal, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = folder
        self._journal = journal
        self._clock = clock
        self._looked = -_SECONDS
        self._seen: dict[Path, tuple[int, int]] = {}
        self._values: frozenset[bytes] = frozenset()

    def holds(self, value: bytes) -> bool:
        """Whether this is what the header of an expected node says."""
        now = self._clock()
        if now - self._looked >= _SECONDS:
            self._looked = now
            self._look()
        return value in self._values

    def _look(self) -> None:
        seen = {}
        for path in self._folder.glob("*.pub"):
            try:
                facts = path.stat()
            except OSError:  # it has gone meanwhile
                continue
            seen[path] = (facts.st_mtime_ns, facts.st_size)
        if seen == self._seen:
            return
        self._seen, values = seen, set()
        for path in seen:
            try:
                values.add(b64encode(key_bytes(path)))
            except EbbflowError as error:
                self._journal.say(str(error))
        self._values = frozenset(values)


def key_bytes(public_key: Path) -> bytes:
    """Return a node's public key as its requests carry it, and as the SuperLink lists it."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    try:
        key = serialization.load_ssh_public_key(public_key.read_bytes())
    except OSError as error:
        raise EbbflowError(f"{public_key} cannot be read: {error.strerror}") from None
    except Exception as error:
        raise EbbflowError(
            f"{public_key} is no public key in OpenSSH's format: name a .pub file of `keys`"
        ) from error
    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
