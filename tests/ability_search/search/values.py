"""Values for tests of stages: a collection, queries, candidates."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from msgspec.structs import replace

from ability_search.collection import Recipe, new_collection
from ability_search.compute_turns import ComputeTurns
from ability_search.config.schema import Ranking
from ability_search.extension import loaded
from ability_search.extensions.understanding.query_understanding import (
    QUERY_UNDERSTANDING,
    asked_for,
)
from ability_search.filters.tree import Filter
from ability_search.search.candidates import Answer, Candidate, Candidates
from ability_search.search.fusion import fuse, join_blocks
from ability_search.search.pipeline import QueryPipeline
from ability_search.search.query import Query
from ability_search.search.stage import Phase, Ports, Stage
from ability_search.search.wants import SearchRequest
from ability_search.tools.inputs import QueryInput
from ability_search.worker import CORE_STAGES

DOCS = new_collection(
    "docs", Recipe("auto", 500, 0, "english", "m"), dimensions=1, average_length=10.0, now=1
)
NO_PORTS = cast(Ports, None)
"""For stages that reach for nothing."""
PIPELINE = QueryPipeline(
    (*CORE_STAGES, *loaded().stages),
    cast(Ports, SimpleNamespace(now=lambda: 0, store=None)),
)


def query_of(text: str = "words", filter: Filter | None = None, **options: Any) -> Query:
    """A query as callers write it, not yet understood."""
    asked = QueryInput.model_validate({"collection": "docs"} | options | {"query": text})
    return PIPELINE.parse(asked, filter)


def understood_query(text: str, *, now: int = 0, **options: Any) -> Query:
    """A query whose text is understood as of a time."""
    answer = Answer(replace(query_of(text, **options), as_of=now))
    ports = cast(Ports, SimpleNamespace(turns=ComputeTurns()))
    asyncio.run(QUERY_UNDERSTANDING.run(asked_for(cast(Any, answer.query.asked)), answer, ports))
    return answer.query


def wanted_fields(query: Query) -> list[str]:
    """The fields of candidates that the stages of a query need."""
    return [*PIPELINE.wants(query).fields]


def chunk(rid: str, chunk_id: str, *args: Any, **values: Any) -> Candidate:
    """A candidate of the collection."""
    return Candidate(rid, chunk_id, values.pop("depth", 0), DOCS, *args, **values)


def candidates_of(
    query: Query, request: SearchRequest, found: Sequence[Candidate] = (), now: int = 0
) -> Candidates:
    """Candidates as the retrievers leave them."""
    timed = query if query.asked.as_of is not None else replace(query, as_of=now)
    for item in found:
        place = bisect_left(request.depths, min(item.ranks.values(), default=1))
        item.depth = item.depth or request.depths[min(place, len(request.depths) - 1)]
    return Candidates(timed, Ranking(), DOCS, request=request, found=list(found))


def ranked(candidates: Candidates) -> list[Candidate]:
    """The candidates after fusion and all scorers."""
    fuse(candidates)
    score(candidates)
    join_blocks(candidates)
    return candidates.ranked


def score(candidates: Candidates) -> None:
    """Run all scorers that the query has the options of."""
    for stage in PIPELINE.stages:
        if stage.phase is Phase.SCORE:
            apply(stage, candidates)


def apply(stage: Stage, candidates: Candidates) -> None:
    """Run a stage that reaches for nothing, if the query has its option."""
    if stage.name in candidates.query.options:
        asyncio.run(stage.run(candidates.query.options[stage.name], candidates, NO_PORTS))
