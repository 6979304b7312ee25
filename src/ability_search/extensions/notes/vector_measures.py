"""Measures of vectors: nearest neighbours, novelty and surprisal. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.cluster import vq

from ability_search.extensions.notes.graph_analysis import NoveltySpectrum, six_digits

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.float32]

NEIGHBOURS = 5
_EXACT = 10_000
"""Vectors up to which each is compared with all others."""
_CELLS = 2_000_000
"""Cosines computed at once; 4 bytes each."""
_CLUSTERS_PER_ROOT = 0.8
_PROBED = 6
"""Clusters whose members a vector is compared with."""
_TRAINED = 64
"""Vectors per cluster that the centroids are fitted to."""
_FITS = 8
_NONE = -2.0
"""Less than any cosine."""


@dataclass(frozen=True, slots=True)
class Nearest:
    """The nearest neighbours of each vector.

    Attributes:
        places: Their places, nearest first, shape (n, k); -1 where there are fewer.
        cosines: The cosines to them, shape (n, k); -1 where there are fewer.
    """

    places: Ints
    cosines: Vectors


def nearest(
    vectors: Vectors, *, groups: Ints | None = None, limit: int = NEIGHBOURS, exact: int = _EXACT
) -> Nearest:
    """Return the ``limit`` nearest other vectors of each.

    Above ``exact`` vectors they are grouped by k-means, and each is compared with the members of
    the six clusters nearest to it (inverted file: Sivic and Zisserman, Video Google, 2003).

    Args:
        vectors: Of unit length, shape (n, d).
        groups: Group of each, shape (n,); no two of a group are neighbours.
        limit: Number of neighbours.
        exact: Greatest number of vectors that are all compared with each other.
    """
    count = len(vectors)
    everything = np.arange(count)
    groups = everything if groups is None else groups
    if count <= exact:
        probed, size = np.zeros((count, 1), dtype=np.int64), 1
    else:
        centroids = _centroids(vectors)
        probed, size = _probed(vectors, centroids), len(centroids)
    slots = probed.shape[1]
    asking = np.argsort(probed, axis=None, kind="stable")
    ends = np.searchsorted(probed.ravel()[asking], np.arange(size + 1))
    places = np.full((count * slots, limit), -1, dtype=np.int64)
    cosines = np.full((count * slots, limit), -1.0, dtype=np.float32)
    for cluster in range(size):
        others = np.flatnonzero(probed[:, 0] == cluster)
        own = asking[ends[cluster] : ends[cluster + 1]]
        columns = vectors[others]
        step = max(1, _CELLS // max(1, len(others)))
        for begin in range(0, len(own), step):
            rows = own[begin : begin + step]
            compared = vectors[rows // slots] @ columns.T
            compared[groups[rows // slots, None] == groups[others]] = _NONE
            best, values = _greatest(compared, limit)
            none = values == _NONE
            places[rows, : best.shape[1]] = np.where(none, -1, others[best])
            cosines[rows, : best.shape[1]] = np.where(none, -1.0, values)
    places = places.reshape(count, slots * limit)
    cosines = cosines.reshape(count, slots * limit)
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :limit]
    return Nearest(
        np.take_along_axis(places, order, axis=1), np.take_along_axis(cosines, order, axis=1)
    )


def _centroids(vectors: Vectors) -> Vectors:
    """Return the centroids of clusters; always the same for the same vectors."""
    size = round(_CLUSTERS_PER_ROOT * len(vectors) ** 0.5)
    choose = np.random.default_rng(0)
    sample = choose.choice(len(vectors), min(len(vectors), size * _TRAINED), replace=False)
    centroids, _ = vq.kmeans2(
        vectors[sample], size, iter=_FITS, minit="points", missing="warn", rng=choose
    )
    return np.asarray(centroids)


def _probed(vectors: Vectors, centroids: Vectors) -> Ints:
    """Return the clusters nearest to each vector, shape (n, p), nearest first."""
    half = np.square(centroids).sum(axis=1) / 2
    step = max(1, _CELLS // len(centroids))
    return np.concatenate(
        [
            _greatest(vectors[begin : begin + step] @ centroids.T - half, _PROBED)[0]
            for begin in range(0, len(vectors), step)
        ]
    )


def _greatest(values: Vectors, limit: int) -> tuple[Ints, Vectors]:
    """Return the places and values of the ``limit`` greatest of each row, greatest first.

    Fewer if there are fewer columns; of equal ones the first comes first. The values are
    overwritten.
    """
    rows = np.arange(len(values))
    limit = min(limit, values.shape[1])
    places = np.empty((len(values), limit), dtype=np.int64)
    greatest = np.empty((len(values), limit), dtype=values.dtype)
    for rank in range(limit):
        best = values.argmax(axis=1)
        places[:, rank], greatest[:, rank] = best, values[rows, best]
        values[rows, best] = -np.inf
    return places, greatest


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


def novelty(vectors: Vectors) -> tuple[Floats, NoveltySpectrum]:
    """Score vectors by their share in the directions that are not noise, in [0, 1], shape (n,).

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
        return np.zeros(count), NoveltySpectrum(variance=0.0, edge=0.0, outliers=[])
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
    return scaled, NoveltySpectrum(
        variance=six_digits(variance),
        edge=six_digits(edge),
        outliers=list(map(six_digits, values[above][::-1])),
    )
