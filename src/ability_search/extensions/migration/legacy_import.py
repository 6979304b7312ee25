"""Presents a collection of the earlier ability as an importable one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar

import numpy as np

from ability_search.bounded_batches import batches
from ability_search.collection import Collection, new_collection
from ability_search.documents import Vector
from ability_search.errors import DatabaseUnavailable
from ability_search.extensions.artifacts.artifact_reader import Importable, Item
from ability_search.extensions.artifacts.manifest import Counts
from ability_search.extensions.migration.legacy_chunks import Piece, assembled, read_piece
from ability_search.extensions.migration.legacy_store import LegacyStore
from ability_search.extensions.migration.survey import OldCollection, Survey
from ability_search.index.index_calls import recipe_for
from ability_search.index.index_fields import IndexFields
from ability_search.index.index_ports import IndexPorts
from ability_search.index.partial_vectors import every_vector
from ability_search.index.preparation import analyzed, chunk_records, source_record
from ability_search.text.analyzer import analyzer_for

T = TypeVar("T")

_ROWS = 200
"""Chunks read at a time."""


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
        recipe = recipe_for(IndexFields(), None, ports.settings)
        # Its vectors were made without prefixes.
        recipe = replace(recipe, model=old.model, query_prefix="", passage_prefix="")
        self._recipe = recipe
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
        document = replace(document, content_hash=_hash(pieces, vectors))
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


def _hash(pieces: Sequence[Piece], vectors: Vector) -> str:
    """Return the content hash of a source; it differs in form from those of documents."""
    digest = sha256(
        repr([(p.title, p.content, p.metadata) for p in pieces]).encode("utf-8", "replace")
    )
    digest.update(vectors.tobytes())
    return f"moved:{digest.hexdigest()}"
