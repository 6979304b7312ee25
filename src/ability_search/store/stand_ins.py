"""The next stand-ins of duplicates whose stand-in is replaced. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ability_search.store.records import ROUNDING, ChunkRecord


@dataclass(frozen=True, slots=True)
class Represented:
    """Duplicates in other sources of a chunk that is replaced.

    Attributes:
        vector_key: Its vector key.
        copies: The chunkIds of the duplicates.
        threshold: Minimum cosine of the first of them and a stand-in, ``None`` without one.
        embedding: The embedding of the first of them; ``None`` if it is not to be compared.
    """

    vector_key: str | None
    copies: Sequence[str]
    threshold: float | None = None
    embedding: Sequence[float] | None = None


def moved(groups: Sequence[Represented], new: Sequence[ChunkRecord]) -> Mapping[str, Sequence[str]]:
    """Return the duplicates of all groups by their next stand-in.

    It is the new chunk of the same vector key, or else the one nearest to the first duplicate if
    that is as near as its threshold requires; if that chunk is a duplicate itself, its stand-in.
    If there is none, it is the first duplicate.

    Args:
        groups: The duplicates.
        new: All chunks that replace their stand-ins, and have embeddings.
    """
    if not groups:
        return {}
    by_key = {chunk.vector_key: chunk for chunk in reversed(new) if chunk.vector_key}
    vectors = np.array([chunk.embedding or () for chunk in new], dtype=np.float32)
    found: dict[str, list[str]] = {}
    for group in groups:
        chunk = by_key.get(group.vector_key or "")
        if chunk is None and new and group.threshold is not None and group.embedding is not None:
            cosines = vectors @ np.array(group.embedding, dtype=np.float32)
            nearest = int(np.argmax(cosines))
            if cosines[nearest] >= group.threshold - ROUNDING:
                chunk = new[nearest]
        standing = group.copies[0] if chunk is None else chunk.duplicate_of or chunk.chunk_id
        found.setdefault(standing, []).extend(group.copies)
    return found
