"""The stack that runs in a data directory, as clients and workers that join it see it.

``stack.lock`` is locked while any process of the stack is alive. ``stack.json`` describes the
running stack; it is stale unless the lock is held.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ability_search.ops.locks import lock

LOCK = "stack.lock"
STATE = "stack.json"
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
    private_network: str = ""
    """The one of its networks that only its components join; empty if there is none."""
    offer: tuple[str, ...] = ()
    """Families of tools that its workers offer besides the eight."""
    memory: bool = False
    """The worker keeps everything in memory, without a database."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Environment variables for a worker that joins, in addition to the broker's address."""


def read_running(data_dir: Path) -> RunningStack | None:
    """Return the stack that runs in a data directory; ``None`` if there is none."""
    if not is_locked(data_dir):
        return None
    return read_state(data_dir)


def is_locked(data_dir: Path) -> bool:
    """Return whether a process of a stack holds the lock of a data directory."""
    try:
        descriptor = os.open(data_dir / LOCK, os.O_RDWR)
    except OSError:
        return False
    try:
        return not lock(descriptor, exclusive=False)
    finally:
        os.close(descriptor)


def read_state(data_dir: Path) -> RunningStack | None:
    """Return what the state file says; ``None`` if there is none, or it cannot be read."""
    try:
        return msgspec.json.decode((data_dir / STATE).read_bytes(), type=RunningStack)
    except (OSError, msgspec.MsgspecError):
        return None
