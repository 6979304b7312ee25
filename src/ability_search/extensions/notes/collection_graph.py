"""The graph of a collection: its chunks, and what connects them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from scipy import sparse

from ability_search.extensions.notes.graph_analysis import NoteChunk
from ability_search.extensions.notes.vector_measures import Nearest, neighbour_graph
from ability_search.store.records import SourceRecord

TAGS, SESSION, ORDER = 0.6, 0.5, 0.5
"""Weights of edges; that of a link is its own, that of similar chunks their cosine."""
SIMILAR = 0.8
"""Minimum cosine of similar chunks."""
_CLIQUE = 32
"""Number of sources up to which each is connected with all others that share a tag or session."""
_NEXT = 5
"""Number of next sources that each is connected with in a larger group."""

Edge = tuple[int, int, float]


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
    chunks: Sequence[NoteChunk], sources: Iterable[SourceRecord], neighbours: Nearest
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
    others["similarity"] = neighbour_graph(neighbours, least=SIMILAR)
    rest = sum(others.values(), sparse.csr_array((count, count)))
    links = _matrix(_links(records, first), count)
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


def _links(records: Iterable[SourceRecord], first: Mapping[str, int]) -> Iterator[Edge]:
    for record in records:
        for link in record.links:
            end = first.get(str(link["target"]))
            if end is not None:
                yield first[record.source], end, float(link.get("weight", 1.0))


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


def _order(chunks: Sequence[NoteChunk]) -> Iterator[Edge]:
    ordered = sorted(
        range(len(chunks)), key=lambda place: (chunks[place].source, chunks[place].chunk_index)
    )
    for start, end in pairwise(ordered):
        if chunks[start].source == chunks[end].source:
            yield start, end, ORDER
