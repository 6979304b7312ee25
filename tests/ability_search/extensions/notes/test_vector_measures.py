"""Nearest neighbours, novelty and surprisal of vectors."""

from __future__ import annotations

from math import log

import numpy as np
import pytest

from ability_search.extensions.notes.vector_measures import (
    Vectors,
    nearest,
    neighbour_graph,
    novelty,
    surprisal,
)


def unit(vectors: object) -> Vectors:
    found = np.asarray(vectors, dtype=np.float32)
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), dtype=np.float32)


def random_vectors(count: int, dimensions: int, *, seed: int = 0) -> Vectors:
    return unit(np.random.default_rng(seed).standard_normal((count, dimensions)))


def clustered(count: int) -> Vectors:
    choose = np.random.default_rng(1)
    centres = choose.standard_normal((count // 20, 24))
    return unit(
        centres[choose.integers(0, len(centres), count)] + 0.5 * choose.standard_normal((count, 24))
    )


def test_nearest_neighbours_are_those_of_a_full_comparison() -> None:
    vectors = random_vectors(300, 16)
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -2)
    expected = np.argsort(-cosines, axis=1)[:, :5]
    found = nearest(vectors)
    np.testing.assert_array_equal(found.places, expected)
    np.testing.assert_allclose(
        found.cosines, np.take_along_axis(cosines, expected, axis=1), atol=1e-5
    )


@pytest.mark.slow
def test_clusters_find_nearly_all_neighbours() -> None:
    vectors = clustered(4000)
    exact, found = nearest(vectors), nearest(vectors, exact=1000)
    same = (exact.places[:, :, None] == found.places[:, None, :]).any(axis=2)
    assert same.mean() > 0.98
    np.testing.assert_array_equal(found.places, nearest(vectors, exact=1000).places)


@pytest.mark.parametrize("exact", [1000, 100])
def test_vectors_of_a_group_are_no_neighbours(exact: int) -> None:
    vectors = clustered(600)
    groups = np.arange(600) % 7
    cosines = vectors @ vectors.T
    cosines[groups[:, None] == groups[None, :]] = -2
    expected = np.argsort(-cosines, axis=1)[:, :5]
    found = nearest(vectors, groups=groups, exact=exact)
    same = (found.places[:, :, None] == expected[:, None, :]).any(axis=2)
    assert same.mean() > (0.9 if exact < 600 else 0.999)
    assert (groups[found.places] != groups[:, None]).all()
    alone = nearest(vectors[:3], groups=np.zeros(3, dtype=np.int64))
    assert (alone.places == -1).all()
    assert (alone.cosines == -1).all()


def test_few_vectors_have_few_neighbours() -> None:
    found = nearest(unit([[1, 0], [1, 1]]))
    assert found.places.tolist() == [[1, -1, -1, -1, -1], [0, -1, -1, -1, -1]]
    assert nearest(unit([[1, 0]])).places.tolist() == [[-1] * 5]
    assert nearest(np.zeros((0, 2), dtype=np.float32)).places.shape == (0, 5)


def test_edges_join_vectors_above_the_least_cosine_in_both_directions() -> None:
    vectors = unit([[1, 0], [1, 0.1], [1, 3]])
    edges = neighbour_graph(nearest(vectors), least=0.8)
    rows, columns = edges.nonzero()
    assert sorted(zip(rows.tolist(), columns.tolist(), strict=True)) == [(0, 1), (1, 0)]
    assert edges[0, 1] == pytest.approx(float(vectors[0] @ vectors[1]))


def test_noise_has_no_outliers_and_a_planted_direction_is_one() -> None:
    noise = random_vectors(2000, 50)
    _, found = novelty(noise)
    assert found.variance == pytest.approx(1 / 50, rel=0.01)
    assert found.edge == pytest.approx((1 + (50 / 2000) ** 0.5) ** 2 / 50, rel=0.01)
    assert max(found.outliers, default=0) < 1.03 * found.edge, "fluctuations at the edge only"
    planted = np.array(noise)
    planted[:40, 0] += 1.5
    scores, found = novelty(unit(planted))
    assert found.outliers[0] > 1.1 * found.edge
    assert set(np.argsort(-scores)[:30]) <= set(range(40))
    assert (scores.min(), scores.max()) == (0.0, 1.0)


def test_equal_vectors_are_not_novel() -> None:
    assert novelty(unit(np.ones((10, 4))))[0].tolist() == [0.0] * 10
    assert novelty(unit(np.ones((1, 4))))[0].tolist() == [0.0]


def test_vectors_that_nothing_is_near_to_are_surprising() -> None:
    around = unit(np.eye(8)[0] + 0.1 * random_vectors(40, 8))
    found = surprisal(nearest(np.vstack([around, unit([-np.eye(8)[0]])])))
    assert found.argmax() == 40 or found[40] == found.max()
    assert np.exp(-found).sum() == pytest.approx(1.0)
    assert surprisal(nearest(unit([[1, 0]]))).tolist() == [0.0]


def test_surprisal_of_a_complete_graph_is_uniform() -> None:
    np.testing.assert_allclose(surprisal(nearest(random_vectors(6, 4))), np.full(6, log(6)))
