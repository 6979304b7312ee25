"""Writing prepared documents to the store, one transaction per group of documents."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from ability_search.collection import Collection, new_collection
from ability_search.errors import (
    DatabaseUnavailable,
    DimensionMismatch,
    GenerationGone,
    StatementRefused,
)
from ability_search.index.deduplication import Duplicates, find_duplicates
from ability_search.index.index_calls import IndexJob
from ability_search.index.preparation import (
    Prepared,
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


async def write(job: IndexJob, group: Sequence[Prepared]) -> None:
    """Replace the sources of ``group`` by the prepared documents, in one transaction.

    The first group creates the collection if it is missing. A group of files without a text of
    their own, which only hold documents, does not count, and creates none.

    Raises:
        DatabaseUnavailable: if the store remains unavailable; whether the transaction was
            committed is then unknown.
        DimensionMismatch: if the vectors do not fit the collection.
        GenerationGone: if the generation is gone, or another worker created it meanwhile for
            another model or language; nothing is stored.
    """
    holds_only = group[0].document.container
    if job.collection is None:
        if holds_only:
            return
        job.collection = await _created(job, group)
    collection = job.collection
    for received in _dimensions(group):
        if received != collection.dimensions:
            raise DimensionMismatch(
                collection.public_name, recorded=collection.dimensions, received=received
            )
    parts = [part for item in group for part in item.parts if part.complete]
    replacement, duplicates = await _replacement(job, collection, group, parts)
    with _named(group):
        replaced = await job.ports.store.replace(collection, replacement)
    if replaced is None:
        raise GenerationGone(collection.type)
    # The next group needs the record as it is after this transaction.
    job.collection = job.ports.registry.learn(job.record, replaced.collection)
    job.ports.meter.add(CHUNKS_INDEXED, replaced.inserted)
    if not holds_only:
        sources = sum(not part.document.generated for part in parts)
        job.report.updated += replaced.replaced
        job.report.added += sources - replaced.replaced
        job.report.chunks += replaced.inserted
        job.report.deduplicated += duplicates


async def _created(job: IndexJob, group: Sequence[Prepared]) -> Collection:
    created = await job.ports.registry.create(
        new_collection(
            job.record,
            job.recipe,
            dimensions=next(iter(_dimensions(group))),
            average_length=expected_length(group),
            now=job.ports.now(),
        )
    )
    if (created.model, created.language) != (job.recipe.model, job.recipe.language):
        raise GenerationGone(created.type)
    return created


async def _replacement(
    job: IndexJob, collection: Collection, group: Sequence[Prepared], parts: Sequence[Prepared]
) -> tuple[Replacement, int]:
    """Return the new contents of the sources of a group, and the number of duplicates."""
    now = job.ports.now()
    chunks, statistics = await asyncio.to_thread(_chunks, collection, parts, now)
    duplicates = await _duplicates(job, collection, parts, chunks)
    if duplicates.stand_ins:
        chunks = [
            [replace(each, duplicate_of=duplicates.stand_ins.get(each.chunk_id)) for each in own]
            for own in chunks
        ]
    made = {part.document.source for part in parts}
    # Kinds that an earlier version of a document had.
    kinds = generated_sources(item.document.source for item in group)
    gone = [source for source in kinds if source not in made] if collection.kind_chunks else []
    replacement = Replacement(
        sources=[*(part.document.source for part in parts), *gone],
        records=[source_record(part, now=now) for part in parts],
        chunks=chunks,
        links=[link for item in group for link in links_of(item.document)],
        term_statistics=statistics,
        stand_ins=duplicates.stored,
    )
    return replacement, len(duplicates.stand_ins)


async def _duplicates(
    job: IndexJob,
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
        return await find_duplicates(job.ports.store, collection, own, thresholds)
    except StatementRefused as exc:
        # The errors for a generation that is being dropped vary, so the record decides.
        current = await job.ports.registry.reload(job.record)
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
    shared = (passages + 1) * metadata + passages * (600 + 11 * dimensions)
    return text + terms + links + dates + shared


def _dimensions(group: Sequence[Prepared]) -> set[int]:
    return {
        len(vector)
        for item in group
        for part in item.parts
        for vector in part.vectors
        if vector is not None
    }
