"""Finished documents -> the database, a group of sources in one transaction each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from ability_search.catalogue import Catalogue
from ability_search.collection import Collection, new_type
from ability_search.errors import (
    DatabaseUnavailable,
    DimensionMismatch,
    ModelMismatch,
    StatementRefused,
)
from ability_search.indexing.duplicates import (
    Deduplication,
    Duplicates,
    find_duplicates,
)
from ability_search.indexing.preparing import (
    Prepared,
    Recipe,
    chunk_rows,
    generated_sources,
    link_rows,
    source_record,
)
from ability_search.indexing.storing import ATTEMPTS, Contents, Storage, Written
from ability_search.metrics import UNMETERED, Meter
from ability_search.ports import Store

log = logging.getLogger(__name__)

_TYPICAL_LENGTH = 100.0
_TYPICAL_WEIGHT = 20
"""A new collection's average length starts from as many chunks of typical length."""
_PERIOD_BYTES = 40
"""A date with the keys that it is looked up by."""


class Writer(Storage):
    """Stores groups of documents in one collection, which it creates when there is something.

    Args:
        store: The database.
        catalogue: Knows the collections.
        name: The collection's record.
        collection: The collection, if it exists.
        model: What the vectors come from.
        recipe: Recorded in a new collection.
        k1: Saturation of a term's frequency in BM25, of a collection that is created.
        b: Weight of a text's length in BM25, likewise.
        message_bytes: Most bytes in one statement; more of one source is staged in parts.
        now: The time in epoch milliseconds.
        deduplication: What a near-duplicate is; ``None`` looks for none.
        meter: Counts statements that are run again.
    """

    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
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
            catalogue,
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
        """Replace the sources of ``group`` by what was prepared of them.

        Raises:
            DatabaseUnavailable: if the database stays away; the transaction then happened or not.
            ModelMismatch: if the collection was given another model meanwhile.
            DimensionMismatch: if the vectors do not fit the collection.
        """
        for _ in range(ATTEMPTS):
            collection = self._checked(await self._existing(group), group)
            written = await self._replace(collection, group)
            if written is not None:
                return written
            log.info("collection %s changed under a writer, writing again", self.name)
            self.collection = await self._catalogue.reload(self.name)
        raise StatementRefused("conflict", f"{self.name} changes again and again")

    async def _existing(self, group: Sequence[Prepared]) -> Collection:
        if self.collection is None and self._going_on:
            # Begun anew it would lack what was stored before.
            raise DatabaseUnavailable("what was being built is gone", hint="Call again.")
        if self.collection is None:
            self.collection = await self._catalogue.create(
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
                hint="Call again.",
            )
        return collection

    async def _replace(self, collection: Collection, group: Sequence[Prepared]) -> Written | None:
        """One transaction; ``None`` if what it builds on is not there any more."""
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
        """The duplicates among the rows, aspects aside; ``None`` if the generation is gone."""
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
    """A collection as it is recorded before anything is in it.

    Args:
        name: Its record.
        model: What its vectors come from.
        dimensions: Of its vectors.
        recipe: How its texts are cut.
        average_length: Terms of an average chunk.
        k1: Saturation of a term's frequency in BM25.
        b: Weight of a text's length in BM25.
        now: Epoch milliseconds.
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
    """Terms of an average chunk, guessed from the first documents of a collection."""
    lengths = [len(terms) for item in group for terms in item.terms]
    total = sum(lengths) + _TYPICAL_LENGTH * _TYPICAL_WEIGHT
    return round(total / (len(lengths) + _TYPICAL_WEIGHT), 2)


def prepared_bytes(prepared: Prepared) -> int:
    """About how many bytes the rows of a finished document and its aspects take in a statement."""
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
    """The aspects that may have been made of the documents once, and are not now."""
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
