"""Searching one collection or several."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ability_search import statements
from ability_search.analysis import analyzer_for
from ability_search.catalogue import Catalogue, Collection, checked_name
from ability_search.configuration import Settings
from ability_search.documents import Vector
from ability_search.errors import (
    DimensionMismatch,
    EmbeddingUnavailable,
    ModelMismatch,
    NotFound,
    SearchError,
)
from ability_search.ports import Embedder, Store
from ability_search.querying.answers import Found, explanation, hit, merge, note_failed_arms
from ability_search.querying.candidates import Plan, Pool, find_candidates
from ability_search.querying.model import (
    Candidate,
    Degradation,
    Hit,
    Query,
    QueryAnswer,
    SimilarAnswer,
)
from ability_search.querying.stages import above, fused
from ability_search.querying.timings import Timings
from ability_search.querying.vectors import QueryVectors
from ability_search.ranking.bm25 import QueryTerms, query_terms
from ability_search.statements import Predicate
from ability_search.vocabulary import Vocabulary

_ATTEMPTS = 5
"""Times that a collection which changes under a query is searched at most."""
_COLLECTIONS_AT_ONCE = 8
"""Of several collections, how many are searched at the same time."""


class Querying:
    """The query and similarity services.

    Args:
        store: The database.
        embedder: The models.
        catalogue: Knows the collections.
        vocabulary: Knows their terms.
        settings: Defaults and limits.
    """

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        catalogue: Catalogue,
        vocabulary: Vocabulary,
        *,
        settings: Settings,
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._catalogue = catalogue
        self._vocabulary = vocabulary
        self._settings = settings

    async def query(self, collection: str | Sequence[str], query: Query) -> QueryAnswer:
        """Search a collection, several, or all (``*``).

        Several are searched each with its own model; their hits are merged by score, and those
        that fail are named in the warnings.

        Raises:
            NotFound: if the collection, or each of several, does not exist.
            ModelMismatch: if the query names another model than the collection's.
            EmbeddingUnavailable: in semantic mode, if the query cannot be embedded.
            DatabaseUnavailable: if the database does not answer.
        """
        vectors = QueryVectors(lambda model: self._embed(model, query))
        try:
            if isinstance(collection, str) and collection != "*":
                return await self._search(collection, query, vectors)
            names = (
                [known.name for known in await self._catalogue.all()]
                if collection == "*"
                else list(dict.fromkeys(checked_name(name) for name in collection))
            )
            return await self._search_all(names, query, vectors)
        finally:
            await vectors.close()

    async def similar(
        self,
        name: str,
        chunk_id: str,
        *,
        limit: int = 10,
        predicate: Predicate | None = None,
        min_score: float | None = None,
    ) -> SimilarAnswer:
        """The chunks of a collection nearest to one of its chunks, which is not among them.

        Raises:
            NotFound: if there is no such collection, or no such chunk in it.
        """

        async def ask(current: Collection) -> tuple[Any, Any]:
            answer = await self._store.read(
                *statements.chunk_embedding(current.name, current.type, chunk_id)
            )
            return answer["collection"], answer["chunk"]

        found = await self._catalogue.consult(await self._catalogue.get(name), ask)
        if found is None:
            raise NotFound("collection", name)
        collection, rows = found
        if not rows:
            raise NotFound("chunk", chunk_id)
        source = rows[0]
        query = Query("", limit=limit + 1, mode="semantic", predicate=predicate)
        plan = self._plan(query, source["embedding"], None)
        pool = await find_candidates(self._store, self._catalogue, collection, plan)
        pool.candidates = [item for item in pool.candidates if item.chunk_id != chunk_id]
        ranked = above(self._ranked(pool, plan, query), min_score, mode="semantic")
        neighbours = [Found(pool.collection, item) for item in ranked]
        hits = await self._hits(neighbours, replace(query, limit=limit))
        own = Hit(collection.name, source, 1.0, {"semantic": 1.0}, ("semantic",))
        return SimilarAnswer(own, hits)

    async def _search(self, name: str, query: Query, vectors: QueryVectors) -> QueryAnswer:
        clock = Timings()
        for _ in range(_ATTEMPTS):
            answer, found = await self._rank(name, query, vectors, clock)
            with clock.step("rows"):
                answer.hits = await self._hits(found, query)
            if len(answer.hits) == len(found[query.offset : query.offset + query.limit]):
                break
        answer.timings = clock.finished()
        return answer

    async def _search_all(
        self, names: Sequence[str], query: Query, vectors: QueryVectors
    ) -> QueryAnswer:
        clock = Timings()
        slots = asyncio.Semaphore(_COLLECTIONS_AT_ONCE)

        async def rank(name: str) -> tuple[QueryAnswer, list[Found]]:
            async with slots:
                return await self._rank(name, query, vectors, Timings())

        outcomes = await asyncio.gather(*map(rank, names), return_exceptions=True)
        merged = QueryAnswer([], query.mode)
        found: list[Found] = []
        failures: list[SearchError] = []
        for name, outcome in zip(names, outcomes, strict=True):
            if isinstance(outcome, SearchError):
                failures.append(outcome)
                merged.warnings.append(f"{name}: {outcome}")
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                merge(merged, name, outcome[0])
                found += outcome[1]
        if failures and len(failures) == len(names):
            raise failures[0]
        found.sort(key=lambda each: (-each.candidate.score, each.candidate.chunk_id))
        clock.milliseconds |= merged.timings
        with clock.step("rows"):
            merged.hits = await self._hits(found, query)
        merged.timings = clock.finished()
        return merged

    async def _rank(
        self, name: str, query: Query, vectors: QueryVectors, clock: Timings
    ) -> tuple[QueryAnswer, list[Found]]:
        """All that was found in a collection, best first, and the answer as yet without hits.

        Begins again where the collection turns out to be on another generation than the one that
        vector and terms were made for, and where nothing was found while it was being changed:
        the engine takes a replaced chunk out of an index before it puts the new one in.
        """
        for _ in range(_ATTEMPTS):
            asked = await self._catalogue.get(name)
            answer, pool, ranked = await self._rank_once(asked, query, vectors, clock)
            moved = pool.collection.revision != asked.revision
            if pool.collection.type == asked.type and (pool.candidates or not moved):
                break
        return answer, [Found(pool.collection, item) for item in ranked]

    async def _rank_once(
        self, collection: Collection, query: Query, vectors: QueryVectors, clock: Timings
    ) -> tuple[QueryAnswer, Pool, list[Candidate]]:
        name = collection.name
        if query.model and query.model != collection.model:
            raise ModelMismatch(name, recorded=collection.model, requested=query.model)
        answer = QueryAnswer([], query.mode, collection.model, timings=clock.milliseconds)
        if query.mode != "keyword":
            vectors.ask(collection.model)
        terms = await self._query_terms(collection, query, clock)
        vector = await self._query_vector(collection, query, answer, vectors)
        with clock.step("candidates"):
            plan = self._plan(query, vector, terms)
            pool = await find_candidates(self._store, self._catalogue, collection, plan)
        note_failed_arms(pool, answer)
        searched = answer.degraded.mode if answer.degraded else query.mode
        answer.hyde = searched != "keyword" and query.hypothetical_answer is not None
        with clock.step("ranking"):
            ranked = above(self._ranked(pool, plan, query), query.min_score, mode=searched)
        if query.explain:
            answer.explain = explanation(pool, plan, query)
        return answer, pool, ranked

    async def _embed(self, model: str, query: Query) -> Vector:
        vectors: Vector = await self._embedder.embed(
            model, [query.embedded_text], timeout=self._settings.embedding.query_timeout
        )
        return vectors.reshape(-1)

    async def _query_vector(
        self, collection: Collection, query: Query, answer: QueryAnswer, vectors: QueryVectors
    ) -> list[float] | None:
        """The query's vector; ``None`` if it is not needed, or not to be had in hybrid mode."""
        if query.mode == "keyword":
            return None
        try:
            vector = await vectors.of(collection.model)
            if len(vector) != collection.dimensions:
                raise DimensionMismatch(
                    collection.name, recorded=collection.dimensions, received=len(vector)
                )
        except (EmbeddingUnavailable, DimensionMismatch) as exc:
            if query.mode == "semantic":
                raise
            answer.degraded = Degradation(str(exc), exc.code, "keyword")
            return None
        finally:
            answer.timings["embed"] = vectors.milliseconds(collection.model)
        values: list[float] = vector.tolist()
        return values

    async def _query_terms(
        self, collection: Collection, query: Query, clock: Timings
    ) -> QueryTerms | None:
        """The query's weighted terms; ``None`` if they are not needed."""
        if query.mode == "semantic":
            return None
        with clock.step("terms"):
            statistics = await self._vocabulary.of(collection)
            return query_terms(
                analyzer_for(collection.language).query_terms(query.text),
                statistics,
                title_weight=self._settings.ranking.title_weight,
            )

    def _plan(self, query: Query, vector: list[float] | None, terms: QueryTerms | None) -> Plan:
        ranking = self._settings.ranking
        depths = [ranking.candidates]
        while depths[-1] < query.offset + query.limit:
            depths.append(2 * depths[-1])
        return Plan(
            vector=vector,
            terms=terms,
            depths=tuple(depths),
            beam=max(ranking.ef_search, depths[-1]),
            scan_below=ranking.scan_below,
            predicate=query.predicate,
        )

    def _ranked(self, pool: Pool, plan: Plan, query: Query) -> list[Candidate]:
        return fused(
            pool.candidates,
            terms=None if "keyword" in pool.failed else plan.terms,
            semantic=plan.vector is not None and "semantic" not in pool.failed,
            depths=plan.depths,
            choice=query.fusion,
            ranking=self._settings.ranking,
            traced=query.explain,
        )

    async def _hits(self, found: Sequence[Found], query: Query) -> list[Hit]:
        """The page of hits that is wanted, with their texts.

        A chunk that was replaced since it was found is left out.
        """
        part = found[query.offset : query.offset + query.limit]
        rows = await self._rows(part) if part else {}
        return [
            hit(each, rows[each.candidate.chunk_id], query)
            for each in part
            if each.candidate.chunk_id in rows
        ]

    async def _rows(self, part: Sequence[Found]) -> dict[str, Mapping[str, Any]]:
        """The rows of chunks of one collection or several, by chunkId."""
        rids: dict[str, list[str]] = {}
        for each in part:
            rids.setdefault(each.collection.type, []).append(each.candidate.rid)
        answers = await asyncio.gather(
            *(self._store.read(*statements.hit_rows(*generation)) for generation in rids.items())
        )
        return {row["chunkId"]: row for rows in answers for row in rows}
