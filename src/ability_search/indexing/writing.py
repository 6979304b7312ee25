"""Finished documents -> the database, a group of sources in one transaction each."""

from __future__ import annotations

import asyncio
import base64
import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tenacity import (
    AsyncRetrying,
    retry_if_exception,
    stop_after_attempt,
    wait_random_exponential,
)

from ability_search import statements
from ability_search.catalogue import Catalogue, Collection, new_type
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
from ability_search.indexing.preparing import Prepared, Recipe, chunk_rows, source_record
from ability_search.ports import Store
from ability_search.ranking.statistics import TermStatistics

log = logging.getLogger(__name__)

_ATTEMPTS = 8
_TYPICAL_LENGTH = 100.0
_TYPICAL_WEIGHT = 20
"""A new collection's average length starts from as many chunks of typical length."""


@dataclass(frozen=True, slots=True)
class Written:
    """What one transaction did."""

    sources: int
    chunks: int
    replaced: int
    deduplicated: int


class Writer:
    """Stores groups of documents in one collection, which it creates when there is something.

    Args:
        store: The database.
        catalogue: Knows the collections.
        name: The collection's record.
        collection: The collection, if it exists.
        model: What the vectors come from.
        recipe: Recorded in a new collection.
        k1: Saturation of a term's frequency in BM25.
        b: Weight of a text's length in BM25.
        message_bytes: Most bytes in one statement; more of one source is staged in parts.
        now: The time in epoch milliseconds.
        deduplication: What a near-duplicate is; ``None`` looks for none.
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
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._name = name
        self.collection = collection
        self._model = model
        self._recipe = recipe
        self._k1 = k1
        self._b = b
        self._message_bytes = message_bytes
        self._now = now
        self._deduplication = deduplication

    async def write(self, group: Sequence[Prepared]) -> Written:
        """Replace the sources of ``group`` by what was prepared of them.

        Raises:
            DatabaseUnavailable: if the database stays away; the transaction then happened or not.
            ModelMismatch: if the collection was given another model meanwhile.
            DimensionMismatch: if the vectors do not fit the collection.
        """
        for _ in range(_ATTEMPTS):
            collection = self._checked(await self._existing(group), group)
            written = await self._replace(collection, group)
            if written is not None:
                return written
            log.info("collection %s changed under a writer, writing again", self._name)
            self.collection = await self._catalogue.reload(self._name)
        raise StatementRefused("conflict", f"{self._name} changes again and again")

    async def remove(self, collection: Collection, sources: Sequence[str]) -> int | None:
        """Remove sources; returns the chunks deleted, ``None`` if the generation is gone."""
        answer = await self._transact(
            statements.replace_sources(
                collection.name, collection.type, sources=sources, now=self._now()
            )
        )
        return None if answer is None else int(answer["deleted"] or 0)

    async def _existing(self, group: Sequence[Prepared]) -> Collection:
        if self.collection is None:
            self.collection = await self._catalogue.create(
                new_collection(
                    self._name,
                    model=self._model,
                    dimensions=_dimensions(group),
                    recipe=self._recipe,
                    average_length=expected_length(group),
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
        per_source, added = await asyncio.to_thread(self._rows, collection, group, now)
        duplicates = await self._duplicates(collection, per_source)
        if duplicates is None:
            return None
        inline, staged = await self._staged(
            [[duplicates.set_aside(row) for row in rows] for rows in per_source]
        )
        chunks = sum(len(rows) for rows in per_source)
        answer = await self._transact(
            statements.replace_sources(
                collection.name,
                collection.type,
                sources=[item.document.source for item in group],
                rows=inline,
                staged=staged,
                staged_rows=chunks - len(inline),
                records=[source_record(item, now=now) for item in group],
                added=added,
                duplicates=len(duplicates.stand_ins),
                stand_ins=duplicates.stored,
                now=now,
            )
        )
        if answer is None:
            return None
        if int(answer["inserted"] or 0) != chunks:
            raise StatementRefused("other", f"{answer['inserted']} of {chunks} chunks were stored")
        replaced = int(answer["replaced"] or 0)
        return Written(len(group), chunks, replaced, len(duplicates.stand_ins))

    async def _duplicates(
        self, collection: Collection, per_source: Sequence[Sequence[dict[str, Any]]]
    ) -> Duplicates | None:
        """The duplicates among the rows; ``None`` if the generation is gone."""
        if self._deduplication is None:
            return Duplicates()
        rows = [row for rows in per_source for row in rows]
        try:
            return await find_duplicates(self._store, collection, rows, self._deduplication)
        except StatementRefused:
            if await self._is_on(collection.type):
                raise
            return None

    def _rows(
        self, collection: Collection, group: Sequence[Prepared], now: int
    ) -> tuple[list[list[dict[str, Any]]], str]:
        per_source = [
            chunk_rows(item, collection, k1=self._k1, b=self._b, now=now) for item in group
        ]
        statistics = TermStatistics.of_chunks(
            [row["terms"] for rows in per_source for row in rows],
            [row["lengths"] for rows in per_source for row in rows],
        )
        return per_source, base64.b64encode(statistics.to_bytes()).decode("ascii")

    async def _staged(
        self, per_source: Sequence[list[dict[str, Any]]]
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """Rows that go into the statement itself, and tokens of those staged before it."""
        inline: list[dict[str, Any]] = []
        tokens: list[str] = []
        room = self._message_bytes
        for rows in per_source:
            size = sum(row_bytes(row) for row in rows)
            if size <= room:
                inline += rows
                room -= size
            else:
                tokens.append(await self._stage(rows))
        return inline, tokens

    async def _stage(self, rows: Sequence[dict[str, Any]]) -> str:
        token = secrets.token_hex(8)
        part: list[dict[str, Any]] = []
        room = self._message_bytes
        for row in rows:
            if part and row_bytes(row) > room:
                await self._run(statements.stage_rows(token, part))
                part, room = [], self._message_bytes
            part.append(row)
            room -= row_bytes(row)
        await self._run(statements.stage_rows(token, part))
        return token

    async def _transact(self, statement: statements.Statement) -> dict[str, Any] | None:
        """Replace sources; ``None`` if nothing was done because the generation is gone."""
        try:
            answer: dict[str, Any] = await self._run(statement)
        except StatementRefused:
            if await self._is_on(statement.params["type"]):
                raise
            return None
        if answer["revision"] is None:
            return None
        # The next group is to know what this one stored.
        self.collection = self._catalogue.learn(self._name, answer["collection"])
        return answer

    async def _is_on(self, chunk_type: str) -> bool:
        """Whether a refusal has nothing to do with the generation being gone.

        What is said of types that are being dropped varies, so the record decides.
        """
        current = await self._catalogue.reload(self._name)
        return current is not None and current.type == chunk_type

    async def _run(self, statement: statements.Statement) -> Any:
        """Run a statement that may safely run twice, through restarts of the database."""
        async for attempt in AsyncRetrying(
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_random_exponential(multiplier=0.25, max=8),
            retry=retry_if_exception(_passing),
            reraise=True,
        ):
            with attempt:
                answer = await self._store.write(*statement)
        return answer


def new_collection(
    name: str,
    *,
    model: str,
    dimensions: int,
    recipe: Recipe,
    average_length: float,
    now: int,
) -> Collection:
    """A collection as it is recorded before anything is in it.

    Args:
        name: Its record.
        model: What its vectors come from.
        dimensions: Of its vectors.
        recipe: How its texts are cut.
        average_length: Terms of an average chunk.
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
        chunk_strategy=recipe.chunk_strategy,
        chunk_size=recipe.chunk_size,
        chunk_overlap=recipe.chunk_overlap,
        created_at=now,
        updated_at=now,
    )


