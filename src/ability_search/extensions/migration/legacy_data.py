"""The data of the earlier TypeScript ability, and its collections as importable ones."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar

import numpy as np

from ability_search.bounded_batches import batches
from ability_search.client.tool_client import ToolClient
from ability_search.collection import Collection, new_collection
from ability_search.documents import Vector
from ability_search.errors import DatabaseUnavailable, EarlierLayout, StatementRefused, TooLarge
from ability_search.extensions.artifacts.artifact_format import Counts
from ability_search.extensions.artifacts.artifact_reader import Importable, Item
from ability_search.extensions.migration.legacy_chunks import Piece, assembled, read_piece
from ability_search.extensions.migration.survey import OldCollection, Survey
from ability_search.index.index_calls import recipe_for
from ability_search.index.index_fields import IndexFields
from ability_search.index.index_ports import IndexPorts
from ability_search.index.partial_vectors import every_vector
from ability_search.index.preparation import analyzed, chunk_records, source_record
from ability_search.store.arcadedb.client import BrokerScripts
from ability_search.store.arcadedb.core import Scripts
from ability_search.text.analyzer import analyzer_for

T = TypeVar("T")

LEGACY_TYPE = "Chunk"
"""Its type of chunks; in today's layout the vertex type that all types of chunks extend."""
ASIDE_TYPE = "LegacyChunk"
"""Type of the copies that make room for today's layout."""

