"""Steps of a query that ask the network for more than the usual round trips.

Each belongs to an option, is skipped without it, and is timed by its name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ability_search.catalogue import Catalogue
from ability_search.chunking import TokenCounter
from ability_search.configuration import Settings
from ability_search.ports import Chat, Embedder, Reranker, Store
from ability_search.querying.adjusting import Context
from ability_search.querying.candidates import Pool
from ability_search.querying.model import Candidate, Query, QueryAnswer
from ability_search.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Reach:
    """What a step may ask."""

    store: Store
    embedder: Embedder
    reranker: Reranker
    chat: Chat
    catalogue: Catalogue
    vocabulary: Vocabulary
    settings: Settings
    counter: TokenCounter
    """Counts tokens, as for the chunks."""


@dataclass(frozen=True, slots=True)
class Look:
    """A further look for candidates, before they are ranked.

    Attributes:
        name: of the step, in ``timings``.
        wanted: whether a query asks for it.
        look: adds candidates to the pool, or to what is known of them; what it could not do it
            says in the answer's warnings.
    """

    name: str
    wanted: Callable[[Query], bool]
    look: Callable[[Pool, Context, Reach, QueryAnswer], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Reordering:
    """A step over the ranked candidates.

    Attributes:
        name: of the step, in ``timings``.
        wanted: whether a query asks for it.
        reorder: gives the candidates in their new order, and tells in the answer's warnings what
            it could not do.
    """

    name: str
    wanted: Callable[[Query], bool]
    reorder: Callable[
        [list[Candidate], Pool, Context, Reach, QueryAnswer], Awaitable[list[Candidate]]
    ]
