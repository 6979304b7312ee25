"""Sizes of dense vector indexes, and loading them when a database is opened."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jpype

from kadi_localnet.database.index_use import IndexUse

log = logging.getLogger(__name__)

_DENSE = "LSM_VECTOR"
_GRAPH = ".vecgraph"
_ORDINALS = ".vecordmap"
_ORDINAL_BYTES = 3.5
"""Bytes of a vector in the file that maps the nodes of a graph to vectors, at least."""
_LINK_BYTES = 4


def stored_vectors(directory: Path) -> list[tuple[int, int]]:
    """Return the number of vectors, about, and their dimensions for each graph below a directory.

    Vectors that were never in a graph do not count.
    """
    found = []
    for schema in directory.glob("*/schema.json"):
        try:
            types = json.loads(schema.read_text(encoding="utf-8"))["types"].values()
            indexes = [each for own in types for each in own.get("indexes", {}).items()]
        except (OSError, ValueError, KeyError):
            continue  # the engine says what is wrong with it
        for name, index in indexes:
            if index.get("type") == _DENSE:
                count = _nodes(schema.parent, name, int(index["maxConnections"]))
                found.append((count, int(index["dimensions"])))
    return found


def _nodes(directory: Path, index: str, connections: int) -> int:
    """Return about how many nodes a graph has: two of its files bound the number."""
    graphs = sum(each.stat().st_size for each in directory.glob(f"{index}_vecgraph.*{_GRAPH}"))
    maps = sum(each.stat().st_size for each in directory.glob(f"{index}_vecgraph.*{_ORDINALS}"))
    return round(min(graphs / (_LINK_BYTES * (connections + 2)), maps / _ORDINAL_BYTES))


_NEIGHBOURS = 10


def warm_vector_indexes(name: str, database: Any, indexes: IndexUse, stop: threading.Event) -> None:
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
                with indexes.searching(name, str(index.getTypeName())):
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


def close_dropped_graphs(name: str, database: Any, types: Sequence[str]) -> None:
    """Close the graphs of the dropped vector indexes of some types.

    The engine deletes such a file but keeps it open, which holds a file handle and its disk space
    until the database is closed. It closes a file before it deletes it, and fails if there is none.
    """
    files, prefixes = database.getFileManager(), tuple(f"{each}_" for each in types)
    for file in files.getFiles():
        path = Path("" if file is None else str(file.getFilePath()))
        if path.suffix != _GRAPH or not path.name.startswith(prefixes) or path.exists():
            continue
        number = file.getFileId()
        try:
            path.touch()
            database.getPageManager().deleteFile(database, number)
            files.dropFile(number)
        except (OSError, jpype.JException) as exc:
            log.warning("%s: the dropped graph %s was not closed: %s", name, path.name, exc)
