"""Measures of vectors: nearest neighbours, novelty and surprisal. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.cluster import vq

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.float32]

NEIGHBOURS = 5
_EXACT = 10_000
"""Vectors up to which each is compared with all others."""
_CELLS = 20_000_000
"""Cosines computed at once; 4 bytes each."""
_GROUP = 32
_CLUSTERS_PER_ROOT = 0.8
_PROBED = 8
"""Clusters whose members a cluster is compared with."""
_TRAINED = 64
"""Vectors per cluster that the centroids are fitted to."""
_FITS = 8


@dataclass(frozen=True, slots=True)
class Nearest:
    """The nearest neighbours of each vector.

    Attributes:
        places: Their places, nearest first, shape (n, k); -1 where there are fewer.
        cosines: The cosines to them, shape (n, k); -1 where there are fewer.
    """

    places: Ints
    cosines: Vectors


def nearest(vectors: Vectors, *, limit: int = NEIGHBOURS, exact: int = _EXACT) -> Nearest:
    """Return the ``limit`` nearest other vectors of each.

    Above ``exact`` vectors they are grouped by k-means, and those of a cluster are compared with
    the eight nearest clusters only (inverted file: Sivic and Zisserman, Video Google, 2003).

    Args:
        vectors: Of unit length, shape (n, d).
        limit: Number of neighbours.
        exact: Greatest number of vectors that are all compared with each other.
    """
    count = len(vectors)
    found = Nearest(
        np.full((count, limit), -1, dtype=np.int64),
        np.full((count, limit), -1.0, dtype=np.float32),
    )
    everything = np.arange(count)
    if count <= exact:
        _compare(vectors, everything, everything, found)
        return found
    labels, centroids = _clusters(vectors)
    members = [np.flatnonzero(labels == each) for each in range(len(centroids))]
    lengths = np.square(centroids).sum(axis=1)
    close = np.argsort(lengths - 2 * centroids @ centroids.T, axis=1)[:, :_PROBED]
    for own, probed in zip(members, close, strict=True):
        _compare(vectors, own, np.flatnonzero(np.isin(labels, [*probed])), found)
    return found


def _clusters(vectors: Vectors) -> tuple[Ints, Vectors]:
    """Return the cluster of each vector and the centroids; always the same for the same vectors."""
    size = round(_CLUSTERS_PER_ROOT * len(vectors) ** 0.5)
    choose = np.random.default_rng(0)
    sample = choose.choice(len(vectors), min(len(vectors), size * _TRAINED), replace=False)
    centroids, _ = vq.kmeans2(
        vectors[sample], size, iter=_FITS, minit="points", missing="warn", rng=choose
    )
    labels, _ = vq.vq(vectors, centroids)
    return labels, centroids


def _compare(vectors: Vectors, own: Ints, others: Ints, found: Nearest) -> None:
    """Set the nearest among ``others``, ascending places, of each in ``own``, some of them."""
    limit = min(found.places.shape[1], len(others) - 1)
    if limit < 1:
        return
    columns = vectors[others]
    width = -(-len(others) // _GROUP) * _GROUP
    step = max(1, _CELLS // width)
    for begin in range(0, len(own), step):
        rows = own[begin : begin + step]
        cosines = np.full((len(rows), width), -2.0, dtype=np.float32)
        np.matmul(vectors[rows], columns.T, out=cosines[:, : len(others)])
        cosines[np.arange(len(rows)), np.searchsorted(others, rows)] = -2.0
        best = _greatest(cosines, limit)
        found.cosines[rows, :limit] = np.take_along_axis(cosines, best, axis=1)
        found.places[rows, :limit] = others[best]


def _greatest(values: Vectors, limit: int) -> Ints:
    """Return the places of the ``limit`` greatest of each row, greatest first; ties by place.

    They are in the ``limit`` groups of columns with the greatest maxima; only these are sorted.
    """
    count, width = values.shape
    maxima = values.reshape(count, width // _GROUP, _GROUP).max(axis=2)
    groups = np.argsort(-maxima, axis=1, kind="stable")[:, :limit]
    columns = (groups[:, :, None] * _GROUP + np.arange(_GROUP)).reshape(count, -1)
    columns.sort(axis=1)
    within = np.take_along_axis(values, columns, axis=1)
    order = np.argsort(-within, axis=1, kind="stable")[:, :limit]
    return np.asarray(np.take_along_axis(columns, order, axis=1))


def surprisal(neighbours: Nearest) -> Floats:
    """Return how surprising each vector is, in nats, shape (n,): ``-ln pi``.

    ``pi`` is the stationary distribution of the random walk on the graph that connects each vector
    with its nearest neighbours, undirected: its degree over the sum of all degrees (Lovasz, Random
    Walks on Graphs, 1993). Vectors that few others are near to are visited seldom.
    """
    count = len(neighbours.places)
    if count < 2:
        return np.zeros(count)
    degrees = np.diff(_undirected(neighbours, np.ones_like(neighbours.cosines)).indptr)
    return np.asarray(-np.log(degrees / degrees.sum()))


def neighbour_graph(neighbours: Nearest, *, least: float) -> sparse.csr_array:
    """Return the symmetric graph of nearest neighbours, weighted by their cosines.

    Args:
        neighbours: The neighbours.
        least: Minimum cosine, > 0.
    """
    kept = np.where(neighbours.cosines >= least, neighbours.cosines, 0)
    return _undirected(neighbours, kept)


def _undirected(neighbours: Nearest, weights: Vectors) -> sparse.csr_array:
    """Return a graph with an edge where a weight is not 0, in both directions."""
    count = len(neighbours.places)
    kept = (neighbours.places >= 0) & (weights != 0)
    ends = np.nonzero(kept)[0], neighbours.places[kept]
    graph = sparse.csr_array((weights[kept].astype(np.float64), ends), shape=(count, count))
    return sparse.csr_array(graph.maximum(graph.T))


@dataclass(frozen=True, slots=True)
class Novelty:
    """Novelty by random matrix theory.

    Attributes:
        scores: Of each vector, in [0, 1], shape (n,).
        variance: Mean variance of a dimension.
        edge: Greatest eigenvalue that vectors without structure have.
        outliers: Eigenvalues above the edge, greatest first.
    """

    scores: Floats
    variance: float
    edge: float
    outliers: Floats


def novelty(vectors: Vectors) -> Novelty:
    """Score vectors by their share in the directions that are not noise.

    Eigenvalues of the covariance of n independent vectors of d dimensions lie below
    ``edge = variance (1 + sqrt(d / n))^2`` with ``variance = trace / d`` (Marchenko and Pastur,
    1967). The score is the sum, over the eigenvectors above it, of the squared projection of the
    centred vector times the excess of the eigenvalue, then scaled to [0, 1] by minimum and maximum;
    0 if all are equal.

    Args:
        vectors: Shape (n, d).
    """
    count, dimensions = vectors.shape
    if count < 2:
        return Novelty(np.zeros(count), 0.0, 0.0, np.zeros(0))
    centred = vectors - vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
    covariance = (centred.T @ centred).astype(np.float64) / count
    variance = float(np.trace(covariance)) / dimensions
    edge = variance * (1 + (dimensions / count) ** 0.5) ** 2
    values, directions = np.linalg.eigh(covariance)
    above = values > edge
    excess = (values[above] - edge).astype(np.float32)
    scores = ((centred @ directions[:, above].astype(np.float32)) ** 2 @ excess).astype(np.float64)
    span = float(np.ptp(scores))
    scaled = (scores - scores.min()) / span if span > 0 else np.zeros(count)
    return Novelty(scaled, variance, edge, values[above][::-1])
