"""Lines of the files of an artifact <-> records of the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Any

import msgspec
import msgspec.structs
from msgspec import UNSET, Meta, UnsetType

from ability_search.store.records import ChunkRecord, SourceRecord, Use

_Text = Annotated[str, Meta(min_length=1)]
_Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Key = Annotated[str, Meta(max_length=64)]
_TermId = Annotated[int, Meta(ge=0, lt=2**31)]
_Weight = Annotated[float, Meta(ge=0)]
_Lengths = Annotated[list[_Count], Meta(min_length=2, max_length=2)]


class LinkLine(msgspec.Struct):
    """A link of a source to another one."""

    target: str
    kind: str
    weight: Annotated[float, Meta(ge=0, le=1)]


class SourceLine(msgspec.Struct, rename="camel", kw_only=True):
    """A line of ``sources.jsonl``."""

    source: _Text
    title: str
    content_hash: _Text
    chunks: Annotated[int, Meta(ge=1)]
    tokens: _Count
    tokens_min: _Count | None
    tokens_max: _Count | None
    indexed_at: _Count
    kind: str = "document"
    metadata: dict[str, Any] | None = None
    format: str | None = None
    language: str | None = None
    links: list[LinkLine] | None = None
    of: str | None = msgspec.field(default=None, name="aspectOf")
    file: bool | None = None
    file_hash: str | None = None
    generated: bool | None = None
    tail: str | None = None
    origin: str | None = None

    def record(self, further: Mapping[str, Any]) -> SourceRecord:
        """Return the record of the source, with properties of a later version."""
        return SourceRecord(
            source=self.source,
            title=self.title,
            content_hash=self.content_hash,
            chunks=self.chunks,
            tokens=self.tokens,
            tokens_min=self.tokens_min,
            tokens_max=self.tokens_max,
            indexed_at=self.indexed_at,
            kind=self.kind,
            metadata=self.metadata or {},
            format=self.format,
            language=self.language,
            links=tuple(msgspec.to_builtins(self.links or [])),
            of=self.of,
            file=bool(self.file),
            file_hash=self.file_hash,
            generated=bool(self.generated),
            tail=self.tail or "",
            origin=self.origin,
            further=further,
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
    created_at: _Count
    facets: list[str]
    lengths: _Lengths
    average_length: Annotated[float, Meta(gt=0)]
    text_hash: str = msgspec.field(name="text_hash")
    kind: str = "document"
    lead: str | None = None
    overlap: int | None = None
    breadcrumb: str | None = None
    section: int | None = None
    page: int | None = None
    start_line: int | None = None
    end_line: int | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    dates: list[int] | None = None
    metadata: dict[str, Any] | None = None
    of: str | None = msgspec.field(default=None, name="aspectOf")
    vector_key: _Key | None = None
    terms: list[_TermId] | None = None
    weights: list[_Weight] | None = None
    duplicate_of: str | UnsetType | None = UNSET
    spare_terms: list[_TermId] | UnsetType | None = UNSET
    spare_weights: list[_Weight] | UnsetType | None = UNSET

    @property
    def stand_in(self) -> str | None:
        """The chunk that represents this one."""
        return self.duplicate_of or None

    def weighted_terms(self) -> tuple[list[int], list[float]] | None:
        """Return the terms and weights, also of a duplicate; ``None`` if they are invalid."""
        used, spared = (self.terms, self.weights), (self.spare_terms or None, self.spare_weights)
        if self.stand_in is not None:
            used, spared = (self.spare_terms or [], self.spare_weights or []), used
        terms, weights = used
        if any(each is not None and each is not UNSET for each in spared):
            return None
        if terms is None or weights is None or len(terms) != len(weights):
            return None
        ascending = all(one < other for one, other in zip(terms, terms[1:], strict=False))
        return (terms, weights) if ascending else None

    def record(
        self,
        collection: str,
        terms: Sequence[int],
        weights: Sequence[float],
        further: Mapping[str, Any],
    ) -> ChunkRecord:
        """Return the chunk as a record of a collection, without an embedding."""
        return ChunkRecord(
            chunk_id=self.chunk_id,
            collection=collection,
            source=self.source,
            title=self.title,
            content=self.content,
            kind=self.kind,
            metadata=self.metadata or {},
            chunk_index=self.chunk_index,
            total_chunks=self.total_chunks,
            created_at=self.created_at,
            tokens=self.tokens,
            breadcrumb=self.breadcrumb or "",
            page=self.page,
            start_line=self.start_line,
            end_line=self.end_line,
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            lead=self.lead or "",
            overlap=self.overlap or 0,
            section=self.section,
            of=self.of,
            facets=self.facets,
            dates=self.dates or (),
            vector_key=self.vector_key,
            terms=terms,
            weights=weights,
            lengths=self.lengths,
            average_length=self.average_length,
            duplicate_of=self.stand_in,
            further=further,
        )


class UseLine(msgspec.Struct, rename="camel"):
    """A line of ``usage.jsonl``."""

    agent: _Text
    chunk_id: _Text
    uses: _Count
    last_at: _Count


def source_line(record: SourceRecord) -> bytes:
    """Return the line of a source, with a line break."""
    return _encoded(
        SourceLine(
            source=record.source,
            title=record.title,
            content_hash=record.content_hash,
            chunks=record.chunks,
            tokens=record.tokens,
            tokens_min=record.tokens_min,
            tokens_max=record.tokens_max,
            indexed_at=record.indexed_at,
            kind=record.kind,
            metadata=dict(record.metadata),
            format=record.format,
            language=record.language,
            links=[LinkLine(each["target"], each["kind"], each["weight"]) for each in record.links],
            of=record.of,
            file=record.file,
            file_hash=record.file_hash,
            generated=record.generated or None,
            tail=record.tail,
            origin=record.origin,
        ),
        record.further,
    )


def chunk_line(chunk: ChunkRecord) -> bytes:
    """Return the line of a chunk, with a line break."""
    terms, weights = list(chunk.terms), list(chunk.weights)
    duplicate = chunk.duplicate_of is not None
    return _encoded(
        ChunkLine(
            chunk_id=chunk.chunk_id,
            source=chunk.source,
            title=chunk.title,
            content=chunk.content,
            tokens=chunk.tokens,
            chunk_index=chunk.chunk_index,
            total_chunks=chunk.total_chunks,
            created_at=chunk.created_at,
            facets=list(chunk.facets),
            lengths=list(chunk.lengths),
            average_length=chunk.average_length,
            text_hash=text_hash(chunk),
            kind=chunk.kind,
            lead=chunk.lead,
            overlap=chunk.overlap,
            breadcrumb=chunk.breadcrumb,
            section=chunk.section,
            page=chunk.page,
            start_line=chunk.start_line,
            end_line=chunk.end_line,
            start_offset=chunk.start_offset,
            end_offset=chunk.end_offset,
            dates=list(chunk.dates),
            metadata=dict(chunk.metadata),
            of=chunk.of,
            vector_key=chunk.vector_key,
            terms=None if duplicate else terms,
            weights=None if duplicate else weights,
            duplicate_of=chunk.duplicate_of if duplicate else UNSET,
            spare_terms=terms if duplicate else UNSET,
            spare_weights=weights if duplicate else UNSET,
        ),
        chunk.further,
    )


def use_line(use: Use) -> bytes:
    """Return the line of a use, with a line break."""
    return _encoded(UseLine(use.agent, use.chunk_id, use.uses, use.last_at), {})


def text_hash(chunk: ChunkRecord | ChunkLine) -> str:
    """Return the SHA-256 of a chunk's title, headings and content, each in lines of its own."""
    parts = (chunk.title, chunk.breadcrumb or "", chunk.content)
    return sha256("\n".join(parts).encode()).hexdigest()


def properties(kind: type[msgspec.Struct]) -> frozenset[str]:
    """Return the names of the properties that a line of this kind may have."""
    return frozenset(field.encode_name for field in msgspec.structs.fields(kind))


def _encoded(line: msgspec.Struct, further: Mapping[str, Any]) -> bytes:
    value: Any = {**msgspec.to_builtins(line), **further} if further else line
    return msgspec.json.encode(value, order="sorted") + b"\n"
