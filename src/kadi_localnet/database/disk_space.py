"""Slows down and then refuses writes when the disk of a data directory is almost full.

An engine that runs out of space during a commit cannot even delete, so a reserve is kept. Below
twice the reserve large writes wait, below the reserve they are refused, and below a quarter of it
all writes are. Writes of up to :data:`SMALL` bytes, such as deletions, are small.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from kadi_client.messages import encode
from kadi_localnet.database.backend import DatabaseError, Statement

log = logging.getLogger(__name__)

MIB = 1024 * 1024
RESERVE = 256 * MIB
"""Bytes kept free by default."""
SMALL = 256 * 1024
"""Size of the parameters of a small write, in bytes."""
_LONGEST_WAIT = 1.0
_LOG_EVERY = 60.0


class DiskSpace:
    """The disk space below a directory.

    Args:
        directory: Any directory of the file system.
        reserve: Bytes to keep free; 0 disables the check.
        free: Returns the free bytes.
    """

    def __init__(
        self, directory: Path, reserve: int = RESERVE, *, free: Callable[[], int] | None = None
    ) -> None:
        self._reserve = reserve
        self._free = free or (lambda: shutil.disk_usage(directory).free)
        self._logged = -_LOG_EVERY

    def check(self, statements: Sequence[Statement]) -> float:
        """Return the seconds that a write must wait; 0 unless space is scarce.

        Raises:
            DatabaseError: if there is not enough space for it.
        """
        if not self._reserve:
            return 0.0
        free = self._free()
        if free >= 2 * self._reserve:
            return 0.0
        small = _size(statements) <= SMALL
        if free >= self._reserve:
            return 0.0 if small else _LONGEST_WAIT * (2 - free / self._reserve)
        if small and free >= self._reserve // 4:
            return 0.0
        self._warn(free)
        raise DatabaseError(
            f"the disk is full, nothing was written: the data directory has {free // MIB} MiB free,"
            f" of which {self._reserve // MIB} MiB are reserved for deletions: free some space or"
            " delete data"
        )

    def _warn(self, free: int) -> None:
        now = time.monotonic()
        if now - self._logged >= _LOG_EVERY:
            self._logged = now
            log.error("the disk is full: %d MiB free, writes are refused", free // MIB)


def _size(statements: Sequence[Statement]) -> int:
    """Return the size of the parameters in bytes; unknown counts as large."""
    try:
        return sum(len(encode(each.params)) for each in statements if each.params)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):
        return SMALL + 1
