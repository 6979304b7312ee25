"""Slows down and then refuses writes when the disk of a data directory is almost full.

An engine that runs out of space during a commit cannot even delete, so a reserve is kept. Below
twice the reserve large writes wait, below the reserve they are refused, and below a quarter of it
only deletions are accepted. Writes of up to :data:`SMALL` bytes are small.

Other programs may fill the disk to the last byte. A part of the reserve is therefore a file, which
is removed for the first deletion that finds no space, and comes back when there is enough.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kadi_localnet.database.backend import DatabaseError, Statement, encoded

log = logging.getLogger(__name__)

FILE = ".reserve"

MIB = 1024 * 1024
RESERVE = 256 * MIB
"""Bytes kept free by default."""
SMALL = 256 * 1024
"""Size of the parameters of a small write, in bytes."""
FILE_SIZE = 32 * MIB
"""Size of the file, at most an eighth of the reserve."""
_LEAST = 4 * MIB
"""Bytes that a deletion needs."""
_DELETES = re.compile(r"\b(?:DELETE|DROP|TRUNCATE)\b", re.I)
_LONGEST_WAIT = 1.0
_LOG_EVERY = 60.0


class DiskSpace:
    """The disk space below a directory.

    Args:
        directory: Any directory of the file system.
        reserve: Bytes to keep free.
        free: Returns the free bytes.
    """

    def __init__(
        self, directory: Path, reserve: int = RESERVE, *, free: Callable[[], int] | None = None
    ) -> None:
        self._reserve = reserve
        self._free = free or (lambda: shutil.disk_usage(directory).free)
        self._file = directory / FILE
        self._held = False
        self._changing = threading.Lock()
        self._logged = -_LOG_EVERY

    def check(self, statements: Sequence[Statement]) -> float:
        """Return the seconds that a write must wait; 0 unless space is scarce.

        Raises:
            DatabaseError: if there is not enough space for it.
        """
        free = self._free()
        self._hold(free)
        if free >= 2 * self._reserve:
            return 0.0
        small = _size(statements) <= SMALL
        if free >= self._reserve:
            return 0.0 if small else _LONGEST_WAIT * (2 - free / self._reserve)
        if small and free >= self._reserve // 4:
            return 0.0
        if small and _deletes_only(statements):
            if free < 2 * _LEAST:
                with self._changing:
                    if self._file.exists():
                        self._file.unlink(missing_ok=True)
                        log.warning("the disk is full: released what was set aside for deletions")
                    self._held = False
            if self._free() >= _LEAST:
                return 0.0
        now = time.monotonic()
        if now - self._logged >= _LOG_EVERY:
            self._logged = now
            log.error("the disk is full: %d MiB free, writes are refused", free // MIB)
        raise DatabaseError(
            f"the disk is full, nothing was written: the data directory has {free // MIB} MiB free,"
            f" of which {self._reserve // MIB} MiB are reserved for deletions: free some space or"
            " delete data"
        )

    def prepare(self) -> None:
        """Set space aside for deletions, if there is enough."""
        self._hold(self._free())

    def _hold(self, free: int) -> None:
        """Create the file, once, if there is enough space."""
        if self._held or free < self._reserve:
            return
        size = min(FILE_SIZE, self._reserve // 8)
        with self._changing:
            if self._held or (self._file.exists() and self._file.stat().st_size == size):
                self._held = True
                return
            self._held = True
            try:
                # Not zeros, for which a file system that compresses takes no blocks.
                block = os.urandom(MIB)
                with self._file.open("wb") as file:
                    file.writelines(block[: size - start] for start in range(0, size, MIB))
            except OSError as exc:
                log.warning("no space of the disk is set aside for deletions: %s", exc.strerror)
                self._file.unlink(missing_ok=True)


def _deletes_only(statements: Sequence[Statement]) -> bool:
    """Return whether statements delete, and store no rows."""
    for each in statements:
        params = each.params or ()
        values = params.values() if isinstance(params, Mapping) else params
        if any(
            isinstance(value, list) and value and isinstance(value[0], dict) for value in values
        ):
            return False
    return bool(statements) and all(_DELETES.search(each.text) for each in statements)


def _size(statements: Sequence[Statement]) -> int:
    """Return the size of the parameters in bytes; unknown counts as large."""
    try:
        return sum(len(encoded(each.params)) for each in statements if each.params)
    except DatabaseError:
        return SMALL + 1
