"""The whole way of a query: one loop over its searches, one list of stages."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial, reduce
from operator import add

from msgspec.structs import replace

from ability_search.collection import Collection, checked_name
from ability_search.compute_turns import computed
from ability_search.errors import (
    DatabaseUnavailable,
    DimensionMismatch,
    EmbeddingUnavailable,
    ModelMismatch,
    SearchError,
)
from ability_search.filters.tree import Filter
from ability_search.search.candidates import (
    Answer,
    Candidate,
    Candidates,
    Lane,
    Timings,
    best_first,
    rank_key,
)
from ability_search.search.fusion import fuse, fuse_phrasings, join_blocks
from ability_search.search.hit_rows import build_hits, read_rows, result_of
from ability_search.search.options import QueryInput
from ability_search.search.query import Query, literal_query, phrased
from ability_search.search.query_vectors import QueryVectors
from ability_search.search.response import Degraded, QueryResult
from ability_search.search.retrievers import requested, retrieve
from ability_search.search.stage import Phase, Ports, Stage, StageFactory
from ability_search.search.wants import COSINE, Wants
from ability_search.text.chunkers.chunk_packing import CHARS_PER_TOKEN

_ATTEMPTS = 20
"""Maximum number of searches of a collection for one query: again if it moved, if a stage learned
from the first hits, if the page is short, or if hits were replaced before they were read."""
_SEARCHED_AT_ONCE = 1000
"""Candidates per retriever that the searches of a query look for at a time. The rows of all are in
the database's memory, and its garbage collector stops all queries to move them."""
_MOST_AT_ONCE = 8
"""Maximum number of searches of a query at a time."""
_DEEPER = 4
_DEEPEST = 20_000
"""Number of candidates per retriever beyond which there is no refill: the end of the last page."""
_TOKENS_OF_CHARACTER = 3
"""Maximum number of tokens of a character; that of some Korean syllables."""
_SPECIAL_TOKENS = 2
"""Tokens that a model adds to its input."""


