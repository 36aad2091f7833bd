"""A server in a thread of the test."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ebbflow.report.live.server import LiveServer, Shown


@contextmanager
def serving(shown: Shown) -> Iterator[LiveServer]:
    """Serve until the end of the block."""
    reading, writing = os.pipe()
    with LiveServer(shown) as server:
        thread = threading.Thread(target=server.serve, args=({reading: select.POLLIN},))
        thread.start()
        try:
            yield server
        finally:
            os.write(writing, b"!")
            thread.join(10)
            assert not thread.is_alive()
    os.close(reading)
    os.close(writing)
