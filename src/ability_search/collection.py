"""A collection: its record, its name and the names of its types."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ability_search import statements
from ability_search.errors import InvalidInput
from ability_search.ranking.bm25 import K1, B

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
    """Terms of an average chunk, as the stored BM25 weights assume it."""
    chunk_strategy: str
    chunk_size: int
    chunk_overlap: int
    bm25_k1: float = K1
    """Saturation of a term's frequency in the stored BM25 weights; fixed for a generation."""
    bm25_b: float = B
    """Weight of a text's length in them, likewise."""
    kinds: tuple[str, ...] = ()
    """Aspects that are made of each document."""
    kinds_by: str = "local"
    """Who makes them: ``local`` extraction, or a language model (``chat``)."""
    revision: int = 0
    """Counts every change of what is stored."""
    chunks: int = 0
    sources: int = 0
    tokens: int = 0
    tokens_min: int | None = None
    tokens_max: int | None = None
    duplicates: int = 0
    """Chunks kept out of the indexes because another one stands for them."""
    links: int = 0
    """Between sources."""
    aspects: int = 0
    """Of the chunks, those of titles, summaries, ... that are searched in a document's stead."""
    keyed: bool = False
    """Whether its chunks name what their vectors were made from, as those of new generations do."""
    graph: bool = False
    """Whether the vector graph has been built; until then embeddings are scanned."""
    aspect_graph: bool = False
    """As ``graph``, of the aspects."""
    created_at: int = 0
    updated_at: int = 0

    @property
    def public_name(self) -> str:
        """The name users know; a generation being built has a record of its own, ``name@token``."""
        return self.name.partition("@")[0]

    @property
    def embedded_share(self) -> float:
        """Part of the chunks that is in the vector index, 0 to 1; 0 of an empty collection."""
        return (self.chunks - self.duplicates) / self.chunks if self.chunks else 0.0

    def scanned(self, *, below: int) -> bool:
        """Whether embeddings are compared one by one: fewer than ``below``, or no graph."""
        return not self.graph or self.chunks < below

    def aspects_scanned(self, *, below: int) -> bool:
        """As :meth:`scanned`, of the aspects."""
        return not self.aspect_graph or self.aspects < below

    @property
    def average_tokens(self) -> float:
        """Mean tokens of a chunk; 0 of an empty collection."""
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
"""The fields of a :class:`Collection`, and what its record calls them."""


def from_record(record: Mapping[str, Any]) -> Collection:
    """Read a database record; what an older writer left out has its default."""
    known = {name: record[wire] for name, wire in FIELDS.items() if record.get(wire) is not None}
    return Collection(**{**known, "kinds": tuple(known.get("kinds", ()))})


def to_record(collection: Collection) -> dict[str, Any]:
    """Write a database record."""
    return {wire: getattr(collection, name) for name, wire in FIELDS.items()} | {
        "similarity": "cosine",
        "normalized": True,
    }


def new_type(name: str, *, now: int) -> str:
    """A chunk type that no generation of any collection has had; ``now`` in epoch milliseconds.

    Its name tells its age, see :func:`type_created_at`.
    """
    return statements.type_name(name, f"{now:011x}{secrets.token_hex(3)}")


def type_created_at(chunk_type: str) -> int | None:
    """Epoch milliseconds at which :func:`new_type` made this name; ``None`` of any other name."""
    found = _TYPE_TOKEN.search(chunk_type)
    return int(found[1], 16) if found else None


def checked_name(name: str, *, field: str = "collection") -> str:
    """``name`` itself if it may name a collection.

    Raises:
        InvalidInput: if not.
    """
    if not statements.is_collection_name(name):
        raise InvalidInput(
            field,
            "not a collection name",
            hint="Use 1 to 64 of the characters A-Z a-z 0-9 . _ - and begin with a letter or"
            " a digit.",
        )
    return name
