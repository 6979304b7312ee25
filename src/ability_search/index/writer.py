"""Writing prepared documents to the store, one transaction per group of documents."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from ability_search.collection import Collection, checked_model, new_type
from ability_search.errors import (
    DatabaseUnavailable,
    DimensionMismatch,
    GenerationGone,
    StatementRefused,
)
from ability_search.index.deduplication import Duplicates, find_duplicates
from ability_search.index.index_calls import WrittenGroup
from ability_search.index.index_ports import IndexPorts
from ability_search.index.preparation import (
    Prepared,
    Recipe,
    chunk_records,
    generated_sources,
    links_of,
    source_record,
)
from ability_search.ops.metrics.metric_table import CHUNKS_INDEXED
from ability_search.store.records import ChunkRecord, Replacement
from ability_search.text.bm25 import counted_length
from ability_search.text.term_statistics import TermStatistics
from kadi_client.errors import KadiError, NoProvider, ToolError

_TYPICAL_LENGTH = 100.0
_TYPICAL_WEIGHT = 20
"""Number of chunks of typical length in the initial average length of a collection."""
_NAMED = 3
"""Sources that an error names."""
_LABEL_BYTES = 20
"""Size of a number of a date, or of a key for filters."""


class Writer:
    """Writes groups of documents to one collection; the first write creates it if it is missing.

    Args:
        ports: The ports and settings of indexing.
        name: Name of the collection's record.
        collection: The collection, if it exists.
        model: Model of the vectors.
        recipe: Recipe recorded in a new collection.
    """

    def __init__(
        self,
        ports: IndexPorts,
        *,
        name: str,
        collection: Collection | None,
        model: str,
        recipe: Recipe,
    ) -> None:
        self._store = ports.store
        self._registry = ports.registry
        self._ranking = ports.settings.ranking
        self._now = ports.now
        self._meter = ports.meter
        self.name = name
        self.collection = collection
        self._model = model
        self._recipe = recipe

    async def write(self, group: Sequence[Prepared]) -> WrittenGroup:
        """Replace the sources of ``group`` by the prepared documents.

        A group of files without a text of their own, which only hold documents, does not count.

        Raises:
            DatabaseUnavailable: if the store remains unavailable; whether the transaction was
                committed is then unknown.
            DimensionMismatch: if the vectors do not fit the collection.
            GenerationGone: if the generation is gone, or another worker created it meanwhile for
                another model or language; nothing is stored.
        """
        holds_only = group[0].document.container
        if self.collection is None:
            if holds_only:
                return WrittenGroup(0, 0, 0, 0)
            self.collection = await self._create(group)
        for received in _dimensions(group):
            if received != self.collection.dimensions:
                raise DimensionMismatch(
                    self.collection.public_name,
                    recorded=self.collection.dimensions,
                    received=received,
                )
        written = await self._replace(self.collection, group)
        self._meter.add(CHUNKS_INDEXED, written.chunks)
        return WrittenGroup(0, 0, 0, 0) if holds_only else written

    async def _create(self, group: Sequence[Prepared]) -> Collection:
        created = await self._registry.create(
            new_collection(
                self.name,
                model=self._model,
                dimensions=next(iter(_dimensions(group))),
                recipe=self._recipe,
                average_length=expected_length(group),
                k1=self._ranking.bm25_k1,
                b=self._ranking.bm25_b,
                now=self._now(),
            )
        )
        if (created.model, created.language) != (self._model, self._recipe.language):
            raise GenerationGone(created.type)
        return created

    async def _replace(self, collection: Collection, group: Sequence[Prepared]) -> WrittenGroup:
        """Write a group in one transaction."""
        now = self._now()
        parts = [part for item in group for part in item.parts if part.complete]
        chunks, statistics = await asyncio.to_thread(_chunks, collection, parts, now)
        duplicates = await self._duplicates(collection, parts, chunks)
        if duplicates.stand_ins:
            chunks = [[_marked(chunk, duplicates) for chunk in own] for own in chunks]
        made = {part.document.source for part in parts}
        # Kinds that an earlier version of a document had.
        kinds = generated_sources(item.document.source for item in group)
        gone = [source for source in kinds if source not in made] if collection.kind_chunks else []
        with _named(group):
            replaced = await self._store.replace(
                collection,
                Replacement(
                    sources=[*(part.document.source for part in parts), *gone],
                    records=[source_record(part, now=now) for part in parts],
                    chunks=chunks,
                    links=[link for item in group for link in links_of(item.document)],
                    term_statistics=statistics,
                    stand_ins=duplicates.stored,
                ),
            )
        if replaced is None:
            raise GenerationGone(collection.type)
        # The next group needs the record as it is after this transaction.
        self.collection = self._registry.learn(self.name, replaced.collection)
        return WrittenGroup(
            sources=sum(not part.document.generated for part in parts),
            chunks=replaced.inserted,
            replaced=replaced.replaced,
            deduplicated=len(duplicates.stand_ins),
        )

    async def _duplicates(
        self,
        collection: Collection,
        parts: Sequence[Prepared],
        chunks: Sequence[Sequence[ChunkRecord]],
    ) -> Duplicates:
        """Return the duplicates among the chunks of parts except kinds.

        Partial vectors say too little to call a text a duplicate.
        """
        thresholds = {
            part.document.source: part.document.dedup_threshold
            for part in parts
            if part.document.dedup_threshold is not None and not part.partial
        }
        if not thresholds:
            return Duplicates()
        own = [chunk for each in chunks for chunk in each if chunk.of is None]
        try:
            return await find_duplicates(self._store, collection, own, thresholds)
        except StatementRefused as exc:
            # The errors for a generation that is being dropped vary, so the record decides.
            current = await self._registry.reload(self.name)
            if current is not None and current.type == collection.type:
                raise
            raise GenerationGone(collection.type) from exc


@contextmanager
def _named(group: Sequence[Prepared]) -> Iterator[None]:
    """Name the sources that were being written if the database is lost: one may be the cause."""
    try:
        yield
    except DatabaseUnavailable as exc:
        cause = exc.__cause__
        if not isinstance(cause, KadiError) or isinstance(cause, NoProvider | ToolError):
            raise
        sources = [repr(item.document.source) for item in group]
        more = f" and {len(sources) - _NAMED:,} more" if len(sources) > _NAMED else ""
        raise DatabaseUnavailable(
            f"{exc}, while writing {', '.join(sources[:_NAMED])}{more}",
            hint="Call again. If it fails again, index these documents one by one.",
        ) from exc


def _chunks(
    collection: Collection, parts: Sequence[Prepared], now: int
) -> tuple[list[list[ChunkRecord]], bytes]:
    """Return the chunks of each part, and their term statistics without those of kinds."""
    chunks = [chunk_records(part, collection, now=now) for part in parts]
    counted = [chunk for own in chunks for chunk in own if chunk.of is None]
    statistics = TermStatistics.of_chunks(
        [chunk.terms for chunk in counted], [chunk.lengths for chunk in counted]
    )
    return chunks, statistics.to_bytes()


def _marked(chunk: ChunkRecord, duplicates: Duplicates) -> ChunkRecord:
    stand_in = duplicates.stand_ins.get(chunk.chunk_id)
    return chunk if stand_in is None else replace(chunk, duplicate_of=stand_in)


def new_collection(
    name: str,
    *,
    model: str,
    dimensions: int,
    recipe: Recipe,
    average_length: float,
    k1: float,
    b: float,
    now: int,
) -> Collection:
    """Return the record of a new, empty collection.

    Args:
        name: Name of the record.
        model: Model of the vectors.
        dimensions: Dimensions of the vectors.
        recipe: How texts are chunked.
        average_length: Average number of terms of a chunk.
        k1: BM25 term frequency saturation.
        b: BM25 length normalisation.
        now: Time in epoch milliseconds.

    Raises:
        InvalidInput: if the name of the model is empty or too long.
    """
    return Collection(
        name=name,
        type=new_type(name, now=now),
        generation=1,
        model=checked_model(model),
        dimensions=dimensions,
        average_length=average_length,
        bm25_k1=k1,
        bm25_b=b,
        **recipe.recorded,
        created_at=now,
        updated_at=now,
    )


def expected_length(group: Sequence[Prepared]) -> float:
    """Estimate the average length of a chunk from the first documents."""
    lengths = [
        counted_length(title=len(item.title_terms), content=len(terms))
        for item in group
        for terms in item.terms
    ]
    total = sum(lengths) + _TYPICAL_LENGTH * _TYPICAL_WEIGHT
    return round(total / (len(lengths) + _TYPICAL_WEIGHT), 2)


def prepared_bytes(prepared: Prepared) -> int:
    """Estimate the bytes of a prepared document and its derived kinds in a message."""
    return sum(map(_part_bytes, prepared.parts))


def _part_bytes(prepared: Prepared) -> int:
    dimensions = next((len(each) for each in prepared.vectors if each is not None), 0)
    document = prepared.document
    text = 3 * (len(document.content) + len(document.title))
    terms = 18 * sum(len(set(terms)) for terms in prepared.terms)
    metadata = len(str(document.metadata)) + sum(map(len, prepared.facets))
    metadata += 18 * sum(map(len, prepared.metadata_terms.values()))
    links = 2 * len(str(document.links))
    dates = _LABEL_BYTES * sum(len(each.facets) + len(each.dates) for each in prepared.labels)
    passages = len(prepared.passages)
    shared = (passages + 1) * metadata
    return text + terms + links + dates + shared + passages * (600 + 11 * dimensions)


def _dimensions(group: Sequence[Prepared]) -> set[int]:
    return {
        len(vector)
        for item in group
        for part in item.parts
        for vector in part.vectors
        if vector is not None
    }
