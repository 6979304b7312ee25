from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.extensions.evaluation.sets import write_set

from ability_search.errors import SearchError
from ability_search.extensions.evaluation.evaluator import measured, run_queries, run_query
from ability_search.extensions.evaluation.judged_sets import Dataset, JudgedQuery, read_dataset
from ability_search.extensions.evaluation.runs import Outcome, top_scores

QUERY = JudgedQuery(_id="q", text="text")
FIELDS = {"collection": "c", "prf": True, "mode": "hybrid"}


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


async def asked(
    call: Any, query: JudgedQuery = QUERY, *, fields: Mapping[str, Any] = FIELDS
) -> Outcome:
    """Run a query for three documents."""
    return await run_query(call, fields, query, limit=3)


def unseen(_done: int, _total: int, _stage: str) -> None:
    """Nobody looks."""


async def test_a_document_is_where_its_best_chunk_is() -> None:
    outcome = await asked(Tool(hits("a", "b", "a")).call, fields={**FIELDS, "maxPerSource": 2})
    assert (outcome.documents, outcome.scores) == (["a", "b"], [1.0, 0.99])


async def test_a_query_carries_the_fields_and_the_mode() -> None:
    tool = Tool(hits("a", "b", "c", "d"))
    outcome = await asked(tool.call)
    assert tool.asked == [{**FIELDS, "maxPerSource": 1, "query": "text", "limit": 3}]
    assert (outcome.documents, outcome.scores) == (["a", "b", "c"], [1.0, 0.99, 0.98])


async def test_a_query_is_asked_at_its_own_time_before_that_of_all() -> None:
    tool = Tool(hits("a"))
    common = {"collection": "c", "asOf": "2026-03-25"}
    for query in (QUERY, JudgedQuery(_id="q", text="text", asOf="2025-01-01")):
        await asked(tool.call, query, fields=common)
    assert [each["asOf"] for each in tool.asked] == ["2026-03-25", "2025-01-01"]


async def test_an_answer_in_another_mode_is_refused() -> None:
    degraded = {"reason": "no embedder", "mode": "keyword", "code": "embedding_unavailable"}
    tool = Tool(hits("a"), degraded=degraded)
    with pytest.raises(SearchError, match="query 'q' was searched by keyword only: no embedder"):
        await asked(tool.call)


async def test_queries_are_asked_side_by_side_but_no_more_than_allowed() -> None:
    running, seen = 0, []

    async def ask(_query: JudgedQuery) -> Any:
        nonlocal running
        running += 1
        seen.append(running)
        for _ in range(3):
            await asyncio.sleep(0)
        running -= 1

    queries = [JudgedQuery(_id=str(number), text="text") for number in range(9)]
    ticks: list[int] = []
    outcomes = await run_queries(ask, queries, 3, lambda done, _total, _stage: ticks.append(done))
    assert max(seen) == 3
    assert set(outcomes) == {query.id for query in queries}
    assert ticks == list(range(1, 10))


async def test_the_first_failure_is_raised_as_it_is() -> None:
    async def ask(query: JudgedQuery) -> Any:
        raise SearchError(f"cannot answer {query.text}")

    with pytest.raises(SearchError, match="cannot answer text"):
        await run_queries(ask, [QUERY], 2, unseen)


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

    queries = (*dataset.queries, *dataset.negatives)
    ask = partial(run_query, call, FIELDS, limit=100)
    found = measured(dataset, await run_queries(ask, queries, 1, unseen), limit=100)
    assert list(found.queries) == ["q1", "q2"]
    assert found.metrics["MRR@10"] == pytest.approx((1 + 1 / 2) / 2)
    assert found.metrics["Hit@1"] == 0.5
    assert found.recall_curve[1] == 0.5
    assert list(found.by_category()) == ["plain"]
    assert found.negatives["q3"].metrics == {}
    assert top_scores(found) == {"answered": 0.625, "unanswered": 0.625, "unansweredMax": 0.625}
