"""Aspects give place and score to what they stand for."""

from __future__ import annotations

from ability_search.querying.folding import folded
from ability_search.querying.model import Candidate
from hypothesis import given
from hypothesis import strategies as st


def chunk(name: str, score: float = 0.0) -> Candidate:
    return Candidate(f"#{name}", name, score=score, fused=score)


def aspect(of: Candidate, name: str, score: float) -> Candidate:
    item = chunk(name, score)
    item.stands_for, item.columns = of, {"kind": "summary"}
    return item


def places(blocks: list[list[Candidate]]) -> list[list[tuple[str, float]]]:
    return [[(item.chunk_id, item.score) for item in block] for block in blocks]


def test_without_aspects_nothing_changes() -> None:
    blocks = [[chunk("a", 0.5), chunk("b", 0.4)], [chunk("c", 0.9)]]
    assert places(folded(blocks)) == places(blocks)
    assert folded([]) == []


def test_the_best_score_counts_and_is_explained() -> None:
    a = chunk("a", 0.5)
    assert places(folded([[a, aspect(a, "x", 0.4), aspect(a, "y", 0.7)]])) == [[("a", 0.7)]]
    assert a.trace["extended"]["chunkId"] == "y"


def test_a_chunk_that_is_better_itself_stays_as_it_is() -> None:
    a = chunk("a", 0.5)
    assert places(folded([[aspect(a, "x", 0.5), a]])) == [[("a", 0.5)]]
    b = chunk("b", 0.6)
    assert places(folded([[b, aspect(b, "x", 0.5)]])) == [[("b", 0.6)]]
    assert "extended" not in b.trace


def test_what_was_listed_is_not_listed_again() -> None:
    a = chunk("a", 0.9)
    blocks = [[aspect(a, "x", 0.4)], [a, chunk("b", 0.2)]]
    assert places(folded(blocks)) == [[("a", 0.4)], [("b", 0.2)]]


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 1), st.booleans()), max_size=20))
def test_each_chunk_is_there_once_with_its_best_score(
    given_: list[tuple[int, float, bool]],
) -> None:
    targets = [chunk(str(n)) for n in range(6)]
    best: dict[str, float] = {}
    block = []
    for place, (n, score, itself) in enumerate(given_):
        if itself and targets[n] in block:
            continue
        if itself:
            targets[n].score = score
        block.append(targets[n] if itself else aspect(targets[n], f"x{place}", score))
        best[str(n)] = max(score, best.get(str(n), 0.0))
    found = folded([block])
    assert {item.chunk_id: item.score for part in found for item in part} == best
