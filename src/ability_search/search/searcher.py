"""The search service: queries over one collection or several, and similar chunks."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np

from ability_search.collection import Collection, ModelInput, checked_name
from ability_search.documents import Vector
from ability_search.errors import NotFound, SearchError
from ability_search.extensions.notes.source_paths import connect
from ability_search.extensions.sessions.decay import UseCounter
from ability_search.extensions.understanding.query_expansion import QUERY_EXPANSION
from ability_search.filters.tree import Field, Filter, Not, OneOf, combine
from ability_search.search.candidates import (
    Answer,
    Candidate,
    Candidates,
    Timings,
    rank_key,
)
from ability_search.search.options import QueryInput
from ability_search.search.pipeline import (
    PAGE,
    QUERY,
    RANKING,
    RERANKING,
    SELECTION,
    candidates_of,
    explained,
    rank,
    run,
    search_slots,
)
from ability_search.search.query import COSINE, Query, parse_query
from ability_search.search.query_vectors import QueryVectors
from ability_search.search.response import Degraded, QueryResult, SimilarResult
from ability_search.search.stage import Ports
from ability_search.search.stages.first_candidates import RETRIEVAL
from ability_search.search.stages.token_budget import NAME, fit_answer
from ability_search.store.records import ChunkText, Read

_ATTEMPTS = 8
"""Maximum number of queries while chunks are replaced before their rows are read."""
_MEAN_OF = 100
"""Maximum number of chunks of a source that stand for it."""
_COUNTED = 100
"""Work of counting the tokens of a hit, in candidates."""


class Searcher:
    """Answers queries and finds similar chunks."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._uses = UseCounter(ports.store, now=ports.now)

    async def query(self, query: Query) -> QueryResult:
        """Search a collection, several, or all (``*``).

        Each of several collections is searched with its own model. Their hits are merged by score.
        Collections that fail are named in the warnings.

        Raises:
            NotFound: if the collection, or each of several, does not exist.
            ModelMismatch: if the query names another model than the collection's.
            EmbeddingUnavailable: in semantic mode, if the query cannot be embedded.
            DatabaseUnavailable: if the database does not answer.
        """
        understood = Answer(query)
        await run(QUERY, understood, self._ports)
        names = await self._names(query)
        models = await self._models(names, query)
        answer, searched = await self._answer(names, understood, models)
        if query.expander is not None and query.expander.below is not None:
            answer.relevance = understood.relevance = _relevance(searched)
            known = len(understood.warnings)
            await run((QUERY_EXPANSION,), understood, self._ports)
            if understood.query.expansion:
                answer, searched = await self._answer(names, understood, models)
            else:
                answer.warnings += understood.warnings[known:]
        result = response(answer, searched)
        if query.asked.max_result_tokens is not None:
            result.timings[NAME] = 0.0
            with answer.clock.step(NAME):
                result = await self._ports.turns.run(
                    partial(fit_answer, result, query.asked.max_result_tokens, self._ports.counter),
                    work=_COUNTED * result.count,
                )
            measured = rounded(answer.clock)
            result.timings = {step: measured[step] for step in result.timings}
        decay = query.asked.decay
        if decay is not None and decay.agent_id:
            shown = [hit.chunk_id for hit in result.results]
            marks = dict.fromkeys(decay.useful, True) | dict.fromkeys(decay.not_useful, False)
            self._uses.count(decay.agent_id, shown, marks)
        return result

    async def _answer(
        self, names: Sequence[str], understood: Answer, models: Set[ModelInput]
    ) -> tuple[Answer, Mapping[str, Candidates]]:
        """Return the answer from collections, and the candidates of each.

        All of several models embed the query at once, so that those that hang delay it once.
        """
        embeddings = QueryVectors(partial(self._embed, understood.query))
        try:
            for model in models if len(models) > 1 else ():
                embeddings.request(model)
            for _ in range(_ATTEMPTS):
                answer = replace(understood, warnings=list(understood.warnings))
                searched = await self._search(names, answer, embeddings)
                if not answer.lost:
                    break
        finally:
            await embeddings.close()
        return answer, searched

    async def close(self) -> None:
        """Wait until pending use counts are written."""
        await self._uses.close()

    async def similar(
        self,
        name: str,
        chunk_id: str | None,
        source: str | None = None,
        *,
        limit: int = 10,
        filter: Filter | None = None,
        min_score: float | None = None,
        shown: Callable[[str], bool],
    ) -> SimilarResult:
        """Return the chunks of a collection nearest to one of its chunks, or to a source.

        That chunk, or all of that source, are left out. ``shown`` tells if a source may be read.

        Raises:
            NotFound: if there is no such collection, or no such chunk or source in it.
        """
        wanted, chunk_id = chunk_id, f"{name}:{source}:0" if chunk_id is None else chunk_id
        collection, chunk = await self._chunk(name, chunk_id, source)
        if not shown(chunk.source):
            raise not_found(wanted, source)
        vector: Sequence[float] = chunk.embedding or ()
        if source is not None:
            filter = combine(Not(OneOf(Field("source"), (source,))), filter)
            vector = await self._mean_vector(collection, chunk)
        asked = QueryInput(
            collection=name, query=chunk_id, limit=limit, mode="semantic", min_score=min_score
        )
        query = replace(parse_query(asked, filter), as_of=self._ports.now())
        candidates = candidates_of(query, collection, limit + 1, self._ports)
        candidates.vectors = {COSINE: vector}
        await run([RETRIEVAL], candidates, self._ports)
        candidates.found = [item for item in candidates.found if item.chunk_id != chunk_id]
        await run(RANKING, candidates, self._ports)
        answer = Answer(query, ranked=candidates.ranked)
        await run(PAGE, answer, self._ports)
        return SimilarResult(
            results=answer.hits,
            count=len(answer.hits),
            source_chunk=chunk.chunk_id,
            source_content=chunk.content,
        )

    async def connection(
        self,
        name: str,
        source: str,
        to: str,
        *,
        hops: int,
        limit: int,
        shown: Callable[[str], bool],
    ) -> SimilarResult:
        """Return the paths between two sources, and the first chunk of the first.

        Args:
            name: Their collection.
            source: Source where the paths begin.
            to: Source where they end.
            hops: Maximum number of links of a path, 1 to 3.
            limit: Maximum number of paths, and of common neighbours.
            shown: Whether a source may be returned.

        Raises:
            NotFound: if there is no such collection, or no such source in it.
        """
        found = []
        for each in (source, to):
            if not shown(each):
                raise not_found(None, each)
            found.append(await self._chunk(name, f"{name}:{each}:0", each))
        collection, chunk = found[0]
        connected = await connect(
            self._ports.store, collection, source, to, hops=hops, limit=limit, shown=shown
        )
        return SimilarResult(
            results=[],
            count=0,
            source_chunk=chunk.chunk_id,
            source_content=chunk.content,
            connection=connected,
        )

    async def _chunk(
        self, name: str, chunk_id: str, source: str | None
    ) -> tuple[Collection, ChunkText]:
        """Return a chunk with its collection; ``source`` is what the caller named, if not the id.

        Raises:
            NotFound: if there is no such collection or chunk.
        """
        registry = self._ports.registry

        async def ask(current: Collection) -> Read[ChunkText | None]:
            return await self._ports.store.chunk(current, chunk_id)

        found = await registry.consult(await registry.get(name), ask)
        if found is None:
            raise NotFound("collection", name)
        collection, chunk = found
        if chunk is None:
            raise not_found(chunk_id, source)
        return collection, chunk

    async def _mean_vector(self, collection: Collection, first: ChunkText) -> Sequence[float]:
        """Return the mean of the vectors of a source's first chunks, of unit length."""
        head = first.chunk_id.removesuffix(":0")
        ids = [f"{head}:{n}" for n in range(1, min(first.total_chunks, _MEAN_OF))]
        vectors = [first.embedding or ()]
        if ids:
            store = self._ports.store
            others = await store.passages(collection.type, ids, None)
            rids = [each.rid for each in others if each.rid is not None]
            vectors += (await store.embeddings(collection.type, rids)).values()
        mean = np.mean([each for each in vectors if len(each)], axis=0)
        unit: list[float] = (mean / (np.linalg.norm(mean) or 1.0)).tolist()
        return unit

    async def _models(self, names: Sequence[str], query: Query) -> set[ModelInput]:
        """Return the models of several collections that a query is embedded with."""
        if len(names) < 2 or query.asked.mode == "keyword":
            return set()
        found = await asyncio.gather(*map(self._ports.registry.find, names), return_exceptions=True)
        collections = [each for each in found if isinstance(each, Collection)]
        named = query.asked.model
        return {each.model_input for each in collections if named in (None, each.model)}

    async def _embed(self, query: Query, model: ModelInput) -> list[Vector]:
        imagined = query.asked.hypothetical_answer
        texts = [each.texts.values() for each in query.phrasings]
        prefixed = [
            (model.passage_prefix if text == imagined else model.query_prefix) + text
            for text in chain.from_iterable(texts)
        ]
        embedding = self._ports.settings.embedding
        timeout = embedding.query_timeout
        if query.asked.mode == "hybrid":
            timeout = min(timeout, embedding.fallback_after)
        vectors = await self._ports.embedder.embed(model.model, prefixed, timeout=timeout)
        return np.split(vectors, np.cumsum([len(own) for own in texts])[:-1])

    async def _names(self, query: Query) -> list[str]:
        collection = query.asked.collection
        if collection == "*":
            return [known.name for known in await self._ports.registry.all()]
        if isinstance(collection, str):
            return [collection]
        return list(dict.fromkeys(checked_name(name) for name in collection))

    async def _search(
        self, names: Sequence[str], answer: Answer, embeddings: QueryVectors
    ) -> Mapping[str, Candidates]:
        """Find the page of an answer in collections; return the candidates of each.

        Collections that fail become warnings.

        Raises:
            SearchError: the first failure, if all of them failed.
        """
        slots = search_slots(answer.query.end)

        async def ranked(name: str) -> Candidates:
            async with slots:
                return await rank(name, answer.query, embeddings, self._ports)

        async def selected(name: str) -> Candidates:
            async with slots:
                await run(SELECTION, lists[name], self._ports)
                return lists[name]

        lists = await _survivors(names, ranked, answer)
        answer.ranked = await self._together(lists.values())
        await run(RERANKING, answer, self._ports)
        if answer.query.asked.reranker is not None:
            for own in lists.values():
                own.ranked.sort(key=lambda item: (-item.score, item.chunk_id if item.score else ""))
                for place, item in enumerate(own.ranked):
                    item.place = place
        lists = await _survivors(list(lists), selected, answer)
        answer.ranked = await self._together(lists.values())
        slowest = Timings()
        for own in lists.values():
            slowest.at_least(own.clock)
        for step, took in slowest.milliseconds.items():
            answer.clock.add(step, took / 1e3)
        await run(PAGE, answer, self._ports)
        return lists

    async def _together(self, lists: Iterable[Candidates]) -> list[Candidate]:
        ranked = [own.ranked for own in lists]
        work = sum(map(len, ranked)) if len(ranked) > 1 else 0
        return await self._ports.turns.run(lambda: together(ranked), work=work)


