"""Survey of a database of the earlier ability: which collections and chunks can be migrated."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from itertools import groupby
from typing import Annotated, Any
from weakref import finalize

import numpy as np
import typer

from ability_search.collection import LONGEST_NAME, is_collection_name, proposed_name
from ability_search.documents import Vector
from ability_search.extensions.cli.parameters import CollectionsOption
from ability_search.extensions.migration.legacy_chunks import Piece, Unmovable, read_piece

_FALLBACK = "collection"
_SAMPLES = 4
"""Chunks of a collection whose embeddings are compared with those of the model."""
_SAME_MODEL = 0.9
"""Cosine below which two embeddings of the same text come from different models."""
_MEASURED = 20
"""Chunks of a collection that its average length is estimated from."""

_TABLE = """
CREATE TABLE chunk (
    collection TEXT, source TEXT, number INTEGER, bucket INTEGER, position INTEGER,
    total INTEGER, dimensions INTEGER, flaw TEXT)
"""
_WRONG_DIMENSIONS = """
UPDATE chunk
SET flaw = 'an embedding of ' || dimensions || ' dimensions instead of ' || :dimensions
WHERE collection = :name AND flaw = '' AND dimensions != :dimensions
"""
_REPEATED = """
DELETE FROM chunk WHERE collection = :name AND rowid NOT IN (
    SELECT min(rowid) FROM chunk WHERE collection = :name GROUP BY source, number)
"""
_INCOMPLETE = """
SELECT count(*) FROM (
    SELECT 1 FROM chunk WHERE collection = :name GROUP BY source
    HAVING max(number) + 1 != count(*) OR max(total) NOT IN (0, count(*)))
"""


class State(StrEnum):
    """State of the migration of a collection."""

    TO_MOVE = "to move"
    MOVED = "moved"
    TAKEN = "name taken"
    REFUSED = "cannot be moved"


@dataclass(frozen=True, slots=True)
class MigrationOptions:
    """The options of a migration."""

    database: Annotated[
        str | None,
        typer.Option(
            "--from", help="Database of the earlier ability.  [default: the configured one]"
        ),
    ] = None
    collection: CollectionsOption = None
    prefix: Annotated[str, typer.Option("--into", help="Prefix for new collection names.")] = ""
    model: Annotated[
        str | None, "Model that made the embeddings.  [default: found by comparison]"
    ] = None
    embed: Annotated[bool, "Embed chunks whose embedding is unusable."] = False
    dry_run: Annotated[bool, "Show the plan without changing anything."] = False
    drop_old: Annotated[bool, "Delete the old data, if all of it was migrated."] = False


@dataclass(slots=True)
class OldCollection:
    """A collection of the earlier ability."""

    name: str
    becomes: str = ""
    """Its new name."""
    dimensions: int = 0
    """Dimensions of most embeddings; 0 if none is usable."""
    chunks: int = 0
    sources: int = 0
    created_at: int = 0
    """Time of its oldest chunk, in epoch milliseconds."""
    incomplete: int = 0
    """Number of sources that lack chunks, because a call of the earlier ability failed."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Number of chunks that cannot be migrated, by reason."""
    embedded_again: int = 0
    """Number of chunks that get a new embedding."""
    samples: list[tuple[str, Vector]] = field(default_factory=list)
    """Texts and embeddings of some chunks."""
    texts: list[str] = field(default_factory=list)
    """Texts of the first chunks."""
    fingerprint: str = ""
    """Hash of what will be migrated."""
    state: State = State.TO_MOVE
    reason: str = ""
    """Why it cannot be migrated."""
    model: str = ""
    """Model that its embeddings come from; empty until it was chosen."""
    refused: dict[str, str] = field(default_factory=dict)
    """Sources with a text that the model refuses, and its reason; they are kept."""
    similarity: float | None = None
    """Median cosine between stored embeddings and those of the model of the same texts."""

    def probes(self) -> list[str]:
        """Return texts to embed for the comparison of models, at least one."""
        return [text for text, _ in self.samples] or self.texts[:1]

    def choose(
        self, offered: Mapping[str, Mapping[str, Vector]], *, named: str | None = None
    ) -> str:
        """Choose the model that made the embeddings, or refuse the collection if none did.

        Args:
            offered: Embeddings of probes by text, of each model that answered. The first one is the
                model of a collection that has no usable embedding.
            named: Model that the user named; it only needs to have the right dimensions.

        Returns:
            A warning, or an empty string.
        """
        if named and not offered:
            self.model = named
            return ""
        cosines = {
            name: self._similarity(vectors)
            for name, vectors in offered.items()
            if self.dimensions in (0, _dimensions(vectors))
        }
        best = max(cosines, key=cosines.__getitem__, default=None)
        if best is None or (cosines[best] < _SAME_MODEL and not named):
            tried = ", ".join(
                f"{name} (cosine {cosines[name]:.2f})"
                if name in cosines
                else f"{name} ({_dimensions(vectors)} dimensions)"
                for name, vectors in offered.items()
            )
            self.state = State.REFUSED
            self.reason = (
                f"the model of its embeddings of {self.dimensions} dimensions is not"
                f" {tried or 'known'}: serve it, or name it with --model"
            )
            return ""
        self.model = best
        self.dimensions = _dimensions(offered[best])
        self.similarity = cosines[best] if self.samples else None
        if cosines[best] >= _SAME_MODEL:
            return ""
        return (
            f"{self.name!r} does not seem to be embedded with {best!r}: the cosine between its"
            f" embeddings and those of that model is {cosines[best]:.2f}"
        )

    def _similarity(self, vectors: Mapping[str, Vector]) -> float:
        """Return the median cosine of stored and given vectors; 1 without stored ones."""
        cosines = [
            float(stored @ vectors[text]) for text, stored in self.samples if text in vectors
        ]
        return float(np.median(cosines or [1.0]))


