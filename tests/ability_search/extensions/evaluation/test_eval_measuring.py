from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.extensions.evaluation.sets import write_set

from ability_search.errors import SearchError
from ability_search.extensions.evaluation.judged_sets import Dataset, JudgedQuery, read_dataset
from ability_search.extensions.evaluation.measurement import (
    QueryRun,
    best_chunks,
    chunks_for,
    measure,
    run_queries,
    run_query,
)
from ability_search.extensions.evaluation.runs import top_scores

QUERY = JudgedQuery("q", "text")


def hits(*sources: str) -> list[dict[str, Any]]:
    """Chunks of these documents, best first."""
    return [{"source": source, "score": 1 - place / 100} for place, source in enumerate(sources)]


class Tool:
    """``search-query`` over a fixed list of chunks."""

    def __init__(self, found: list[dict[str, Any]], **further: Any) -> None:
        self._found = found
        self._further = further
        self.asked: list[Mapping[str, Any]] = []

    async def call(self, tool: str, tool_input: Mapping[str, Any]) -> dict[str, Any]:
        assert tool == "search-query"
        self.asked.append(tool_input)
        return {"results": self._found[: tool_input["limit"]], **self._further}

    @property
    def limits(self) -> list[int]:
        return [asked["limit"] for asked in self.asked]


def asking(call: Any, **changes: Any) -> QueryRun:
    values: dict[str, Any] = {
        "call": call,
        "fields": {"collection": "c", "prf": True},
        "limit": 3,
        "chunks": 3,
        "most_chunks": 100,
        "concurrency": 2,
    }
    return QueryRun(**values | changes)


def test_a_document_is_where_its_best_chunk_is() -> None:
    ranking = best_chunks(hits("a", "b", "a", "c", "b"))
    assert list(ranking.items()) == [("a", 1.0), ("b", 0.99), ("c", 0.97)]


@pytest.mark.parametrize(
    ("chunks", "sources", "expected"), [(10, 10, 100), (25, 10, 250), (0, 0, 100)]
)
def test_chunks_that_are_asked_for_follow_their_number_in_a_document(
    chunks: int, sources: int, expected: int
) -> None:
    assert chunks_for(100, chunks=chunks, sources=sources) == expected


async def test_a_query_carries_the_fields_and_the_mode() -> None:
    tool = Tool(hits("a", "b", "c", "d"))
    outcome = await run_query(asking(tool.call), QUERY, "keyword")
    expected = {"collection": "c", "prf": True, "query": "text", "mode": "keyword", "limit": 3}
    assert tool.asked == [expected]
    assert (outcome.documents, outcome.scores) == (["a", "b", "c"], [1.0, 0.99, 0.98])


async def test_a_query_is_asked_at_its_own_time_before_that_of_all() -> None:
    tool = Tool(hits("a"))
    common = asking(tool.call, fields={"collection": "c", "asOf": "2026-03-25"})
    for query in (QUERY, JudgedQuery("q", "text", as_of="2025-01-01")):
        await run_query(common, query, "keyword")
    assert [asked["asOf"] for asked in tool.asked] == ["2026-03-25", "2025-01-01"]


async def test_more_chunks_are_asked_for_until_they_fill_the_documents() -> None:
    tool = Tool(hits(*"aaaaaaaabbbbc", *"ddd"))
    outcome = await run_query(asking(tool.call), QUERY, "hybrid")
    assert tool.limits == [3, 6, 12, 24]
    assert outcome.documents == ["a", "b", "c"]


async def test_asking_ends_where_nothing_more_is_found_or_allowed() -> None:
    exhausted = Tool(hits("a", "a"))
    assert (await run_query(asking(exhausted.call), QUERY, "hybrid")).documents == ["a"]
    assert exhausted.limits == [3]
    bounded = Tool(hits(*"a" * 50))
    await run_query(asking(bounded.call, most_chunks=10), QUERY, "hybrid")
    assert bounded.limits == [3, 6, 10]


async def test_an_answer_in_another_mode_is_refused() -> None:
    degraded = {"reason": "no embedder", "mode": "keyword", "code": "embedding_unavailable"}
    tool = Tool(hits("a"), degraded=degraded)
    with pytest.raises(SearchError, match="query 'q' was searched by keyword only: no embedder"):
        await run_query(asking(tool.call), QUERY, "hybrid")


async def test_queries_are_asked_side_by_side_but_no_more_than_allowed() -> None:
    running, seen = 0, []

    async def call(_tool: str, _input: Mapping[str, Any]) -> dict[str, Any]:
        nonlocal running
        running += 1
        seen.append(running)
        for _ in range(3):
            await asyncio.sleep(0)
        running -= 1
        return {"results": []}

    queries = [JudgedQuery(str(number), "text") for number in range(9)]
    ticks: list[int] = []
    outcomes = await run_queries(asking(call, concurrency=3), queries, "hybrid", ticks.append)
    assert max(seen) == 3
    assert set(outcomes) == {query.id for query in queries}
    assert ticks == list(range(1, 10))


async def test_the_first_failure_is_raised_as_it_is() -> None:
    async def call(_tool: str, tool_input: Mapping[str, Any]) -> dict[str, Any]:
        raise SearchError(f"cannot answer {tool_input['query']}")

    with pytest.raises(SearchError, match="cannot answer text"):
        await run_queries(asking(call), [QUERY], "hybrid", lambda _: None)


async def test_negative_queries_are_asked_and_count_in_no_metric(tmp_path: Path) -> None:
    dataset: Dataset = read_dataset(write_set(tmp_path))
    answers = {
        "when is the archive copied": [{"source": "d1", "score": 0.75}],
        "how long does dough rest": [
            {"source": "d3", "score": 0.5},
            {"source": "d2", "score": 0.25},
        ],
        "who won the race": [{"source": "d2", "score": 0.625}],
    }

    async def call(_tool: str, tool_input: Mapping[str, Any]) -> dict[str, Any]:
        return {"results": answers[tool_input["query"]]}

    found = await measure(asking(call, limit=100), dataset, "hybrid", lambda _: None)
    assert list(found.queries) == ["q1", "q2"]
    assert found.metrics["MRR@10"] == pytest.approx((1 + 1 / 2) / 2)
    assert found.metrics["Hit@1"] == 0.5
    assert found.recall_curve[1] == 0.5
    assert list(found.by_category()) == ["plain"]
    assert found.negatives["q3"].metrics == {}
    assert top_scores(found) == {"answered": 0.625, "unanswered": 0.625, "unansweredMax": 0.625}
