"""The way of a query: its stages, in the order they run.

A stage whose option is off leaves every score exactly as it is.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from ability_search.errors import (
    DimensionMismatch,
    EmbeddingUnavailable,
    ModelMismatch,
)
from ability_search.search.candidates import (
    Candidate,
    Candidates,
    Timings,
    best_first,
    put_behind,
)
from ability_search.search.fusion import FUSION
from ability_search.search.planner import needs_statistics, planned
from ability_search.search.query import Query, understood
from ability_search.search.response import Degraded
from ability_search.search.retrievers import explained, retrieve
from ability_search.search.stage import Ports, Stage
from ability_search.search.stages.context_expansion import CONTEXT_EXPANSION, count_merged
from ability_search.search.stages.contrastive_feedback import CONTRASTIVE_FEEDBACK
from ability_search.search.stages.cross_encoder import CROSS_ENCODER
from ability_search.search.stages.decay import DECAY, USE
from ability_search.search.stages.diversity import DIVERSITY
from ability_search.search.stages.event_resolution import EVENT_RESOLUTION
from ability_search.search.stages.exclusion_penalty import EXCLUSION_PENALTY
from ability_search.search.stages.feedback import FEEDBACK
from ability_search.search.stages.field_rules import FIELD_RULES
from ability_search.search.stages.full_text import FULL_TEXT
from ability_search.search.stages.graph_expansion import GRAPH_EXPANSION, GRAPH_SCORES
from ability_search.search.stages.hit_rows import HITS, PAGE_ROWS
from ability_search.search.stages.kind_search import KIND_SEARCH, all_searched, count_chunks
from ability_search.search.stages.phrase_match import PHRASE_MATCH
from ability_search.search.stages.pseudo_relevance import PSEUDO_RELEVANCE
from ability_search.search.stages.query_expansion import QUERY_EXPANSION
from ability_search.search.stages.score_floor import SCORE_FLOOR, reached_floor
from ability_search.search.stages.source_limit import SOURCE_LIMIT, count_limited
from ability_search.search.stages.time_closeness import TIME_CLOSENESS, time_signal
from ability_search.search.stages.time_order import TIME_ORDER
from ability_search.search.stages.token_budget import TOKEN_BUDGET

_ATTEMPTS = 12
"""Maximum number of searches of a collection for one query."""
_DEEPER = 4
_DEEPEST = 10_000
"""Maximum number of candidates per retriever for a refill."""
_OTHER = {"semantic": "keyword", "keyword": "semantic"}


async def understand(candidates: Candidates, ports: Ports) -> None:
    """Read exclusions and times out of the query."""
    candidates.query = understood(candidates.query, now=ports.now())


async def read_statistics(candidates: Candidates, ports: Ports) -> None:
    """Read the term statistics of the collection."""
    candidates.statistics = await ports.statistics_cache.of(candidates.collection)


async def embed(candidates: Candidates, _ports: Ports) -> None:
    """Wait for the query vectors; without them, a hybrid query searches by keywords alone."""
    collection, embeddings = candidates.collection, candidates.embeddings
    assert embeddings is not None
    try:
        vectors = await embeddings.of(collection.model)
        received = vectors.shape[1]
        if received != collection.dimensions:
            raise DimensionMismatch(
                collection.name, recorded=collection.dimensions, received=received
            )
    except (EmbeddingUnavailable, DimensionMismatch) as exc:
        if candidates.query.asked.mode == "semantic":
            raise
        candidates.degraded = Degraded(reason=str(exc), code=exc.code, mode="keyword")
    else:
        candidates.vectors = dict(zip(candidates.query.texts, vectors.tolist(), strict=True))
    finally:
        milliseconds = embeddings.milliseconds(collection.model)
        candidates.clock.milliseconds["embed"] = milliseconds


async def search(candidates: Candidates, ports: Ports) -> None:
    """Run all searches of the query in one call of the store."""
    plan = planned(candidates, candidates.query, candidates.vectors)
    await retrieve(candidates, plan, ports)


async def report_failures(candidates: Candidates, _ports: Ports) -> None:
    """Warn of retrievers that failed, and mark the answer as degraded."""
    for name, reason in candidates.failed.items():
        candidates.warnings.append(f"the {name} retriever failed: {reason}")
        if name in _OTHER and candidates.degraded is None:
            candidates.degraded = Degraded(
                reason=reason, code="database_unavailable", mode=_OTHER[name]
            )


async def join_blocks(candidates: Candidates, _ports: Ports) -> None:
    """Concatenate the blocks into one list, best first; ties by chunkId.

    Candidates that only a deeper search finds come after those of a shallower one, with their
    scores scaled below: all pages of a query are slices of one list, at any search depth.
    """
    ranked: list[Candidate] = []
    for block in candidates.blocks:
        put_behind(block, ranked, "depth")
        ranked += best_first(block)
    for place, item in enumerate(ranked):
        item.place = place
    candidates.ranked = ranked


def _always(_candidates: Candidates) -> bool:
    return True


QUERY = (
    Stage("understand", _always, understand),
    QUERY_EXPANSION,
)
"""For the query, once."""

RETRIEVAL = Stage("candidates", _always, search, step="candidates")

CANDIDATES = (
    Stage(
        "terms",
        lambda candidates: needs_statistics(candidates.query),
        read_statistics,
        step="terms",
    ),
    Stage("embed", lambda candidates: candidates.query.asked.mode != "keyword", embed),
    RETRIEVAL,
    EVENT_RESOLUTION,
    PSEUDO_RELEVANCE,
    Stage("failures", lambda candidates: bool(candidates.failed), report_failures),
    KIND_SEARCH,
    GRAPH_EXPANSION,
    USE,
)
"""For each collection: one call of the store, and those of options."""

SCORERS = (
    GRAPH_SCORES,
    FULL_TEXT,
    TIME_CLOSENESS,
    TIME_ORDER,
    EXCLUSION_PENALTY,
    FIELD_RULES,
    DECAY,
    Stage("ranking", _always, join_blocks, step="ranking"),
)

RANKING = (FUSION, FEEDBACK, CONTRASTIVE_FEEDBACK, PHRASE_MATCH, *SCORERS, SCORE_FLOOR)
"""For each collection: candidates are scored and sorted."""

RERANKING = (CROSS_ENCODER,)
"""For all collections together."""

SELECTION = (SOURCE_LIMIT, CONTEXT_EXPANSION, DIVERSITY)
"""For each collection."""

PAGE = (PAGE_ROWS, TOKEN_BUDGET, HITS)
"""For all collections together: the page is read."""


async def run(stages: Sequence[Stage], candidates: Candidates, ports: Ports) -> None:
    """Run the stages that apply, and measure them; with ``explain`` also each scorer."""
    for stage in stages:
        if not stage.applies(candidates):
            continue
        if not stage.step:
            await stage.run(candidates, ports)
            continue
        started = time.perf_counter()
        with candidates.clock.step(stage.step):
            await stage.run(candidates, ports)
        if (
            candidates.query.asked.explain
            and stage.name != stage.step
            and _left_trace(stage, candidates)
        ):
            candidates.clock.add(stage.name, time.perf_counter() - started)


async def rank(name: str, root: Candidates, clock: Timings, ports: Ports) -> Candidates:
    """Return the ranked candidates of a collection.

    The stages run again if the collection moved to another generation than the one that vector
    and terms were made for, and deeper (refill) if an option would leave the page short.

    Raises:
        ModelMismatch: if the query names another model than the collection's.
    """
    depth = root.query.end
    for _ in range(_ATTEMPTS):
        collection = await ports.registry.get(name)
        asked = root.query.asked
        if asked.model and asked.model != collection.model:
            raise ModelMismatch(name, recorded=collection.model, requested=asked.model)
        candidates = Candidates(
            root.query,
            root.ranking,
            searched=collection,
            depth=depth,
            fields=wanted_fields(root.query),
            embeddings=root.embeddings,
            provisional=partial(rank_provisionally, ports=ports),
            clock=clock,
        )
        if root.embeddings is not None and asked.mode != "keyword":
            root.embeddings.request(collection.model)
        await run((*CANDIDATES, *RANKING), candidates, ports)
        current = candidates.collection
        if current.type != collection.type or not all_searched(root.query, collection, current):
            continue
        deeper = refill_depth(candidates)
        if deeper is None:
            break
        depth = deeper
    candidates.hyde = candidates.mode != "keyword" and asked.hypothetical_answer is not None
    if asked.explain:
        candidates.explain = _explained(candidates)
    return candidates


async def rank_provisionally(candidates: Candidates, ports: Ports) -> list[Candidate]:
    """Return the candidates as scored so far, best first, for stages that need the first hits.

    Nothing is recorded for ``explain``.
    """
    traces = [(item, item.trace) for item in (*candidates.found, *candidates.chunks)]
    for item, trace in traces:
        item.trace = dict(trace)
    for stage in (FUSION, *SCORERS):
        if stage.applies(candidates):
            await stage.run(candidates, ports)
    for item, trace in traces:
        item.trace = trace
    return candidates.ranked


def wanted_fields(query: Query) -> list[str]:
    """Return the fields of candidates that the stages of a query need, each once."""
    stages = (*SCORERS, *CANDIDATES, *SELECTION)
    return list(dict.fromkeys(name for stage in stages for name in stage.fields(query)))


def refill_depth(candidates: Candidates) -> int | None:
    """Return how many candidates to request per retriever to fill the page.

    Returns:
        ``None`` if the page is full, or if there is nothing more to find.
    """
    query, depth = candidates.query, candidates.plan.depths[-1]
    if candidates.exhausted or depth >= _DEEPEST or reached_floor(candidates):
        return None
    ranked = candidates.ranked
    counts = [
        (count_limited(ranked, query), len(ranked)),
        (count_merged(ranked, query), len(ranked)),
        (count_chunks(candidates), len(candidates.found)),
    ]
    short = [kept < before and kept < query.end for kept, before in counts]
    return min(_DEEPER * depth, _DEEPEST) if any(short) else None


def _left_trace(stage: Stage, candidates: Candidates) -> bool:
    return any(stage.name in item.trace for block in candidates.blocks for item in block)


def _explained(candidates: Candidates) -> dict[str, object]:
    signal = time_signal(candidates.plan, candidates.query)
    period, weight = (signal.period, signal.weight) if signal else (None, 0.0)
    return candidates.query.explained(period, weight) | explained(candidates)