def expected_length(group: Sequence[Prepared]) -> float:
    """Terms of an average chunk, guessed from the first documents of a collection."""
    lengths = [len(terms) for item in group for terms in item.terms]
    total = sum(lengths) + _TYPICAL_LENGTH * _TYPICAL_WEIGHT
    return round(total / (len(lengths) + _TYPICAL_WEIGHT), 2)


def row_bytes(row: dict[str, Any]) -> int:
    """About how many bytes a row takes in a statement, seldom less."""
    text = 3 * (len(row["content"]) + len(row["lead"]) + len(row["title"]))
    text += len(str(row["metadata"])) + sum(map(len, row["facets"]))
    vector = row["embedding"] or row.get("spareEmbedding") or ()
    terms = row["terms"] or row.get("spareTerms") or ()
    return 600 + text + 11 * len(vector) + 18 * len(terms)


def prepared_bytes(prepared: Prepared) -> int:
    """About how many bytes the rows of a finished document take in a statement."""
    dimensions = _dimensions([prepared])
    document = prepared.document
    text = 3 * (len(document.content) + len(document.title))
    terms = 18 * sum(len(set(terms)) for terms in prepared.terms)
    metadata = len(str(document.metadata)) + sum(map(len, prepared.facets))
    passages = len(prepared.passages)
    return text + terms + (passages + 1) * metadata + passages * (600 + 11 * dimensions)


def _dimensions(group: Sequence[Prepared]) -> int:
    return next(iter(_all_dimensions(group)))


def _all_dimensions(group: Sequence[Prepared]) -> set[int]:
    return {len(vector) for item in group for vector in item.vectors if vector is not None}


def _passing(exc: BaseException) -> bool:
    if isinstance(exc, StatementRefused):
        # What is inserted was deleted before, so a duplicate is from a concurrent transaction.
        return exc.reason in ("conflict", "duplicate")
    return isinstance(exc, DatabaseUnavailable)
