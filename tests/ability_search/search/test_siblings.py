"""What is like the excluded, without a database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from ability_search.querying import siblings
from ability_search.querying.adjusting import Context
from ability_search.querying.candidates import Plan, Pool, Search
from ability_search.querying.feedback import DEPTH
from ability_search.querying.meaning import understood
from ability_search.querying.model import Candidate, Query

from ability_search.collection import Collection
from ability_search.config.schema import Ranking

DOCS = Collection("docs", "Chunk_docs_1", 1, "m", 1, "english", 10.0, "auto", 500, 0)
PLAN = Plan([Search("semantic", [1.0], 10)], depths=(10,), beam=10, scan_below=0, informative=0.0)


class Rows:
    """A store that knows the cosines of chunks to the one they are compared with."""

    def __init__(self, **alike: float) -> None:
        self.alike = alike
        self.asked: list[Mapping[str, Any]] = []

    async def read(self, script: str, params: Mapping[str, Any]) -> Any:
        """The rows of the chunks asked for, as far as they are known."""
        self.asked.append(params)
        names = [name for name in params["rids"] if name in self.alike]
        return {"rows": [{"rid": name, "like0": self.alike[name]} for name in names]}

    async def write(self, script: str, params: Mapping[str, Any]) -> Any:
        """Never asked for."""
        raise AssertionError(script)


def candidate(
    name: str, score: float, about: float | None, cosine: float | None = 0.5
) -> Candidate:
    found = Candidate(name, name, cosine, ranks={"semantic": 1}, columns={"excluded0": about})
    found.score = score
    return found


async def learned(rows: Rows, *block: Candidate) -> dict[str, float]:
    query = understood(Query("caching besides redis"), now=0)
    context = Context(query, PLAN, Ranking(), 0)
    await siblings.learn(rows, Pool(DOCS, list(block)), block, context)
    return {item.chunk_id: item.score for item in block}


async def test_the_surer_there_is_an_example_the_more_likeness_counts() -> None:
    for about, weight in ((0.8, 0.25), (0.4, 0.125)):
        block = candidate("redis", 0.4, about), candidate("disks", 0.2, about / 2)
        scores = await learned(Rows(redis=1.0, disks=0.6), *block)
        assert scores == pytest.approx(
            {"redis": (1 - weight) * 0.4, "disks": (1 - weight) * 0.2 + weight * 0.6 / 2}
        )
        assert block[1].row == {"rid": "disks", "like0": 0.6}


async def test_nothing_is_asked_where_nothing_is_about_the_excluded() -> None:
    rows = Rows()
    block = candidate("far", 0.4, -0.2), candidate("unknown", 0.3, None, None)
    assert await learned(rows, *block) == {"far": 0.4, "unknown": 0.3}
    assert rows.asked == []


async def test_an_example_that_is_gone_teaches_nothing() -> None:
    block = candidate("redis", 0.4, 0.8), candidate("disks", 0.2, 0.1)
    assert await learned(Rows(disks=1.0), *block) == {"redis": 0.4, "disks": 0.2}


async def test_an_example_from_further_down_is_compared_and_the_rest_stays_behind() -> None:
    block = [candidate(f"d{n:02}", 0.9 - n / 100, 0.0) for n in range(DEPTH + 5)]
    example = candidate("redis", 0.1, 0.8)
    alike = {item.chunk_id: 0.0 for item in block} | {"redis": 1.0}
    rows = Rows(**alike)
    scores = await learned(rows, *block, example)
    (asked,) = rows.asked
    assert asked["rids"] == [*(item.chunk_id for item in block[:DEPTH]), "redis"]
    assert asked["compared0"] == "redis"
    first = [scores[name] for name in asked["rids"]]
    rest = [scores[item.chunk_id] for item in block[DEPTH:]]
    assert max(rest) < min(first)
    assert rest == sorted(rest, reverse=True)
