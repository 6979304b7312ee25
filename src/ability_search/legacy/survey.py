"""What a database of the earlier ability holds, and which of it can be moved."""

from __future__ import annotations

import re
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

from ability_search.collection import is_collection_name
from ability_search.documents import Vector
from ability_search.legacy.legacy_chunks import Piece, Unmovable, read_piece

_UNUSABLE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 64
_FALLBACK = "collection"
_SAMPLES = 4
"""Chunks of a collection that tell whether its model is the one that was named."""
_MEASURED = 20
"""Chunks of a collection whose length is taken for that of all."""

Integers = npt.NDArray[np.int64]


class State(StrEnum):
    """How far a collection has come."""

    TO_MOVE = "to move"
    MOVED = "moved"
    TAKEN = "name taken"
    REFUSED = "cannot be moved"


@dataclass(slots=True)
class OldCollection:
    """A collection of the earlier ability. It keeps some numbers of each chunk, and few texts."""

    name: str
    becomes: str
    """What it will be called."""
    dimensions: int
    """Of most of its embeddings; 0 if none is of use."""
    chunks: int
    sources: int
    created_at: int
    """Of its first chunk, in epoch milliseconds."""
    incomplete: int
    """Sources that lack chunks, as a failed call of the earlier ability left them."""
    left_out: Counter[str]
    """Chunks that cannot be moved, by reason."""
    mended: int
    """Chunks that are moved with a new embedding."""
    samples: list[tuple[str, Vector]]
    """Texts and embeddings of some chunks."""
    texts: list[str]
    """Of the first chunks."""
    places: Integers
    """Bucket, position and number of the source of each chunk to move, ordered; shape (n, 3)."""
    fingerprint: str
    """Names what is to be moved."""
    state: State = State.TO_MOVE
    reason: str = ""
    """Why it cannot be moved, or what is in the way."""
    similarity: float | None = None
    """Median cosine of some embeddings and of those that the model gives now."""

    def first_places(self) -> list[str]:
        """Return the record id of the first chunk of each source."""
        starts = np.flatnonzero(np.diff(self.places[:, 2], prepend=-1))
        return [rid_of(bucket, position) for bucket, position, _ in self.places[starts]]

    def probes(self) -> list[str]:
        """Texts whose embeddings tell which model made them, at least one."""
        return [text for text, _ in self.samples] or self.texts[:1]

    def compare(self, vectors: Vector, model: str) -> None:
        """See whether its embeddings can be those of a model.

        Args:
            vectors: What the model gives for the probes; shape (n, d).
            model: Its name.
        """
        given = vectors.shape[1]
        self.dimensions = self.dimensions or given
        if self.dimensions != given:
            self.state = State.REFUSED
            self.reason = (
                f"its embeddings have {self.dimensions} dimensions, {model!r} gives {given}"
            )
        elif self.samples:
            pairs = zip(self.samples, vectors, strict=True)
            self.similarity = float(np.median([stored @ vector for (_, stored), vector in pairs]))


@dataclass(slots=True)
class Survey:
    """All that there is."""

    chunk_type: str
    """That holds the chunks."""
    collections: list[OldCollection]
    unassigned: Counter[str]
    """Rows that belong to no collection, by reason."""
    model: str
    """That the embeddings are taken for."""
    warning: str = ""
    """Why the model could not be checked."""

    @property
    def problems(self) -> bool:
        """Return whether a collection cannot be moved."""
        return any(each.state in (State.TAKEN, State.REFUSED) for each in self.collections)

    @property
    def rows(self) -> int:
        """Rows altogether."""
        held = sum(each.chunks + each.left_out.total() for each in self.collections)
        return held + self.unassigned.total()


