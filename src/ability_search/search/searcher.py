"""The search service: queries over one collection or several, and similar chunks."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from ability_search.collection import Collection, ModelInput, checked_name
from ability_search.documents import Vector
from ability_search.errors import NotFound, SearchError
from ability_search.filters.tree import Filter
from ability_search.search.candidates import Candidate, Candidates, Timings
from ability_search.search.options import QueryInput
from ability_search.search.pipeline import (
    PAGE,
    QUERY,
    RANKING,
    RERANKING,
    SELECTION,
    rank,
    rank_provisionally,
    run,
)
from ability_search.search.query import COSINE, Query
from ability_search.search.query_vectors import QueryVectors
from ability_search.search.response import QueryResult, SimilarResult, Understood
from ability_search.search.stage import Ports
from ability_search.search.stages.decay import UseCounter
from ability_search.search.stages.first_candidates import RETRIEVAL
from ability_search.search.stages.hit_rows import hit_of
from ability_search.search.stages.time_closeness import time_signal
from ability_search.store.records import ChunkText, Read

T = TypeVar("T")

_ATTEMPTS = 8
"""Maximum number of queries while chunks are replaced before their rows are read."""
_COLLECTIONS_AT_ONCE = 8
"""Maximum number of collections searched concurrently."""


class Searcher:
    """Answers queries and finds similar chunks."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._ranking = ports.settings.ranking
        self._uses = UseCounter(ports.store, now=ports.now)

    async def query(self, query: Query) -> QueryResult:
        """Search a collection, several, or all (``*``).

        Each of several collections is searched with its own model. Their hits are merged by score;
        collections that fail are named in the warnings.

        Raises:
            NotFound: if the collection, or each of several, does not exist.
            ModelMismatch: if the query names another model than the collection's.
            EmbeddingUnavailable: in semantic mode, if the query cannot be embedded.
            DatabaseUnavailable: if the database does not answer.
        """
        root = Candidates(query, self._ranking)
        await run(QUERY, root, self._ports)
        root.embeddings = QueryVectors(partial(self._embed, root.query))
        collection = query.asked.collection
        try:
            if isinstance(collection, str) and collection != "*":
                result, answer = await self._search_one(root, collection)
            else:
                result, answer = await self._search_all(root, await self._names(collection))
        finally:
            await root.embeddings.close()
        decay = query.asked.decay
        if decay is not None and decay.agent_id:
            shown = [(item.collection.public_name, item.chunk_id) for item in answer.ranked]
            self._uses.count(decay.agent_id, shown)
        return result

    async def close(self) -> None:
        """Wait until pending use counts are written."""
        await self._uses.close()

    async def similar(
        self,
        name: str,
        chunk_id: str,
        *,
        limit: int = 10,
        filter: Filter | None = None,
        min_score: float | None = None,
    ) -> SimilarResult:
        """Return the chunks of a collection nearest to one of its chunks, without that chunk.

        Raises:
            NotFound: if there is no such collection, or no such chunk in it.
        """
        registry = self._ports.registry

        async def ask(current: Collection) -> Read[ChunkText | None]:
            return await self._ports.store.chunk(current, chunk_id)

        found = await registry.consult(await registry.get(name), ask)
        if found is None:
            raise NotFound("collection", name)
        collection, chunk = found
        if chunk is None:
            raise NotFound("chunk", chunk_id, hint="Use the chunkId of a search-query hit.")
        asked = QueryInput(
            collection=name, query=chunk_id, limit=limit, mode="semantic", min_score=min_score
        )
        candidates = Candidates(
            Query(asked, filter, as_of=self._ports.now()),
            self._ranking,
            searched=collection,
            depth=limit + 1,
            vectors={COSINE: chunk.embedding or ()},
            provisional=partial(rank_provisionally, ports=self._ports),
        )
        await run([RETRIEVAL], candidates, self._ports)
        candidates.found = [item for item in candidates.found if item.chunk_id != chunk_id]
        await run((*RANKING, *PAGE), candidates, self._ports)
        own = Candidate(
            chunk.rid, chunk_id, 1.0, ranks={"semantic": 1}, collection=collection, row=chunk
        )
        own.score = 1.0
        return SimilarResult(
            results=candidates.hits,
            count=len(candidates.hits),
            source_chunk=hit_of(own, candidates.query, named=False),
        )

    async def _embed(self, query: Query, model: ModelInput) -> Vector:
        imagined = query.asked.hypothetical_answer
        texts = [
            (model.passage_prefix if text == imagined else model.query_prefix) + text
            for text in query.texts.values()
        ]
        embedding = self._ports.settings.embedding
        timeout = embedding.query_timeout
        if query.asked.mode == "hybrid":
            timeout = min(timeout, embedding.fallback_after)
        vectors: Vector = await self._ports.embedder.embed(model.model, texts, timeout=timeout)
        return vectors

    async def _names(self, collection: str | Sequence[str]) -> list[str]:
        if collection == "*":
            return [known.name for known in await self._ports.registry.all()]
        return list(dict.fromkeys(checked_name(name) for name in collection))

    async def _search_one(self, root: Candidates, name: str) -> tuple[QueryResult, Candidates]:
        """Search a collection; again if chunks were replaced before their rows were read."""
        for _ in range(_ATTEMPTS):
            own = await rank(name, root, root.clock, self._ports)
            answer = replace(root, ranked=own.ranked, warnings=[*root.warnings, *own.warnings])
            own.warnings = answer.warnings
            await self._rerank(answer, [own])
            await run(SELECTION, own, self._ports)
            answer.ranked, answer.hyde, answer.degraded = own.ranked, own.hyde, own.degraded
            answer.explain = own.explain
            await run(PAGE, answer, self._ports)
            if not answer.lost:
                break
        signal = time_signal(own.plan, own.query)
        period = signal.period if signal else None
        result = response(answer, answer.query.recognized(period), own.collection.model)
        return result, answer

    async def _search_all(
        self, root: Candidates, names: Sequence[str]
    ) -> tuple[QueryResult, Candidates]:
        """Search several collections; those that fail become warnings."""
        slots = asyncio.Semaphore(_COLLECTIONS_AT_ONCE)
        answer = replace(root, warnings=list(root.warnings))

        async def ranked(name: str) -> Candidates:
            async with slots:
                return await rank(name, root, Timings(), self._ports)

        async def selected(name: str) -> Candidates:
            async with slots:
                await run(SELECTION, lists[name], self._ports)
                return lists[name]

        lists = await _survivors(names, ranked, answer)
        await self._rerank(answer, list(lists.values()))
        lists = await _survivors(list(lists), selected, answer)
        answer.ranked = together(own.ranked for own in lists.values())
        timings: dict[str, float] = {}
        for name, own in lists.items():
            answer.hyde = answer.hyde or own.hyde
            answer.degraded = answer.degraded or own.degraded
            answer.warnings += [f"{name}: {warning}" for warning in own.warnings]
            for step, took in own.clock.milliseconds.items():
                timings[step] = max(took, timings.get(step, 0.0))
            if own.explain:
                answer.explain[name] = own.explain
        answer.clock.milliseconds = timings | answer.clock.milliseconds
        await run(PAGE, answer, self._ports)
        return response(answer, answer.query.recognized(None), None), answer

    async def _rerank(self, answer: Candidates, lists: Sequence[Candidates]) -> None:
        """Rerank the first candidates of all collections together."""
        answer.ranked = together(own.ranked for own in lists)
        await run(RERANKING, answer, self._ports)
        if answer.query.asked.reranker is not None:
            for own in lists:
                own.ranked.sort(key=lambda item: (-item.score, item.chunk_id if item.score else ""))