_BUCKET = re.compile(r"[A-Za-z0-9_]+")
_COLUMNS = (
    "@rid AS rid, chunkId, collection, source, title, content, embedding, metadata, chunkIndex,"
    " totalChunks, createdAt"
)
_PLACES = 10_000
"""Record ids read at a time; the further back a page begins, the longer it takes to find."""
_ROWS = 200
"""Chunks read at a time."""
_CHECK_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class LegacyStore:
    """A database of the earlier ability: one document type with the chunks of everything.

    Its rows are as that ability wrote them: any column may be missing or of any type. The methods
    raise :class:`.DatabaseUnavailable` if the database did not answer.
    """

    scripts: Scripts

    async def chunk_type(self) -> str | None:
        """Return the type that holds the chunks; ``None`` if there is none.

        While they are being copied, it is the original type.
        """
        names = [LEGACY_TYPE, ASIDE_TYPE]
        try:
            types = await self.scripts.read(
                "SELECT name FROM schema:types WHERE name IN :names AND type = 'document'",
                {"names": names},
            )
        except StatementRefused as exc:
            if exc.reason != "missing_database":
                raise
            return None
        present = {row["name"] for row in types}
        for name in names:
            if name not in present:
                continue
            first = f"SELECT chunkId, collection FROM `{name}` LIMIT 100"
            found = await self.scripts.read(first, {})
            if not found or any(row.get("chunkId") and row.get("collection") for row in found):
                return name
        return None

    async def totals(self, chunk_type: str) -> Mapping[str, int]:
        """Return the number ``n`` of chunks and the sizes of their texts and embeddings."""
        (row,) = await self.scripts.read(
            "SELECT count(*) AS n, sum(content.length()) AS characters,"
            f" sum(embedding.size()) AS numbers FROM `{chunk_type}`",
            {},
        )
        return {name: row[name] or 0 for name in ("n", "characters", "numbers")}

    async def places(self, chunk_type: str, *, most: int) -> AsyncIterator[list[str]]:
        """Yield the record ids of the chunks, at most ``most`` at a time.

        Raises:
            ValueError: if the name of a bucket cannot be written in a statement.
        """
        (row,) = await self.scripts.read(
            "SELECT buckets FROM schema:types WHERE name = :name", {"name": chunk_type}
        )
        for bucket in row["buckets"]:
            if not _BUCKET.fullmatch(bucket):
                raise ValueError(f"not the name of a bucket: {bucket!r}")
            last = "#-1:-1"
            while page := await self.scripts.read(
                f"SELECT @rid AS rid FROM BUCKET:{bucket} WHERE @rid > :last"
                f" ORDER BY @rid LIMIT {_PLACES}",
                {"last": last},
            ):
                rids = [each["rid"] for each in page]
                for start in range(0, len(rids), most):
                    yield rids[start : start + most]
                last = rids[-1]

    async def rows(self, chunk_type: str, rids: Sequence[str]) -> list[dict[str, Any]]:
        """Return rows by record id, in any order."""
        statement = f"SELECT {_COLUMNS} FROM `{chunk_type}` WHERE @rid IN :rids"
        try:
            return list(await self.scripts.read(statement, {"rids": list(rids)}))
        except TooLarge:
            if len(rids) < 2:
                raise
        middle = len(rids) // 2
        first = await self.rows(chunk_type, rids[:middle])
        return first + await self.rows(chunk_type, rids[middle:])

    async def create_aside(self) -> None:
        """Create the type for copies if it does not exist."""
        await self.scripts.write(
            f"""
            CREATE DOCUMENT TYPE {ASIDE_TYPE} IF NOT EXISTS BUCKETS 1;
            CREATE PROPERTY {ASIDE_TYPE}.asideOf IF NOT EXISTS STRING;
            CREATE INDEX IF NOT EXISTS ON {ASIDE_TYPE} (asideOf) NOTUNIQUE;
            """,
            {},
        )

    async def copy_aside(self, rids: Sequence[str]) -> None:
        """Copy chunks by record id; skip those that were copied before."""
        await self.scripts.write(
            f"""
            BEGIN;
            LET known = SELECT asideOf FROM {ASIDE_TYPE} WHERE asideOf IN :rids;
            LET i = INSERT INTO {ASIDE_TYPE} FROM (
                SELECT *, @rid.asString() AS asideOf FROM {LEGACY_TYPE}
                WHERE @rid IN :rids AND @rid.asString() NOT IN $known.asideOf);
            COMMIT;
            RETURN {{'copied': $i.size()}};
            """,
            {"rids": list(rids)},
        )

    async def make_room(self) -> None:
        """Drop the original chunks, and create today's type in their place."""
        await self.scripts.write(
            f"DROP TYPE {LEGACY_TYPE} UNSAFE; CREATE VERTEX TYPE {LEGACY_TYPE} IF NOT EXISTS;", {}
        )

    async def drop(self, chunk_type: str) -> None:
        """Drop the chunks."""
        await self.scripts.write(f"DROP TYPE `{chunk_type}` UNSAFE", {})


async def check_migrated(client: ToolClient) -> str:
    """Return where data of the earlier ability is kept; an empty text if there is none.

    Raises:
        EarlierLayout: if it was not migrated.
    """
    if not await client.connection.providers("arcade-query"):
        return ""
    database, invoke = client.settings.database.name, client.connection.invoke
    old = LegacyStore(BrokerScripts(invoke, database=database, timeout=_CHECK_SECONDS))
    kept = await old.chunk_type()
    if kept == LEGACY_TYPE:
        raise EarlierLayout
    return f"the old data is kept as {kept}, `migrate --drop-old` deletes it" if kept else ""


