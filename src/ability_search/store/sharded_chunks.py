"""Documents and chunks of collections over several stores, which are asked all at once.

The answers are merged into what one store would have answered. Equal scores are in the order of the
shards, and chunks of one shard among them in the order of storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import ceil
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from ability_search.collection import Collection
from ability_search.errors import DatabaseUnavailable
from ability_search.filters.tree import Filter
from ability_search.store.records import (
    ChunkRecord,
    ChunkScores,
    ChunkText,
    ChunkVector,
    Columns,
    GraphAnswer,
    GraphRequest,
    Link,
    MapPoint,
    Neighbour,
    OverviewAnswer,
    OverviewRequest,
    Passage,
    Read,
    Replaced,
    Replacement,
    Row,
    Search,
    SourceRecord,
    VectorCheck,
    VectorPlaces,
    WeightedChunk,
    source_of,
    strongest,
)
from ability_search.store.shards import Place, Shards, complete, grouped, spread

T = TypeVar("T")

_WHOLE = ("terms", "weights", "embedding")
"""Columns of the first rows of a search."""


class ShardedSearch(Shards):
    """See :class:`ability_search.store.port.SearchStore`."""

    async def search(
        self,
        collection: Collection,
        searches: Sequence[Search],
        columns: Columns,
        *,
        first: int = 0,
    ) -> Read[Mapping[str, Sequence[Row]]]:
        async def call(at: Place, part: Collection) -> Read[Mapping[str, Sequence[Row]]]:
            read = await at.store.search(part, searches, columns, first=first)
            for rows in read.value.values():
                _locate(at, rows)
            return read

        current, found = await self.read(collection, call)
        if len(found) == 1:
            return Read(current, found[0])
        if current is not None and current.model_input != collection.model_input:
            raise DatabaseUnavailable(
                f"collection {collection.public_name!r} is being switched to another model",
                hint="Call again.",
            )
        merged = {
            each.name: _best((lists.get(each.name, ()) for lists in found), each.limit)
            for each in searches
        }
        if first:
            _strip(list(merged.values()), first, columns)
        return Read(current, merged)

    async def chunks(
        self, generation: str, rids: Sequence[str], *, compared: Sequence[str] = ()
    ) -> list[ChunkText]:
        several = len(await self.places(generation)) > 1

        async def call(at: Place, own: list[str]) -> list[ChunkText]:
            given = () if several else compared
            texts = await at.store.chunks(at.type, own, compared=given)
            _locate(at, texts)
            return texts

        found = _chained(await self.by_rid(generation, rids, call))
        if several and compared:
            vectors = await self.embeddings(generation, list({*rids, *compared}))
            for text in found:
                text.cosines = [_cosine(vectors, text.rid, other) for other in compared]
        return found

    async def chunk(self, collection: Collection, chunk_id: str) -> Read[ChunkText | None]:
        async def call(at: Place, part: Collection) -> Read[ChunkText | None]:
            read = await at.store.chunk(part, chunk_id)
            _locate(at, [] if read.value is None else [read.value])
            return read

        current, (text,) = await self.read(collection, call, source=source_of(chunk_id))
        return Read(current, text)

    async def embeddings(self, generation: str, rids: Sequence[str]) -> dict[str, Sequence[float]]:
        async def call(at: Place, own: list[str]) -> dict[str, Sequence[float]]:
            found = await at.store.embeddings(at.type, own)
            return {at.prefix + rid: vector for rid, vector in found.items()}

        return _united(await self.by_rid(generation, rids, call))

    async def passages(
        self, generation: str, chunk_ids: Sequence[str], filter: Filter | None
    ) -> list[Passage]:
        async def call(at: Place, own: list[str]) -> list[Passage]:
            found = await at.store.passages(at.type, own, filter)
            if not at.prefix:
                return found
            return [replace(each, rid=f"{at.prefix}{each.rid}") for each in found]

        return _chained(await self.by_source(generation, chunk_ids, source_of, call))

    async def best_chunks(
        self,
        generation: str,
        sources: Sequence[str],
        columns: Columns,
        filter: Filter | None,
        *,
        by: str,
        chunk_ids: Sequence[str] = (),
    ) -> tuple[dict[str, Row], dict[str, Row]]:
        Pair = tuple[str, str]

        async def call(at: Place, own: list[Pair]) -> tuple[dict[str, Row], dict[str, Row]]:
            named = [source for source, chunk_id in own if not chunk_id]
            given = [chunk_id for _, chunk_id in own if chunk_id]
            found = await at.store.best_chunks(
                at.type, named, columns, filter, by=by, chunk_ids=given
            )
            for rows in found:
                _locate(at, rows.values())
            return found

        wanted = [*((each, "") for each in sources), *((source_of(c), c) for c in chunk_ids)]
        found = await self.by_source(generation, wanted, lambda pair: pair[0], call)
        return _united(best for best, _ in found), _united(given for _, given in found)

    async def graph(self, generation: str, request: GraphRequest) -> GraphAnswer:
        places = await self.places(generation)
        if len(places) == 1:
            return await places[0].store.graph(places[0].type, request)
        columns, by, filter = request.columns, request.by, request.filter
        _, given = await self.best_chunks(
            generation, (), columns, filter, by=by, chunk_ids=request.neighbours
        )
        near = {row.rid: replace(row, score=row.columns[by] or 0.0) for row in given.values()}
        here, seen = list(request.sources), set(request.sources)
        hops: list[tuple[Sequence[Link], Sequence[Link]]] = []
        for _ in range(request.hops if request.links else 0):
            out, into = await self._followed(generation, replace(request, sources=here))
            hops.append((out, into))
            ends = {each.target for each in out} | {each.source for each in into}
            reached = sorted(ends - seen)
            best, _ = await self.best_chunks(generation, reached, columns, filter, by=by)
            near |= {row.rid: row for row in best.values()}
            here = list(best)
            seen |= best.keys()
        rows = [row for row in near.values() if row.score >= request.least]
        return GraphAnswer(_best([rows], request.limit), hops)

    async def links(self, generation: str, sources: Sequence[str], *, limit: int) -> list[Link]:
        found = await self.each(
            generation, lambda at: at.store.links(at.type, sources, limit=limit)
        )
        return strongest(_chained(found), limit)

    async def _followed(
        self, generation: str, request: GraphRequest
    ) -> tuple[list[Link], list[Link]]:
        """Return the strongest links from the sources of a request, and to them."""
        step = replace(request, hops=1, neighbours=(), limit=1)
        found = await self.each(generation, lambda at: at.store.graph(at.type, step))
        out, into = zip(*(each.hops[0] for each in found), strict=True)
        return strongest(_chained(out)), strongest(_chained(into))


class ShardedIndex(Shards):
    """See :class:`ability_search.store.port.IndexStore`."""

    async def replace(self, collection: Collection, replacement: Replacement) -> Replaced | None:
        parts = {at.shard: (at, part) for at, part in await self.parts(collection)}
        if len(parts) == 1:
            ((at, part),) = parts.values()
            return await at.store.replace(part, replacement)
        calls = {}
        for shard, own in spread(replacement, tuple(parts)).items():
            at, part = parts[shard]
            assumed = replace(part, average_length=collection.average_length)
            calls[shard] = at.store.replace(assumed, own)
        done = await complete(calls)
        replaced = {shard: each for shard, each in done.items() if each is not None}
        if len(replaced) < len(done):
            return None
        now = {shard: each.collection for shard, each in replaced.items()}
        current = await self.now(collection, now)
        if current is None:
            return None
        return Replaced(
            current,
            deleted=sum(each.deleted for each in replaced.values()),
            inserted=sum(each.inserted for each in replaced.values()),
            replaced=sum(each.replaced for each in replaced.values()),
        )

    async def content_hashes(
        self, collection: Collection, sources: Sequence[str]
    ) -> Read[Mapping[str, str]]:
        async def call(at: Place, part: Collection) -> Read[Mapping[str, str]]:
            return await at.store.content_hashes(part, sources)

        current, found = await self.read(collection, call)
        return Read(current, _united(found))

    async def sources(
        self, generation: str, *, after: str, limit: int, **options: bool
    ) -> list[str]:
        pages = await self.each(
            generation,
            lambda at: at.store.sources(at.type, after=after, limit=limit, **options),
        )
        return sorted(_chained(pages))[:limit]

    async def documents_of(self, generation: str, sources: Sequence[str]) -> list[str]:
        return _chained(
            await self.each(generation, lambda at: at.store.documents_of(at.type, sources))
        )

    async def source_records(
        self, generation: str, *, after: str, limit: int
    ) -> list[SourceRecord]:
        pages = await self.each(
            generation, lambda at: at.store.source_records(at.type, after=after, limit=limit)
        )
        return sorted(_chained(pages), key=attrgetter("source"))[:limit]

    async def source_records_named(
        self, generation: str, sources: Sequence[str]
    ) -> list[SourceRecord]:
        return _chained(
            await self.by_source(
                generation,
                sources,
                str,
                lambda at, own: at.store.source_records_named(at.type, own),
            )
        )

    async def source_passages(
        self, generation: str, source: str, *, kinds: bool = False
    ) -> list[Passage]:
        return _chained(
            await self.by_source(
                generation,
                [source],
                str,
                lambda at, _: at.store.source_passages(at.type, source, kinds=kinds),
            )
        )

    async def compare_sources(
        self, generation: str, other: str, *, after: str, limit: int
    ) -> tuple[list[tuple[str, str]], dict[str, str | None]]:
        others = {at.shard: at.type for at in await self.places(other)}
        found = await self.each(
            generation,
            lambda at: at.store.compare_sources(
                at.type, others[at.shard], after=after, limit=limit
            ),
        )
        page = sorted(chain.from_iterable(live for live, _ in found))[:limit]
        origins = _united(origins for _, origins in found)
        return page, {source: origins[source] for source, _ in page if source in origins}

    async def count_sources(self, generation: str) -> tuple[int, int]:
        found = await self.each(generation, lambda at: at.store.count_sources(at.type))
        return sum(sources for sources, _ in found), sum(chunks for _, chunks in found)

    async def check_vectors(
        self, generation: str, *, kinds: bool, dimensions: int, after: str, limit: int
    ) -> VectorCheck:
        """Check one shard after the other; ``after`` and ``last`` begin with its prefix."""
        places = await self.places(generation)
        left = [at for at in places if after.startswith(at.prefix)] if after else places
        for at in places[places.index(left[0]) :]:
            own = after.removeprefix(at.prefix) if at is left[0] else ""
            check = await at.store.check_vectors(
                at.type, kinds=kinds, dimensions=dimensions, after=own, limit=limit
            )
            if check.last is not None:
                return replace(check, last=at.prefix + check.last)
        return VectorCheck(None, 0, 0)

    async def sample_chunks(self, generation: str, *, limit: int) -> list[WeightedChunk]:
        found = await self.each(generation, lambda at: at.store.sample_chunks(at.type, limit=limit))
        return [chunk for turn in _in_turn(found) for chunk in turn][:limit]

    async def probe_chunks(
        self, generation: str, *, newest: int, others: int, after: str
    ) -> list[WeightedChunk]:
        return _chained(
            await self.each(
                generation,
                lambda at: at.store.probe_chunks(
                    at.type, newest=newest, others=others, after=after
                ),
            )
        )

    async def nearest(
        self,
        generation: str,
        vectors: Sequence[Sequence[float]],
        *,
        limit: int,
        beam: int,
        exact: bool,
    ) -> list[list[Neighbour]]:
        found = await self.each(
            generation,
            lambda at: at.store.nearest(at.type, vectors, limit=limit, beam=beam, exact=exact),
        )
        return [
            sorted(chain.from_iterable(lists), key=lambda each: -each.cosine)[:limit]
            for lists in zip(*found, strict=True)
        ]

    async def vector_places(
        self, model: str, record: str, *, dimensions: int | None, limit: int
    ) -> VectorPlaces:
        home = await self.home(record)
        found = await self.everywhere(
            lambda store: store.vector_places(model, record, dimensions=dimensions, limit=limit)
        )
        every = found.values()
        return VectorPlaces(
            own=list(dict.fromkeys(chain.from_iterable(each.own for each in every))),
            live=list(dict.fromkeys(chain.from_iterable(each.live for each in every))),
            others=list(dict.fromkeys(chain.from_iterable(each.others for each in every)))[:limit],
            new=found[home].new,
        )

    async def stored_vectors(
        self, places: Sequence[tuple[str, bool]], keys: Sequence[str]
    ) -> list[dict[str, Sequence[float]]]:
        async def of(generation: str, kinds: bool) -> dict[str, Sequence[float]]:
            found = await self.each(
                generation, lambda at: at.store.stored_vectors([(at.type, kinds)], keys)
            )
            return _united(_chained(found))

        return [await of(*place) for place in places]

    async def outdated_weights(
        self, generation: str, *, kinds: bool, average_length: float, after: str, limit: int
    ) -> list[WeightedChunk]:
        found = await self.each(
            generation,
            lambda at: at.store.outdated_weights(
                at.type, kinds=kinds, average_length=average_length, after=after, limit=limit
            ),
        )
        return sorted(_chained(found), key=attrgetter("chunk_id"))[:limit]

    async def set_weights(
        self,
        generation: str,
        *,
        kinds: bool,
        average_length: float,
        changes: Sequence[WeightedChunk],
    ) -> None:
        await self.by_source(
            generation,
            changes,
            lambda change: source_of(change.chunk_id),
            lambda at, own: at.store.set_weights(
                at.type, kinds=kinds, average_length=average_length, changes=own
            ),
        )

    async def set_scores(self, generation: str, scores: Sequence[ChunkScores]) -> None:
        await self.by_source(
            generation,
            scores,
            lambda each: source_of(each.chunk_id),
            lambda at, own: at.store.set_scores(at.type, own),
        )

    async def build_graph(self, generation: str, *, kinds: bool, dimensions: int) -> None:
        await self.each(
            generation,
            lambda at: at.store.build_graph(at.type, kinds=kinds, dimensions=dimensions),
        )

    async def discard_staged(self, *, before: int) -> None:
        await self.everywhere(lambda store: store.discard_staged(before=before))


class ShardedCopies(Shards):
    """See :class:`ability_search.store.port.CopyStore`.

    Places are numbered alternately by shard.
    """

    async def source_order(
        self, generation: str, *, after: str, limit: int
    ) -> list[tuple[str, int]]:
        found = await self.each(
            generation, lambda at: at.store.source_order(at.type, after=after, limit=limit)
        )
        count = len(found)
        numbered = [
            (source, place * count + number)
            for number, own in enumerate(found)
            for source, place in own
        ]
        return sorted(numbered)[:limit]

    async def source_records_at(
        self, generation: str, places: Sequence[int]
    ) -> dict[int, SourceRecord]:
        held = await self.places(generation)
        count = len(held)
        own = grouped(places, lambda place: held[place % count].shard)

        async def call(number: int, at: Place) -> dict[int, SourceRecord]:
            asked = [place // count for place in own[at.shard]]
            found = await at.store.source_records_at(at.type, asked)
            return {place * count + number: record for place, record in found.items()}

        calls = {at.shard: call(n, at) for n, at in enumerate(held) if at.shard in own}
        return _united((await complete(calls)).values())

    async def chunk_records(
        self, generation: str, sources: Sequence[str], *, kinds: bool, first: int, end: int
    ) -> list[ChunkRecord]:
        return _chained(
            await self.by_source(
                generation,
                sources,
                str,
                lambda at, own: at.store.chunk_records(
                    at.type, own, kinds=kinds, first=first, end=end
                ),
            )
        )

    async def chunk_vectors(self, generation: str, *, after: str, limit: int) -> list[ChunkVector]:
        pages = await self.each(
            generation, lambda at: at.store.chunk_vectors(at.type, after=after, limit=limit)
        )
        return sorted(_chained(pages), key=attrgetter("chunk_id"))[:limit]

    async def overview(
        self, collection: Collection, request: OverviewRequest
    ) -> Read[OverviewAnswer]:
        count = len(await self.places(collection.type))
        if count > 1:
            request = replace(
                request,
                sample=request.sample and ceil(request.sample / count),
                vectors=request.vectors and ceil(request.vectors / count),
                indexed=request.indexed // count,
            )

        async def call(at: Place, part: Collection) -> Read[OverviewAnswer]:
            return await at.store.overview(part, request)

        current, found = await self.read(collection, call)
        sizes: dict[int, int] = {}
        periods: dict[int, tuple[int, int]] = {}
        for each in found:
            for least, chunks in each.sizes.items():
                sizes[least] = sizes.get(least, 0) + chunks
            for start, sources, chunks in each.periods:
                before = periods.get(start, (0, 0))
                periods[start] = before[0] + sources, before[1] + chunks
        vectors = _chained(each.vectors for each in found)
        answer = OverviewAnswer(sizes, [(start, *n) for start, n in periods.items()], vectors)
        return Read(current, answer)

    async def map_points(
        self,
        collection: Collection,
        axes: Sequence[Sequence[float]],
        *,
        limit: int,
        indexed: int,
    ) -> Read[list[MapPoint]]:
        count = len(await self.places(collection.type))

        async def call(at: Place, part: Collection) -> Read[list[MapPoint]]:
            share = ceil(limit / count)
            return await at.store.map_points(part, axes, limit=share, indexed=indexed // count)

        current, found = await self.read(collection, call)
        return Read(current, _chained(found)[:limit])


def _locate(at: Place, rows: Iterable[Row | ChunkText]) -> None:
    """Make record ids unique among the shards."""
    if at.prefix:
        for row in rows:
            row.rid = at.prefix + row.rid


def _best(lists: Iterable[Iterable[Row]], limit: int) -> list[Row]:
    """Merge rows, the greatest score first; equal ones keep their order."""
    return sorted(chain.from_iterable(lists), key=lambda row: -row.score)[:limit]


def _strip(lists: Sequence[Sequence[Row]], first: int, columns: Columns) -> None:
    """Remove the columns that only the first rows of a list have from all others."""
    whole = {row.rid for rows in lists for row in rows[:first]}
    extra = set(_WHOLE).difference(columns.fields)
    for row in chain.from_iterable(lists):
        if row.rid not in whole:
            row.columns = {name: v for name, v in row.columns.items() if name not in extra}


def _cosine(vectors: Mapping[str, Sequence[float]], one: str, other: str) -> float | None:
    if one not in vectors or other not in vectors:
        return None
    left, right = (np.asarray(vectors[rid], dtype=np.float32) for rid in (one, other))
    return float(left @ right / (np.linalg.norm(left) * np.linalg.norm(right)))


def _in_turn(lists: Sequence[Sequence[T]]) -> Iterable[list[T]]:
    """Yield the first of each list, then the second of each, and so on."""
    for place in range(max(map(len, lists), default=0)):
        yield [each[place] for each in lists if place < len(each)]


def _chained(lists: Iterable[Iterable[T]]) -> list[T]:
    return list(chain.from_iterable(lists))


def _united(parts: Iterable[Mapping[Any, T]]) -> dict[Any, T]:
    return {key: value for part in parts for key, value in part.items()}
