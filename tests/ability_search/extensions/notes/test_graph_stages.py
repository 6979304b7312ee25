"""Graph expansion: paths to neighbours, and their scores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ability_search.search.values import chunk

from ability_search.extensions.notes.graph_stages import HOP, SHARE, lifted, paths, strength
from ability_search.search.candidates import Path
from ability_search.store.records import SourceLink

shares = st.floats(0, 1)


def link(source: str, target: str, kind: str = "k", weight: float = 1.0) -> SourceLink:
    return SourceLink(source, target, kind, weight)


def starts(*sources: str) -> dict[str, Path]:
    return {name: Path(chunk("#", f"docs:{name}:0")) for name in sources}


def told(found: dict[str, Path]) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {source: (path.start.source, path.steps) for source, path in found.items()}


def test_both_ends_of_a_link_are_reached() -> None:
    found = paths(starts("a"), [([link("a", "b", "x")], [link("c", "a", "y")])])
    assert told(found) == {"b": ("a", ("x",)), "c": ("a", ("y",))}


def test_strongest_of_several_links_is_followed() -> None:
    links = [link("a", "b", "weak", 0.2), link("a", "b", "strong", 0.9)]
    found = paths(starts("a"), [(links, [])])
    assert told(found) == {"b": ("a", ("strong",))}


def test_path_with_the_fewest_hops_is_chosen() -> None:
    found = paths(
        starts("a"),
        [
            ([link("a", "b", "direct", 0.1), link("a", "m", "in")], []),
            ([link("m", "b", "on"), link("m", "c", "on", 0.5)], []),
        ],
    )
    assert told(found)["b"] == ("a", ("direct",))
    assert found["c"].weights == (1.0, 0.5)


def test_start_is_reached_only_from_a_better_one() -> None:
    found = paths(starts("a", "b"), [([link("b", "a")], [link("b", "a")])])
    assert told(found) == {"b": ("a", ("k",))}


def test_unlinked_sources_are_not_reached() -> None:
    nothing = [([link("x", "y")], [link("a", "a")])]
    assert paths(starts("a"), nothing) == {}
    assert paths(starts("a"), []) == {}


def test_each_further_hop_halves_the_strength() -> None:
    assert strength([0.8]) == 0.8
    assert strength([0.8, 0.5]) == pytest.approx(0.8 * 0.5 * HOP)


def test_gain_between_near_ties_is_small() -> None:
    assert lifted(0.5, 0.6, 1.0) == pytest.approx(0.52)


@given(shares, shares, shares)
def test_neighbour_never_exceeds_its_hit_nor_falls(own: float, hit: float, strong: float) -> None:
    score = lifted(own, hit, strong)
    assert own <= score <= max(own, hit) + 1e-15
    assert score - own <= SHARE * strong * max(0.0, hit - own) + 1e-15


@given(shares, shares)
def test_strength_zero_changes_nothing(own: float, hit: float) -> None:
    assert lifted(own, hit, 0.0) == own
