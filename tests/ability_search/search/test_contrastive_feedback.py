"""Contrastive feedback, without a database."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest
from tests.ability_search.search.values import candidates_of, chunk, query_of

from ability_search.search.candidates import Candidate
from ability_search.search.plan import Plan
from ability_search.search.query import understood
from ability_search.search.stage import Ports
from ability_search.search.stages.contrastive_feedback import apply_contrast
from ability_search.search.stages.feedback import DEPTH
from ability_search.store.records import ChunkText

PLAN = Plan([1.0], depths=(10,), beam=10, scan_below=0, informative=0.0)


class Rows:
    """A store that knows the cosines of chunks to the one they are compared with."""

    def __init__(self, **alike: float) -> None:
        self.alike = alike
        self.asked: list[tuple[Sequence[str], Sequence[str]]] = []

    async def chunks(
        self, generation: str, rids: Sequence[str], *, compared: Sequence[str] = ()
    ) -> list[ChunkText]:
        """The chunks asked for, as far as they are known."""
        self.asked.append((list(rids), list(compared)))
        return [text(rid, self.alike[rid]) for rid in rids if rid in self.alike]


def text(rid: str, cosine: float) -> ChunkText:
    return ChunkText(
        rid, rid, "s", "", "", {}, None, 0, 1, None, None, None, None, None, None, (cosine,)
    )


def candidate(
    name: str, score: float, about: float | None, cosine: float | None = 0.5
) -> Candidate:
    return chunk(
        name, name, cosine, ranks={"semantic": 1}, columns={"excluded0": about}, score=score
    )


async def learned(rows: Rows, *block: Candidate) -> dict[str, float]:
    query = understood(query_of("caching besides redis"), now=0)
    candidates = candidates_of(query, PLAN, block)
    candidates.blocks = [list(block)]
    ports = cast(Ports, SimpleNamespace(store=rows))
    await apply_contrast(candidates, ports)
    return {item.chunk_id: item.score for item in block}


async def test_similarity_counts_by_how_much_the_example_is_about_the_exclusion() -> None:
    for about, weight in ((0.8, 0.25), (0.4, 0.125)):
        block = candidate("redis", 0.4, about), candidate("disks", 0.2, about / 2)
        scores = await learned(Rows(redis=1.0, disks=0.6), *block)
        assert scores == pytest.approx(
            {"redis": (1 - weight) * 0.4, "disks": (1 - weight) * 0.2 + weight * 0.6 / 2}
        )
        assert block[1].row == text("disks", 0.6)


async def test_nothing_is_read_if_no_candidate_is_about_the_exclusion() -> None:
    rows = Rows()
    block = candidate("far", 0.4, -0.2), candidate("unknown", 0.3, None, None)
    assert await learned(rows, *block) == {"far": 0.4, "unknown": 0.3}
    assert rows.asked == []


async def test_replaced_example_changes_nothing() -> None:
    block = candidate("redis", 0.4, 0.8), candidate("disks", 0.2, 0.1)
    assert await learned(Rows(disks=1.0), *block) == {"redis": 0.4, "disks": 0.2}


async def test_example_below_the_first_hits_is_compared_and_the_rest_stays_behind() -> None:
    block = [candidate(f"d{n:02}", 0.9 - n / 100, 0.0) for n in range(DEPTH + 5)]
    example = candidate("redis", 0.1, 0.8)
    alike = {item.chunk_id: 0.0 for item in block} | {"redis": 1.0}
    rows = Rows(**alike)
    scores = await learned(rows, *block, example)
    ((asked, compared),) = rows.asked
    assert asked == [*(item.chunk_id for item in block[:DEPTH]), "redis"]
    assert compared == ["redis"]
    first = [scores[name] for name in asked]
    rest = [scores[item.chunk_id] for item in block[DEPTH:]]
    assert max(rest) < min(first)
    assert rest == sorted(rest, reverse=True)
