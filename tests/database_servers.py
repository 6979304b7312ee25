"""ArcadeDB servers, from the jars of the engine's package, in the process of the tests."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from arcadedb_embedded import create_server

from kadi_localnet.database import jvm

PASSWORD = "correct-horse-battery"
"""Of the user ``root``."""


@contextmanager
def database_server(directory: Path) -> Iterator[tuple[str, Any]]:
    """Run a server over a directory; yield its URL and its Java object."""
    jvm.start(heap_mb=512, crash_directory=directory)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = create_server(str(directory), PASSWORD, {"http_port": port, "host": "127.0.0.1"})
    server.start()
    try:
        yield f"http://127.0.0.1:{port}", server._java_server
    finally:
        server.stop()