@dataclass(slots=True)
class _Tally:
    """The rows of one collection while they are being read."""

    left_out: Counter[str] = field(default_factory=Counter)
    sources: array[int] = field(default_factory=lambda: array("Q"))
    numbers: array[int] = field(default_factory=lambda: array("q"))
    """Bucket, position, index, total and dimensions of each."""
    flaws: list[str] = field(default_factory=list)
    samples: list[tuple[str, Vector]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    created_at: int = 0

    def add(self, piece: Piece) -> None:
        """Take in a chunk."""
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
        """The number of a flaw, from 1."""
        if flaw not in self.flaws:
            self.flaws.append(flaw)
        return self.flaws.index(flaw) + 1

    def finished(self, name: str, becomes: str, *, mending: bool) -> OldCollection:
        """The collection; with ``mending`` chunks of no usable embedding are moved too."""
        sources = np.frombuffer(self.sources, dtype=np.uint64)
        rows = np.frombuffer(self.numbers, dtype=np.int64).reshape(-1, 5)
        usual = Counter(rows[rows[:, 4] > 0, 4].tolist()).most_common(1)
        dimensions = usual[0][0] if usual else 0
        fits = rows[:, 4] == dimensions if dimensions else np.zeros(len(rows), dtype=bool)
        if not mending:
            for found, count in Counter(rows[~fits, 4].tolist()).items():
                self.left_out[self._said(found, dimensions)] += count
            sources, rows, fits = sources[fits], rows[fits], fits[fits]
        order = np.lexsort((rows[:, 1], rows[:, 0], rows[:, 2], sources))
        sources, rows, fits = sources[order], rows[order], fits[order]
        again = np.zeros(len(rows), dtype=bool)
        again[1:] = (sources[1:] == sources[:-1]) & (rows[1:, 2] == rows[:-1, 2])
        if again.any():
            self.left_out["the number of another chunk of its source"] += int(again.sum())
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
            mended=int((~fits).sum()),
            samples=[each for each in self.samples if len(each[1]) == dimensions],
            texts=self.texts,
            places=np.column_stack((rows[:, :2], numbers)).astype(np.int64),
            fingerprint=blake2b(sources.tobytes() + rows.tobytes(), digest_size=16).hexdigest(),
        )

    def _said(self, found: int, dimensions: int) -> str:
        if found > 0:
            return f"an embedding of {found} dimensions, most have {dimensions}"
        return self.flaws[-found - 1]


class Surveying:
    """Takes in the rows of the earlier layout, one after the other."""

    def __init__(self) -> None:
        self._tallies: dict[str, _Tally] = {}
        self._unassigned: Counter[str] = Counter()

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take in some rows."""
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
        self, chunk_type: str, *, model: str, prefix: str, mending: bool, wanted: Container[str]
    ) -> Survey:
        """All of it.

        Args:
            chunk_type: That the rows are of.
            model: That the embeddings are taken for.
            prefix: Of the names of collections.
            mending: Whether chunks of no usable embedding get a new one.
            wanted: Names of collections; all if there are none.
        """
        names = new_names(self._tallies, prefix)
        collections = [
            self._tallies[name].finished(name, becomes, mending=mending)
            for name, becomes in names.items()
            if not wanted or name in wanted
        ]
        return Survey(chunk_type, collections, self._unassigned, model)

    def _tally(self, name: str) -> _Tally:
        return self._tallies.setdefault(name, _Tally())


def new_names(names: Iterable[str], prefix: str) -> dict[str, str]:
    """Return the new names of collections: the old one if it is valid, else the nearest valid one.

    No two of them get the same name.
    """
    ordered = sorted(names, key=lambda name: (not is_collection_name(f"{prefix}{name}"), name))
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in ordered:
        usable = _UNUSABLE.sub("-", f"{prefix}{name}").lstrip("._-")[:_LONGEST_NAME] or _FALLBACK
        number, becomes = 1, usable
        while becomes in taken:
            number += 1
            becomes = f"{usable[: _LONGEST_NAME - 1 - len(str(number))]}-{number}"
        taken.add(becomes)
        found[name] = becomes
    return found


def rid_of(bucket: int, position: int) -> str:
    """A place as the database writes it."""
    return f"#{bucket}:{position}"


def _hashed(source: str) -> int:
    digest = blake2b(source.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest)


def _numbered(sources: npt.NDArray[np.uint64]) -> Integers:
    """For each of ordered values how many others are below it."""
    changes = np.zeros(len(sources), dtype=np.int64)
    changes[1:] = sources[1:] != sources[:-1]
    return np.cumsum(changes)


def _incomplete(numbers: Integers, indexes: Integers, totals: Integers) -> int:
    """Return the number of sources with gaps or with another number of chunks than recorded."""
    if not len(numbers):
        return 0
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    counts = np.diff(np.append(starts, len(numbers)))
    last = np.maximum.reduceat(indexes, starts)
    said = np.maximum.reduceat(totals, starts)
    return int(((last + 1 != counts) | ((said != 0) & (said != counts))).sum())
