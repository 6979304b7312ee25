"""The data directory of a stack: it is locked, and its state file is written.

The parent of a stack opens the lock, and the children inherit it.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from ability_search.config.running_stack import (
    LOCK,
    STATE,
    RunningStack,
    is_locked,
    read_state,
)
from ability_search.errors import ConfigurationError
from ability_search.ops.locks import lock, replace_file

_POLL_SECONDS = 0.1
_LOCK_RETRIES = 5
_LOCK_PAUSE_SECONDS = 0.02


def write_running(data_dir: Path, running: RunningStack) -> None:
    """Write the state file atomically: readers see the old file or the new one."""
    text = json.dumps(asdict(running), indent=2)
    replace_file(data_dir / STATE, f"{text}\n".encode())


def remove_running(data_dir: Path) -> None:
    """Remove the state file."""
    (data_dir / STATE).unlink(missing_ok=True)


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
        descriptor = os.open(data_dir / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
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
            while is_locked(data_dir):  # noqa: ASYNC110 - a lock cannot be awaited
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        return False
    return True


def is_abandoned(data_dir: Path) -> bool:
    """Return True if child processes of a stack are still alive but its parent is not."""
    state = read_state(data_dir) if is_locked(data_dir) else None
    return state is not None and not _alive(state.pid)


def _held(data_dir: Path) -> ConfigurationError:
    state = read_state(data_dir)
    if state is None:
        who = "another stack, which is starting or stopping"
    else:
        who = f"the stack of process {state.pid}, started {state.started}, broker {state.url}"
    return ConfigurationError(
        f"data directory {data_dir} is in use by {who}",
        hint="Stop it with `ability-search down`, or choose another directory with --data-dir.",
    )


def _lock_patiently(descriptor: int) -> bool:
    """Lock, with retries while another process only checks whether the lock is held."""
    for _ in range(_LOCK_RETRIES):
        if lock(descriptor, exclusive=True):
            return True
        time.sleep(_LOCK_PAUSE_SECONDS)
    return lock(descriptor, exclusive=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
