"""Making good what the engine loses when its process is killed."""

from __future__ import annotations

import logging
import threading
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


_NEIGHBOURS = 10


def warm_vector_indexes(name: str, database: Any, stop: threading.Event) -> None:
    """Load the graph of every dense vector index of a database, one after the other.

    A graph that was persisted is read; one that was never built is built now. One search follows,
    which brings in the vectors around its way and the engine's own code. Searches that come
    meanwhile wait for the same load instead of starting their own; inserts and exact scans go on.
    Meant for a thread of its own; ends between two indexes once ``stop`` is set.
    """
    vector_index = jpype.JClass("com.arcadedb.index.vector.LSMVectorIndex")
    started = time.monotonic()
    warmed = 0
    try:
        for index in database.getSchema().getIndexes():
            if stop.is_set():
                return
            if isinstance(index, vector_index) and not index.isWarm():
                index.warmUp()
                index.findNeighborsFromVector(_direction(index.getDimensions()), _NEIGHBOURS)
                warmed += 1
    except jpype.JException as exc:
        log.warning("warm-up of %s stopped: %s", name, exc.getClass().getSimpleName())
        return
    if warmed:
        log.info("%s: %d vector indexes loaded in %.2f s", name, warmed, time.monotonic() - started)


def _direction(dimensions: int) -> Any:
    """A vector that every similarity is defined for."""
    return jpype.JArray(jpype.JFloat)([1.0] + [0.0] * (dimensions - 1))
