"""ArcadeDB servers, from the jars of the engine's package: in this process, or in one to kill."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from arcadedb_embedded import create_server
from tests.java_machine import SHORT_LIVED

from kadi_localnet.database import jvm

PASSWORD = "correct-horse-battery"
"""Of the user ``root``."""


OLD_ENGINE = Path(sys.prefix) / "old-engine"
"""Where ``make old-engine`` installs release 26.2.1, which the field's abilities come with."""
_PROGRAM = """
import sys, threading
sys.path[:0] = sys.argv[4:]
from arcadedb_embedded import create_server
settings = {"http_port": int(sys.argv[2]), "host": "127.0.0.1"}
server = create_server(sys.argv[1], sys.argv[3], settings)
server.start()
sys.stdout.write("ready\\n")
sys.stdout.flush()
threading.Event().wait()
"""
_START_SECONDS = 120.0
_JVM_ARGS = "ARCADEDB_JVM_ARGS"


class ServerProcess:
    """A server in a process of its own, which can be killed and started again.

    Args:
        directory: Its root directory.
        package: Directory with another release of the engine's package; by default the installed.
    """

    def __init__(self, directory: Path, *, package: Path | None = None) -> None:
        self._directory = directory
        self._package = package
        self._port = free_port()
        self._running: asyncio.subprocess.Process | None = None
        self.url = f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        self._directory.mkdir(exist_ok=True)
        first = [str(self._package)] if self._package else []
        self._running = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _PROGRAM),
            *(str(self._directory), str(self._port), PASSWORD, *first),
            cwd=self._directory,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={_JVM_ARGS: f"{SHORT_LIVED[_JVM_ARGS]} -Xmx384m"},
        )
        assert self._running.stdout is not None
        async with asyncio.timeout(_START_SECONDS):
            async for line in self._running.stdout:
                if line.strip() == b"ready":
                    return
        raise AssertionError("the server ended before it was ready")

    async def kill(self) -> None:
        """End it by SIGKILL; harmless if it does not run."""
        if self._running is not None:
            if self._running.returncode is None:
                self._running.send_signal(signal.SIGKILL)
            await self._running.wait()
            self._running = None


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def database_server(directory: Path) -> Iterator[tuple[str, Any]]:
    """Run a server over a directory; yield its URL and its Java object."""
    jvm.start(heap_mb=512, crash_directory=directory)
    port = free_port()
    server = create_server(str(directory), PASSWORD, {"http_port": port, "host": "127.0.0.1"})
    server.start()
    try:
        yield f"http://127.0.0.1:{port}", server._java_server
    finally:
        server.stop()
