"""The measures of a collection's graph, put together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from ability_search.extensions.notes.collection_graph import CollectionGraph, collection_graph
from ability_search.extensions.notes.graph_analysis import (
    ComponentSize,
    Drawing,
    DrawnChunk,
    DrawnEdge,
    GraphAnalysis,
    NoteChunk,
    RankedChunk,
    six_digits,
)
from ability_search.extensions.notes.graph_measures import (
    Floats,
    betweenness,
    components,
    edge_entropy,
    fiedler,
    pagerank,
)
from ability_search.extensions.notes.overview import principal_axes
from ability_search.extensions.notes.vector_measures import Vectors, nearest, novelty, surprisal
from ability_search.store.records import SourceRecord
from ability_search.store.values import Patch

_LISTED = 20
"""Chunks in each list."""
_DRAWN = 300
_EDGES_DRAWN = 1500
_FITTED = 2000
"""Chunks that the axes of the drawing are fitted to."""
_HUBS = 0.1
"""Share of the chunks with the most edges that may be hubs."""


def measure(
    chunks: Sequence[NoteChunk],
    vectors: Vectors,
    sources: Iterable[SourceRecord],
    revision: int = 0,
) -> tuple[GraphAnalysis, list[Patch]]:
    """Measure the graph of chunks; return its analysis, and the scores of all chunks.

    Args:
        chunks: The chunks.
        vectors: Their vectors, of unit length, shape (n, d).
        sources: Their sources.
        revision: Revision of the collection.
    """
    neighbours = nearest(vectors)
    graph = collection_graph(chunks, sources, neighbours)
    rank = pagerank(graph.directed)
    labels = components(graph.undirected)
    largest = np.flatnonzero(labels == 0)
    weakest, spectrum = fiedler(graph.undirected[largest][:, largest])
    sides = np.zeros(len(chunks), dtype=np.int64)
    sides[largest] = np.where(weakest < 0, -1, 1)
    distance = np.zeros(len(chunks))
    distance[largest] = np.abs(weakest)
    between = betweenness(graph.undirected)
    new, noise = novelty(vectors)
    surprise = surprisal(neighbours)
    degrees = np.diff(graph.undirected.indptr)
    hubs = np.argsort(-degrees, kind="stable")[: max(_LISTED, round(_HUBS * len(chunks)))]
    entropy = edge_entropy([*graph.kinds.values()])
    everything = np.arange(len(chunks))
    listed = partial(_ranked, chunks)
    analysis = GraphAnalysis(
        chunks=len(chunks),
        revision=revision,
        edges={name: kind.nnz // 2 for name, kind in graph.kinds.items()},
        components=_sizes(labels),
        isolated=listed(surprise, np.flatnonzero(degrees == 0)),
        spectrum=spectrum,
        central=listed(rank, everything),
        bridges=listed(between, np.flatnonzero(between > 0)),
        hubs=listed(entropy, hubs[entropy[hubs] > 0]),
        boundary=listed(distance, largest if len(largest) > 1 else [], ascending=True),
        novelty=noise,
        novel=listed(new, np.flatnonzero(new > 0)),
        surprising=listed(surprise, everything),
        drawing=_drawing(chunks, vectors, graph, rank, labels, sides),
        took_ms=0.0,
    )
    return analysis, _scores(chunks, _percentiles(rank), new)


def _ranked(
    chunks: Sequence[NoteChunk],
    values: Floats,
    among: npt.ArrayLike,
    *,
    ascending: bool = False,
) -> list[RankedChunk]:
    """Return the chunks at the places ``among`` with the greatest values, or with the smallest."""
    places = np.asarray(among, dtype=np.int64)
    keys = values[places] if ascending else -values[places]
    return [
        RankedChunk(
            chunk_id=chunks[place].chunk_id,
            source=chunks[place].source,
            title=chunks[place].title,
            value=six_digits(values[place]),
        )
        for place in places[np.argsort(keys, kind="stable")[:_LISTED]].tolist()
    ]


def _sizes(labels: npt.NDArray[np.int64]) -> list[ComponentSize]:
    sizes, counts = np.unique(np.bincount(labels), return_counts=True)
    return [
        ComponentSize(chunks=size, components=count)
        for size, count in zip(sizes[::-1].tolist(), counts[::-1].tolist(), strict=True)
    ]


def _percentiles(values: Floats) -> Floats:
    """Return the share of the other values that are less, equal ones counting half, shape (n,)."""
    ordered = np.sort(values)
    less = np.searchsorted(ordered, values, side="left")
    up_to = np.searchsorted(ordered, values, side="right")
    return np.asarray((less + up_to - 1) / 2 / max(1, len(values) - 1))


def _drawing(
    chunks: Sequence[NoteChunk],
    vectors: Vectors,
    graph: CollectionGraph,
    rank: Floats,
    labels: npt.NDArray[np.int64],
    sides: npt.NDArray[np.int64],
) -> Drawing:
    shown = np.argsort(-rank, kind="stable")[:_DRAWN]
    if not len(shown):
        return Drawing(nodes=[], edges=[])
    axes = principal_axes(vectors[np.argsort(-rank, kind="stable")[:_FITTED]])
    points = [axes.place(each.tolist()) for each in vectors[shown] @ axes.axes.T]
    edges = []
    for name, kind in graph.kinds.items():
        starts, ends = kind[shown][:, shown].nonzero()
        edges += [
            DrawnEdge(start=start, end=end, kind=name)
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
            if start < end
        ]
    # The most central nodes come first, and so do their edges.
    edges.sort(key=lambda edge: edge.start + edge.end)
    return Drawing(
        nodes=[
            DrawnChunk(
                chunk_id=chunks[place].chunk_id,
                source=chunks[place].source,
                x=round(x, 4),
                y=round(y, 4),
                centrality=round(float(rank[place] / rank[shown[0]]), 4),
                component=int(labels[place]),
                side=int(sides[place]),
            )
            for place, (x, y) in zip(shown.tolist(), points, strict=True)
        ],
        edges=edges[:_EDGES_DRAWN],
    )


def _scores(chunks: Sequence[NoteChunk], centrality: Floats, novelty: Floats) -> list[Patch]:
    return [
        Patch(chunk.chunk_id, {"centrality": round(share, 4), "novelty": round(score, 4)})
        for chunk, share, score in zip(chunks, centrality.tolist(), novelty.tolist(), strict=True)
    ]
