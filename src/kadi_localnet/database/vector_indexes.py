"""Repairs and loads vector indexes when a database is opened."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Any

import jpype

log = logging.getLogger(__name__)

_SPARSE = "LSM_SPARSE_VECTOR"
_GRAPH = ".vecgraph"


def open_repaired(factory: Any, directory: Path) -> Any:
    """Open a database; after a kill, rebuild its sparse vector indexes and remove stray files.

    Unlike records and other indexes, such an index has no log: after a kill it silently lacks what
    was committed since it was last written to disk. Files beside the graph of a dense index stay
    behind if its type is dropped while the graph is being built.

    Raises:
        jpype.JException: if the engine fails.
    """
    # Closing a database removes its transaction logs.
    killed = any(directory.glob("*.wal"))
    database = factory(str(directory)).open()
    for stray in directory.glob(f"*{_GRAPH}.*"):
        if not stray.with_suffix("").exists():
            stray.unlink()
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
        log.warning(
            "%s was not closed properly: rebuilt %d indexes in %.2f s", name, len(lost), seconds
        )


_NEIGHBOURS = 10


def warm_vector_indexes(name: str, database: Any, stop: threading.Event) -> None:
    """Load the graphs of all dense vector indexes of a database, one after the other.

    A persisted graph is read, a missing one is built. One search then loads the vectors on its path
    and the engine's code. Searches meanwhile wait for the same load; inserts and exact scans
    proceed. Runs in a separate thread; ends after the current index once ``stop`` is set.
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
    """Return a vector for which every similarity is defined."""
    return jpype.JArray(jpype.JFloat)([1.0] + [0.0] * (dimensions - 1))
