"""The local stack under test: `ability-search up` over a data directory, its processes and CLI."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from chaos.steps import WORKERS

READY_SECONDS = 120.0
STOP_SECONDS = 90.0
POLL_SECONDS = 0.1
COMMAND_SECONDS = 90.0

_OWN = ("SEARCH_", "BROKER_", "KADI_")


@dataclass(frozen=True)
class Command:
    """A command that ended."""

    code: int
    out: str
    err: str


class StartFailed(Exception):
    """The stack did not start."""


class StackProcess:
    """A stack over ``home/data``; its log is ``home/stack.log``, its files are in ``home/work``.

    The ports are free ones. It leaves nothing outside ``home``.
    """

    def __init__(self, home: Path, data: Path) -> None:
        self.home = home
        self.data = data
        self.work = home / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        self._process: asyncio.subprocess.Process | None = None
        self._log: IO[bytes] | None = None
        self._drain: asyncio.Task[bytes] | None = None

    @property
    def log(self) -> Path:
        """The log of all components."""
        return self.home / "stack.log"

    @property
    def pid(self) -> int:
        """Process id of the supervisor."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> float:
        """Start the stack and wait until it is ready; return the seconds that took.

        Raises:
            StartFailed: if it ends, or is not ready in time.
        """
        began = time.monotonic()
        if self._log is None:
            self._log = self.log.open("ab")
        self._process = await self._spawn(
            "up", "--port", "0", "--workers", str(WORKERS), err=self._log
        )
        output = self._process.stdout
        assert output is not None
        try:
            async with asyncio.timeout(READY_SECONDS):
                while line := await output.readline():
                    if b"ready in" in line:
                        # Read on, so that it never waits for a reader.
                        self._drain = asyncio.create_task(output.read())
                        return time.monotonic() - began
        except TimeoutError:
            self._process.kill()
        raise StartFailed(f"the stack did not start; its log is {self.log}")

    async def stop(self) -> int:
        """Stop the stack in order and return its exit code; kill it if it does not stop."""
        process = self._process
        if process is None:
            return 0
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                return await process.wait()
        except TimeoutError:
            process.kill()
            return -signal.SIGKILL
        finally:
            await process.wait()
            if self._log is not None:
                self._log.close()
                self._log = None

    async def kill(self) -> None:
        """Kill the supervisor; the components end by themselves."""
        assert self._process is not None
        self._process.kill()
        await self._process.wait()

    async def run(self, *arguments: str, environ: dict[str, str] | None = None) -> Command:
        """Run a command of the program against this stack."""
        process = await self._spawn(*arguments, err=subprocess.PIPE, environ=environ)
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                out, err = await process.communicate()
        except TimeoutError:
            return Command(-1, "", f"no end within {COMMAND_SECONDS:g} s")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return Command(process.returncode or 0, out.decode(), err.decode())

    async def _spawn(
        self, *arguments: str, err: Any, environ: dict[str, str] | None = None
    ) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ability_search", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=err,
            cwd=self.work,
            env={**self.environ, **(environ or {})},
        )

    @property
    def environ(self) -> dict[str, str]:
        """The environment of the stack: nothing of an installation's settings is in it."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_OWN)}
        return {
            **kept,
            "SEARCH_DATA_DIR": str(self.data),
            "SEARCH_MCP_PROFILE": "full",  # lists the result schemas that answers are held to
            "NO_COLOR": "1",
            "COLUMNS": "200",
        }

    def state(self) -> dict[str, Any]:
        """Return the state file; empty if there is none at this moment."""
        try:
            found: dict[str, Any] = json.loads((self.data / "stack.json").read_text())
        except (OSError, ValueError):
            return {}
        return found

    def pids(self) -> dict[str, int]:
        """Return the process ids of the components, workers by the name ``worker-1``."""
        return {part["name"]: part["pid"] for part in self.state().get("parts", ())}

    def processes(self) -> dict[str, int]:
        """Return the processes of the components, also of those that are still starting."""
        found = {}
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
            for child in children:
                environ = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
                for entry in environ:
                    name, _, value = entry.partition(b"=")
                    if name == b"SEARCH_IDENTITY_FILE":
                        found[Path(os.fsdecode(value)).stem] = int(child)
        return found

    @property
    def networks(self) -> tuple[str, ...]:
        """The networks that any agent may join."""
        return ("global",)

    async def broker(self) -> tuple[str, int]:
        """Return the address of the broker."""
        return _address(self.state().get("url", ""))

    async def gateway(self) -> tuple[str, int]:
        """Return the address of the gateway."""
        parts = {part["name"]: part["address"] for part in self.state().get("parts", ())}
        return _address(parts.get("gateway", ""))

    async def replaced(self, component: str, pid: int, *, timeout: float) -> float | None:
        """Wait until a component has a new process; return the seconds, ``None`` if too long."""
        began = time.monotonic()
        while time.monotonic() - began < timeout:
            now = self.pids().get(component)
            if now is not None and now != pid:
                return time.monotonic() - began
            await asyncio.sleep(POLL_SECONDS)
        return None


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    if parts.hostname is None or parts.port is None:
        raise OSError("the stack has no such address at the moment")
    return parts.hostname, parts.port


def resident_bytes(pid: int) -> int | None:
    """Return the resident memory of a process; ``None`` if it has ended."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE") or None


async def ended(pids: Iterable[int]) -> float:
    """Wait until processes have ended, at most ``STOP_SECONDS``; return the seconds that took."""
    began = time.monotonic()
    while time.monotonic() - began < STOP_SECONDS and any(  # noqa: ASYNC110 - others' children
        map(resident_bytes, pids)
    ):
        await asyncio.sleep(POLL_SECONDS)
    return time.monotonic() - began


def zombies(parents: set[int]) -> set[int]:
    """Return the ended children of some processes that nobody has waited for."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if fields[0] == "Z" and int(fields[1]) in parents:
                found.add(int(path.parent.name))
    return found


def users_of(data: Path) -> set[int]:
    """Return the processes whose data directory this is."""
    wanted = f"SEARCH_DATA_DIR={data}".encode()
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in path.read_bytes().split(b"\0"):
                found.add(int(path.parent.name))
    return found


@contextlib.contextmanager
def small_disk(directory: Path, size: int) -> Iterator[bool]:
    """Mount a file system of ``size`` bytes in memory; yield whether it is there; 0 for none."""
    directory.mkdir(parents=True, exist_ok=True)
    libc = ctypes.CDLL(None) if size and sys.platform == "linux" else None
    target = os.fsencode(directory)
    options = f"size={size},mode=0700".encode()
    mounted = libc is not None and libc.mount(b"tmpfs", target, b"tmpfs", 0, options) == 0
    try:
        yield mounted
    finally:
        if libc is not None and mounted:
            libc.umount2(target, 2)  # MNT_DETACH: also if a file is still open
