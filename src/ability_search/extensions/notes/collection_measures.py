"""The graph of a collection, of its chunks and what connects them, and its measures. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt
from scipy import sparse, stats

from ability_search.extensions.notes import graph_analysis, graph_measures, vector_measures
from ability_search.extensions.notes.overview import principal_axes
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
TAGS, SESSION, ORDER = 0.6, 0.5, 0.5
"""Weights of edges; that of a link is its own, that of similar chunks their cosine."""
SIMILAR = 0.8
"""Minimum cosine of similar chunks."""
_CLIQUE = 32
"""Number of sources up to which each is connected with all others that share a tag or session."""
_NEXT = 5
"""Number of next sources that each is connected with in a larger group."""

Edge = tuple[int, int, float]


def measure(
    chunks: Sequence[graph_analysis.NoteChunk],
    vectors: vector_measures.Vectors,
    sources: Iterable[SourceRecord],
    revision: int = 0,
) -> tuple[graph_analysis.GraphAnalysis, list[Patch]]:
    """Measure the graph of chunks; return its analysis, and the scores of all chunks.

    Args:
        chunks: The chunks.
        vectors: Their vectors, of unit length, shape (n, d).
        sources: Their sources.
        revision: Revision of the collection.
    """
    neighbours = vector_measures.nearest(vectors)
    graph = collection_graph(chunks, sources, neighbours)
    rank = graph_measures.pagerank(graph.directed)
    labels = graph_measures.components(graph.undirected)
    largest = np.flatnonzero(labels == 0)
    weakest, spectrum = graph_measures.fiedler(graph.undirected[largest][:, largest])
    sides = np.zeros(len(chunks), dtype=np.int64)
    sides[largest] = np.where(weakest < 0, -1, 1)
    distance = np.zeros(len(chunks))
    distance[largest] = np.abs(weakest)
    between = graph_measures.betweenness(graph.undirected)
    new, noise = vector_measures.novelty(vectors)
    surprise = vector_measures.surprisal(neighbours)
    degrees = np.diff(graph.undirected.indptr)
    hubs = np.argsort(-degrees, kind="stable")[: max(_LISTED, round(_HUBS * len(chunks)))]
    entropy = graph_measures.edge_entropy([*graph.kinds.values()])
    everything = np.arange(len(chunks))
    listed = partial(_ranked, chunks)
    sizes, counts = np.unique(np.bincount(labels), return_counts=True)
    analysis = graph_analysis.GraphAnalysis(
        chunks=len(chunks),
        revision=revision,
        edges={name: kind.nnz // 2 for name, kind in graph.kinds.items()},
        components=[
            graph_analysis.ComponentSize(chunks=size, components=count)
            for size, count in zip(sizes[::-1].tolist(), counts[::-1].tolist(), strict=True)
        ],
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
    # The share of the other chunks with less, equal ones counting half.
    centrality = (stats.rankdata(rank) - 1) / max(1, len(chunks) - 1)
    scores = [
        Patch(chunk.chunk_id, {"centrality": round(share, 4), "novelty": round(score, 4)})
        for chunk, share, score in zip(chunks, centrality.tolist(), new.tolist(), strict=True)
    ]
    return analysis, scores


def _ranked(
    chunks: Sequence[graph_analysis.NoteChunk],
    values: graph_measures.Floats,
    among: npt.ArrayLike,
    *,
    ascending: bool = False,
) -> list[graph_analysis.RankedChunk]:
    """Return the chunks at the places ``among`` with the greatest values, or with the smallest."""
    places = np.asarray(among, dtype=np.int64)
    keys = values[places] if ascending else -values[places]
    return [
        graph_analysis.RankedChunk(
            chunk_id=chunks[place].chunk_id,
            source=chunks[place].source,
            title=chunks[place].title,
            value=graph_analysis.six_digits(values[place]),
        )
        for place in places[np.argsort(keys, kind="stable")[:_LISTED]].tolist()
    ]


def _drawing(
    chunks: Sequence[graph_analysis.NoteChunk],
    vectors: vector_measures.Vectors,
    graph: CollectionGraph,
    rank: graph_measures.Floats,
    labels: npt.NDArray[np.int64],
    sides: npt.NDArray[np.int64],
) -> graph_analysis.Drawing:
    shown = np.argsort(-rank, kind="stable")[:_DRAWN]
    if not len(shown):
        return graph_analysis.Drawing(nodes=[], edges=[])
    axes = principal_axes(vectors[np.argsort(-rank, kind="stable")[:_FITTED]])
    points = [axes.place(each.tolist()) for each in vectors[shown] @ axes.axes.T]
    edges = []
    for name, kind in graph.kinds.items():
        starts, ends = kind[shown][:, shown].nonzero()
        edges += [
            graph_analysis.DrawnEdge(start=start, end=end, kind=name)
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
            if start < end
        ]
    # The most central nodes come first, and so do their edges.
    edges.sort(key=lambda edge: edge.start + edge.end)
    return graph_analysis.Drawing(
        nodes=[
            graph_analysis.DrawnChunk(
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


@dataclass(frozen=True, slots=True)
class CollectionGraph:
    """The graph of the chunks of a collection.

    Attributes:
        kinds: A symmetric graph for each kind of edge: ``link``, ``tags``, ``session``, ``order``
            and ``similarity``.
        undirected: Their sum, shape (n, n).
        directed: The same, with links in their own direction only.
    """

    kinds: Mapping[str, sparse.csr_array]
    undirected: sparse.csr_array
    directed: sparse.csr_array


def collection_graph(
    chunks: Sequence[graph_analysis.NoteChunk],
    sources: Iterable[SourceRecord],
    neighbours: vector_measures.Nearest,
) -> CollectionGraph:
    """Return the graph of chunks.

    Links, and the tags and sessions that sources have in common, connect their first chunks;
    ``order`` connects a chunk with the next one of its source. Of a tag or session with more than
    32 sources, each is connected with the five next ones by name.

    Args:
        chunks: The nodes.
        sources: The sources of these chunks; tags and session are those of their metadata. Sources
            without a chunk are left out.
        neighbours: The nearest neighbours of the chunks.
    """
    first: dict[str, int] = {}
    for place, chunk in enumerate(chunks):
        known = first.get(chunk.source)
        if known is None or chunk.chunk_index < chunks[known].chunk_index:
            first[chunk.source] = place
    records = [record for record in sources if record.source in first]
    count = len(chunks)
    edges = {
        "tags": _common(_groups(records, first, "tags"), TAGS),
        "session": _common(_groups(records, first, "session"), SESSION),
        "order": _order(chunks),
    }
    others = {name: _both_ways(_matrix(each, count)) for name, each in edges.items()}
    others["similarity"] = vector_measures.neighbour_graph(neighbours, least=SIMILAR)
    rest = sum(others.values(), sparse.csr_array((count, count)))
    named = (
        (first[record.source], end, float(link.get("weight", 1.0)))
        for record in records
        for link in record.links
        if (end := first.get(str(link["target"]))) is not None
    )
    links = _matrix(named, count)
    both = _both_ways(links)
    return CollectionGraph(
        kinds={"link": both, **others},
        undirected=sparse.csr_array(rest + both),
        directed=sparse.csr_array(rest + links),
    )


def _matrix(edges: Iterable[Edge], count: int) -> sparse.csr_array:
    """Return the graph of edges; of equal ones the heaviest counts."""
    heaviest: dict[tuple[int, int], float] = {}
    for start, end, weight in edges:
        if start != end and weight > heaviest.get((start, end), 0.0):
            heaviest[start, end] = weight
    ends = np.array(list(heaviest), dtype=np.int64).reshape(-1, 2).T
    weights = np.array(list(heaviest.values()), dtype=np.float64)
    return sparse.csr_array((weights, (ends[0], ends[1])), shape=(count, count))


def _both_ways(graph: sparse.csr_array) -> sparse.csr_array:
    return sparse.csr_array(graph.maximum(graph.T))


def _groups(
    records: Iterable[SourceRecord], first: Mapping[str, int], name: str
) -> Iterable[Sequence[int]]:
    """Return the first chunks of the sources with each value of a metadata field."""
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for record in records:
        given = record.metadata.get(name)
        values = given if isinstance(given, list) else [given]
        for value in {str(each) for each in values if each is not None}:
            groups[value].append(first[record.source])
    return groups.values()


def _common(groups: Iterable[Sequence[int]], weight: float) -> Iterator[Edge]:
    for members in groups:
        if len(members) <= _CLIQUE:
            yield from ((start, end, weight) for start, end in combinations(members, 2))
        else:
            for distance in range(1, _NEXT + 1):
                ends = zip(members, members[distance:], strict=False)
                yield from ((start, end, weight) for start, end in ends)


def _order(chunks: Sequence[graph_analysis.NoteChunk]) -> Iterator[Edge]:
    ordered = sorted(
        range(len(chunks)), key=lambda place: (chunks[place].source, chunks[place].chunk_index)
    )
    for start, end in pairwise(ordered):
        if chunks[start].source == chunks[end].source:
            yield start, end, ORDER
