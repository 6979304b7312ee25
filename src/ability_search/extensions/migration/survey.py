"""Survey of a database of the earlier ability: which collections and chunks can be migrated."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection as Container
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from ability_search.collection import LONGEST_NAME, is_collection_name, proposed_name
from ability_search.documents import Vector
from ability_search.extensions.migration.legacy_chunks import Piece, Unmovable, read_piece

_FALLBACK = "collection"
_SAMPLES = 4
"""Chunks of a collection whose embeddings are compared with those of the model."""
_SAME_MODEL = 0.9
"""Cosine below which two embeddings of the same text come from different models."""
_MEASURED = 20
"""Chunks of a collection that its average length is estimated from."""

Integers = npt.NDArray[np.int64]


class State(StrEnum):
    """State of the migration of a collection."""

    TO_MOVE = "to move"
    MOVED = "moved"
    TAKEN = "name taken"
    REFUSED = "cannot be moved"


@dataclass(slots=True)
class OldCollection:
    """A collection of the earlier ability, with a few numbers for each chunk and some samples."""

    name: str
    becomes: str
    """Its new name."""
    dimensions: int
    """Dimensions of most embeddings; 0 if none is usable."""
    chunks: int
    sources: int
    created_at: int
    """Time of its oldest chunk, in epoch milliseconds."""
    incomplete: int
    """Number of sources that lack chunks, because a call of the earlier ability failed."""
    left_out: Counter[str]
    """Number of chunks that cannot be migrated, by reason."""
    embedded_again: int
    """Number of chunks that get a new embedding."""
    samples: list[tuple[str, Vector]]
    """Texts and embeddings of some chunks."""
    texts: list[str]
    """Texts of the first chunks."""
    places: Integers
    """Bucket, position and source number of each chunk to migrate, ordered; shape (n, 3)."""
    fingerprint: str
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

    def first_places(self) -> list[str]:
        """Return the record id of the first chunk of each source."""
        starts = np.flatnonzero(np.diff(self.places[:, 2], prepend=-1))
        return [rid_of(bucket, position) for bucket, position, _ in self.places[starts]]

    def probes(self) -> list[str]:
        """Return texts to embed for the comparison of models, at least one."""
        return [text for text, _ in self.samples] or self.texts[:1]

    def choose(
        self, offered: Mapping[str, Mapping[int, Vector]], *, named: str | None = None
    ) -> str:
        """Choose the model that made the embeddings, or refuse the collection if none did.

        Args:
            offered: Embeddings of probes by place, of each model that answered. The first one is
                the model of a collection that has no usable embedding.
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

    def _similarity(self, vectors: Mapping[int, Vector]) -> float:
        """Return the median cosine of stored and given vectors; 1 without stored ones."""
        pairs = [(stored, vectors.get(n)) for n, (_, stored) in enumerate(self.samples)]
        cosines = [float(stored @ vector) for stored, vector in pairs if vector is not None]
        return float(np.median(cosines or [1.0]))


@dataclass(slots=True)
class Survey:
    """The result of a survey."""

    chunk_type: str
    """Type of the chunks."""
    collections: list[OldCollection]
    unassigned: Counter[str]
    """Rows that belong to no collection, by reason."""
    warnings: list[str] = field(default_factory=list)
    """Remarks about the models, to show before the migration."""

    @property
    def problems(self) -> bool:
        """Return whether a collection cannot be migrated."""
        return any(each.state in (State.TAKEN, State.REFUSED) for each in self.collections)

    @property
    def rows(self) -> int:
        """Total number of rows."""
        held = sum(each.chunks + each.left_out.total() for each in self.collections)
        return held + self.unassigned.total()


