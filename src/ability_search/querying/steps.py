"""Query steps that need additional round trips.

Each belongs to an option, is skipped without it, and is timed under its name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ability_search.config.schema import Settings
from ability_search.ports import Chat, Embedder, Reranker, Store
from ability_search.querying.adjusting import Context
from ability_search.querying.candidates import Pool
from ability_search.querying.model import Candidate, Query, QueryAnswer
from ability_search.store.registry import Registry
from ability_search.store.statistics_cache import StatisticsCache
from ability_search.text.token_counter import TokenCounter


@dataclass(frozen=True, slots=True)
class Reach:
    """Ports and settings that steps use."""

    store: Store
    embedder: Embedder
    reranker: Reranker
    chat: Chat
    registry: Registry
    statistics_cache: StatisticsCache
    settings: Settings
    counter: TokenCounter
    """Counts tokens, the same one as for the chunks."""


@dataclass(frozen=True, slots=True)
class Look:
    """A step that looks for further candidates before the ranking.

    Attributes:
        name: name in ``timings``.
        wanted: returns whether a query requests it.
        look: adds candidates to the pool, or data to candidates; failures become warnings of the
            answer.
    """

    name: str
    wanted: Callable[[Query], bool]
    look: Callable[[Pool, Context, Reach, QueryAnswer], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Reordering:
    """A step that reorders the ranked candidates.

    Attributes:
        name: name in ``timings``.
        wanted: returns whether a query requests it.
        reorder: returns the candidates in their new order; failures become warnings of the
            answer.
    """

    name: str
    wanted: Callable[[Query], bool]
    reorder: Callable[
        [list[Candidate], Pool, Context, Reach, QueryAnswer], Awaitable[list[Candidate]]
    ]
