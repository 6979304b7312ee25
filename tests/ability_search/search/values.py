"""Values for tests of stages: a collection, queries, candidates."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from ability_search.collection import Collection
from ability_search.config.schema import Ranking
from ability_search.filters.tree import Filter
from ability_search.search.candidates import Candidate, Candidates
from ability_search.search.fusion import FUSION, JOIN
from ability_search.search.options import QueryInput
from ability_search.search.pipeline import SCORERS
from ability_search.search.plan import Plan
from ability_search.search.query import Query, parse_query
from ability_search.search.stage import Ports, Stage

DOCS = Collection("docs", "Chunk_docs_1", 1, "m", 1, "english", 10.0, "auto", 500, 0)
NO_PORTS = cast(Ports, None)
"""For stages that reach for nothing."""


def query_of(text: str = "words", filter: Filter | None = None, **options: Any) -> Query:
    """A query as callers write it, not yet understood."""
    asked = QueryInput.model_validate({"collection": "docs"} | options | {"query": text})
    return parse_query(asked, filter)


def chunk(rid: str, chunk_id: str, *args: Any, **values: Any) -> Candidate:
    """A candidate of the collection."""
    return Candidate(rid, chunk_id, *args, **{"depth": 0} | values, collection=DOCS)


def candidates_of(
    query: Query, plan: Plan, found: Sequence[Candidate] = (), now: int = 0
) -> Candidates:
    """Candidates as the retrievers leave them."""
    timed = query if query.as_of is not None else replace(query, as_of=now)
    for item in found:
        place = bisect_left(plan.depths, min(item.ranks.values(), default=1))
        item.depth = item.depth or plan.depths[min(place, len(plan.depths) - 1)]
    return Candidates(timed, Ranking(), DOCS, plan=plan, found=list(found))


def ranked(candidates: Candidates) -> list[Candidate]:
    """The candidates after fusion and all scorers."""
    for stage in (FUSION, *SCORERS, JOIN):
        apply(stage, candidates)
    return candidates.ranked


def apply(stage: Stage[Candidates], candidates: Candidates) -> None:
    """Run a stage that reaches for nothing, if it applies."""
    if stage.applies(candidates):
        asyncio.run(stage.run(candidates, NO_PORTS))
