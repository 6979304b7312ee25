"""Measures of graphs whose values are known in closed form."""

from __future__ import annotations

from math import cos, log, pi
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from ability_search.extensions.notes import graph_measures
from ability_search.extensions.notes.graph_measures import (
    Floats,
    betweenness,
    components,
    edge_entropy,
    fiedler,
    pagerank,
)


def graph(count: int, *edges: tuple[int, int], directed: bool = False) -> sparse.csr_array:
    rows, columns = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    found = sparse.csr_array((np.ones(len(edges)), (rows, columns)), shape=(count, count))
    return found if directed else sparse.csr_array(found + found.T)


def path(count: int) -> sparse.csr_array:
    return graph(count, *((node, node + 1) for node in range(count - 1)))


def cycle(count: int) -> sparse.csr_array:
    return graph(count, *((node, (node + 1) % count) for node in range(count)))


def star(leaves: int) -> sparse.csr_array:
    return graph(leaves + 1, *((0, leaf) for leaf in range(1, leaves + 1)))


def complete(count: int) -> sparse.csr_array:
    return sparse.csr_array(np.ones((count, count)) - np.eye(count))


def grid(side: int) -> sparse.csr_array:
    line, one = path(side), sparse.eye_array(side)
    return sparse.csr_array(sparse.kron(line, one) + sparse.kron(one, line))


def test_pagerank_of_a_star_that_points_to_its_centre() -> None:
    found = pagerank(graph(5, (1, 0), (2, 0), (3, 0), (4, 0), directed=True))
    # A leaf: b = (.85 c + .15) / 5; the centre: c = b + .85 * 4 b.
    leaf = 1 / (4 + 4.4)
    np.testing.assert_allclose(found, [4.4 * leaf, *[leaf] * 4])


def test_pagerank_of_a_regular_graph_is_uniform_and_that_without_edges_too() -> None:
    np.testing.assert_allclose(pagerank(cycle(7)), np.full(7, 1 / 7))
    np.testing.assert_allclose(pagerank(graph(3)), np.full(3, 1 / 3))
    assert pagerank(graph(0)).shape == (0,)


def test_pagerank_follows_the_weights_of_edges() -> None:
    weighted = sparse.csr_array(np.array([[0.0, 3.0, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    _, heavy, light = pagerank(weighted)
    base = pagerank(weighted)[0]
    np.testing.assert_allclose(heavy - base, 3 * (light - base))


@pytest.mark.parametrize("count", [3, 6, 11])
def test_betweenness_of_a_path_and_a_star(count: int) -> None:
    pairs = (count - 1) * (count - 2) / 2
    expected = [node * (count - 1 - node) / pairs for node in range(count)]
    np.testing.assert_allclose(betweenness(path(count)), expected)
    np.testing.assert_allclose(betweenness(star(count)), [1.0, *[0.0] * count])


def test_shortest_paths_of_equal_length_share_their_pair() -> None:
    np.testing.assert_allclose(betweenness(cycle(4)), np.full(4, 0.5 / 3))
    np.testing.assert_allclose(betweenness(complete(5)), np.zeros(5))
    np.testing.assert_allclose(betweenness(graph(2, (0, 1))), np.zeros(2))


def test_sampled_betweenness_estimates_the_exact_one() -> None:
    square = grid(20)
    exact = betweenness(square)
    sampled = betweenness(square, exact=100, pivots=200)
    assert np.corrcoef(exact, sampled)[0, 1] > 0.97
    assert sampled.sum() == pytest.approx(exact.sum(), rel=0.05)
    np.testing.assert_array_equal(sampled, betweenness(square, exact=100, pivots=200))
    np.testing.assert_allclose(betweenness(square, exact=100, pivots=400), exact)


def test_nodes_near_a_pivot_are_not_taken_for_bridges() -> None:
    line = path(300)
    sampled = [betweenness(line, exact=10, pivots=10, seed=seed) for seed in range(20)]
    assert np.abs(np.mean(sampled, axis=0) - betweenness(line)).max() < 0.05
    assert max(np.abs(np.diff(each)).max() for each in sampled) < 0.02


@pytest.mark.slow
def test_long_paths_are_estimated_from_fewer_pivots(monkeypatch: pytest.MonkeyPatch) -> None:
    line, search = path(300), graph_measures._dependencies
    depths: list[int] = []

    def counted(*given: Any) -> tuple[Floats, int]:
        found, depth = search(*given)
        depths.append(depth)
        return found, depth

    monkeypatch.setattr(graph_measures, "_dependencies", counted)
    monkeypatch.setattr(graph_measures, "_BYTES", 0)
    monkeypatch.setattr(graph_measures, "_LEVELS", 2000)
    sampled = betweenness(line, exact=10, pivots=50)
    assert sum(depths[:-1]) < 2000 <= sum(depths)
    depths.clear()
    exact = betweenness(line)
    assert len(depths) == 300
    np.testing.assert_allclose(sampled, exact, atol=0.2)


def test_components_are_numbered_by_size() -> None:
    found = components(graph(7, (0, 1), (2, 3), (3, 4), (5, 6)))
    assert found.tolist() == [1, 1, 0, 0, 0, 2, 2]
    assert components(graph(0)).tolist() == []


@pytest.mark.parametrize("exact", [2000, 10])
@pytest.mark.parametrize(
    ("which", "gap"),
    [
        (path(30), 2 - 2 * cos(pi / 30)),
        (cycle(30), 2 - 2 * cos(2 * pi / 30)),
        (star(30), 1.0),
        (complete(30), 30.0),
    ],
    ids=["path", "cycle", "star", "complete"],
)
def test_fiedler_values_of_known_graphs(which: sparse.csr_array, gap: float, exact: int) -> None:
    vector, found = fiedler(which, exact=exact)
    assert found.gap == pytest.approx(gap, rel=1e-2)
    assert found.converged
    assert np.linalg.norm(vector) == pytest.approx(1.0)
    assert vector.sum() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("exact", [2000, 10])
def test_the_fiedler_vector_separates_two_cliques_at_their_bridge(exact: int) -> None:
    blocks = sparse.block_diag([complete(20), complete(20)], format="lil")
    blocks[19, 20] = blocks[20, 19] = 1.0
    vector, found = fiedler(sparse.csr_array(blocks), exact=exact)
    assert len({*np.sign(vector[:20])}) == len({*np.sign(vector[20:])}) == 1
    assert set(np.argsort(np.abs(vector))[:2].tolist()) == {19, 20}
    assert found.sides == [20, 20]


def test_a_single_node_has_no_gap() -> None:
    assert fiedler(graph(1))[1].gap == 0.0


def test_the_entropy_of_kinds_is_greatest_where_they_are_balanced() -> None:
    first, second = graph(3, (0, 1), (1, 2)), graph(3, (0, 1))
    np.testing.assert_allclose(
        edge_entropy([first, second]),
        [log(2), -(2 / 3) * log(2 / 3) - (1 / 3) * log(1 / 3), 0.0],
    )
    np.testing.assert_allclose(edge_entropy([graph(2)]), [0.0, 0.0])
