"""Writing prepared documents to the database, one transaction per group of sources."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from ability_search.collection import Collection, new_type
from ability_search.errors import (
    DatabaseUnavailable,
    DimensionMismatch,
    ModelMismatch,
    StatementRefused,
)
from ability_search.indexing.duplicates import Deduplication, Duplicates, find_duplicates
from ability_search.indexing.preparing import (
    Prepared,
    Recipe,
    chunk_rows,
    generated_sources,
    link_rows,
    source_record,
)
from ability_search.indexing.storing import ATTEMPTS, Contents, Storage, Written
from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.ports import Store
from ability_search.store.registry import Registry

log = logging.getLogger(__name__)

_TYPICAL_LENGTH = 100.0
_TYPICAL_WEIGHT = 20
"""Number of chunks of typical length in the initial average length of a collection."""
_PERIOD_BYTES = 40
"""Size of a date with its lookup keys."""


class Writer(Storage):
    """Writes groups of documents to one collection; the first write creates it if it is missing.

    Args:
        store: The database.
        registry: The registry of collections.
        name: Name of the collection's record.
        collection: The collection, if it exists.
        model: Model of the vectors.
        recipe: Recipe recorded in a new collection.
        k1: BM25 term frequency saturation of a new collection.
        b: BM25 length normalisation of a new collection.
        message_bytes: Maximum bytes in one statement; a larger source is staged in parts.
        now: Returns the time in epoch milliseconds.
        deduplication: Parameters of duplicate detection; ``None`` disables it.
        meter: Counts retried statements.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        *,
        name: str,
        collection: Collection | None,
        model: str,
        recipe: Recipe,
        k1: float,
        b: float,
        message_bytes: int,
        now: Callable[[], int],
        deduplication: Deduplication | None = None,
        meter: Meter = UNMETERED,
    ) -> None:
        super().__init__(
            store,
            registry,
            name=name,
            collection=collection,
            message_bytes=message_bytes,
            now=now,
            meter=meter,
        )
        self._model = model
        self._recipe = recipe
        self._k1 = k1
        self._b = b
        self._deduplication = deduplication
        self._going_on = collection is not None and collection.name != collection.public_name

    async def write(self, group: Sequence[Prepared]) -> Written:
        """Replace the sources of ``group`` by the prepared documents.

        Raises:
            DatabaseUnavailable: if the database remains unavailable; whether the transaction was
                committed is then unknown.
            ModelMismatch: if the model of the collection changed meanwhile.
            DimensionMismatch: if the vectors do not fit the collection.
        """
        for _ in range(ATTEMPTS):
            collection = self._checked(await self._existing(group), group)
            written = await self._replace(collection, group)
            if written is not None:
                return written
            log.info("collection %s changed during a write, retrying", self.name)
            self.collection = await self._registry.reload(self.name)
        raise StatementRefused("conflict", f"{self.name} keeps changing")

    async def _existing(self, group: Sequence[Prepared]) -> Collection:
        if self.collection is None and self._going_on:
            # A newly created generation would lack what was stored before.
            raise DatabaseUnavailable(
                "the generation being built no longer exists", hint="Try again."
            )
        if self.collection is None:
            self.collection = await self._registry.create(
                new_collection(
                    self.name,
                    model=self._model,
                    dimensions=_dimensions(group),
                    recipe=self._recipe,
                    average_length=expected_length(group),
                    k1=self._k1,
                    b=self._b,
                    now=self._now(),
                )
            )
        return self.collection

    def _checked(self, collection: Collection, group: Sequence[Prepared]) -> Collection:
        if collection.model != self._model:
            raise ModelMismatch(
                collection.public_name, recorded=collection.model, requested=self._model
            )
        for received in _all_dimensions(group):
            if received != collection.dimensions:
                raise DimensionMismatch(
                    collection.public_name, recorded=collection.dimensions, received=received
                )
        if collection.language != self._recipe.language:
            raise DatabaseUnavailable(
                f"collection {collection.public_name!r} was rebuilt in another language meanwhile",
                hint="Try again.",
            )
        return collection

    async def _replace(self, collection: Collection, group: Sequence[Prepared]) -> Written | None:
        """Write a group in one transaction; return ``None`` if the generation is gone."""
        now = self._now()
        parts = [part for item in group for part in item.parts if part.complete]
        rows = await asyncio.to_thread(self._rows, collection, parts, now)
        duplicates = await self._duplicates(collection, rows)
        if duplicates is None:
            return None
        return await self.put(
            collection,
            Contents(
                records=[source_record(part, now=now) for part in parts],
                rows=[[duplicates.set_aside(row) for row in each] for each in rows],
                links=[link for item in group for link in link_rows(item.document)],
                stand_ins=duplicates.stored,
                gone=_unmade(group, parts) if collection.aspects else (),
            ),
        )

    async def _duplicates(
        self, collection: Collection, per_source: Sequence[Sequence[dict[str, Any]]]
    ) -> Duplicates | None:
        """Return the duplicates among the rows except derived kinds; ``None`` as above."""
        if self._deduplication is None:
            return Duplicates()
        rows = [row for rows in per_source for row in rows if not row["aspectOf"]]
        try:
            return await find_duplicates(self._store, collection, rows, self._deduplication)
        except StatementRefused:
            if await self._is_on(collection.type):
                raise
            return None

    def _rows(
        self, collection: Collection, group: Sequence[Prepared], now: int
    ) -> list[list[dict[str, Any]]]:
        return [chunk_rows(item, collection, now=now) for item in group]


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
    """
    return Collection(
        name=name,
        type=new_type(name, now=now),
        generation=1,
        model=model,
        dimensions=dimensions,
        language=recipe.language,
        average_length=average_length,
        bm25_k1=k1,
        bm25_b=b,
        chunk_strategy=recipe.chunk_strategy,
        chunk_size=recipe.chunk_size,
        chunk_overlap=recipe.chunk_overlap,
        kinds=recipe.kinds,
        kinds_by=recipe.kinds_by,
        keyed=True,
        created_at=now,
        updated_at=now,
    )


def expected_length(group: Sequence[Prepared]) -> float:
    """Estimate the average number of terms of a chunk from the first documents."""
    lengths = [len(terms) for item in group for terms in item.terms]
    total = sum(lengths) + _TYPICAL_LENGTH * _TYPICAL_WEIGHT
    return round(total / (len(lengths) + _TYPICAL_WEIGHT), 2)


def prepared_bytes(prepared: Prepared) -> int:
    """Estimate the bytes of a prepared document and its derived kinds in a statement."""
    return sum(map(_part_bytes, prepared.parts))


def _part_bytes(prepared: Prepared) -> int:
    dimensions = next((len(each) for each in prepared.vectors if each is not None), 0)
    document = prepared.document
    text = 3 * (len(document.content) + len(document.title))
    terms = 18 * sum(len(set(terms)) for terms in prepared.terms)
    metadata = len(str(document.metadata)) + sum(map(len, prepared.facets))
    metadata += 18 * sum(map(len, prepared.metadata_terms.values()))
    links = 2 * len(str(document.links))
    dates = _PERIOD_BYTES * sum(map(len, prepared.periods))
    passages = len(prepared.passages)
    shared = (passages + 1) * metadata
    return text + terms + links + dates + shared + passages * (600 + 11 * dimensions)


def _unmade(group: Sequence[Prepared], parts: Sequence[Prepared]) -> list[str]:
    """Return the sources of derived kinds that may exist from an earlier write and no longer do."""
    made = {part.document.source for part in parts}
    return [
        source
        for source in generated_sources(item.document.source for item in group)
        if source not in made
    ]


def _dimensions(group: Sequence[Prepared]) -> int:
    return next(iter(_all_dimensions(group)))


def _all_dimensions(group: Sequence[Prepared]) -> set[int]:
    return {
        len(vector)
        for item in group
        for part in item.parts
        for vector in part.vectors
        if vector is not None
    }
