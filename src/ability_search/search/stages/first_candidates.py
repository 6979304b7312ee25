"""From a query to its first candidates: understanding, term statistics, vectors, one search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ability_search.errors import DimensionMismatch, EmbeddingUnavailable
from ability_search.search.candidates import Answer, Candidates
from ability_search.search.planner import needs_statistics, planned
from ability_search.search.query import understood
from ability_search.search.response import Degraded
from ability_search.search.retrievers import retrieve
from ability_search.search.stage import Ports, Stage
from ability_search.text.chunkers.chunk_packing import CHARS_PER_TOKEN

_OTHER: Final[Mapping[str, str]] = {"semantic": "keyword", "keyword": "semantic"}

_TOKENS_OF_CHARACTER = 3
"""Maximum number of tokens of a character; that of some Korean syllables."""
_SPECIAL_TOKENS = 2
"""Tokens that a model adds to its input."""


async def understand(answer: Answer, ports: Ports) -> None:
    """Read exclusions and times out of the query."""
    query = answer.query
    answer.query = await ports.turns.run(
        lambda: understood(query, now=ports.now()), work=query.work
    )


async def read_statistics(candidates: Candidates, ports: Ports) -> None:
    """Read the term statistics of the collection."""
    candidates.statistics = await ports.statistics_cache.of(candidates.collection)


async def embed(candidates: Candidates, ports: Ports) -> None:
    """Wait for the query vectors; without them, a hybrid query searches by keywords alone.

    Raises:
        EmbeddingUnavailable: in semantic mode, if the query cannot be embedded.
        DimensionMismatch: in semantic mode, if the vectors do not fit the collection.
    """
    collection, embeddings = candidates.collection, candidates.embeddings
    assert embeddings is not None
    try:
        vectors = await embeddings.of(collection.model_input, candidates.query.phrasing)
        received = vectors.shape[1]
        if received != collection.dimensions:
            raise DimensionMismatch(
                collection.name, recorded=collection.dimensions, received=received
            )
        candidates.vectors = dict(zip(candidates.query.texts, vectors.tolist(), strict=True))
        candidates.warnings += _cut_queries(candidates, ports)
    except (EmbeddingUnavailable, DimensionMismatch) as exc:
        if candidates.query.asked.mode == "semantic":
            raise
        candidates.degraded = Degraded(reason=str(exc), code=exc.code, mode="keyword")
        return
    finally:
        candidates.clock.milliseconds["embed"] = embeddings.milliseconds(collection.model_input)


def _cut_queries(candidates: Candidates, ports: Ports) -> list[str]:
    """Return a warning if a text of the query is longer than what its model reads."""
    model, longest = candidates.collection.model_input, ports.settings.embedding.max_tokens
    if longest is None:
        return []
    for text in candidates.query.texts.values():
        read = model.query_prefix + text[: longest * CHARS_PER_TOKEN]
        if len(read) * _TOKENS_OF_CHARACTER + _SPECIAL_TOKENS <= longest:
            continue
        if ports.counter.count(read) + _SPECIAL_TOKENS > longest:
            return [
                f"the query is longer than the {longest} tokens that {model.model} reads: its end"
                " counts for keyword search only"
            ]
    return []


async def search(candidates: Candidates, ports: Ports) -> None:
    """Run all searches of the query in one call of the store."""
    query, vectors = candidates.query, candidates.vectors
    plan = await ports.turns.run(lambda: planned(candidates, query, vectors), work=query.work)
    await retrieve(candidates, plan, ports)


async def report_failures(candidates: Candidates, _ports: Ports) -> None:
    """Warn of retrievers that failed, and mark the answer as degraded."""
    for name, reason in candidates.failed.items():
        candidates.warnings.append(f"the {name} retriever failed: {reason}")
        if name in _OTHER and candidates.degraded is None:
            candidates.degraded = Degraded(
                reason=reason, code="database_unavailable", mode=_OTHER[name]
            )


UNDERSTANDING = Stage("understanding", understand)
STATISTICS = Stage(
    "terms", read_statistics, lambda candidates: needs_statistics(candidates.query), step="terms"
)
EMBEDDING = Stage("embed", embed, lambda candidates: candidates.query.asked.mode != "keyword")
RETRIEVAL = Stage("candidates", search, step="candidates")
FAILURES = Stage("failures", report_failures, lambda candidates: bool(candidates.failed))