@dataclass(slots=True)
class _Tally:
    """The rows of one collection while they are being read."""

    left_out: Counter[str] = field(default_factory=Counter)
    sources: array[int] = field(default_factory=lambda: array("Q"))
    numbers: array[int] = field(default_factory=lambda: array("q"))
    """Bucket, position, index, total and dimensions of each row."""
    flaws: list[str] = field(default_factory=list)
    samples: list[tuple[str, Vector]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    created_at: int = 0

    def add(self, piece: Piece) -> None:
        """Add a chunk."""
        bucket, _, position = piece.rid.removeprefix("#").partition(":")
        dimensions = -self._flaw(piece.flaw) if piece.vector is None else len(piece.vector)
        self.sources.append(_hashed(piece.source))
        self.numbers.extend((int(bucket), int(position), piece.index, piece.total, dimensions))
        if piece.vector is not None and len(self.samples) < _SAMPLES:
            self.samples.append((piece.content, piece.vector))
        if len(self.texts) < _MEASURED:
            self.texts.append(piece.content)
        if piece.created_at:
            self.created_at = min(self.created_at or piece.created_at, piece.created_at)

    def _flaw(self, flaw: str) -> int:
        """Return the number of a flaw, from 1."""
        if flaw not in self.flaws:
            self.flaws.append(flaw)
        return self.flaws.index(flaw) + 1

    def finished(self, name: str, becomes: str, *, embed_missing: bool) -> OldCollection:
        """Return the collection; chunks without a usable embedding only if ``embed_missing``."""
        sources = np.frombuffer(self.sources, dtype=np.uint64)
        rows = np.frombuffer(self.numbers, dtype=np.int64).reshape(-1, 5)
        usual = Counter(rows[rows[:, 4] > 0, 4].tolist()).most_common(1)
        dimensions = usual[0][0] if usual else 0
        fits = rows[:, 4] == dimensions if dimensions else np.zeros(len(rows), dtype=bool)
        if not embed_missing:
            for found, count in Counter(rows[~fits, 4].tolist()).items():
                self.left_out[self._reason(found, dimensions)] += count
            sources, rows, fits = sources[fits], rows[fits], fits[fits]
        order = np.lexsort((rows[:, 1], rows[:, 0], rows[:, 2], sources))
        sources, rows, fits = sources[order], rows[order], fits[order]
        again = np.zeros(len(rows), dtype=bool)
        again[1:] = (sources[1:] == sources[:-1]) & (rows[1:, 2] == rows[:-1, 2])
        if again.any():
            self.left_out["a chunk index that another chunk of its source has"] += int(again.sum())
            sources, rows, fits = sources[~again], rows[~again], fits[~again]
        numbers = _numbered(sources)
        return OldCollection(
            name=name,
            becomes=becomes,
            dimensions=dimensions,
            chunks=len(rows),
            sources=int(numbers[-1]) + 1 if len(numbers) else 0,
            created_at=self.created_at,
            incomplete=_incomplete(numbers, rows[:, 2], rows[:, 3]),
            left_out=self.left_out,
            embedded_again=int((~fits).sum()),
            samples=[each for each in self.samples if len(each[1]) == dimensions],
            texts=self.texts,
            places=np.column_stack((rows[:, :2], numbers)).astype(np.int64),
            fingerprint=blake2b(sources.tobytes() + rows.tobytes(), digest_size=16).hexdigest(),
        )

    def _reason(self, found: int, dimensions: int) -> str:
        if found > 0:
            return f"an embedding of {found} dimensions instead of {dimensions}"
        return self.flaws[-found - 1]


class Surveyor:
    """Surveys the rows of the earlier layout."""

    def __init__(self) -> None:
        self._tallies: dict[str, _Tally] = {}
        self._unassigned: Counter[str] = Counter()

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows."""
        for row in rows:
            self._add(row)

    def _add(self, row: Mapping[str, Any]) -> None:
        try:
            piece = read_piece(row)
        except Unmovable as exc:
            name = row.get("collection")
            if isinstance(name, str) and name.strip():
                self._tally(name).left_out[str(exc)] += 1
            else:
                self._unassigned[str(exc)] += 1
        else:
            self._tally(piece.collection).add(piece)

    def finished(
        self,
        chunk_type: str,
        *,
        prefix: str,
        embed_missing: bool,
        wanted: Container[str],
    ) -> Survey:
        """Return the survey of all rows.

        Args:
            chunk_type: Type of the rows.
            prefix: Prefix of the new names of collections.
            embed_missing: Embed chunks that have no usable embedding.
            wanted: Names of collections; empty for all.
        """
        names = new_names(self._tallies, prefix)
        collections = [
            self._tallies[name].finished(name, becomes, embed_missing=embed_missing)
            for name, becomes in names.items()
            if not wanted or name in wanted
        ]
        return Survey(chunk_type, collections, self._unassigned)

    def _tally(self, name: str) -> _Tally:
        return self._tallies.setdefault(name, _Tally())


def new_names(names: Iterable[str], prefix: str) -> dict[str, str]:
    """Return the new names of collections: the old name, changed as little as needed.

    The new names are valid and unique.
    """
    ordered = sorted(names, key=lambda name: (not is_collection_name(f"{prefix}{name}"), name))
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in ordered:
        usable = proposed_name(f"{prefix}{name}") or _FALLBACK
        number, becomes = 1, usable
        while becomes in taken:
            number += 1
            becomes = f"{usable[: LONGEST_NAME - 1 - len(str(number))]}-{number}"
        taken.add(becomes)
        found[name] = becomes
    return found


def rid_of(bucket: int, position: int) -> str:
    """Return the record id of a place in the database's notation."""
    return f"#{bucket}:{position}"


def _dimensions(vectors: Mapping[int, Vector]) -> int:
    return len(next(iter(vectors.values())))


def _hashed(source: str) -> int:
    digest = blake2b(source.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest)


def _numbered(sources: npt.NDArray[np.uint64]) -> Integers:
    """Return the number of distinct smaller values for each of some sorted values."""
    changes = np.zeros(len(sources), dtype=np.int64)
    changes[1:] = sources[1:] != sources[:-1]
    return np.cumsum(changes)


def _incomplete(numbers: Integers, indexes: Integers, totals: Integers) -> int:
    """Return the number of sources with gaps, or with a wrong recorded number of chunks."""
    if not len(numbers):
        return 0
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    counts = np.diff(np.append(starts, len(numbers)))
    last = np.maximum.reduceat(indexes, starts)
    recorded = np.maximum.reduceat(totals, starts)
    wrong = (last + 1 != counts) | ((recorded != 0) & (recorded != counts))
    return int(wrong.sum())
