"""A stage: one step between a query and its hits."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from ability_search.compute_turns import ComputeTurns
from ability_search.config.schema import Settings
from ability_search.ports import Chat, Embedder, Reranker
from ability_search.search.candidates import Answer, Candidate, Candidates
from ability_search.search.query import Query
from ability_search.store.port import RecordStore, SearchStore
from ability_search.store.registry import Registry
from ability_search.store.statistics_cache import StatisticsCache
from ability_search.text.token_counter import TokenCounter

C = TypeVar("C", Answer, Candidates)
Option = TypeVar("Option")


class QueryStore(SearchStore, RecordStore, Protocol):
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
    turns: ComputeTurns


@dataclass(frozen=True, slots=True)
class Stage(Generic[C]):
    """One step between a query and its hits.

    Attributes:
        name: Name in ``explain``.
        run: Change the candidates; failures that leave them usable become warnings.
        applies: Return whether the stage runs.
        fields: Return the fields that the stage needs of each candidate.
        step: Name in ``timings``; an empty one is not timed.
        computes: Whether ``run`` never waits; it then runs in a thread if there are many
            candidates.
    """

    name: str
    run: Callable[[C, Ports], Coroutine[Any, Any, None]]
    applies: Callable[[C], bool] = lambda _: True
    fields: Callable[[Query], Sequence[str]] = lambda _: ()
    step: str = ""
    computes: bool = False


def option_stage(
    name: str,
    option: Callable[[Query], Option | None],
    run: Callable[[Option, C, Ports], Coroutine[Any, Any, None]],
    *,
    when: Callable[[C], bool] = lambda _: True,
    fields: Callable[[Option], Sequence[str]] = lambda _: (),
    step: str | None = None,
    computes: bool = False,
) -> Stage[C]:
    """Return a stage of an option of the query.

    Args:
        name: Name in ``explain``.
        option: Return the option, or ``None`` if it has no effect.
        run: Change the candidates as the option says.
        when: Return whether the stage runs if the option has an effect.
        fields: Return the fields of candidates that the option needs.
        step: Name in ``timings``, by default ``name``.
        computes: See :attr:`Stage.computes`.
    """

    async def run_option(candidates: C, ports: Ports) -> None:
        chosen = option(candidates.query)
        if chosen is not None:
            await run(chosen, candidates, ports)

    def needed(query: Query) -> Sequence[str]:
        chosen = option(query)
        return () if chosen is None else fields(chosen)

    return Stage(
        name,
        run_option,
        lambda candidates: option(candidates.query) is not None and when(candidates),
        needed,
        name if step is None else step,
        computes,
    )


def scorer(
    name: str,
    option: Callable[[Query], Option | None],
    score: Callable[[Option, Sequence[Candidate], Candidates], None],
    fields: Callable[[Option], Sequence[str]] = lambda _: (),
) -> Stage[Candidates]:
    """Return a stage that changes scores by a formula, one block of candidates at a time."""

    async def run(chosen: Option, candidates: Candidates, _ports: Ports) -> None:
        for block in candidates.blocks:
            score(chosen, block, candidates)

    return option_stage(name, option, run, fields=fields, step="ranking", computes=True)