def together(lists: Iterable[Sequence[Candidate]]) -> list[Candidate]:
    """Merge several lists into one, best first; ties by chunkId.

    The order within each list is kept: of candidates that score 0, those of a deeper search come
    last.
    """
    return list(heapq.merge(*lists, key=lambda item: (-item.score, item.chunk_id)))


def response(answer: Candidates, recognized: Understood | None, model: str | None) -> QueryResult:
    """Return the answer to a query as callers see it.

    Args:
        answer: The candidates, with the hits of the page.
        recognized: Exclusions and times that counted.
        model: The embedding model of a single collection.
    """
    asked = answer.query.asked
    return QueryResult(
        results=answer.hits,
        count=len(answer.hits),
        query=asked.query,
        collection=asked.collection,
        mode=asked.mode,
        model=model,
        hyde=True if answer.hyde else None,
        understood=recognized,
        degraded=answer.degraded,
        budget=answer.budget,
        warnings=answer.warnings or None,
        timings={step: round(value, 3) for step, value in answer.clock.finished().items()},
        explain=answer.explain or None,
    )


async def _survivors(
    names: Sequence[str], call: Callable[[str], Awaitable[T]], answer: Candidates
) -> dict[str, T]:
    """Call for each collection; failures become warnings.

    Raises:
        SearchError: the first failure, if all of them failed.
    """
    outcomes = await asyncio.gather(*map(call, names), return_exceptions=True)
    kept: dict[str, T] = {}
    failures: list[SearchError] = []
    for name, outcome in zip(names, outcomes, strict=True):
        if isinstance(outcome, SearchError):
            failures.append(outcome)
            answer.warnings.append(f"{name}: {outcome}")
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            kept[name] = outcome
    if failures and not kept:
        raise failures[0]
    return kept
