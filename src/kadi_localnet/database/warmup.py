"""Loading vector indexes before somebody waits for them."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import jpype

_NEIGHBOURS = 10

log = logging.getLogger(__name__)


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