class QueryPipeline:
    """Answers queries by a list of stages, which it knows nothing of but what they declare.

    Args:
        stages: The stages in any order; or functions that return one that keeps a state.
        ports: Ports and settings.
    """

    def __init__(self, stages: Iterable[Stage | StageFactory], ports: Ports) -> None:
        opened = [stage if isinstance(stage, Stage) else stage(ports) for stage in stages]
        self.stages = tuple(sorted(opened, key=lambda stage: (stage.phase, stage.place)))
        self._by_phase = {
            phase: [stage for stage in self.stages if stage.phase is phase] for phase in Phase
        }
        self.ports = ports

    async def close(self) -> None:
        """Wait for what stages do in the background."""
        for stage in self.stages:
            await stage.close()

    def parse(self, asked: QueryInput, filter: Filter | None = None) -> Query:
        """Return the query of a request with its options, not yet understood.

        Raises:
            InvalidInput: if an option is invalid.
        """
        query = literal_query(asked, filter)
        options = {
            stage.name: option
            for stage in self.stages
            if (option := stage.option(asked)) is not None
        }
        as_of = self.ports.now() if query.as_of is None else query.as_of
        query = replace(query, as_of=as_of, options=options)
        others = (phrased(query, text, place) for place, text in enumerate(asked.queries, start=1))
        return replace(query, others=tuple(others)) if asked.queries else query

    async def answer(self, asked: QueryInput, filter: Filter | None = None) -> QueryResult:
        """Search a collection, several, or all (``*``).

        Each of several collections is searched with its own model. Their hits are merged by score.
        Collections that fail are named in the warnings.

        Raises:
            InvalidInput: if an option is invalid.
            NotFound: if the collection, or each of several, does not exist.
            ModelMismatch: if the query names another model than the collection's.
            EmbeddingUnavailable: in semantic mode, if the query cannot be embedded.
            DatabaseUnavailable: if the database does not answer.
        """
        answer = Answer(self.parse(asked, filter))
        await self._run(Phase.UNDERSTAND, answer)
        await self.find(answer)
        result = answer.result = result_of(answer)
        if last := self._on(answer.query, Phase.ANSWER):
            result.timings |= {stage.timed: 0.0 for stage in last if stage.timed}
            await self._run(Phase.ANSWER, answer)
            measured = answer.clock.finished()
            answer.result.timings = {step: measured[step] for step in answer.result.timings}
        return answer.result

    async def find(self, answer: Answer) -> None:
        """Find the page of an answer whose query is understood, in one loop.

        Errors as for :meth:`answer`.
        """
        names = await self._names(answer.query)
        warnings, merged = list(answer.warnings), False
        vectors = self._begin(answer, names)
        try:
            await self._embed_for_all(names, answer, vectors)
            for _ in range(_ATTEMPTS):
                if await self._search(answer, vectors) or self._deepen(answer):
                    continue
                if not merged:
                    merged = True
                    await self._run(Phase.MERGE, answer)
                    warnings = list(answer.warnings)
                    if answer.reopened:
                        await vectors.close()
                        vectors = self._begin(answer, names)
                        continue
                answer.warnings = list(warnings)
                await self._select(answer, names)
                await self._read(answer)
                if len(answer.hits) == len(answer.page):
                    return
                # Hits were replaced meanwhile; the stages have changed all others.
                self._restart(answer, names)
        finally:
            await vectors.close()
        if not answer.hits:
            raise DatabaseUnavailable("collections keep changing", hint="Call again.")

    def wants(self, query: Query, phase: Phase | None = None) -> Wants:
        """Return what a query and its stages, by default those of all phases, want."""
        texts = {COSINE: query.asked.hypothetical_answer or query.topic}
        chosen = [each.wants(query.options[each.name], query) for each in self._on(query, phase)]
        return reduce(add, chosen, Wants(vectors=texts, depth=query.end))

    def _on(self, query: Query, phase: Phase | None) -> list[Stage]:
        """Return the stages of a phase, or of all, that the query has the options of."""
        stages, options = self.stages if phase is None else self._by_phase[phase], query.options
        return [stage for stage in stages if stage.name in options]

    async def _names(self, query: Query) -> list[str]:
        collection = query.asked.collection
        if collection == "*":
            return [known.name for known in await self.ports.registry.all()]
        if isinstance(collection, str):
            return [collection]
        return list(dict.fromkeys(checked_name(name) for name in collection))

    # Searching

    def _begin(self, answer: Answer, names: Sequence[str]) -> QueryVectors:
        """Let all collections be searched; return the requests for the query's vectors."""
        query, settings = answer.query, self.ports.settings.embedding
        answer.reopened = False
        answer.phrasings = [(phrasing, self.wants(phrasing)) for phrasing in query.phrasings]
        self._restart(answer, names)
        hybrid = query.asked.mode == "hybrid"
        return QueryVectors(
            self.ports.embedder,
            [wants.vectors for _, wants in answer.phrasings],
            passage=query.asked.hypothetical_answer,
            timeout=min(settings.query_timeout, settings.fallback_after)
            if hybrid
            else settings.query_timeout,
        )

    def _restart(self, answer: Answer, names: Sequence[str]) -> None:
        answer.searched, answer.failures = {}, {}
        answer.lanes = {
            name: [Lane(name, query, wants, query.end) for query, wants in answer.phrasings]
            for name in names
        }

    async def _embed_for_all(
        self, names: Sequence[str], answer: Answer, vectors: QueryVectors
    ) -> None:
        """Let all of several models embed the query at once, so that they delay it once."""
        asked = answer.query.asked
        if len(names) < 2 or asked.mode == "keyword":
            return
        known = await asyncio.gather(*map(self.ports.registry.find, names), return_exceptions=True)
        for collection in known:
            if isinstance(collection, Collection) and asked.model in (None, collection.model):
                vectors.request(collection.model_input)

    async def _search(self, answer: Answer, vectors: QueryVectors) -> bool:
        """Search for what is not searched yet; return whether some of it must be searched again.

        Raises:
            SearchError: the first failure, if all collections failed.
        """
        lanes = [lane for own in answer.lanes.values() for lane in own if not lane.ready]
        calls = [partial(self._fill, lane, answer.vector, vectors) for lane in lanes]
        depth = max((lane.depth for lane in lanes), default=1)
        for lane, failure in zip(lanes, await _failures(calls, depth), strict=True):
            answer.searched.pop(lane.name, None)
            if failure is not None:
                answer.failures.setdefault(lane.name, failure)
                answer.lanes.pop(lane.name, None)
        if answer.failures and not answer.lanes:
            raise next(iter(answer.failures.values()))
        if not all(lane.ready for own in answer.lanes.values() for lane in own):
            return True
        answer.searched = {
            name: answer.searched.get(name) or await self._fused(own)
            for name, own in answer.lanes.items()
        }
        return False

    async def _fill(
        self, lane: Lane, vector: Sequence[float] | None, vectors: QueryVectors
    ) -> None:
        """Search for the candidates of a lane and rank them.

        The lane is not ready if the collection moved to another generation than that which vectors
        and terms are made for, or if a stage learned what to search for instead.
        """
        candidates = lane.candidates or await self._prepared(lane, vector, vectors)
        learned, original = candidates.learned, candidates.request
        candidates.request = original if learned is None else learned.request
        try:
            with candidates.clock.step("candidates"):
                current = await retrieve(candidates, self.ports)
        except DatabaseUnavailable as exc:
            if learned is None:
                raise
            candidates.request, current = original, True
            candidates.warn(f"{learned.failure}: {exc}")
        lane.candidates = candidates if current else None
        if not current:
            return
        if learned is not None and candidates.request is learned.request:
            candidates.explained |= learned.explained
        for stage in self._on(candidates.query, Phase.FIND):
            await self._perform(stage, candidates)
            if candidates.learned is not learned:
                return
        await self._compute(fuse, candidates)
        await self._run(Phase.SCORE, candidates)
        await self._compute(join_blocks, candidates)
        await self._run(Phase.LIMIT, candidates)
        lane.ready = True

    async def _prepared(
        self, lane: Lane, vector: Sequence[float] | None, vectors: QueryVectors
    ) -> Candidates:
        """Return the candidates of a lane before the search, with vectors and terms for it.

        Raises:
            ModelMismatch: if the query names another model than the collection's.
        """
        ports, query, wants = self.ports, lane.query, lane.wants
        asked = query.asked
        collection = await ports.registry.get(lane.name)
        if asked.model and asked.model != collection.model:
            raise ModelMismatch(lane.name, recorded=collection.model, requested=asked.model)
        if asked.mode != "keyword" and vector is None:
            vectors.request(collection.model_input)
        candidates = Candidates(
            query,
            ports.settings.ranking,
            collection,
            wants,
            lane.depth,
            selected_from=self.wants(query, Phase.SELECT).depth,
            reranked=bool(self._on(query, Phase.RERANK)),
            provisional=self._ranked_provisionally,
            clock=lane.clock,
        )
        if asked.mode != "semantic" or wants.statistics or wants.products:
            with lane.clock.step("terms"):
                candidates.statistics = await ports.statistics_cache.of(collection)
        if vector is not None:
            candidates.vectors = {COSINE: vector}
        elif asked.mode != "keyword":
            await self._embed(candidates, vectors)
        with lane.clock.step("candidates"):
            candidates.request = await ports.turns.run(
                lambda: requested(candidates), work=query.work
            )
        return candidates

    async def _embed(self, candidates: Candidates, vectors: QueryVectors) -> None:
        """Wait for the query vectors; without them, a hybrid query searches by keywords alone.

        Raises:
            EmbeddingUnavailable: in semantic mode, if the query cannot be embedded.
            DimensionMismatch: in semantic mode, if the vectors do not fit the collection.
        """
        collection, query = candidates.collection, candidates.query
        try:
            embedded, size = await vectors.of(collection.model_input, query.phrasing)
            if size != collection.dimensions:
                raise DimensionMismatch(
                    collection.name, recorded=collection.dimensions, received=size
                )
            candidates.vectors = embedded
            self._warn_if_cut(candidates)
        except (EmbeddingUnavailable, DimensionMismatch) as exc:
            if query.asked.mode == "semantic":
                raise
            candidates.degraded = Degraded(reason=str(exc), code=exc.code, mode="keyword")
        finally:
            took = vectors.milliseconds(collection.model_input)
            candidates.clock.milliseconds["embed"] = took

    def _warn_if_cut(self, candidates: Candidates) -> None:
        """Warn if a text of the query is longer than what its model reads."""
        model, counter = candidates.collection.model_input, self.ports.counter
        longest = self.ports.settings.embedding.max_tokens
        if longest is None:
            return
        for text in candidates.wants.vectors.values():
            read = model.query_prefix + text[: longest * CHARS_PER_TOKEN]
            short = len(read) * _TOKENS_OF_CHARACTER + _SPECIAL_TOKENS <= longest
            if not short and counter.count(read) + _SPECIAL_TOKENS > longest:
                candidates.warn(
                    f"the query is longer than the {longest} tokens that {model.model} reads: its"
                    " end counts for keyword search only"
                )

    async def _ranked_provisionally(self, candidates: Candidates) -> list[Candidate]:
        """Return the first block as scored so far, best first; nothing is recorded for explain."""
        traces = [(item, item.trace) for item in (*candidates.found, *candidates.chunks)]
        for item, trace in traces:
            item.trace = dict(trace)
        await self._compute(fuse, candidates)
        await self._run(Phase.SCORE, candidates)
        for item, trace in traces:
            item.trace = trace
        return best_first(candidates.blocks[0]) if candidates.blocks else []

    async def _fused(self, lanes: Sequence[Lane]) -> Candidates:
        """Return the candidates of all phrasings in a collection, those of the first one."""
        lists = [lane.candidates for lane in lanes if lane.candidates is not None]
        if len(lists) > 1:
            work = sum(candidates.work for candidates in lists)
            await self.ports.turns.run(lambda: fuse_phrasings(lists), work=work)
        return lists[0]

    def _deepen(self, answer: Answer) -> bool:
        """Let collections be searched deeper whose hits do not fill the page (refill).

        Returns:
            Whether there is one.
        """
        deeper = False
        for name, candidates in answer.searched.items():
            lanes = answer.lanes[name]
            depth = candidates.request.depths[-1]
            complete = all(lane.candidates.complete for lane in lanes if lane.candidates)
            if complete or depth >= _DEEPEST or self._fills_page(candidates):
                continue
            deeper = True
            for lane in lanes:
                lane.candidates, lane.ready = None, False
                lane.depth = min(_DEEPER * depth, _DEEPEST)
        return deeper

    def _fills_page(self, candidates: Candidates) -> bool:
        """Return whether the ranked candidates are enough, after those that stages drop."""
        query = candidates.query
        left: Sequence[Candidate] = candidates.ranked
        for stage in self._on(query, Phase.SELECT):
            if stage.left is not None:
                left = stage.left(query.options[stage.name], left, candidates)
        return len(left) >= query.end and len(candidates.ranked) >= candidates.wants.depth

    # From the candidates of all collections to the page

    async def _select(self, answer: Answer, names: Sequence[str]) -> None:
        """Rank the candidates of all collections, and select those that pages are cut from."""
        self._report(answer, names)
        answer.ranked = await self._merged(answer)
        await self._run(Phase.RERANK, answer)
        if self._on(answer.query, Phase.RERANK):
            for own in answer.searched.values():
                own.ranked.sort(key=lambda item: (-item.score, item.chunk_id if item.score else ""))
                for place, item in enumerate(own.ranked):
                    item.place = place
        calls = [partial(self._run, Phase.SELECT, own) for own in answer.searched.values()]
        failures = await _failures(calls, answer.query.end)
        for name, failure in zip(list(answer.searched), failures, strict=True):
            if failure is not None:
                answer.failures[name] = failure
                del answer.searched[name]
        if answer.failures and not answer.searched:
            raise next(iter(answer.failures.values()))
        self._report(answer, names)
        answer.ranked = await self._merged(answer)
        slowest = Timings()
        for own in answer.searched.values():
            slowest.at_least(own.clock)
        for step, took in slowest.milliseconds.items():
            answer.clock.add(step, took / 1e3)

    def _report(self, answer: Answer, names: Sequence[str]) -> None:
        """Turn the failures and the warnings of collections into warnings of the answer."""
        for name in names:
            about = f"{name}: " if answer.query.several else ""
            failure, own = answer.failures.pop(name, None), answer.searched.get(name)
            if failure is not None:
                answer.warnings.append(f"{about}{failure}")
            elif own is not None:
                answer.warnings += [f"{about}{warning}" for warning in own.warnings]
                own.warnings = []

    async def _merged(self, answer: Answer) -> list[Candidate]:
        lists = [own.ranked for own in answer.searched.values()]
        work = sum(map(len, lists)) if len(lists) > 1 else 0
        return await self.ports.turns.run(lambda: merged(lists), work=work)

    async def _read(self, answer: Answer) -> None:
        """Read the page and what stages add to it at once, and build the hits."""
        answer.page = answer.ranked[answer.query.asked.offset : answer.query.end]
        more = [partial(self._perform, s, answer) for s in self._on(answer.query, Phase.PAGE)]
        with answer.clock.step("rows"):
            if more:
                rows = read_rows(answer.page, self.ports)
                await asyncio.gather(rows, *(call() for call in more))
            else:
                await read_rows(answer.page, self.ports)
            await self.ports.turns.run(partial(build_hits, answer), work=answer.work)

    # Running stages

    async def _run(self, phase: Phase, value: Answer | Candidates) -> None:
        """Run the stages of a phase."""
        for stage in self._on(value.query, phase):
            await self._perform(stage, value)

    async def _perform(self, stage: Stage, value: Answer | Candidates) -> None:
        """Run a stage and measure it; with ``explain`` also each scorer.

        One that only computes runs in a thread, if there are many candidates.
        """
        option, started = value.query.options[stage.name], time.perf_counter()
        with value.clock.step(stage.timed) if stage.timed else nullcontext():
            if stage.computes:
                await self.ports.turns.run(
                    lambda: computed(stage.run(option, value, self.ports)), work=value.work
                )
            else:
                await stage.run(option, value, self.ports)
        if isinstance(value, Candidates) and value.query.asked.explain:
            scored = any(stage.name in item.trace for block in value.blocks for item in block)
            if scored and stage.name != stage.timed:
                value.clock.add(stage.name, time.perf_counter() - started)

    async def _compute(self, rank: Callable[[Candidates], None], candidates: Candidates) -> None:
        with candidates.clock.step("ranking"):
            await self.ports.turns.run(lambda: rank(candidates), work=candidates.work)


async def _failures(
    calls: Sequence[Callable[[], Awaitable[None]]], depth: int
) -> list[SearchError | None]:
    """Run calls at once, the fewer the deeper they search; return what failed.

    The failure of a single call is raised.
    """
    if len(calls) == 1:  # A task costs more than some stages.
        await calls[0]()
        return [None]
    slots = asyncio.Semaphore(max(1, min(_MOST_AT_ONCE, _SEARCHED_AT_ONCE // depth)))

    async def run(call: Callable[[], Awaitable[None]]) -> None:
        async with slots:
            await call()

    outcomes = await asyncio.gather(*map(run, calls), return_exceptions=True)
    failures: list[SearchError | None] = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, SearchError):
            raise outcome
        failures.append(outcome)
    return failures


def merged(lists: Sequence[Sequence[Candidate]]) -> list[Candidate]:
    """Merge several lists into one, best first; ties by chunkId.

    The order within each list is kept: of candidates that score 0, those of a deeper search come
    last.
    """
    return list(lists[0] if len(lists) == 1 else heapq.merge(*lists, key=rank_key))
