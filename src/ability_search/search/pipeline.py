"""The way of a query: all stages, in the order they run.

A stage whose option is off leaves every score exactly as it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from ability_search.collection import Collection
from ability_search.compute_turns import computed
from ability_search.errors import ModelMismatch
from ability_search.extensions.kinds.kind_search import KIND_SEARCH, all_searched
from ability_search.extensions.notes.graph_boost import GRAPH_BOOST
from ability_search.extensions.notes.graph_expansion import GRAPH_EXPANSION, GRAPH_SCORES
from ability_search.extensions.sessions.decay import DECAY, USE
from ability_search.extensions.understanding.exclusion_penalty import EXCLUSION_PENALTY
from ability_search.extensions.understanding.query_expansion import QUERY_EXPANSION
from ability_search.extensions.understanding.time_closeness import TIME_CLOSENESS
from ability_search.extensions.understanding.time_order import TIME_ORDER
from ability_search.search.candidates import Answer, Candidate, Candidates, Timings, best_first
from ability_search.search.fusion import FUSION, JOIN, fuse_phrasings
from ability_search.search.planner import ranked_for
from ability_search.search.query import Query
from ability_search.search.query_vectors import QueryVectors
from ability_search.search.retrievers import explained_retrieval
from ability_search.search.stage import C, Ports, Stage
from ability_search.search.stages.context_expansion import CONTEXT_EXPANSION, count_merged
from ability_search.search.stages.cross_encoder import CROSS_ENCODER
from ability_search.search.stages.diversity import DIVERSITY
from ability_search.search.stages.field_rules import FIELD_RULES
from ability_search.search.stages.first_candidates import (
    EMBEDDING,
    FAILURES,
    RETRIEVAL,
    STATISTICS,
    UNDERSTANDING,
)
from ability_search.search.stages.full_text import FULL_TEXT_SCORES
from ability_search.search.stages.hit_rows import HITS, PAGE_ROWS
from ability_search.search.stages.limits import (
    SCORE_FLOOR,
    SIGNAL_FLOOR,
    SOURCE_LIMIT,
    complete,
    limited,
)
from ability_search.search.stages.pseudo_relevance import PSEUDO_RELEVANCE

# For the query, once.
QUERY = (
    UNDERSTANDING,
    QUERY_EXPANSION,  # optional: a language model adds words
)

# For each collection; again if the collection moved, deeper if a filter emptied the page.
CANDIDATES = (
    STATISTICS,
    EMBEDDING,
    RETRIEVAL,  # all retrievers in one call of the store
    PSEUDO_RELEVANCE,  # optional: searches again with the first hits
    FAILURES,
    KIND_SEARCH,
    GRAPH_EXPANSION,
    USE,
)
SCORERS = (
    GRAPH_SCORES,
    FULL_TEXT_SCORES,
    TIME_CLOSENESS,
    TIME_ORDER,
    EXCLUSION_PENALTY,
    FIELD_RULES,
    DECAY,
    GRAPH_BOOST,
)
RANKING = (
    FUSION,
    *SCORERS,
    JOIN,
    SIGNAL_FLOOR,
    SCORE_FLOOR,
)

# For all collections together.
RERANKING = (CROSS_ENCODER,)

# For each collection.
SELECTION = (
    SOURCE_LIMIT,
    CONTEXT_EXPANSION,  # merges adjacent hits; their texts are read with the page
    DIVERSITY,
)

# For all collections together.
PAGE = (
    PAGE_ROWS,
    HITS,
)

_PROVISIONAL = (FUSION, *SCORERS)
_ATTEMPTS = 12
"""Maximum number of searches of a collection for one query."""
_SEARCHED_AT_ONCE = 1000
"""Candidates per retriever that the searches of a query look for at a time. The rows of all are in
the database's memory, and its garbage collector stops all queries to move them."""
_MOST_AT_ONCE = 8
"""Maximum number of searches of a query at a time."""
_DEEPER = 4
_DEEPEST = 20_000
"""Number of candidates per retriever beyond which there is no refill: the end of the last page."""

Ranking = Callable[[], Awaitable[Candidates]]
"""Ranks the candidates of a phrasing."""


async def run(stages: Sequence[Stage[C]], candidates: C, ports: Ports) -> None:
    """Run the stages that apply, and measure them; with ``explain`` also each scorer."""
    for stage in stages:
        if not stage.applies(candidates):
            continue
        if not stage.step:
            await perform(stage, candidates, ports)
            continue
        started = time.perf_counter()
        with candidates.clock.step(stage.step):
            await perform(stage, candidates, ports)
        if isinstance(candidates, Answer) or not candidates.query.asked.explain:
            continue
        scored = any(stage.name in item.trace for block in candidates.blocks for item in block)
        if scored and stage.name != stage.step:
            candidates.clock.add(stage.name, time.perf_counter() - started)


async def perform(stage: Stage[C], candidates: C, ports: Ports) -> None:
    """Run a stage; one that only computes in a thread, if there are many candidates."""
    if stage.computes:
        await ports.turns.run(lambda: computed(stage.run(candidates, ports)), work=candidates.work)
    else:
        await stage.run(candidates, ports)


