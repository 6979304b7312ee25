"""Documents and chunks of the memory store."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ability_search.collection import Collection, public_name
from ability_search.documents import is_kind
from ability_search.store.memory_tables import (
    Generation,
    StoredChunk,
    Tables,
    cosines,
    nearest_chunks,
    passage_of,
    selected,
)
from ability_search.store.records import (
    ChunkRecord,
    ChunkScores,
    ChunkVector,
    MapPoint,
    Neighbour,
    OverviewAnswer,
    OverviewRequest,
    Passage,
    Read,
    Replaced,
    Replacement,
    SourceRecord,
    VectorCheck,
    VectorPlaces,
    WeightedChunk,
)
from ability_search.store.stand_ins import Represented, moved
from ability_search.store.statistics_cache import TermStatisticsEntry, put_entry
from ability_search.store.stored_collections import change_collection, collection_fields

_TITLE = 120
_EXCERPT = 160
"""Characters of the title and of the content of a map point."""
_UNIT = 0.01
"""Tolerance for the length of a unit vector."""


class MemoryDocuments(Tables):
    """See :class:`ability_search.store.port.IndexStore`."""

    async def replace(self, collection: Collection, replacement: Replacement) -> Replaced | None:
        record = self._current(collection)
        if record is None:
            return None
        if replacement.chunks and record.average_length != collection.average_length:
            return None
        stored = self._generation(record.type)
        if not _stand_ins_unchanged(stored, replacement.stand_ins):
            return None
        concerned = set(replacement.sources)
        old = [each for name in concerned if (each := stored.sources.pop(name, None))]
        gone = stored.delete_chunks(concerned, kinds=False)
        gone_kinds = stored.delete_chunks(concerned, kinds=True)
        kept_links = [link for link in stored.links if link.source not in concerned]
        gone_links = len(stored.links) - len(kept_links)
        inserted = [chunk for chunks in replacement.chunks for chunk in chunks]
        for source in replacement.records:
            stored.add_source(source)
        for chunk in inserted:
            stored.add_chunk(chunk)
        returned = _renew_stand_ins(stored, gone, concerned)
        stored.links = [*kept_links, *replacement.links]
        sources = [each.record for each in stored.sources.values()]
        left = sum(not chunk.indexed for chunk in gone)
        new = replace(
            record,
            revision=record.revision + 1,
            updated_at=self._now(),
            chunks=sum(source.chunks for source in sources),
            sources=sum(source.counted for source in sources),
            tokens=sum(source.tokens for source in sources),
            tokens_min=min(_known(source.tokens_min for source in sources), default=None),
            tokens_max=max(_known(source.tokens_max for source in sources), default=None),
            duplicates=record.duplicates
            - left
            - returned
            + sum(chunk.duplicate_of is not None for chunk in inserted),
            links=record.links - gone_links + len(replacement.links),
            kind_chunks=record.kind_chunks
            - len(gone_kinds)
            + sum(chunk.of is not None for chunk in inserted),
            nested=record.nested or replacement.nested,
        )
        entry = TermStatisticsEntry(
            revision=new.revision,
            base=False,
            added=replacement.term_statistics,
            removed=[chunk.record.terms for chunk in gone],
            removed_lengths=[chunk.record.lengths for chunk in gone],
        )
        await self.commit(
            [change_collection(record, collection_fields(new)), put_entry(record.type, entry)]
        )
        return Replaced(
            collection=new,
            deleted=sum(each.record.chunks for each in old),
            inserted=len(inserted),
            replaced=sum(each.record.counted for each in old),
        )

    async def content_hashes(
        self, collection: Collection, sources: Sequence[str]
    ) -> Read[Mapping[str, str]]:
        table = self._generation(collection.type).sources
        hashes = {name: each.record.content_hash for name in sources if (each := table.get(name))}
        return Read(self._collection(collection.name), hashes)

    async def sources(
        self,
        generation: str,
        *,
        after: str,
        limit: int,
        files: bool = False,
        children: bool = True,
    ) -> list[str]:
        found = [each.record for each in self._generation(generation).ordered_sources(after=after)]
        wanted = [each for each in found if (each.file if files else each.counted)]
        return [each.source for each in wanted if children or each.of is None][:limit]

    async def documents_of(self, generation: str, sources: Sequence[str]) -> list[str]:
        wanted = set(sources)
        found = [each.record for each in self._generation(generation).sources.values()]
        return [each.source for each in found if each.of in wanted]

    async def source_records(
        self, generation: str, *, after: str, limit: int
    ) -> list[SourceRecord]:
        found = self._generation(generation).ordered_sources(after=after)
        return [each.copy() for each in found if not each.record.generated][:limit]

    async def source_records_named(
        self, generation: str, sources: Sequence[str]
    ) -> list[SourceRecord]:
        table = self._generation(generation).sources
        return [each.copy() for name in dict.fromkeys(sources) if (each := table.get(name))]

    async def source_passages(
        self, generation: str, source: str, *, kinds: bool = False
    ) -> list[Passage]:
        table = self._generation(generation).table(kinds=kinds)
        found = [passage_of(chunk) for chunk in table.values() if chunk.record.source == source]
        return sorted(found, key=lambda passage: passage.chunk_index)

    async def compare_sources(
        self, generation: str, other: str, *, after: str, limit: int
    ) -> tuple[list[tuple[str, str]], dict[str, str | None]]:
        page = await self.source_records(generation, after=after, limit=limit)
        built = self._generation(other).sources
        origins = {
            record.source: there.record.origin
            for record in page
            if (there := built.get(record.source))
        }
        return [(record.source, record.content_hash) for record in page], origins

    async def count_sources(self, generation: str) -> tuple[int, int]:
        records = [each.record for each in self._generation(generation).sources.values()]
        return sum(each.counted for each in records), sum(each.chunks for each in records)

    async def check_vectors(
        self, generation: str, *, kinds: bool, dimensions: int, after: str, limit: int
    ) -> VectorCheck:
        page = _by_id(self._generation(generation).table(kinds=kinds).values(), after=after)[:limit]
        return VectorCheck(
            last=page[-1].record.chunk_id if page else None,
            checked=len(page),
            unfit=sum(not _fit(chunk, dimensions) for chunk in page),
        )

    async def sample_chunks(self, generation: str, *, limit: int) -> list[WeightedChunk]:
        indexed = selected(self._generation(generation).chunks.values(), None)
        indexed.sort(key=lambda chunk: chunk.record.vector_key or "")
        return [replace(_weighted(c), embedding=c.embedding) for c in indexed[:limit]]

    async def probe_chunks(
        self, generation: str, *, newest: int, others: int, after: str
    ) -> list[WeightedChunk]:
        indexed = selected(self._generation(generation).chunks.values(), None)
        keyed = [chunk for chunk in indexed if (chunk.record.vector_key or "") >= after]
        keyed.sort(key=lambda chunk: chunk.record.vector_key or "")
        last = indexed[::-1][:newest]
        return [_weighted(chunk) for chunk in (*last, *keyed[:others])]

    async def nearest(
        self,
        generation: str,
        vectors: Sequence[Sequence[float]],
        *,
        limit: int,
        beam: int,
        exact: bool,
    ) -> list[list[Neighbour]]:
        indexed = selected(self._generation(generation).chunks.values(), None)
        return [
            [
                Neighbour(chunk.record.chunk_id, chunk.record.source, chunk.record.created_at, near)
                for chunk, near in nearest_chunks(indexed, vector, limit=limit)
            ]
            for vector in vectors
        ]

    async def vector_places(
        self, model: str, record: str, *, dimensions: int | None, limit: int
    ) -> VectorPlaces:
        live = public_name(record)
        same = [each for each in self._collections() if each.model == model]
        others = [each for each in same if each.name not in (record, live) and each.chunks > 0]
        others.sort(key=lambda each: -each.updated_at)

        def places(records: Iterable[Collection]) -> list[tuple[str, bool]]:
            return [
                (each.type, kinds)
                for each in records
                if dimensions in (None, each.dimensions)
                for kinds in ((False, True) if each.kind_chunks else (False,))
            ]

        return VectorPlaces(
            own=places(each for each in same if each.name == record),
            live=places(each for each in same if each.name == live != record),
            others=places(others[:limit]),
        )

    async def stored_vectors(
        self, places: Sequence[tuple[str, bool]], keys: Sequence[str]
    ) -> list[dict[str, Sequence[float]]]:
        return [
            _vectors_by_key(self._generation(name).table(kinds=kinds).values(), keys)
            for name, kinds in places
        ]

    async def outdated_weights(
        self, generation: str, *, kinds: bool, average_length: float, after: str, limit: int
    ) -> list[WeightedChunk]:
        chunks = _by_id(self._generation(generation).table(kinds=kinds).values())
        outdated = [
            chunk
            for chunk in chunks
            if chunk.record.chunk_id > after and chunk.record.average_length != average_length
        ]
        return [_weighted(chunk) for chunk in outdated[:limit]]

    async def set_weights(
        self,
        generation: str,
        *,
        kinds: bool,
        average_length: float,
        changes: Sequence[WeightedChunk],
    ) -> None:
        table = self._generation(generation).table(kinds=kinds)
        for change in changes:
            chunk = table.get(change.chunk_id)
            if chunk is not None and chunk.indexed == (change.duplicate_of is None):
                chunk.record = replace(
                    chunk.record, weights=tuple(change.weights), average_length=average_length
                )

    async def set_scores(self, generation: str, scores: Sequence[ChunkScores]) -> None:
        table = self._generation(generation).chunks
        for each in scores:
            chunk = table.get(each.chunk_id)
            if chunk is not None:
                chunk.record = replace(
                    chunk.record, centrality=each.centrality, novelty=each.novelty
                )

    async def build_graph(self, generation: str, *, kinds: bool, dimensions: int) -> None:
        """Do nothing: there is no graph, as searches are exact."""
        self._generation(generation)

    async def discard_staged(self, *, before: int) -> None:
        """Do nothing: nothing is staged."""


class MemoryCopies(Tables):
    """See :class:`ability_search.store.port.CopyStore`."""

    async def source_order(
        self, generation: str, *, after: str, limit: int
    ) -> list[tuple[str, int]]:
        found = self._generation(generation).ordered_sources(after=after)
        return [(each.record.source, each.place) for each in found[:limit]]

    async def source_records_at(
        self, generation: str, places: Sequence[int]
    ) -> dict[int, SourceRecord]:
        wanted = set(places)
        found = self._generation(generation).sources.values()
        return {each.place: each.copy() for each in found if each.place in wanted}

    async def chunk_records(
        self, generation: str, sources: Sequence[str], *, kinds: bool, first: int, end: int
    ) -> list[ChunkRecord]:
        wanted = set(sources)
        return [
            chunk.whole()
            for chunk in self._generation(generation).table(kinds=kinds).values()
            if chunk.record.source in wanted and first <= chunk.record.chunk_index < end
        ]

    async def chunk_vectors(self, generation: str, *, after: str, limit: int) -> list[ChunkVector]:
        page = _by_id(selected(self._generation(generation).chunks.values(), None), after=after)
        return [
            ChunkVector(
                chunk.record.chunk_id,
                chunk.record.source,
                chunk.record.breadcrumb or chunk.record.title,
                chunk.record.chunk_index,
                chunk.embedding or (),
            )
            for chunk in page[:limit]
        ]

    async def overview(
        self, collection: Collection, request: OverviewRequest
    ) -> Read[OverviewAnswer]:
        generation = self._generation(collection.type)
        sizes: dict[int, int] = {}
        periods: dict[int, tuple[int, int]] = {}
        if (width := request.bin_width) is not None:
            every = generation.chunks.values()
            counted = every if request.sample is None else _sample(every, request.sample, request)
            for chunk in counted:
                least = chunk.record.tokens - chunk.record.tokens % width
                sizes[least] = sizes.get(least, 0) + 1
        if (period := request.period) is not None:
            for source in (each.record for each in generation.sources.values()):
                if source.chunks and not is_kind(source.kind, source.of):
                    start = source.indexed_at - source.indexed_at % period
                    sources, chunks = periods.get(start, (0, 0))
                    periods[start] = sources + 1, chunks + source.chunks
        vectors: list[Sequence[float]] = []
        if request.vectors is not None:
            sampled = _sample(generation.chunks.values(), request.vectors, request)
            vectors = [chunk.embedding or () for chunk in sampled]
        answer = OverviewAnswer(sizes, [(start, *n) for start, n in periods.items()], vectors)
        return Read(self._collection(collection.name), answer)

    async def map_points(
        self,
        collection: Collection,
        axes: Sequence[Sequence[float]],
        *,
        limit: int,
        indexed: int,
    ) -> Read[list[MapPoint]]:
        request = OverviewRequest(None, None, None, limit, indexed)
        sampled = _sample(self._generation(collection.type).chunks.values(), limit, request)
        by_axis = [cosines(sampled, axis).tolist() for axis in axes]
        points = [
            MapPoint(
                chunk.record.chunk_id,
                chunk.record.source,
                chunk.record.title[:_TITLE],
                chunk.record.content[:_EXCERPT],
                [values[place] for values in by_axis],
            )
            for place, chunk in enumerate(sampled)
        ]
        return Read(self._collection(collection.name), points)


def _stand_ins_unchanged(generation: Generation, stand_ins: Mapping[str, int]) -> bool:
    found = {chunk_id: generation.chunks.get(chunk_id) for chunk_id in stand_ins}
    return all(
        chunk is not None and chunk.indexed and chunk.record.created_at == stand_ins[chunk_id]
        for chunk_id, chunk in found.items()
    )


def _renew_stand_ins(
    generation: Generation, gone: Sequence[StoredChunk], replaced: Container[str]
) -> int:
    """Give the duplicates of chunks that are gone another stand-in; return how many it indexed."""
    new: list[ChunkRecord] = []
    left: dict[str, list[StoredChunk]] = {}
    for chunk in _by_id(generation.chunks.values()):
        if chunk.record.source in replaced:
            new.append(chunk.whole())
        elif chunk.record.duplicate_of:
            left.setdefault(chunk.record.duplicate_of, []).append(chunk)
    groups = [
        Represented(
            before.chunk_id,
            before.vector_key,
            [each.record.chunk_id for each in left[before.chunk_id]],
            generation.sources[left[before.chunk_id][0].record.source].record.dedup_threshold,
            left[before.chunk_id][0].embedding,
        )
        for before in (chunk.record for chunk in gone)
        if before.chunk_id in left
    ]
    next_ones = moved(groups, new)
    for standing, copies in next_ones.items():
        for chunk in (generation.chunks[each] for each in copies):
            other = None if chunk.record.chunk_id == standing else standing
            chunk.record = replace(chunk.record, duplicate_of=other)
    return sum(standing in copies for standing, copies in next_ones.items())


def _known(values: Iterable[int | None]) -> Iterator[int]:
    return (value for value in values if value is not None)


def _by_id(chunks: Iterable[StoredChunk], *, after: str = "") -> list[StoredChunk]:
    found = [chunk for chunk in chunks if chunk.record.chunk_id > after]
    return sorted(found, key=lambda chunk: chunk.record.chunk_id)


def _fit(chunk: StoredChunk, dimensions: int) -> bool:
    vector = chunk.vector
    if vector is None or len(vector) != dimensions:
        return False
    return bool(abs(float(np.linalg.norm(vector)) - 1) < _UNIT)


def _weighted(chunk: StoredChunk) -> WeightedChunk:
    record = chunk.record
    return WeightedChunk(
        chunk_id=record.chunk_id,
        terms=record.terms,
        weights=record.weights,
        lengths=record.lengths,
        average_length=record.average_length,
        duplicate_of=record.duplicate_of,
    )


def _vectors_by_key(
    chunks: Iterable[StoredChunk], keys: Sequence[str]
) -> dict[str, Sequence[float]]:
    wanted = set(keys)
    found: dict[str, Sequence[float]] = {}
    for chunk in _by_id(chunks):
        key, embedding = chunk.record.vector_key, chunk.embedding
        if key in wanted and embedding is not None:
            found.setdefault(key, embedding)
    return found


def _sample(
    chunks: Iterable[StoredChunk], limit: int, request: OverviewRequest
) -> list[StoredChunk]:
    """Return the indexed chunks of the least vector keys; by chunkId if too few have keys."""
    indexed = selected(chunks, None)
    keyed = [chunk for chunk in indexed if chunk.record.vector_key]
    if len(keyed) < min(limit, request.indexed):
        return _by_id(indexed)[:limit]
    return sorted(keyed, key=lambda chunk: chunk.record.vector_key or "")[:limit]
