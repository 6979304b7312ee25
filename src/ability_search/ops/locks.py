"""Locks, released when the holding process ends, and files that are replaced as a whole."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ability_search.errors import SearchError

if sys.platform != "win32":
    import fcntl


@contextmanager
def locked(directory: Path, taken: SearchError) -> Iterator[None]:
    """Hold the lock of a directory during the block; without effect on Windows.

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
    """Try to lock; return True on success. A shared lock suffices to test for an exclusive one."""
    if sys.platform == "win32":
        return exclusive
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def replace_file(path: Path, content: bytes, *, keep: bool = False) -> None:
    """Write a file with mode 0600 to disk; others see no file, the old one or the whole new one.

    With ``keep``, a file that exists is left as it is.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if not keep:
            temporary.replace(path)
            return
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
