"""Making good what the engine loses when its process is killed."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import jpype

log = logging.getLogger(__name__)

_SPARSE = "LSM_SPARSE_VECTOR"


def open_repaired(factory: Any, directory: Path) -> Any:
    """Open a database; if it was not closed, fill its sparse vector indexes anew first.

    What such an index holds in memory is in no log, unlike records and other indexes: after a kill
    it lacks what was committed since it was written to disk last, for good and without a word.

    Raises:
        jpype.JException: if the engine cannot.
    """
    # The logs of transactions, which are gone when a database is closed.
    killed = any(directory.glob("*.wal"))
    database = factory(str(directory)).open()
    if killed:
        try:
            _rebuild_sparse_indexes(directory.name, database)
        except jpype.JException:
            database.close()
            raise
    return database


def _rebuild_sparse_indexes(name: str, database: Any) -> None:
    started = time.monotonic()
    lost = [
        str(index.getName())
        for index in database.getSchema().getIndexes()
        if str(index.getType()) == _SPARSE and "[" in str(index.getName())
    ]
    for index in lost:
        database.command("sql", f"REBUILD INDEX `{index}`")
    if lost:
        seconds = time.monotonic() - started
        log.warning("%s was not closed: filled %d indexes in %.2f s", name, len(lost), seconds)
