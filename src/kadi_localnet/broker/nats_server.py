"""A NATS server for brokers of one machine."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from kadi_localnet.broker.backplane import BackplaneLost

_START_SECONDS = 10.0
_STOP_SECONDS = 5.0
_POLL_SECONDS = 0.02
_PR_SET_PDEATHSIG = 1


def find_nats_server() -> str | None:
    """Return the path of the executable: that of this environment, or one on ``PATH``."""
    own = os.path.join(os.path.dirname(sys.executable), "nats-server")
    return shutil.which(own) or shutil.which("nats-server")


@asynccontextmanager
async def run_nats_server(
    executable: str, directory: Path, *, token: str, port: int = 0
) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """Run a server on the loopback interface during the ``async with`` block.

    It ends with this process, also if that is killed.

    Args:
        executable: Path of ``nats-server``.
        directory: Directory for its files.
        token: What its clients must know.
        port: TCP port; 0 picks a free one.

    Yields:
        The process and its port.

    Raises:
        BackplaneLost: if it does not start.
    """
    configuration = directory / "nats.conf"
    configuration.touch(mode=0o600)
    configuration.write_text(
        f"host: 127.0.0.1\nport: {port or -1}\nports_file_dir: {json.dumps(str(directory))}\n"
        f"max_payload: 1MB\nauthorization {{ token: {json.dumps(token)} }}\n",
        encoding="utf-8",
    )
    process = await asyncio.create_subprocess_exec(
        executable,
        "--config",
        str(configuration),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        preexec_fn=_end_with_parent if sys.platform == "linux" else None,
    )
    try:
        yield process, await _port(process, directory)
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _port(process: asyncio.subprocess.Process, directory: Path) -> int:
    """Return the port of a server, once it listens."""
    ports = directory / f"nats-server_{process.pid}.ports"
    with suppress(TimeoutError):
        async with asyncio.timeout(_START_SECONDS):
            while process.returncode is None:
                with suppress(FileNotFoundError, ValueError):
                    url: str = json.loads(ports.read_bytes())["nats"][0]
                    return int(url.rpartition(":")[2])
                await asyncio.sleep(_POLL_SECONDS)
    raise BackplaneLost(f"nats-server did not start in {directory}")


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
