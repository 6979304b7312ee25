"""Term statistics of a collection for BM25: number of chunks, lengths, document frequencies."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ability_search.text.term_ids import TermIds

Counts = npt.NDArray[np.int32]

_MAGIC = b"KTS1"
_HEADER = struct.Struct("<4sQQI")
_BYTES_A_TERM = 8


@dataclass(frozen=True, slots=True, eq=False)
class TermStatistics:
    """Counts over a set of chunks; an immutable value that can be added up.

    Attributes:
        chunks: number of chunks, N.
        length: sum of the lengths of all chunks, see :func:`.bm25.counted_length`.
        ids: term ids, ascending, unique, shape (n,).
        counts: number of chunks that contain each term, all > 0, shape (n,).
    """

    chunks: int
    length: int
    ids: TermIds
    counts: Counts

    @classmethod
    def empty(cls) -> TermStatistics:
        """Return the statistics of no chunks."""
        return cls(0, 0, np.empty(0, np.int32), np.empty(0, np.int32))

    @classmethod
    def of_chunks(
        cls, ids: Sequence[Sequence[int] | TermIds], lengths: Sequence[Sequence[int]]
    ) -> TermStatistics:
        """Return the statistics of chunks.

        Args:
            ids: the distinct term ids of each chunk.
            lengths: of each chunk, see :attr:`.ChunkRecord.lengths`.
        """
        if not ids:
            return cls.empty()
        every = np.concatenate([np.asarray(each, dtype=np.int32) for each in ids])
        unique, counts = np.unique(every, return_counts=True)
        length = sum(int(each[-1]) for each in lengths)
        return cls(len(ids), length, unique, counts.astype(np.int32))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TermStatistics):
            return NotImplemented
        return (
            (self.chunks, self.length) == (other.chunks, other.length)
            and np.array_equal(self.ids, other.ids)
            and np.array_equal(self.counts, other.counts)
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def average_length(self) -> float:
        """Mean length of a chunk; 0 without chunks."""
        return self.length / self.chunks if self.chunks else 0.0

    def document_frequencies(self, ids: TermIds) -> Counts:
        """Return the number of chunks that contain each of ``ids``, shape as ``ids``."""
        if not len(self.ids):
            return np.zeros_like(ids)
        at = self.ids.searchsorted(ids)
        known = self.ids.take(at, mode="clip") == ids
        return np.asarray(self.counts.take(at, mode="clip") * known)

    def merged(self, others: Sequence[TermStatistics]) -> TermStatistics:
        """Return the counts of these chunks and those of ``others`` together."""
        return self._with(others, 1)

    def less(self, others: Sequence[TermStatistics]) -> TermStatistics:
        """Return the counts without the chunks of ``others``.

        Counts do not fall below 0.
        """
        return self._with(others, -1)

    def _with(self, others: Sequence[TermStatistics], sign: int) -> TermStatistics:
        if not others:
            return self
        unique, inverse = np.unique(
            np.concatenate([self.ids, *(each.ids for each in others)]), return_inverse=True
        )
        signed = np.concatenate([self.counts, *(sign * each.counts for each in others)])
        counts = np.bincount(inverse, weights=signed, minlength=len(unique)).astype(np.int32)
        kept = counts > 0
        return TermStatistics(
            max(0, self.chunks + sign * sum(each.chunks for each in others)),
            max(0, self.length + sign * sum(each.length for each in others)),
            unique[kept],
            counts[kept],
        )

    def to_bytes(self) -> bytes:
        """Encode the statistics, identically on every platform.

        A little-endian header, then the gaps between ids and the counts as 32-bit numbers, their
        bytes grouped by significance and deflated: about three bytes per term.
        """
        numbers = np.concatenate((np.diff(self.ids, prepend=np.int32(0)), self.counts))
        planes = numbers.astype("<i4").view(np.uint8).reshape(-1, 4).T
        header = _HEADER.pack(_MAGIC, self.chunks, self.length, len(self.ids))
        return header + zlib.compress(planes.tobytes())

    @classmethod
    def from_bytes(cls, data: bytes) -> TermStatistics:
        """Decode the result of :meth:`to_bytes`.

        Raises:
            ValueError: if ``data`` is anything else, damaged, or of another version.
        """
        inflater = zlib.decompressobj()
        try:
            magic, chunks, length, terms = _HEADER.unpack_from(data)
            # One byte more than allowed, so that a longer stream is detected, not stored.
            planes = inflater.decompress(data[_HEADER.size :], _BYTES_A_TERM * terms + 1)
        except (struct.error, zlib.error) as exc:
            raise ValueError("not term statistics, or damaged") from exc
        if magic != _MAGIC or len(planes) != _BYTES_A_TERM * terms or not inflater.eof:
            raise ValueError("not term statistics, or damaged, or of another version")
        rows = np.ascontiguousarray(np.frombuffer(planes, np.uint8).reshape(4, -1).T)
        numbers = rows.view("<i4").ravel().astype(np.int32)
        return cls(chunks, length, np.cumsum(numbers[:terms], dtype=np.int32), numbers[terms:])
