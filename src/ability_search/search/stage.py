"""A stage: one step between a query and its hits."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ability_search.config.schema import Settings
from ability_search.ports import Chat, Embedder, Reranker
from ability_search.search.candidates import Candidate, Candidates
from ability_search.search.query import Query
from ability_search.store.port import SearchStore, UsageStore
from ability_search.store.registry import Registry
from ability_search.store.statistics_cache import StatisticsCache
from ability_search.text.token_counter import TokenCounter


class QueryStore(SearchStore, UsageStore, Protocol):
    """The parts of the store that a query uses."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports and settings that stages use."""

    store: QueryStore
    embedder: Embedder
    reranker: Reranker
    chat: Chat
    registry: Registry
    statistics_cache: StatisticsCache
    settings: Settings
    counter: TokenCounter
    """Counts tokens, the same one as for the chunks."""
    now: Callable[[], int]
    """Returns the time in epoch milliseconds."""


def always(_candidates: Candidates) -> bool:
    """Apply the stage to every query."""
    return True


def _no_fields(_query: Query) -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True)
class Stage:
    """One step between a query and its hits.

    Attributes:
        name: Name in ``explain``.
        applies: Return whether the stage runs.
        run: Change the candidates; failures that leave them usable become warnings.
        fields: Return the fields that the stage needs of each candidate.
        step: Name in ``timings``; an empty one is not timed.
    """

    name: str
    applies: Callable[[Candidates], bool]
    run: Callable[[Candidates, Ports], Coroutine[Any, Any, None]]
    fields: Callable[[Query], Sequence[str]] = _no_fields
    step: str = ""


def scorer(
    name: str,
    applies: Callable[[Candidates], bool],
    score: Callable[[Sequence[Candidate], Candidates], None],
    fields: Callable[[Query], Sequence[str]] = _no_fields,
) -> Stage:
    """Return a stage that changes scores by a formula, one block of candidates at a time."""

    async def run(candidates: Candidates, _ports: Ports) -> None:
        for block in candidates.blocks:
            score(block, candidates)

    return Stage(name, applies, run, fields, step="ranking")
