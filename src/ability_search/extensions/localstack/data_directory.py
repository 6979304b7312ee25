"""The data directory of a stack: its lock and its state file.

``stack.lock`` is locked while any process of the stack is alive: the parent opens it, the children
inherit it. ``stack.json`` describes the running stack; it is stale unless the lock is held.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ability_search.errors import ConfigurationError
from ability_search.ops.locks import lock

_LOCK = "stack.lock"
_STATE = "stack.json"
_POLL_SECONDS = 0.1
_LOCK_RETRIES = 5
_LOCK_PAUSE_SECONDS = 0.02


CLIENT = "client"
"""Identity of the commands that use a running stack."""
JOINED_WORKER = "worker"
"""Identity of workers that join a running stack."""


def identity_file(data_dir: Path, name: str) -> Path:
    """Return the key file of a component, of ``CLIENT`` or of ``JOINED_WORKER``."""
    return data_dir / "identities" / f"{name}.pem"


@dataclass(frozen=True, slots=True)
class RunningComponent:
    """A process of the stack."""

    name: str
    pid: int
    address: str = ""
    metrics: str = ""
    """Address of its metrics; empty if they are not served."""


@dataclass(frozen=True, slots=True)
class RunningStack:
    """The contents of ``stack.json``."""

    pid: int
    url: str
    networks: tuple[str, ...]
    started: str
    """Start time in RFC 3339."""
    model: str | None = None
    """Embedding model of new collections; ``None`` if the stack serves no model."""
    parts: tuple[RunningComponent, ...] = ()
    memory: bool = False
    """The worker keeps everything in memory, without a database."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Environment variables for a worker that joins, in addition to the broker's address."""


def read_running(data_dir: Path) -> RunningStack | None:
    """Return the stack that runs in a data directory; ``None`` if there is none."""
    if not _is_locked(data_dir):
        return None
    return _read_state(data_dir)


def write_running(data_dir: Path, running: RunningStack) -> None:
    """Write the state file atomically: readers see the old file or the new one."""
    descriptor, name = tempfile.mkstemp(prefix=f".{_STATE}.", dir=data_dir)
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump(asdict(running), file, indent=2)
        file.write("\n")
    os.replace(name, data_dir / _STATE)


def remove_running(data_dir: Path) -> None:
    """Remove the state file."""
    (data_dir / _STATE).unlink(missing_ok=True)


@contextmanager
def hold(data_dir: Path) -> Iterator[int]:
    """Lock a data directory; create it with mode 0700, or close an existing one to other users.

    Yields:
        The file descriptor of the lock. Children inherit it, so that the directory stays locked
        until all of them have ended.

    Raises:
        ConfigurationError: if another process holds the lock, the directory is not writable, or
            it is open to other users and belongs to one of them.
    """
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (mode := data_dir.stat().st_mode) & 0o077:
            data_dir.chmod(mode & 0o700)
        descriptor = os.open(data_dir / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as exc:
        raise ConfigurationError(
            f"data directory {data_dir}: {exc.strerror}",
            hint="Choose another directory with --data-dir or SEARCH_DATA_DIR.",
        ) from exc
    try:
        if not _lock_patiently(descriptor):
            raise _held(data_dir)
        yield descriptor
    finally:
        os.close(descriptor)


async def released(data_dir: Path, *, timeout: float) -> bool:
    """Wait until the directory is unlocked; return False if it is not in ``timeout`` seconds."""
    try:
        async with asyncio.timeout(timeout):
            while _is_locked(data_dir):  # noqa: ASYNC110 - a lock cannot be awaited
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        return False
    return True


def is_abandoned(data_dir: Path) -> bool:
    """Return True if child processes of a stack are still alive but its parent is not."""
    state = _read_state(data_dir) if _is_locked(data_dir) else None
    return state is not None and not _alive(state.pid)


def _held(data_dir: Path) -> ConfigurationError:
    state = _read_state(data_dir)
    if state is None:
        who = "another stack, which is starting or stopping"
    else:
        who = f"the stack of process {state.pid}, started {state.started}, broker {state.url}"
    return ConfigurationError(
        f"data directory {data_dir} is in use by {who}",
        hint="Stop it with `ability-search down`, or choose another directory with --data-dir.",
    )


def _is_locked(data_dir: Path) -> bool:
    try:
        descriptor = os.open(data_dir / _LOCK, os.O_RDWR)
    except OSError:
        return False
    try:
        return not lock(descriptor, exclusive=False)
    finally:
        os.close(descriptor)


def _lock_patiently(descriptor: int) -> bool:
    """Lock, with retries while another process only checks whether the lock is held."""
    for _ in range(_LOCK_RETRIES):
        if lock(descriptor, exclusive=True):
            return True
        time.sleep(_LOCK_PAUSE_SECONDS)
    return lock(descriptor, exclusive=True)


def _read_state(data_dir: Path) -> RunningStack | None:
    try:
        content: Any = json.loads((data_dir / _STATE).read_text(encoding="utf-8"))
        parts = tuple(RunningComponent(**part) for part in content.pop("parts"))
        networks = tuple(content.pop("networks"))
        return RunningStack(**content, networks=networks, parts=parts)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