async def rank(name: str, query: Query, embeddings: QueryVectors, ports: Ports) -> Candidates:
    """Return the ranked candidates of a collection, those of several phrasings fused.

    The search is repeated deeper (refill) if an option would leave the page short.

    Raises:
        ModelMismatch: if the query names another model than the collection's.
    """
    depth: int | None = query.end
    clocks = [Timings() for _ in query.phrasings]
    while depth is not None:
        rankings = [
            partial(rank_phrasing, name, each, depth, embeddings, ports, clock)
            for each, clock in zip(query.phrasings, clocks, strict=True)
        ]
        # A task costs more than some stages.
        lists = await _fused(rankings, depth, ports) if query.others else [await rankings[0]()]
        depth = refill_depth(lists)
    return lists[0]


async def _fused(rankings: Sequence[Ranking], depth: int, ports: Ports) -> list[Candidates]:
    """Return the candidates of all phrasings, those of the first one ranked by all."""
    slots = search_slots(depth)

    async def ranked(ranking: Ranking) -> Candidates:
        async with slots:
            return await ranking()

    # A TaskGroup of Python 3.11 that is cancelled keeps all candidates in a reference cycle.
    tasks = [asyncio.create_task(ranked(ranking)) for ranking in rankings]
    try:
        lists = await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        tasks.clear()
    work = sum(candidates.work for candidates in lists)
    await ports.turns.run(lambda: computed(fuse_phrasings(lists, ports)), work=work)
    return lists


def search_slots(depth: int) -> asyncio.Semaphore:
    """Return slots for the searches of a query: the deeper they are, the fewer run at a time."""
    return asyncio.Semaphore(max(1, min(_MOST_AT_ONCE, _SEARCHED_AT_ONCE // depth)))


async def rank_phrasing(
    name: str, query: Query, depth: int, embeddings: QueryVectors, ports: Ports, clock: Timings
) -> Candidates:
    """Return the ranked candidates of a collection for one phrasing of a query.

    The stages run again if the collection moved to another generation than the one that vector
    and terms were made for.

    Raises:
        ModelMismatch: if the query names another model than the collection's.
    """
    asked = query.asked
    for _ in range(_ATTEMPTS):
        collection = await ports.registry.get(name)
        if asked.model and asked.model != collection.model:
            raise ModelMismatch(name, recorded=collection.model, requested=asked.model)
        if asked.mode != "keyword":
            embeddings.request(collection.model_input)
        candidates = candidates_of(query, collection, depth, ports)
        candidates.embeddings, candidates.clock = embeddings, clock
        candidates.fields = wanted_fields(query)
        await run((*CANDIDATES, *RANKING), candidates, ports)
        current = candidates.collection
        if current.type == collection.type and all_searched(query, collection, current):
            break
    return candidates


def candidates_of(query: Query, collection: Collection, depth: int, ports: Ports) -> Candidates:
    """Return the candidates of a collection before any is found."""
    return Candidates(
        query,
        ports.settings.ranking,
        collection,
        depth,
        provisional=partial(rank_provisionally, ports=ports),
    )


async def rank_provisionally(candidates: Candidates, ports: Ports) -> list[Candidate]:
    """Return the first block as scored so far, best first, for stages that need the first hits.

    Nothing is recorded for ``explain``.
    """
    traces = [(item, item.trace) for item in (*candidates.found, *candidates.chunks)]
    for item, trace in traces:
        item.trace = dict(trace)
    for stage in _PROVISIONAL:
        if stage.applies(candidates):
            await perform(stage, candidates, ports)
    for item, trace in traces:
        item.trace = trace
    return best_first(candidates.blocks[0]) if candidates.blocks else []


def wanted_fields(query: Query) -> list[str]:
    """Return the fields of candidates that the stages of a query need, each once."""
    stages = (*RANKING, *CANDIDATES, *SELECTION, *RERANKING, *PAGE)
    return list(dict.fromkeys(name for stage in stages for name in stage.fields(query)))


def refill_depth(lists: Sequence[Candidates]) -> int | None:
    """Return how many candidates to request per retriever to fill the page.

    Args:
        lists: The ranked candidates of each phrasing; the first has those of all, fused.

    Returns:
        ``None`` if the page is full, or if there is nothing more to find.
    """
    first, depth = lists[0], lists[0].plan.depths[-1]
    if depth >= _DEEPEST or all(map(complete, lists)):
        return None
    query = first.query
    kept = [item for item, _ in limited(first.ranked, query.asked.max_per_source)]
    full = count_merged(kept, query) >= query.end and len(first.ranked) >= ranked_for(query)
    return None if full else min(_DEEPER * depth, _DEEPEST)


def explained(candidates: Candidates) -> dict[str, Any]:
    """Return how the query was understood and the candidates found, for ``explain``."""
    return candidates.query.explained | explained_retrieval(candidates)