class LegacyArtifact(Importable):
    """A collection of the earlier ability.

    The rows are read again in batches. The content hash of a source is a hash of its chunks, so
    indexing its document later chunks it again.

    Args:
        store: The database of the earlier ability.
        survey: The survey.
        old: The collection; its model has been chosen.
        ports: The ports and settings of indexing.
    """

    def __init__(
        self, store: LegacyStore, survey: Survey, old: OldCollection, ports: IndexPorts
    ) -> None:
        self._store = store
        self._survey = survey
        self._old = old
        self._ports = ports
        self._loop = asyncio.get_running_loop()
        self._now = ports.now()
        recipe = recipe_for(IndexFields(model=old.model), None, ports.settings)
        # Its vectors were made without prefixes.
        self._recipe = recipe = replace(recipe, query_prefix="", passage_prefix="")
        analyzer = analyzer_for(recipe.language)
        lengths = [len(analyzer.terms(text)) for text in old.texts]
        self.counts = Counts(chunks=old.chunks, sources=old.sources, tokens=0)
        self.fingerprint = old.fingerprint
        self.collection = new_collection(
            old.becomes,
            recipe,
            dimensions=old.dimensions,
            average_length=round(max(1.0, sum(lengths) / max(1, len(lengths))), 2),
            now=old.created_at or self._now,
        )

    def items(self, name: str) -> Iterator[Item]:
        """Yield the sources, each with all of its chunks; not in the thread of the event loop.

        Raises:
            DatabaseUnavailable: if the database did not answer, or rows were deleted.
            EmbeddingUnavailable: if chunks need a new embedding and the model did not answer.
        """
        tokens, collection = 0, replace(self.collection, name=name)
        sources = (rids for _, rids in self._survey.sources_of(self._old))
        for group in batches(sources, len, most=_ROWS, most_bytes=_ROWS):
            pieces = self._read([rid for rids in group for rid in rids])
            for rids in group:
                item = self._item([pieces[rid] for rid in rids], collection)
                tokens += item.record.tokens
                yield item
        self.counts = self.counts.model_copy(update={"tokens": tokens})

    def _read(self, rids: Sequence[str]) -> dict[str, Piece]:
        """Return chunks by record id."""
        found: dict[str, Piece] = {}
        for start in range(0, len(rids), _ROWS):
            part = rids[start : start + _ROWS]
            for row in self._wait(self._store.rows(self._survey.chunk_type, part)):
                found[row["rid"]] = read_piece(row)
        if len(found) < len(rids):
            raise DatabaseUnavailable(
                "chunks were deleted during the migration", hint="Stop the earlier ability first."
            )
        return found

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _item(self, pieces: list[Piece], collection: Collection) -> Item:
        tokens = [self._ports.counter.count(piece.content) for piece in pieces]
        vectors, refused = self._vectors(pieces)
        document, passages = assembled(pieces, tokens)
        # In another form than those of documents.
        texts = repr([(each.title, each.content, each.metadata) for each in pieces])
        digest = sha256(texts.encode("utf-8", "replace") + vectors.tobytes()).hexdigest()
        document = replace(document, content_hash=f"moved:{digest}")
        prepared = analyzed(document, passages, self._recipe, label=self._ports.added.label)
        prepared.vectors = list(vectors)
        prepared.partial = refused
        moment = max(piece.created_at for piece in pieces) or self._now
        chunks = [
            # The line numbers are unknown.
            replace(chunk, start_line=None, end_line=None)
            for chunk in chunk_records(prepared, collection, now=moment)
        ]
        return Item(source_record(prepared, now=moment), chunks)

    def _vectors(self, pieces: Sequence[Piece]) -> tuple[Vector, set[int]]:
        """Return the embeddings, with new ones for unusable ones; shape (len(pieces), d).

        The places of the texts that the model refuses follow; the collection names their sources.
        """
        vectors = [piece.vector for piece in pieces]
        missing = [
            place
            for place, vector in enumerate(vectors)
            if vector is None or len(vector) != self._old.dimensions
        ]
        if not missing:
            return np.asarray(vectors, dtype=np.float32), set()
        texts = [pieces[place].content for place in missing]
        embed = partial(self._ports.embed, self._old.model)
        embedded, refused = self._wait(every_vector(embed, texts))
        for place, vector in zip(missing, embedded, strict=True):
            vectors[place] = vector
        self._old.refused |= {pieces[missing[n]].source: str(refused[n]) for n in refused}
        return np.asarray(vectors, dtype=np.float32), {missing[n] for n in refused}