def not_found(chunk_id: str | None, source: str | None) -> NotFound:
    """Return the error for a chunk, or a source, to find similar chunks of."""
    if source is not None:
        return NotFound("source", source, hint="search-collection-info lists the sources.")
    return NotFound("chunk", chunk_id or "", hint="Use the chunkId of a search-query hit.")


def together(lists: Iterable[Sequence[Candidate]]) -> list[Candidate]:
    """Merge several lists into one, best first; ties by chunkId.

    The order within each list is kept: of candidates that score 0, those of a deeper search come
    last.
    """
    merged = [list(each) for each in lists]
    return merged[0] if len(merged) == 1 else list(heapq.merge(*merged, key=rank_key))


def response(answer: Answer, searched: Mapping[str, Candidates]) -> QueryResult:
    """Return the answer to a query as callers see it.

    Args:
        answer: The answer, with the hits of the page.
        searched: The candidates of each collection.
    """
    query, asked = answer.query, answer.query.asked
    lists = list(searched.values())
    single = None if query.several else lists[0]
    explanations = {name: explained(own) for name, own in searched.items()} if asked.explain else {}
    if query.expander is not None and query.expander.below is not None:
        vague = {"relevance": answer.relevance, "below": query.expander.below}
        explanations = {name: each | {"vague": vague} for name, each in explanations.items()}
    hyde = asked.hypothetical_answer is not None and any(own.mode != "keyword" for own in lists)
    return QueryResult(
        results=answer.hits,
        count=len(answer.hits),
        query=asked.query,
        collection=asked.collection,
        mode=asked.mode,
        model=single.collection.model if single else None,
        hyde=True if hyde else None,
        relevance=_relevance(searched),
        understood=query.recognized,
        degraded=_degraded(lists, several=query.several),
        warnings=answer.warnings or None,
        timings=rounded(answer.clock),
        explain=(next(iter(explanations.values())) if single else explanations)
        if explanations
        else None,
    )


