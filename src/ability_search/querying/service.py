"""Query service: search over one collection or several."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ability_search.collection import Collection, checked_name
from ability_search.documents import Vector
from ability_search.errors import DimensionMismatch, EmbeddingUnavailable, ModelMismatch, NotFound
from ability_search.querying import (
    beside,
    dating,
    expanding,
    feedback,
    phrasing,
    rewording,
    siblings,
)
from ability_search.querying.adjusting import Context
from ability_search.querying.answers import (
    Found,
    Listed,
    explanation,
    merge,
    note_failed_arms,
    survivors,
    together,
)
from ability_search.querying.candidates import Plan, Pool, find_candidates
from ability_search.querying.extending import all_searched
from ability_search.querying.filling import deeper
from ability_search.querying.further import LOOKS, REORDERINGS
from ability_search.querying.fusing import blocks
from ability_search.querying.meaning import embedded_texts, told, understood
from ability_search.querying.model import Degradation, Hit, Query, QueryAnswer, SimilarAnswer
from ability_search.querying.packing import packed
from ability_search.querying.planning import Vectors, needs_statistics, planned
from ability_search.querying.reranking import rerank
from ability_search.querying.showing import read_hits
from ability_search.querying.stages import above, foreseen, ordered, ranked
from ability_search.querying.steps import Reach
from ability_search.querying.temporal import time_signal
from ability_search.querying.timings import Timings
from ability_search.querying.usage import Usage
from ability_search.querying.vectors import QueryVectors
from ability_search.store import arcadedb
from ability_search.store.arcadedb import Predicate
from ability_search.text.term_statistics import TermStatistics

_ATTEMPTS = 8
"""Maximum number of searches of a collection that changes during a query."""
_COLLECTIONS_AT_ONCE = 8
"""Maximum number of collections searched concurrently."""


class Querying:
    """The query and similarity services.

    Args:
        reach: Ports, registry of collections and settings.
        now: Returns the time in epoch milliseconds.
    """

    def __init__(self, reach: Reach, *, now: Callable[[], int]) -> None:
        self._reach = reach
        self._store = reach.store
        self._embedder = reach.embedder
        self._registry = reach.registry
        self._statistics_cache = reach.statistics_cache
        self._settings = reach.settings
        self._now = now
        self._usage = Usage(reach.registry, now=now)

    async def query(self, collection: str | Sequence[str], query: Query) -> QueryAnswer:
        """Search a collection, several, or all (``*``).

        Each of several collections is searched with its own model. Their hits are merged by score;
        collections that fail are named in the warnings.

        Raises:
            NotFound: if the collection, or each of several, does not exist.
            ModelMismatch: if the query names another model than the collection's.
            EmbeddingUnavailable: in semantic mode, if the query cannot be embedded.
            DatabaseUnavailable: if the database does not answer.
        """
        clock = Timings()
        query = understood(query, now=self._moment(query))
        warnings: list[str] = []
        if query.options.query_expansion is not None:
            with clock.step(rewording.STAGE):
                query, warnings = await rewording.reworded(
                    query, query.options.query_expansion, self._reach
                )
        vectors = QueryVectors(lambda model: self._embed(model, query))
        try:
            if isinstance(collection, str) and collection != "*":
                answer = await self._search(collection, query, vectors, clock)
            else:
                names = await self._names(collection)
                answer = await self._search_all(names, query, vectors, clock)
        finally:
            await vectors.close()
        answer.warnings[:0] = warnings
        if query.options.max_tokens is not None:
            with clock.step("maxResultTokens"):
                answer.hits, answer.budget = await asyncio.to_thread(
                    packed, answer.hits, query.options.max_tokens, self._reach.counter
                )
        answer.timings = clock.finished()
        if query.options.decay and query.options.decay.agent:
            self._usage.count(query.options.decay.agent, answer.hits)
        return answer

    async def close(self) -> None:
        """Wait until pending use counts are written."""
        await self._usage.close()

    async def similar(
        self,
        name: str,
        chunk_id: str,
        *,
        limit: int = 10,
        predicate: Predicate | None = None,
        min_score: float | None = None,
    ) -> SimilarAnswer:
        """Return the chunks of a collection nearest to one of its chunks, without that chunk.

        Raises:
            NotFound: if there is no such collection, or no such chunk in it.
        """

        async def ask(current: Collection) -> tuple[Any, Any]:
            answer = await self._store.read(
                *arcadedb.chunk_embedding(current.name, current.type, chunk_id)
            )
            return answer["collection"], answer["chunk"]

        found = await self._registry.consult(await self._registry.get(name), ask)
        if found is None:
            raise NotFound("collection", name)
        collection, rows = found
        if not rows:
            raise NotFound("chunk", chunk_id, hint="Use the chunkId of a search-query hit.")
        source = rows[0]
        query = Query("", limit=limit + 1, mode="semantic", predicate=predicate)
        vectors = {"cosine": source["embedding"]}
        plan = self._plan(collection, query, vectors, None, query.limit)
        pool = await find_candidates(self._store, self._registry, collection, plan)
        pool.candidates = [item for item in pool.candidates if item.chunk_id != chunk_id]
        context = Context(query, plan, self._settings.ranking, self._now())
        nearest = above(ranked(pool, context), min_score, mode="semantic")
        neighbours = [Found(pool.collection, item) for item in nearest]
        answer = QueryAnswer([], query.mode)
        page = replace(query, limit=limit)
        hits = await read_hits(self._store, neighbours, page, answer, Timings())
        own = Hit(collection.name, source, 1.0, {"semantic": 1.0}, ("semantic",))
        return SimilarAnswer(own, hits)

    async def _names(self, collection: str | Sequence[str]) -> list[str]:
        if collection == "*":
            return [known.name for known in await self._registry.all()]
        return list(dict.fromkeys(checked_name(name) for name in collection))

    async def _search(
        self, name: str, query: Query, vectors: QueryVectors, clock: Timings
    ) -> QueryAnswer:
        for _ in range(_ATTEMPTS):
            listed = await self._rank(name, query, vectors, clock)
            answer = listed.answer
            await self._rerank([listed], query, answer, clock)
            found = await self._reordered(listed)
            with clock.step("rows"):
                answer.hits = await read_hits(self._store, found, query, answer, clock)
            if len(answer.hits) == len(found[query.offset : query.offset + query.limit]):
                break
        return answer

    async def _search_all(
        self, names: Sequence[str], query: Query, vectors: QueryVectors, clock: Timings
    ) -> QueryAnswer:
        slots = asyncio.Semaphore(_COLLECTIONS_AT_ONCE)

        async def rank(name: str) -> Listed:
            async with slots:
                return await self._rank(name, query, vectors, Timings())

        async def reordered(listed: Listed) -> list[Found]:
            async with slots:
                return await self._reordered(listed)

        merged = QueryAnswer([], query.mode, understood=told(query, None))
        outcomes = await asyncio.gather(*map(rank, names), return_exceptions=True)
        lists = survivors(dict(zip(names, outcomes, strict=True)), merged)
        await self._rerank(list(lists.values()), query, merged, clock)
        orders = await asyncio.gather(*map(reordered, lists.values()), return_exceptions=True)
        kept = survivors(dict(zip(lists, orders, strict=True)), merged)
        for name in kept:
            merge(merged, name, lists[name].answer)
        found = together(kept.values())
        clock.milliseconds = merged.timings | clock.milliseconds
        with clock.step("rows"):
            merged.hits = await read_hits(self._store, found, query, merged, clock)
        return merged

    async def _rank(self, name: str, query: Query, vectors: QueryVectors, clock: Timings) -> Listed:
        """Return all candidates of a collection, best first, and the answer, still without hits.

        Searches deeper (refill) if an option would leave the page short.
        """
        depth: int | None = query.offset + query.limit
        while depth is not None:
            listed = await self._rank_settled(name, query, vectors, clock, depth)
            depth = deeper(listed.found, listed.pool, listed.context)
        return listed

    async def _rank_settled(
        self, name: str, query: Query, vectors: QueryVectors, clock: Timings, depth: int
    ) -> Listed:
        """Do as :meth:`_rank`, with at least ``depth`` candidates per retriever.

        Starts again if the collection is on another generation than the one that vector and terms
        were made for.
        """
        for _ in range(_ATTEMPTS):
            asked = await self._registry.get(name)
            listed = await self._rank_once(asked, query, vectors, clock, depth)
            pool = listed.pool
            if pool.collection.type == asked.type and all_searched(query, asked, pool):
                break
        return listed

    async def _rank_once(
        self,
        collection: Collection,
        query: Query,
        vectors: QueryVectors,
        clock: Timings,
        depth: int,
    ) -> Listed:
        name = collection.name
        if query.model and query.model != collection.model:
            raise ModelMismatch(name, recorded=collection.model, requested=query.model)
        answer = QueryAnswer([], query.mode, collection.model, timings=clock.milliseconds)
        if query.mode != "keyword":
            vectors.ask(collection.model)
        pool, context = await self._candidates(collection, query, answer, vectors, clock, depth)
        note_failed_arms(pool, answer)
        searched = answer.degraded.mode if answer.degraded else query.mode
        answer.hyde = searched != "keyword" and query.hypothetical_answer is not None
        answer.understood = told(query, context.time)
        for look in LOOKS:
            if look.wanted(query):
                with clock.step(look.name):
                    await look.look(pool, context, self._reach, answer)
        with clock.step("ranking"):
            scored = blocks(pool, context.plan, query, context.ranking)
        if scored and feedback.wanted(pool, context):
            with clock.step(feedback.NAME):
                await feedback.learn(self._store, pool, scored[0], context)
        if scored and siblings.wanted(pool, context):
            with clock.step(siblings.NAME):
                await siblings.learn(self._store, pool, scored[0], context)
        if scored and phrasing.wanted(pool, context):
            with clock.step(phrasing.NAME):
                await phrasing.count(self._store, pool, scored[0], context)
        with clock.step("ranking"):
            every = ordered(scored, context, clock if query.explain else None)
            found = above(every, query.min_score, mode=searched)
        if query.explain:
            answer.explain = explanation(pool, context, below=len(every) - len(found))
        return Listed(answer, pool, context, found, clock)

    async def _candidates(
        self,
        collection: Collection,
        query: Query,
        answer: QueryAnswer,
        vectors: QueryVectors,
        clock: Timings,
        depth: int,
    ) -> tuple[Pool, Context]:
        """Return the candidates of the query, after event resolution and feedback."""
        statistics = await self._statistics(collection, query, clock)
        known = await self._query_vectors(collection, query, answer, vectors)
        with clock.step("candidates"):
            plan = self._plan(collection, query, known, statistics, depth)
            pool = await find_candidates(self._store, self._registry, collection, plan)
        context = self._context(plan, query)
        if dating.wanted(query) and not pool.failed:
            with clock.step(dating.STAGE):
                found = foreseen(pool, context)
                pool, plan, query = await beside.search_again(
                    found, pool, context, known, statistics, self._reach, answer
                )
            context = self._context(plan, query)
        if plan.first and not pool.failed:
            with clock.step(expanding.STAGE):
                found = foreseen(pool, context)
                pool, plan = await expanding.search_again(
                    found, pool, context, statistics, self._reach, answer
                )
            context = self._context(plan, query)
        return pool, context

    def _context(self, plan: Plan, query: Query) -> Context:
        time = time_signal(plan, query)
        return Context(query, plan, self._settings.ranking, self._moment(query), time)

    def _moment(self, query: Query) -> int:
        """Return the time of the query, in epoch milliseconds."""
        return self._now() if query.as_of is None else query.as_of

    async def _rerank(
        self, lists: Sequence[Listed], query: Query, answer: QueryAnswer, clock: Timings
    ) -> None:
        """Rerank the first candidates of all collections together."""
        if query.options.reranker is not None:
            with clock.step("reranker"):
                await rerank(lists, query, query.options.reranker, self._reach, answer)

    async def _reordered(self, listed: Listed) -> list[Found]:
        """Return a collection's candidates after the reorderings that the query requests."""
        found, pool, context = listed.found, listed.pool, listed.context
        for step in REORDERINGS:
            if step.wanted(context.query):
                with listed.clock.step(step.name):
                    found = await step.reorder(found, pool, context, self._reach, listed.answer)
        return [Found(pool.collection, item) for item in found]

    async def _embed(self, model: str, query: Query) -> Vector:
        vectors: Vector = await self._embedder.embed(
            model,
            list(embedded_texts(query).values()),
            timeout=self._settings.embedding.query_timeout,
        )
        return vectors

    async def _query_vectors(
        self, collection: Collection, query: Query, answer: QueryAnswer, vectors: QueryVectors
    ) -> Vectors | None:
        """Return the query vectors; ``None`` if not needed, or unavailable in hybrid mode."""
        if query.mode == "keyword":
            return None
        try:
            found = await vectors.of(collection.model)
            received = found.shape[1]
            if received != collection.dimensions:
                raise DimensionMismatch(
                    collection.name, recorded=collection.dimensions, received=received
                )
        except (EmbeddingUnavailable, DimensionMismatch) as exc:
            if query.mode == "semantic":
                raise
            answer.degraded = Degradation(str(exc), exc.code, "keyword")
            return None
        finally:
            answer.timings["embed"] = vectors.milliseconds(collection.model)
        return dict(zip(embedded_texts(query), found.tolist(), strict=True))

    async def _statistics(
        self, collection: Collection, query: Query, clock: Timings
    ) -> TermStatistics | None:
        """Return the term statistics; ``None`` if the query does not need them."""
        if not needs_statistics(query):
            return None
        with clock.step("terms"):
            return await self._statistics_cache.of(collection)

    def _plan(
        self,
        collection: Collection,
        query: Query,
        vectors: Vectors | None,
        statistics: TermStatistics | None,
        depth: int,
    ) -> Plan:
        return planned(
            query,
            vectors,
            statistics,
            depth=depth,
            language=collection.language,
            ranking=self._settings.ranking,
        )
