"""Lines of the files of an artifact <-> records of the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from hashlib import sha256
from typing import Annotated, Any, TypeVar

import msgspec
import msgspec.structs
from msgspec import Meta

from ability_search.documents import FIRST_DAY, KINDS, LAST_DAY
from ability_search.errors import InvalidInput
from ability_search.extensions.artifacts.manifest import LATEST, LONGEST_AVERAGE, SHORTEST_AVERAGE
from ability_search.filters.facets import check_size, facets_of
from ability_search.index.preparation import check_kind, generated_source
from ability_search.store.records import ChunkRecord, SourceRecord
from ability_search.store.usage import Use

R = TypeVar("R", SourceRecord, ChunkRecord)

_MOST = 2**31 - 1
"""Largest number of a column of the database."""
_Name = Annotated[str, Meta(min_length=1, max_length=4096)]
_Word = Annotated[str, Meta(max_length=256)]
_Kind = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
_Time = Annotated[int, Meta(ge=0, le=LATEST)]
_Count = Annotated[int, Meta(ge=0, le=_MOST)]
_Positive = Annotated[int, Meta(ge=1, le=_MOST)]
_Uses = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Day = Annotated[int, Meta(ge=FIRST_DAY, le=LAST_DAY)]
_Key = Annotated[str, Meta(max_length=64)]
_TermId = Annotated[int, Meta(ge=0, lt=2**31)]
_Share = Annotated[float, Meta(ge=0, le=1)]
_Weight = Annotated[float, Meta(ge=0, le=1e6)]
_Lengths = Annotated[list[_Count], Meta(min_length=2, max_length=2)]
_Average = Annotated[float, Meta(ge=SHORTEST_AVERAGE, le=LONGEST_AVERAGE)]


class LinkLine(msgspec.Struct, rename="camel", omit_defaults=True):
    """A link of a source to another one; ``appliedAt`` is set if a consolidation added it."""

    target: _Name
    kind: _Word
    weight: _Share
    applied_at: _Time | None = None


class SourceLine(msgspec.Struct, rename="camel", kw_only=True):
    """A line of ``sources.jsonl``."""

    source: _Name
    title: str
    content_hash: Annotated[_Word, Meta(min_length=1)]
    chunks: _Count
    tokens: _Uses
    tokens_min: _Count | None
    tokens_max: _Count | None
    indexed_at: _Time
    kind: _Kind = "document"
    metadata: dict[str, Any] | None = None
    format: _Word | None = None
    language: _Word | None = None
    links: list[LinkLine] | None = None
    of: _Name | None = msgspec.field(default=None, name="aspectOf")
    file: bool | None = None
    file_hash: _Word | None = None
    generated: bool | None = None
    tail: str | None = None
    origin: _Word | None = None
    dedup_threshold: _Share | None = None

    def check(self) -> None:
        """Check what the types leave open.

        Raises:
            InvalidInput: naming the field.
        """
        check_size(self.metadata or {})
        facets_of(self.metadata or {})
        if not self.generated:
            check_kind(self.source, self.of)
        elif (
            self.of is None
            or self.kind not in KINDS
            or self.source != generated_source(self.of, self.kind)
        ):
            raise InvalidInput("generated", "is set, but the source is not that of a derived kind")

    def record(self) -> SourceRecord:
        """Return the record of the source."""
        return _record(
            SourceRecord,
            self,
            metadata=self.metadata or {},
            links=tuple(msgspec.to_builtins(self.links or [])),
        )


class ChunkLine(msgspec.Struct, rename="camel", kw_only=True):
    """A line of ``chunks.jsonl``; the vectors are in another file.

    A duplicate has spare terms and weights in place of the others.
    """

    chunk_id: str
    source: str
    title: str
    content: str
    tokens: _Count
    chunk_index: _Count
    total_chunks: _Count
    created_at: _Time
    facets: list[_Word]
    lengths: _Lengths
    average_length: _Average
    text_hash: str = msgspec.field(name="text_hash")
    kind: _Kind = "document"
    lead: str | None = None
    overlap: _Count | None = None
    breadcrumb: str | None = None
    section: _Count | None = None
    page: _Positive | None = None
    start_line: _Positive | None = None
    end_line: _Positive | None = None
    start_offset: _Count | None = None
    end_offset: _Count | None = None
    dates: list[_Day] | None = None
    metadata: dict[str, Any] | None = None
    of: str | None = msgspec.field(default=None, name="aspectOf")
    of_chunk: _Count | None = None
    vector_key: _Key | None = None
    terms: list[_TermId] | None = None
    weights: list[_Weight] | None = None
    centrality: _Share | None = None
    novelty: _Share | None = None
    duplicate_of: str | None = None
    spare_terms: list[_TermId] | None = None
    spare_weights: list[_Weight] | None = None

    def check(self) -> None:
        """Check what the types leave open.

        Raises:
            InvalidInput: naming the field.
        """
        check_size(self.metadata or {})
        facets_of(self.metadata or {})
        if self.of is not None and self.kind not in KINDS:
            raise InvalidInput("kind", f"is {self.kind!r}, not a kind of another document")
        if self.section is not None and self.section > self.chunk_index:
            raise InvalidInput("section", "begins after the chunk")
        if (self.overlap or 0) > len(self.content):
            raise InvalidInput("overlap", "is longer than the chunk")
        if _reversed(self.start_line, self.end_line):
            raise InvalidInput("endLine", "is before startLine")
        if _reversed(self.start_offset, self.end_offset):
            raise InvalidInput("endOffset", "is before startOffset")
        days = self.dates or []
        if len(days) % 2 or any(a > b for a, b in zip(days[::2], days[1::2], strict=True)):
            raise InvalidInput("dates", "are not pairs of a first and a last day")

    def weighted_terms(self) -> tuple[list[int], list[float]] | None:
        """Return the terms and weights, also of a duplicate; ``None`` if they are invalid."""
        used, unused = (self.terms, self.weights), (self.spare_terms, self.spare_weights)
        if self.duplicate_of:
            used, unused = unused, used
        terms, weights = used
        if unused != (None, None) or terms is None or weights is None:
            return None
        if len(terms) != len(weights):
            return None
        ascending = all(one < other for one, other in zip(terms, terms[1:], strict=False))
        return (terms, weights) if ascending else None

    def record(
        self,
        collection: str,
        terms: Sequence[int],
        weights: Sequence[float],
        *,
        parent: str | None,
    ) -> ChunkRecord:
        """Return the chunk as a record of a collection, without an embedding."""
        return _record(
            ChunkRecord,
            self,
            collection=collection,
            metadata=self.metadata or {},
            terms=terms,
            weights=weights,
            duplicate_of=self.duplicate_of or None,
            parent=parent,
        )


class UseLine(msgspec.Struct, rename="camel"):
    """A line of ``usage.jsonl``."""

    agent: _Name
    chunk_id: Annotated[str, Meta(min_length=1, max_length=4200)]
    uses: _Uses
    last_at: _Time
    useful: bool | None = None


def source_line(record: SourceRecord) -> bytes:
    """Return the line of a source, with a line break."""
    row = _row(SourceLine, record)
    row |= {"links": list(map(dict, record.links)), "generated": record.generated or None}
    return _encoded(row, record)


def chunk_line(chunk: ChunkRecord) -> bytes:
    """Return the line of a chunk, with a line break."""
    row = _row(ChunkLine, chunk) | {"text_hash": text_hash(chunk)}
    if chunk.of_chunk is None:
        del row["ofChunk"]
    if chunk.duplicate_of is None:
        del row["duplicateOf"]
    else:
        row |= {"spareTerms": row["terms"], "spareWeights": row["weights"]}
        row |= {"terms": None, "weights": None}
    return _encoded(row, chunk)


def use_line(use: Use) -> bytes:
    """Return the line of a use, with a line break."""
    row = _row(UseLine, use)
    if use.useful is None:
        del row["useful"]
    return _encoded(row)


def text_hash(chunk: ChunkRecord | ChunkLine) -> str:
    """Return the SHA-256 of a chunk's title, headings and content, each in lines of its own."""
    parts = (chunk.title, chunk.breadcrumb or "", chunk.content)
    return sha256("\n".join(parts).encode()).hexdigest()


@cache
def properties(kind: type[msgspec.Struct]) -> Mapping[str, str]:
    """Return the names of the properties that a line of this kind may have, and their fields."""
    return {field.encode_name: field.name for field in msgspec.structs.fields(kind)}


def _row(line: type[msgspec.Struct], record: SourceRecord | ChunkRecord | Use) -> dict[str, Any]:
    """Return the properties of a record that lines of this kind have."""
    names = properties(line).items()
    return {name: getattr(record, field) for name, field in names if hasattr(record, field)}


def _encoded(row: dict[str, Any], record: SourceRecord | ChunkRecord | None = None) -> bytes:
    if record is not None:
        row["metadata"] = dict(record.metadata)
    return msgspec.json.encode(row, order="sorted") + b"\n"


def _record(kind: type[R], line: msgspec.Struct, **given: Any) -> R:
    """Return the record of a line; what is missing there has the default of the record."""
    for field in fields(kind):
        if field.name not in given:
            value = getattr(line, field.name, None)
            if value is not None or field.default is field.default_factory is MISSING:
                given[field.name] = value
    return kind(**given)


def _reversed(first: int | None, last: int | None) -> bool:
    return first is not None and last is not None and last < first