def _degraded(lists: Sequence[Candidates], *, several: bool) -> Degraded | None:
    """Return the first degradation, with the names of all degraded collections of several."""
    found = {own.collection.public_name: own.degraded for own in lists if own.degraded}
    first = next(iter(found.values()), None)
    if first is None or not several:
        return first
    return first.model_copy(update={"collections": list(found)})


def _relevance(searched: Mapping[str, Candidates]) -> float | None:
    """Return the greatest relevance of the collections; ``None`` if it is not known."""
    known = (own.relevance for own in searched.values() if own.relevance is not None)
    return max(known, default=None)


def rounded(clock: Timings) -> dict[str, float]:
    """Return the timings in milliseconds, to the microsecond."""
    return {step: round(value, 3) for step, value in clock.finished().items()}


async def _survivors(
    names: Sequence[str], call: Callable[[str], Awaitable[Candidates]], answer: Answer
) -> dict[str, Candidates]:
    """Call for each collection; failures and warnings become warnings of the answer.

    Raises:
        SearchError: the first failure, if all of them failed.
    """
    outcomes: list[Candidates | BaseException]
    if len(names) == 1:  # A task costs more than some stages.
        outcomes = [await call(names[0])]
    else:
        outcomes = await asyncio.gather(*map(call, names), return_exceptions=True)
    kept: dict[str, Candidates] = {}
    failures: list[SearchError] = []
    for name, outcome in zip(names, outcomes, strict=True):
        about = f"{name}: " if answer.query.several else ""
        if isinstance(outcome, SearchError):
            failures.append(outcome)
            answer.warnings.append(f"{about}{outcome}")
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            kept[name] = outcome
            answer.warnings += [f"{about}{warning}" for warning in outcome.warnings]
            outcome.warnings = []
    if failures and not kept:
        raise failures[0]
    return kept