class Survey:
    """A survey of the chunks of the earlier ability.

    Rows are added first. What is remembered of each chunk is in a temporary file.

    Args:
        chunk_type: Type of the chunks.
    """

    def __init__(self, chunk_type: str) -> None:
        self.chunk_type = chunk_type
        self.collections: list[OldCollection] = []
        self.unassigned: Counter[str] = Counter()
        """Rows that belong to no collection, by reason."""
        self.warnings: list[str] = []
        """Remarks about the models, to show before the migration."""
        self._found: dict[str, OldCollection] = {}
        # One thread at a time uses it, but not always the same.
        self._table = sqlite3.connect("", check_same_thread=False)
        finalize(self, self._table.close)
        self._table.execute(_TABLE)

    @property
    def problems(self) -> bool:
        """Return whether a collection cannot be migrated."""
        return any(each.state in (State.TAKEN, State.REFUSED) for each in self.collections)

    @property
    def rows(self) -> int:
        """Total number of rows."""
        held = sum(each.chunks + each.left_out.total() for each in self.collections)
        return held + self.unassigned.total()

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows as the earlier ability stored them."""
        for row in rows:
            try:
                self._add(read_piece(row))
            except Unmovable as exc:
                name = row.get("collection")
                if isinstance(name, str) and name.strip():
                    self._collection(name).left_out[str(exc)] += 1
                else:
                    self.unassigned[str(exc)] += 1

    def _add(self, piece: Piece) -> None:
        old = self._collection(piece.collection)
        bucket, _, position = piece.rid.removeprefix("#").partition(":")
        dimensions = 0 if piece.vector is None else len(piece.vector)
        self._table.execute(
            "INSERT INTO chunk VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                piece.collection,
                piece.source,
                piece.index,
                int(bucket),
                int(position),
                piece.total,
                dimensions,
                piece.flaw,
            ),
        )
        if piece.vector is not None and len(old.samples) < _SAMPLES:
            old.samples.append((piece.content, piece.vector))
        if len(old.texts) < _MEASURED:
            old.texts.append(piece.content)
        if piece.created_at:
            old.created_at = min(old.created_at or piece.created_at, piece.created_at)

    def _collection(self, name: str) -> OldCollection:
        return self._found.setdefault(name, OldCollection(name))

    def finish(self, options: MigrationOptions) -> None:
        """Determine the collections after all rows were added."""
        for name, becomes in new_names(self._found, options.prefix).items():
            if not options.collection or name in options.collection:
                old = self._found[name]
                old.becomes = becomes
                self._finish(old, embed_missing=options.embed)
                self.collections.append(old)

    def _finish(self, old: OldCollection, *, embed_missing: bool) -> None:
        """Set the numbers of a collection; leave out chunks that cannot be migrated."""
        given: dict[str, Any] = {"name": old.name}
        run = self._table.execute
        usual = run(
            "SELECT dimensions FROM chunk WHERE collection = :name AND dimensions > 0"
            " GROUP BY dimensions ORDER BY count(*) DESC, min(rowid) LIMIT 1",
            given,
        ).fetchone()
        (old.dimensions,) = usual or (0,)
        old.samples = [each for each in old.samples if len(each[1]) == old.dimensions]
        run(_WRONG_DIMENSIONS, given | {"dimensions": old.dimensions})
        flaws = run(
            "SELECT flaw, count(*) FROM chunk WHERE collection = :name AND flaw != ''"
            " GROUP BY flaw ORDER BY min(rowid)",
            given,
        ).fetchall()
        if not embed_missing:
            old.left_out.update(dict(flaws))
            run("DELETE FROM chunk WHERE collection = :name AND flaw != ''", given)
        if repeated := run(_REPEATED, given).rowcount:
            old.left_out["a chunk index that another chunk of its source has"] = repeated
        old.chunks, old.sources, old.embedded_again = run(
            "SELECT count(*), count(DISTINCT source), count(nullif(flaw, '')) FROM chunk"
            " WHERE collection = :name",
            given,
        ).fetchone()
        (old.incomplete,) = run(_INCOMPLETE, given).fetchone()
        digest = blake2b(digest_size=16)
        for row in run(
            "SELECT * FROM chunk WHERE collection = :name ORDER BY source, number", given
        ):
            digest.update(repr(row).encode())
        old.fingerprint = digest.hexdigest()

    def sources_of(self, old: OldCollection) -> Iterator[tuple[str, list[str]]]:
        """Yield each source to migrate, and the record ids of its chunks in order."""
        rows = self._table.execute(
            "SELECT source, bucket, position FROM chunk WHERE collection = ?"
            " ORDER BY source, number",
            [old.name],
        )
        for source, chunks in groupby(rows, key=lambda row: str(row[0])):
            yield source, [f"#{bucket}:{position}" for _, bucket, position in chunks]


def new_names(names: Iterable[str], prefix: str) -> dict[str, str]:
    """Return the new names of collections: the old name, changed as little as needed.

    The new names are valid and unique.
    """
    ordered = sorted(names, key=lambda name: (not is_collection_name(f"{prefix}{name}"), name))
    found: dict[str, str] = {}
    for name in ordered:
        usable = proposed_name(f"{prefix}{name}") or _FALLBACK
        number, becomes = 1, usable
        while becomes in found.values():
            number += 1
            becomes = f"{usable[: LONGEST_NAME - 1 - len(str(number))]}-{number}"
        found[name] = becomes
    return found


def _dimensions(vectors: Mapping[str, Vector]) -> int:
    return len(next(iter(vectors.values())))
