"""Measures of a weighted graph: PageRank, betweenness, components, Fiedler vector. Pure.

A graph is a sparse matrix of shape (n, n): entry (i, j) is the weight of the edge from i to j,
greater than 0. An undirected graph is a symmetric matrix. No edge leads from a node to itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import linalg, sparse
from scipy.sparse import csgraph
from scipy.sparse import linalg as sparse_linalg

from ability_search.extensions.notes.graph_analysis import Spectrum, six_digits

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

DAMPING = 0.85
_TOLERANCE = 1e-10
_ITERATIONS = 500
_EXACT = 2000
"""Nodes up to which betweenness and eigenvectors are computed exactly."""
_PIVOTS = 200
"""Sources of the shortest paths that are counted in a larger graph."""
_BYTES = 50_000_000
"""Memory of the searches that run at once: some bytes for each node, and for each edge."""
_NODE_BYTES = 20
_EDGE_BYTES = 16
_LEVELS = 100_000
"""Levels of searches after which no more pivots are added; a level takes some 0.1 ms at least."""
_DENSE = 8
"""Places for each value that is added, from which on few of them are touched."""
_EIGEN_TOLERANCE = 1e-3
_EIGEN_ITERATIONS = 60
_EIGEN_BLOCK = 3
_SMALL = 1e-300


def pagerank(graph: sparse.csr_array) -> Floats:
    """Return the PageRank of each node, shape (n,), of sum 1; empty for an empty graph.

    A surfer follows an edge, chosen by weight, with probability :data:`DAMPING`, and else goes to
    any node. From a node without outgoing edges it goes to any node (Page, Brin, Motwani and
    Winograd, The PageRank Citation Ranking, 1999).
    """
    count = graph.shape[0]
    if not count:
        return np.zeros(0)
    out = np.asarray(graph.sum(axis=1)).ravel()
    dangling = out == 0
    steps = sparse.csr_array(graph.T) @ sparse.diags_array(1 / np.where(dangling, 1.0, out))
    rank = np.full(count, 1 / count)
    for _ in range(_ITERATIONS):
        anywhere = DAMPING * rank[dangling].sum() + 1 - DAMPING
        new = DAMPING * (steps @ rank) + anywhere / count
        change = np.abs(new - rank).sum()
        rank = new
        if change < _TOLERANCE:
            break
    return np.asarray(rank / rank.sum())


def betweenness(
    graph: sparse.csr_array, *, exact: int = _EXACT, pivots: int = _PIVOTS, seed: int = 0
) -> Floats:
    """Return the share of the shortest paths that pass through each node, shape (n,), in [0, 1].

    Edges are undirected and count 1; of each pair of other nodes a node gets the share of their
    shortest paths that lead through it, divided by the number of pairs (Brandes, A Faster Algorithm
    for Betweenness Centrality, 2001). In graphs of more than ``exact`` nodes it is estimated from
    the paths of ``pivots`` nodes; a path counts in proportion to the distance from the pivot, so
    that nodes near a pivot are not overestimated (Geisberger, Sanders and Schultes, Better
    Approximation of Betweenness Centrality, 2008). Graphs with paths of thousands of edges are
    estimated from fewer.

    Args:
        graph: Symmetric.
        exact: Greatest number of nodes of which all paths are counted.
        pivots: Number of nodes to count the paths of in a larger graph.
        seed: Seed of their choice.
    """
    count = graph.shape[0]
    if count < 3:
        return np.zeros(count)
    sources, levels = np.arange(count), count * count
    if count > exact:
        sources = np.random.default_rng(seed).choice(count, min(pivots, count), replace=False)
        levels = _LEVELS
    total = np.zeros(count)
    at_once = max(1, _BYTES // (_NODE_BYTES * count + _EDGE_BYTES * graph.nnz))
    done = 0
    while done < len(sources) and levels > 0:
        searched = sources[done : done + at_once]
        found, depth = _dependencies(graph, searched)
        total += found
        done += len(searched)
        levels -= depth
    pairs = (count - 1) * (count - 2)
    return np.asarray(2 * total * (count / done) / pairs)


def _dependencies(graph: sparse.csr_array, sources: Ints) -> tuple[Floats, int]:
    """Return the sum of the dependencies of sources on each node, shape (n,), and the levels.

    The part of a path from a source to ``v`` on which a node lies counts in proportion: its
    distance from the source over that of ``v``. One breadth-first search from each source, all of
    them level by level; node ``v`` of search ``i`` has the place ``i n + v``.
    """
    count = graph.shape[0]
    degrees = np.diff(graph.indptr)
    level = np.arange(len(sources)) * count + sources
    distances = np.full(len(sources) * count, -1, dtype=np.int32)
    distances[level] = 0
    paths = np.zeros(len(distances))
    paths[level] = 1.0
    edges: list[tuple[Ints, Ints]] = []
    while len(level):
        nodes = level % count
        sizes = degrees[nodes]
        first = graph.indptr[nodes] - np.cumsum(sizes) + sizes
        ends = graph.indices[np.repeat(first, sizes) + np.arange(sizes.sum())]
        ends = ends + np.repeat(level - nodes, sizes)
        new = distances[ends] < 0
        starts, ends = np.repeat(level, sizes)[new], ends[new]
        edges.append((starts, ends))
        _add(paths, ends, paths[starts])
        distances[ends] = len(edges)
        few = len(ends) * _DENSE < len(distances)
        level = np.unique(ends) if few else np.flatnonzero(distances == len(edges))
    depth = len(edges)
    found = np.zeros(len(paths))
    while edges:
        distance = len(edges)
        starts, ends = edges.pop()
        _add(found, starts, paths[starts] / paths[ends] * (1 / distance + found[ends]))
    found *= distances
    return np.asarray(found.reshape(len(sources), count).sum(axis=0)), depth


def _add(values: Floats, places: Ints, added: Floats) -> None:
    """Add to the values at some places, of which some are equal."""
    if len(places) * _DENSE < len(values):
        np.add.at(values, places, added)
    else:
        values += np.bincount(places, weights=added, minlength=len(values))


def components(graph: sparse.csr_array) -> Ints:
    """Return the number of the connected component of each node, shape (n,).

    The largest component is 0; of equal ones the one with the first node comes first.
    """
    _, found = csgraph.connected_components(graph, directed=False)
    _, first, sizes = np.unique(found, return_index=True, return_counts=True)
    place = np.empty(len(sizes), dtype=np.int64)
    place[np.lexsort((first, -sizes))] = np.arange(len(sizes))
    return np.asarray(place[found])


def fiedler(graph: sparse.csr_array, *, exact: int = _EXACT) -> tuple[Floats, Spectrum]:
    """Return the Fiedler vector of a connected graph, shape (n,), and its eigenvalue.

    That of the second smallest eigenvalue of the Laplacian, degrees minus weights (Fiedler,
    Algebraic Connectivity of Graphs, 1973). It has unit length, and its greatest component is
    positive; the two signs are the two sides of the graph's weakest link. A graph of more than
    ``exact`` nodes is iterated upon by LOBPCG (Knyazev, 2001).

    Args:
        graph: Symmetric and connected.
        exact: Greatest number of nodes whose eigenvectors are computed directly.
    """
    count = graph.shape[0]
    if count < 2:
        return _spectrum(0.0, np.zeros(count))
    laplacian = sparse.csr_array(csgraph.laplacian(graph.astype(np.float64)))
    if count <= exact:
        values, vectors = linalg.eigh(laplacian.toarray(), subset_by_index=[1, 1])
        return _spectrum(float(values[0]), vectors[:, 0])
    degrees = laplacian.diagonal()
    start = np.random.default_rng(0).standard_normal((count, _EIGEN_BLOCK))
    scale = float(degrees.max())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that it did not converge: measured below
        values, vectors = sparse_linalg.lobpcg(
            laplacian,
            start,
            M=sparse.diags_array(1 / degrees),
            Y=np.ones((count, 1)),
            tol=_EIGEN_TOLERANCE * scale,
            maxiter=_EIGEN_ITERATIONS,
            largest=False,
        )
    least = int(np.argmin(values))
    vector = vectors[:, least] / np.linalg.norm(vectors[:, least])
    residual = np.linalg.norm(laplacian @ vector - values[least] * vector)
    converged = bool(residual <= 2 * _EIGEN_TOLERANCE * scale)
    return _spectrum(float(values[least]), vector, converged=converged)


def _spectrum(gap: float, vector: Floats, *, converged: bool = True) -> tuple[Floats, Spectrum]:
    """Return the vector or its opposite, as its sign is arbitrary, and the spectrum."""
    if len(vector):
        vector = vector * (np.sign(vector[np.abs(vector).argmax()]) or 1.0)
    negative = int((vector < 0).sum())
    return np.asarray(vector), Spectrum(
        chunks=len(vector),
        gap=six_digits(max(0.0, gap)),
        converged=converged,
        sides=[len(vector) - negative, negative],
    )


def edge_entropy(kinds: Sequence[sparse.csr_array]) -> Floats:
    """Return the entropy of the kinds of edges at each node, in nats, shape (n,).

    A kind counts by the sum of its weights at the node; 0 for a node with one kind or none.

    Args:
        kinds: Graphs on the same nodes, symmetric, one for each kind; at least one.
    """
    degrees = np.stack([np.asarray(kind.sum(axis=1)).ravel() for kind in kinds])
    shares = degrees / np.maximum(degrees.sum(axis=0), _SMALL)
    return np.asarray(-(shares * np.log(np.maximum(shares, _SMALL))).sum(axis=0))
