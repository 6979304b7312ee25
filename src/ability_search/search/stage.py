"""A stage: one step between a query and its hits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ability_search.compute_turns import ComputeTurns
from ability_search.config.schema import Settings
from ability_search.ports import Chat, Embedder, RerankerPort
from ability_search.search.candidates import Candidate, Candidates
from ability_search.search.query import Query
from ability_search.search.wants import NOTHING, Wants
from ability_search.store.port import Store
from ability_search.store.registry import Registry
from ability_search.store.statistics_cache import StatisticsCache
from ability_search.text.token_counter import TokenCounter


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports and settings that stages use."""

    store: Store
    embedder: Embedder
    reranker: RerankerPort
    chat: Chat
    registry: Registry
    statistics_cache: StatisticsCache
    settings: Settings
    counter: TokenCounter
    """Counts tokens, the same one as for the chunks."""
    now: Callable[[], int]
    """Returns the time in epoch milliseconds."""
    turns: ComputeTurns


class Phase(IntEnum):
    """When a stage runs.

    ``FIND``, ``SCORE`` and ``LIMIT`` run for the candidates of each phrasing in each collection,
    ``SELECT`` for those of each collection, the others for the answer as a whole.
    """

    UNDERSTAND = 1
    """Before anything is searched: change the query."""
    FIND = 2
    """Complete what the search found, or let it search again (:attr:`Candidates.learned`)."""
    SCORE = 3
    """Change the scores; also to tell the first hits to the stages of ``FIND``."""
    LIMIT = 4
    """Drop ranked candidates."""
    MERGE = 5
    """With the candidates of all collections: let the query start again, once."""
    RERANK = 6
    """Change the order of the first candidates of all collections."""
    SELECT = 7
    """Choose the candidates that the page is cut from."""
    PAGE = 8
    """Read more of the page, while its rows are read."""
    ANSWER = 9
    """Change the result."""


def _no_wants(_option: Any, _query: Query) -> Wants:
    return NOTHING


async def _nothing() -> None:
    """Close nothing."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One step between a query and its hits.

    It runs if the query has its option in :attr:`.query.Query.options`.

    Attributes:
        name: Name of the option there, and of the stage in ``explain``.
        phase: When it runs.
        place: Order among the stages of the phase.
        run: Change the candidates, or the answer, as the option says; failures that leave them
            usable become warnings.
        option: Return the option of a request, ``None`` if it has no effect; raise InvalidInput
            if it is invalid. Other stages may set the option too.
        wants: Return what the option wants from retrieval.
        left: Return which of the ranked candidates the stage will keep, at least; to search deeper
            if they are too few. Only for ``SELECT``.
        step: Name in ``timings``, by default ``name``; an empty one is not timed.
        computes: Whether ``run`` never waits; it then runs in a thread if there are many
            candidates.
        close: Wait for what runs in the background.
    """

    name: str
    phase: Phase
    place: int
    run: Callable[[Any, Any, Ports], Coroutine[Any, Any, None]]
    option: Callable[[Any], Any] = lambda _: None
    wants: Callable[[Any, Query], Wants] = _no_wants
    left: Callable[[Any, Sequence[Candidate], Candidates], Sequence[Candidate]] | None = None
    step: str | None = None
    computes: bool = False
    close: Callable[[], Awaitable[None]] = _nothing

    @property
    def timed(self) -> str:
        """Name in ``timings``; empty if it is not timed."""
        return self.name if self.step is None else self.step


def scorer(
    name: str,
    place: int,
    score: Callable[[Any, Sequence[Candidate], Candidates], None],
    *,
    option: Callable[[Any], Any] = lambda _: None,
    wants: Callable[[Any, Query], Wants] = _no_wants,
) -> Stage:
    """Return a stage that changes scores by a formula, one block of candidates at a time."""

    async def run(chosen: Any, candidates: Candidates, _ports: Ports) -> None:
        for block in candidates.blocks:
            score(chosen, block, candidates)

    return Stage(name, Phase.SCORE, place, run, option, wants, step="ranking", computes=True)


StageFactory = Callable[[Ports], Stage]
"""Opens a stage that keeps a state, over the ports of search."""
