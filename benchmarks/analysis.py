"""What the measures of a collection's graph cost, without reading it from a database."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from ability_search.extensions.notes import collection_measures
from ability_search.extensions.notes.graph_analysis import NoteChunk
from ability_search.extensions.notes.vector_measures import Vectors
from ability_search.store.records import SourceRecord
from benchmarks.vectors import DIMENSIONS

_STEPS = (
    "nearest",
    "collection_graph",
    "pagerank",
    "components",
    "fiedler",
    "betweenness",
    "novelty",
    "surprisal",
    "edge_entropy",
)
_CLUSTER = 40
"""Chunks around one centre."""
_NOISE = 0.45


def measure(*, chunks: int) -> dict[str, Any]:
    """Analyse a generated collection of two chunks a source.

    Returns:
        For each step, and for all of them with the rest, its processor time in seconds and the
        greatest resident memory of the process meanwhile in MB; and the edges of each kind.
    """
    nodes, vectors, sources = _collection(chunks)
    report: dict[str, Any] = {}
    _costs("before", report, lambda: None)()
    started = time.process_time()
    with ExitStack() as stack:
        for name in _STEPS:
            timed = _costs(name, report, getattr(collection_measures, name))
            stack.enter_context(patch.object(collection_measures, name, timed))
        analysis, _ = collection_measures.measure(nodes, vectors, sources)
    report["all"] = {
        "processor seconds": round(time.process_time() - started, 2),
        "peak MB": max(each["peak MB"] for each in report.values()),
    }
    return {**report, "edges": analysis.edges}


def _costs(name: str, report: dict[str, Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that does the same and adds its costs to the report."""

    def called(*args: Any) -> Any:
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        started = time.process_time()
        result = function(*args)
        report[name] = {
            "processor seconds": round(time.process_time() - started, 2),
            "peak MB": _peak_mb(),
        }
        return result

    return called


def _peak_mb() -> int:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) // 1000


def _collection(count: int) -> tuple[list[NoteChunk], Vectors, list[SourceRecord]]:
    """Return chunks in clusters, their vectors, and sources with links, a tag and a session."""
    choose = np.random.default_rng(0)
    centres = choose.standard_normal((max(1, count // _CLUSTER), DIMENSIONS), dtype=np.float32)
    vectors = centres[np.arange(count) % len(centres)]
    vectors += np.float32(_NOISE) * choose.standard_normal(vectors.shape, dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    nodes = [
        NoteChunk(f"bench:{place // 2}:{place % 2}", f"{place // 2}", "", place % 2)
        for place in range(count)
    ]
    size = -(-count // 2)
    links = choose.integers(0, size, (size, 3)).tolist()
    tags = choose.integers(0, -(-size // 25), size).tolist()
    sessions = choose.integers(0, -(-size // 10), size).tolist()
    sources = [
        SourceRecord(
            source=f"{place}",
            title="",
            content_hash="",
            chunks=2,
            tokens=2,
            tokens_min=1,
            tokens_max=1,
            indexed_at=0,
            kind="document",
            metadata={"tags": [f"t{tags[place]}"], "session": f"s{sessions[place]}"},
            links=[{"target": f"{end}", "kind": "related", "weight": 1.0} for end in links[place]],
        )
        for place in range(size)
    ]
    return nodes, vectors, sources
