"""Presents a collection of the earlier ability as an importable one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import groupby
from typing import Any

import numpy as np

from ability_search.documents import Vector
from ability_search.errors import DatabaseUnavailable, TextsRefused
from ability_search.extensions.artifacts.artifact_reader import Importable, Item
from ability_search.extensions.artifacts.manifest import Counts
from ability_search.extensions.migration.legacy_chunks import Piece, assembled, read_piece
from ability_search.extensions.migration.survey import OldCollection, rid_of
from ability_search.index.index_calls import recipe_for
from ability_search.index.index_fields import IndexFields
from ability_search.index.index_ports import IndexPorts
from ability_search.index.preparation import analyzed, chunk_records, source_record
from ability_search.index.writer import new_collection
from ability_search.text.analyzer import analyzer_for

_ROWS = 200
"""Chunks read at a time."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Blocking access to the database and the model, for use in a thread."""

    rows: Callable[[Sequence[str]], list[dict[str, Any]]]
    """Return rows by record id, in any order."""
    embed: Callable[[list[str]], tuple[list[Vector], Mapping[int, TextsRefused]]]
    """Return a vector for every text, and errors by place, see :func:`.every_vector`."""


class LegacyArtifact(Importable):
    """A collection of the earlier ability.

    The rows are read again in batches. The content hash of a source is a hash of its chunks, so
    indexing its document later chunks it again.

    Args:
        old: The collection.
        ports: The ports and settings of indexing.
        model: Model of the embeddings.
        reach: The database and the model.
    """

    def __init__(self, old: OldCollection, ports: IndexPorts, model: str, reach: Reach) -> None:
        self._old = old
        self._counter = ports.counter
        self._label = ports.added.label
        self._reach = reach
        self._now = ports.now()
        recipe = recipe_for(IndexFields(), None, ports.settings)
        # Its vectors were made without prefixes.
        recipe = replace(recipe, query_prefix="", passage_prefix="")
        self._analyzer = analyzer_for(recipe.language)
        lengths = [len(self._analyzer.terms(text)) for text in old.texts]
        self.counts = Counts(chunks=old.chunks, sources=old.sources, tokens=0)
        self.fingerprint = old.fingerprint
        self.collection = new_collection(
            old.becomes,
            model=model,
            dimensions=old.dimensions,
            recipe=recipe,
            average_length=round(max(1.0, sum(lengths) / max(1, len(lengths))), 2),
            k1=ports.settings.ranking.bm25_k1,
            b=ports.settings.ranking.bm25_b,
            now=old.created_at or self._now,
        )

    def items(self) -> Iterator[Item]:
        """Yield the sources, each with all of its chunks.

        Raises:
            DatabaseUnavailable: if the database did not answer, or rows were deleted.
            EmbeddingUnavailable: if chunks need a new embedding and the model did not answer.
        """
        tokens = 0
        numbers = self._old.places[:, 2]
        ends = np.append(np.flatnonzero(np.diff(numbers)) + 1, len(numbers))
        start = done = 0
        while start < len(numbers):
            # As many whole sources as fit into one read, at least one.
            done = max(done + 1, int(np.searchsorted(ends, start + _ROWS, side="right")))
            end = int(ends[done - 1])
            for _, pieces in groupby(self._read(start, end), key=lambda piece: piece.source):
                item = self._item(list(pieces))
                tokens += item.record.tokens
                yield item
            start = end
        self.counts = self.counts.model_copy(update={"tokens": tokens})

    def _read(self, start: int, end: int) -> list[Piece]:
        """Return the chunks at places ``start`` to ``end - 1``, in order."""
        rids = [rid_of(bucket, place) for bucket, place, _ in self._old.places[start:end]]
        found: dict[str, Piece] = {}
        for at in range(0, len(rids), _ROWS):
            for row in self._reach.rows(rids[at : at + _ROWS]):
                found[row["rid"]] = read_piece(row)
        if len(found) < len(rids):
            raise DatabaseUnavailable(
                "chunks were deleted during the migration", hint="Stop the earlier ability first."
            )
        return [found[rid] for rid in rids]

    def _item(self, pieces: list[Piece]) -> Item:
        tokens = [self._counter.count(piece.content) for piece in pieces]
        vectors, partial = self._vectors(pieces)
        document, passages = assembled(pieces, tokens)
        prepared = analyzed(
            document,
            passages,
            content_hash=_hash(pieces, vectors),
            analyzer=self._analyzer,
            label=self._label,
        )
        prepared.vectors = list(vectors)
        prepared.partial = partial
        moment = max(piece.created_at for piece in pieces) or self._now
        chunks = [
            # The line numbers are unknown.
            replace(chunk, start_line=None, end_line=None)
            for chunk in chunk_records(prepared, self.collection, now=moment)
        ]
        return Item(source_record(prepared, now=moment), chunks, vectors)

    def _vectors(self, pieces: Sequence[Piece]) -> tuple[Vector, set[int]]:
        """Return the embeddings, with new ones for unusable ones; shape (len(pieces), d).

        The places of the texts that the model refuses follow; the collection names their sources.
        """
        vectors = [
            piece.vector
            if piece.vector is not None and len(piece.vector) == self._old.dimensions
            else None
            for piece in pieces
        ]
        missing = [place for place, vector in enumerate(vectors) if vector is None]
        refused: Mapping[int, TextsRefused] = {}
        if missing:
            embedded, refused = self._reach.embed([pieces[place].content for place in missing])
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
