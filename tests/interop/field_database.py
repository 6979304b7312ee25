"""The database ability of the field, `ability-arcadedb`, run where a built copy of it is.

``FIELD_ARCADEDB`` names the directory of the copy: its sources, compiled to ``dist``, with its npm
dependencies in ``node_modules``. Nothing in that directory is changed. The ability takes its broker
from its agent.json alone, so what runs is a copy whose agent.json names no broker but that of the
test.
"""

from __future__ import annotations

import json
import os
import shutil
from asyncio import create_subprocess_exec, timeout
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.database_servers import PASSWORD
from tests.interop.real_client import NODE, PATIENCE

VARIABLE = "FIELD_ARCADEDB"
BUILT = Path(os.environ.get(VARIABLE) or "absent")
PARTS = ("dist", "lib", "package.json")
RUNTIME = str(NODE) if NODE.exists() else shutil.which("node") or ""

needs_field_database = pytest.mark.skipif(
    not ((BUILT / "dist" / "index.js").is_file() and RUNTIME),
    reason=f"{VARIABLE} names no directory with a built ability-arcadedb, or Node.js is missing",
)


class FieldDatabase:
    """The ability; each :meth:`start` is a new process with a new agent id.

    Args:
        directory: Holds the copy and its log.
        broker: Address of the broker.
        server: Address of the ArcadeDB server, for the user of ``tests/database_servers.py``.
    """

    def __init__(self, directory: Path, broker: str, server: str) -> None:
        self.directory = directory
        self.log = directory / "ability.log"
        self._server = urlsplit(server)
        self._process: Process | None = None
        for name in PARTS:
            source = BUILT / name
            copy = shutil.copytree if source.is_dir() else shutil.copyfile
            copy(source, directory / name)
        (directory / "node_modules").symlink_to((BUILT / "node_modules").resolve())
        card = json.loads((BUILT / "agent.json").read_text("utf-8"))
        card["brokers"] = {"local": broker}
        (directory / "agent.json").write_text(json.dumps(card), "utf-8")

    async def start(self) -> None:
        """Start the process; it offers its tools a moment later."""
        with self.log.open("ab") as log:
            self._process = await create_subprocess_exec(
                *(RUNTIME, str(self.directory / "dist" / "index.js"), "broker"),
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env={
                    "PATH": os.environ.get("PATH", os.defpath),
                    "HOME": str(self.directory),
                    "ARCADE_HOST": str(self._server.hostname),
                    "ARCADE_PORT": str(self._server.port),
                    "ARCADE_USERNAME": "root",
                    "ARCADE_PASSWORD": PASSWORD,
                    "KADI_DEPLOY_MODE": "container",  # else it looks for a container
                },
            )

    async def kill(self) -> None:
        """Kill the process."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.kill()
        async with timeout(PATIENCE):
            await process.wait()


@asynccontextmanager
async def field_database(directory: Path, broker: str, server: str) -> AsyncIterator[FieldDatabase]:
    """Run the ability until the end of the block."""
    ability = FieldDatabase(directory, broker, server)
    await ability.start()
    try:
        yield ability
    finally:
        await ability.kill()
