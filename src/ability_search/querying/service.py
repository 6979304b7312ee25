"""Searching one collection or several."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from ability_search.highlights import highlights
from ability_search.ports import Embedder, Store
from ability_search.querying.candidates import Plan, Pool, find_candidates
from ability_search.querying.model import (
    Candidate,
    Degradation,
    Hit,
    Mode,
    Query,
    QueryAnswer,
    SimilarAnswer,
)
from ability_search.querying.stages import above, fused
from ability_search.ranking.bm25 import QueryTerms, query_terms
from ability_search.statements import Predicate
from ability_search.vocabulary import Vocabulary

_REFILLS = 3
"""Times that hits which vanished between the round trips are replaced by the next best."""


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
        if isinstance(collection, str) and collection != "*":
            return await self._search(collection, query)
        names = (
            [known.name for known in await self._catalogue.all()]
            if collection == "*"
            else list(dict.fromkeys(checked_name(name) for name in collection))
        )
        return await self._search_all(names, query)

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
        hits = await self._hits(pool.collection, ranked, replace(query, limit=limit))
        own = Hit(collection.name, source, 1.0, {"semantic": 1.0}, ("semantic",))
        return SimilarAnswer(own, hits)

    async def _search_all(self, names: Sequence[str], query: Query) -> QueryAnswer:
        depth = replace(query, limit=query.limit + query.offset, offset=0)
        answers = await asyncio.gather(
            *(self._search(name, depth) for name in names), return_exceptions=True
        )
        merged = QueryAnswer([], query.mode)
        failures: list[SearchError] = []
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, SearchError):
                failures.append(answer)
                merged.warnings.append(f"{name}: {answer}")
            elif isinstance(answer, BaseException):
                raise answer
            else:
                _merge(merged, name, answer)
        if failures and len(failures) == len(names):
            raise failures[0]
        merged.hits.sort(key=lambda hit: (-hit.score, hit.chunk_id))
        merged.hits = merged.hits[query.offset : query.offset + query.limit]
        return merged

    async def _search(self, name: str, query: Query) -> QueryAnswer:
        clock = _Timings()
        collection = await self._catalogue.get(name)
        if query.model and query.model != collection.model:
            raise ModelMismatch(name, recorded=collection.model, requested=query.model)
        answer = QueryAnswer([], query.mode, collection.model, timings=clock.milliseconds)
        vector, terms = await asyncio.gather(
            self._query_vector(collection, query, answer, clock),
            self._query_terms(collection, query, clock),
        )
        if vector is not None and len(vector) != collection.dimensions:
            raise DimensionMismatch(name, recorded=collection.dimensions, received=len(vector))
        if answer.degraded:
            query = replace(query, mode="keyword")
        answer.hyde = vector is not None and query.hypothetical_answer is not None
        with clock.step("candidates"):
            plan = self._plan(query, vector, terms)
            pool = await find_candidates(self._store, self._catalogue, collection, plan)
        _note_failed_arms(pool, query, answer)
        with clock.step("ranking"):
            ranked = above(self._ranked(pool, plan, query), query.min_score, mode=query.mode)
        with clock.step("rows"):
            answer.hits = await self._hits(pool.collection, ranked, query)
        answer.timings["total"] = clock.total()
        if query.explain:
            answer.explain = _explanation(pool, plan, query)
        return answer

    async def _query_vector(
        self, collection: Collection, query: Query, answer: QueryAnswer, clock: _Timings
    ) -> list[float] | None:
        """The query's vector; ``None`` if it is not needed, or not to be had in hybrid mode."""
        if query.mode == "keyword":
            return None
        with clock.step("embed"):
            try:
                vectors: Vector = await self._embedder.embed(
                    collection.model,
                    [query.embedded_text],
                    timeout=self._settings.embedding.query_timeout,
                )
            except EmbeddingUnavailable as exc:
                if query.mode == "semantic":
                    raise
                answer.degraded = Degradation(str(exc), exc.code, "keyword")
                return None
        return [float(value) for value in vectors[0]]

    async def _query_terms(
        self, collection: Collection, query: Query, clock: _Timings
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
        wanted = query.offset + query.limit
        return Plan(
            vector=vector,
            terms=terms,
            limit=max(ranking.candidates, wanted),
            beam=max(ranking.ef_search, wanted),
            scan_below=ranking.scan_below,
            predicate=query.predicate,
        )

    def _ranked(self, pool: Pool, plan: Plan, query: Query) -> list[Candidate]:
        return fused(
            pool.candidates,
            terms=None if "keyword" in pool.failed else plan.terms,
            semantic=plan.vector is not None and "semantic" not in pool.failed,
            depth=plan.limit,
            choice=query.fusion,
            ranking=self._settings.ranking,
        )

    async def _hits(
        self, collection: Collection, ranked: Sequence[Candidate], query: Query
    ) -> list[Hit]:
        """The page of hits that is wanted, with their texts.

        A chunk that was replaced since it was found is left out, and the next one moves up.
        """
        page: list[Hit] = []
        waiting = list(ranked[query.offset :])
        for _ in range(_REFILLS):
            part = waiting[: query.limit - len(page)]
            if not part:
                break
            del waiting[: len(part)]
            rows = await self._store.read(
                *statements.hit_rows(collection.type, [item.rid for item in part])
            )
            by_id = {row["chunkId"]: row for row in rows}
            page += [
                self._hit(collection, item, by_id[item.chunk_id], query)
                for item in part
                if item.chunk_id in by_id
            ]
        return page

    def _hit(
        self, collection: Collection, item: Candidate, row: Mapping[str, Any], query: Query
    ) -> Hit:
        raw = {"semantic": item.cosine, "keyword": item.bm25}
        marks = None
        if query.highlights:
            analyzer = analyzer_for(collection.language)
            marks = tuple(highlights(row["content"], analyzer.query_terms(query.text), analyzer))
        return Hit(
            collection=collection.public_name,
            row=row,
            score=item.score,
            scores={name: score for name, score in raw.items() if score is not None},
            matched_via=tuple(item.ranks),
            highlights=marks,
            trace=item.trace if query.explain else None,
        )


class _Timings:
    """Measures the steps of a query."""

    def __init__(self) -> None:
        self.milliseconds: dict[str, float] = {}
        self._started = time.perf_counter()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure the block as step ``name``."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.milliseconds[name] = (time.perf_counter() - started) * 1e3

    def total(self) -> float:
        """Milliseconds since the beginning."""
        return (time.perf_counter() - self._started) * 1e3


def _note_failed_arms(pool: Pool, query: Query, answer: QueryAnswer) -> None:
    for arm, reason in pool.failed.items():
        other: Mode = "keyword" if arm == "semantic" else "semantic"
        answer.warnings.append(f"the {arm} arm could not be searched: {reason}")
        answer.degraded = answer.degraded or Degradation(reason, "database_unavailable", other)


def _explanation(pool: Pool, plan: Plan, query: Query) -> dict[str, Any]:
    terms = plan.terms
    return {
        "arms": list(plan.arms),
        "candidates": len(pool.candidates),
        "candidatesPerArm": plan.limit,
        "vectorSearch": None
        if plan.vector is None
        else "scan"
        if plan.exact(pool.collection)
        else "graph",
        "terms": None if terms is None else len(terms.ids),
        "generation": pool.collection.generation,
        "revision": pool.collection.revision,
        "filtered": query.predicate is not None,
    }


def _merge(merged: QueryAnswer, name: str, answer: QueryAnswer) -> None:
    """Take one collection's answer into that of several."""
    merged.hits += answer.hits
    merged.hyde = merged.hyde or answer.hyde
    merged.degraded = merged.degraded or answer.degraded
    merged.warnings += [f"{name}: {warning}" for warning in answer.warnings]
    for step, took in answer.timings.items():
        merged.timings[step] = max(took, merged.timings.get(step, 0.0))
    if answer.explain:
        merged.explain[name] = answer.explain
