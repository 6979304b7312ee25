"""A collection: its record, its name and the names of its types."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ability_search.errors import InvalidInput
from ability_search.store import arcadedb
from ability_search.text.bm25 import K1, B

_TYPE_TOKEN = re.compile(r"^Chunk_.*_([0-9a-f]{11})[0-9a-f]{6}$")


@dataclass(frozen=True, slots=True)
class Collection:
    """The record of a collection. Times are epoch milliseconds."""

    name: str
    type: str
    """The chunk type of its live generation."""
    generation: int
    model: str
    dimensions: int
    language: str
    average_length: float
    """Average terms per chunk that the stored BM25 weights were computed with."""
    chunk_strategy: str
    chunk_size: int
    chunk_overlap: int
    bm25_k1: float = K1
    """Term frequency saturation (k1) of the stored BM25 weights; fixed for a generation."""
    bm25_b: float = B
    """Length normalization (b) of those weights; fixed for a generation."""
    kinds: tuple[str, ...] = ()
    """Kinds of aspects that are made of each document."""
    kinds_by: str = "local"
    """How they are made: ``local`` extraction, or a language model (``chat``)."""
    revision: int = 0
    """Incremented with every change of the stored data."""
    chunks: int = 0
    sources: int = 0
    tokens: int = 0
    tokens_min: int | None = None
    tokens_max: int | None = None
    duplicates: int = 0
    """Chunks left out of the indexes because an identical one represents them."""
    links: int = 0
    """Links between sources."""
    aspects: int = 0
    """Number of chunks that are aspects: titles, summaries, ... searched in a document's stead."""
    keyed: bool = False
    """Whether chunks record what their vectors were made from, as in new generations."""
    graph: bool = False
    """Whether the vector graph has been built; until then vector search scans all embeddings."""
    aspect_graph: bool = False
    """Whether the vector graph of the aspects has been built."""
    created_at: int = 0
    updated_at: int = 0

    @property
    def public_name(self) -> str:
        """Name without ``@token``, which the record of a generation under construction carries."""
        return self.name.partition("@")[0]

    @property
    def embedded_share(self) -> float:
        """Share of the chunks that is in the vector index, 0 to 1; 0 if the collection is empty."""
        return (self.chunks - self.duplicates) / self.chunks if self.chunks else 0.0

    def scanned(self, *, below: int) -> bool:
        """Return whether vector search scans all embeddings: fewer than ``below``, or no graph."""
        return not self.graph or self.chunks < below

    def aspects_scanned(self, *, below: int) -> bool:
        """Return the same as :meth:`scanned` for the aspects."""
        return not self.aspect_graph or self.aspects < below

    @property
    def average_tokens(self) -> float:
        """Mean tokens per chunk; 0 if the collection is empty."""
        return self.tokens / self.chunks if self.chunks else 0.0


_WIRE = {
    "average_length": "averageLength",
    "bm25_k1": "bm25K1",
    "bm25_b": "bm25B",
    "chunk_strategy": "chunkStrategy",
    "chunk_size": "chunkSize",
    "chunk_overlap": "chunkOverlap",
    "kinds_by": "kindsBy",
    "tokens_min": "tokensMin",
    "tokens_max": "tokensMax",
    "aspect_graph": "aspectGraph",
    "created_at": "createdAt",
    "updated_at": "updatedAt",
}
FIELDS = {name: _WIRE.get(name, name) for name in Collection.__dataclass_fields__}
"""Fields of a :class:`Collection` -> names in its record."""


def from_record(record: Mapping[str, Any]) -> Collection:
    """Read a database record; fields missing from an older record get their defaults."""
    known = {name: record[wire] for name, wire in FIELDS.items() if record.get(wire) is not None}
    return Collection(**{**known, "kinds": tuple(known.get("kinds", ()))})


def to_record(collection: Collection) -> dict[str, Any]:
    """Return the database record of a collection."""
    return {wire: getattr(collection, name) for name, wire in FIELDS.items()} | {
        "similarity": "cosine",
        "normalized": True,
    }


def new_type(name: str, *, now: int) -> str:
    """Return a chunk type name that no generation has had; ``now`` in epoch milliseconds.

    The name encodes its creation time, see :func:`type_created_at`.
    """
    return arcadedb.type_name(name, f"{now:011x}{secrets.token_hex(3)}")


def type_created_at(chunk_type: str) -> int | None:
    """Return when :func:`new_type` made this name, in epoch milliseconds; else ``None``."""
    found = _TYPE_TOKEN.search(chunk_type)
    return int(found[1], 16) if found else None


def checked_name(name: str, *, field: str = "collection") -> str:
    """Return ``name`` if it is a valid collection name.

    Raises:
        InvalidInput: if it is not.
    """
    if not arcadedb.is_collection_name(name):
        raise InvalidInput(
            field,
            "not a collection name",
            hint="Use 1 to 64 of the characters A-Z a-z 0-9 . _ - and begin with a letter or"
            " a digit.",
        )
    return name
