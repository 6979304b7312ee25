"""Locks of files and directories, which end with the processes that hold them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ability_search.errors import SearchError

if sys.platform != "win32":
    import fcntl


@contextmanager
def locked(directory: Path, taken: SearchError) -> Iterator[None]:
    """Hold a directory's lock; Windows has none, and does without.

    Raises:
        SearchError: ``taken``, if another process holds it.
    """
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        if not lock(descriptor, exclusive=True):
            raise taken
        yield
    finally:
        os.close(descriptor)


def lock(descriptor: int, *, exclusive: bool) -> bool:
    """Return whether the lock could be had; a shared one is enough to see whether it could."""
    if sys.platform == "win32":
        return exclusive
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
