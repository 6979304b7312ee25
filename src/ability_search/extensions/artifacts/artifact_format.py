"""The format of artifacts: the manifest, and the lines of the files <-> records of the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from hashlib import sha256
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NotRequired,
    TypedDict,
    TypeVar,
    get_args,
    get_type_hints,
)

import msgspec
from msgspec import Meta
from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, model_validator

from ability_search.collection import K1, B, Collection, is_collection_name
from ability_search.config.setting_fields import ModelName
from ability_search.documents import FIRST_DAY, KINDS, LAST_DAY
from ability_search.errors import InvalidInput
from ability_search.extensions.sessions.uses import Use
from ability_search.filters.facets import check_size, facets_of
from ability_search.index.preparation import LAYOUT, check_kind, generated_source
from ability_search.store.records import ChunkRecord, SourceRecord
from ability_search.text.analyzer import languages
from ability_search.text.chunkers import Strategy

R = TypeVar("R", SourceRecord, ChunkRecord, Use)

MANIFEST = "index_manifest.json"
CHUNKS = "chunks.jsonl"
SOURCES = "sources.jsonl"
USAGE = "usage.jsonl"
VECTORS = "vectors.f32"
SKILLS = "skills.jsonl"

VERSION = 1
"""Version of the artifact format; other versions are rejected."""

FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
"""A file name without a path, so that all files are in the directory of the artifact."""

LATEST = 253_402_300_799_999
"""Last millisecond of the year 9999, the latest time that can be written as a date."""
SHORTEST_AVERAGE, LONGEST_AVERAGE = 1e-3, 1e9
"""Range of the average number of terms of a chunk."""

Count = Annotated[int, Field(ge=0)]
Text = Annotated[str, Field(min_length=1, max_length=1024)]


class Damaged(InvalidInput):
    """An artifact is incomplete or invalid."""

    def __init__(
        self,
        place: str,
        problem: str,
        *,
        hint: str = "Get a new copy of the artifact; nothing was changed.",
    ) -> None:
        super().__init__(place, problem, hint=hint)


def _collection_name(name: str) -> str:
    if not is_collection_name(name):
        raise ValueError("not a collection name")
    return name


def _language(name: str) -> str:
    if name.strip().lower() not in languages():
        raise ValueError("not a language of keyword search")
    return name


class _Record(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False, extra="ignore")


class FileDigest(_Record):
    """Size and hash of a file."""

    bytes: Count
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Counts(_Record):
    """Numbers of chunks, sources and so on."""

    model_config = ConfigDict(populate_by_name=True)

    chunks: Count
    sources: Count
    tokens: Count
    kind_chunks: Count = Field(0, alias="aspects")
    """Number of chunks of derived kinds."""
    duplicates: Count = 0
    links: Count = 0
    usage: Count = 0


class Origin(_Record):
    """The collection that was exported, and how its texts became chunks."""

    name: Annotated[str, AfterValidator(_collection_name)]
    language: Annotated[str, AfterValidator(_language)]
    chunk_strategy: Strategy
    chunk_size: int = Field(ge=1, le=2**31 - 1)
    chunk_overlap: Count
    context: Annotated[int, Field(ge=0, le=8)] | Literal["section"] | None = None
    """Context of each chunk."""
    kinds: tuple[Literal["title", "summary", "keywords", "propositions"], ...] = Field(
        (), strict=False
    )
    """Kinds that are derived from each document."""
    kinds_by: Literal["local", "chat"] = "local"
    dedup_threshold: float | None = Field(None, gt=0, le=1)
    """Minimum cosine of a near-duplicate."""
    content_language: str = Field("", max_length=8)
    """Language of its texts, as ISO 639 code; empty if it is not known."""
    query_prefix: str = Field("", max_length=1024)
    """Prefix of each query for the model."""
    passage_prefix: str = Field("", max_length=1024)
    """Prefix of each text for the model."""
    token_counter: Text
    average_length: float = Field(ge=SHORTEST_AVERAGE, le=LONGEST_AVERAGE)
    bm25_k1: float = Field(K1, ge=0, le=1000)
    bm25_b: float = Field(B, ge=0, le=1)
    layout: Text
    """Version of the code that determines what is stored for a text."""
    created_at: int = Field(ge=0, le=LATEST)
    """Epoch milliseconds."""

    @model_validator(mode="after")
    def _can_be_indexed_again(self) -> Origin:
        if self.chunk_overlap >= self.chunk_size:
            raise ValueError("chunk_overlap must be smaller than chunk_size")
        if len(set(self.kinds)) < len(self.kinds):
            raise ValueError("kinds names one twice")
        return self


class Manifest(_Record):
    """Fields that all artifacts have."""

    index_version: int
    created_at: Text
    revision: Text = Field(validation_alias=AliasChoices("revision", "hub_revision"))
    """Revision of the sources; equal for artifacts of the same sources."""
    model_id: ModelName
    dim: int = Field(ge=1, le=65_536)
    normalize: bool
    vector_file: FileName

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the files."""
        names = (getattr(self, name) for name in type(self).model_fields if "_file" in name)
        return tuple(name for name in names if name is not None)

    @model_validator(mode="after")
    def _names_differ(self) -> Manifest:
        names = (MANIFEST, *self.files)
        if len(set(names)) < len(names):
            raise ValueError("two entries name the same file")
        return self


class ChunksManifest(Manifest):
    """An artifact of a collection."""

    chunks_file: FileName
    sources_file: FileName
    usage_file: FileName | None = None
    """Chunks that each agent was shown; in backups only."""
    collection: Origin
    counts: Counts
    digests: Mapping[str, FileDigest]
    """Size and hash of each file, by name."""
    generator: str = ""

    @model_validator(mode="after")
    def _every_file_has_a_digest(self) -> ChunksManifest:
        if self.digests.keys() != set(self.files):
            raise ValueError("digests must name the artifact's files and no others")
        return self


class SkillsManifest(Manifest):
    """An artifact of agent skills, written by another tool."""

    skills_file: FileName


def origin_of(collection: Collection, counter: str) -> Origin:
    """Return the properties of a collection that an artifact records.

    Args:
        collection: The collection.
        counter: Name of the token counter.
    """
    names = Origin.model_fields.keys() & Collection.__dataclass_fields__.keys()
    fields = {name: getattr(collection, name) for name in names}
    fields |= {"name": collection.public_name, "token_counter": counter, "layout": LAYOUT}
    return Origin.model_validate(fields)


def recorded_collection(manifest: ChunksManifest) -> Collection:
    """Return the record of the collection that an artifact was made of, without contents."""
    origin = manifest.collection
    names = Origin.model_fields.keys() & Collection.__dataclass_fields__.keys()
    return Collection(
        **{name: getattr(origin, name) for name in names},
        type="",
        generation=1,
        model=manifest.model_id,
        dimensions=manifest.dim,
    )


_MOST = 2**31 - 1
"""Largest number of a column of the database."""
_Name = Annotated[str, Meta(min_length=1, max_length=4096)]
_Word = Annotated[str, Meta(max_length=256)]
_Kind = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
_Time = Annotated[int, Meta(ge=0, le=LATEST)]
_Count = Annotated[int, Meta(ge=0, le=_MOST)]
_Positive = Annotated[int, Meta(ge=1, le=_MOST)]
_Sum = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Day = Annotated[int, Meta(ge=FIRST_DAY, le=LAST_DAY)]
_Share = Annotated[float, Meta(ge=0, le=1)]
_Weight = Annotated[float, Meta(ge=0, le=1e6)]

_USUAL: Mapping[Any, Any] = {int: _Count, int | None: _Count | None, float | None: _Share | None}
"""Types of lines for types of records, where a format names no other."""


class LinkLine(TypedDict):
    """A link of a source to another one; ``appliedAt`` is set if a consolidation added it."""

    target: _Name
    kind: _Word
    weight: _Share
    appliedAt: NotRequired[_Time]


class LineFormat(Generic[R]):
    """The lines of a file: JSON objects with the fields of a record, in camel case.

    Fields without a value are omitted; properties that are no fields are ignored.

    Args:
        kind: The record, a dataclass.
        narrow: Types of fields that allow less than those of the record; ``None`` for a field
            that the lines do not have.
        names: Properties that are not named like their field.
    """

    def __init__(
        self, kind: type[R], narrow: Mapping[str, Any], *, names: Mapping[str, str] | None = None
    ) -> None:
        self._kind: type[R] = kind
        hints = get_type_hints(kind)
        declared: list[Any] = []
        for field in fields(kind):
            hint = narrow.get(field.name, _USUAL.get(hints[field.name], hints[field.name]))
            default = None if type(None) in get_args(hints[field.name]) else field.default
            if hint is not None:
                name = (names or {}).get(field.name)
                value = msgspec.NODEFAULT if default is MISSING else default
                declared.append((field.name, hint, msgspec.field(default=value, name=name)))
        self._line = msgspec.defstruct(kind.__name__, declared, rename="camel", kw_only=True)
        self.properties = {
            field.encode_name: field.name for field in msgspec.structs.fields(self._line)
        }

    def encode(self, record: R, **further: Any) -> bytes:
        """Return the line of a record, with a line break and ``further`` properties."""
        values = {name: getattr(record, field) for name, field in self.properties.items()}
        row = {name: value for name, value in values.items() if value is not None} | further
        return msgspec.json.encode(row, order="sorted") + b"\n"

    def decode(self, row: Mapping[str, Any], place: str, **given: Any) -> R:
        """Return the record of a line; ``given`` are the fields that lines do not have.

        Raises:
            Damaged: if a property is missing or wrong.
        """
        try:
            line = msgspec.convert(row, self._line)
            record = self._kind(**given, **msgspec.structs.asdict(line))
            if isinstance(record, SourceRecord):
                _check_source(record)
            if isinstance(record, ChunkRecord):
                _check_chunk(record)
        except (msgspec.ValidationError, InvalidInput) as exc:
            raise Damaged(place, str(exc)) from exc
        return record


SOURCE_LINES = LineFormat(
    SourceRecord,
    {
        "source": _Name,
        "content_hash": Annotated[_Word, Meta(min_length=1)],
        "tokens": _Sum,
        "indexed_at": _Time,
        "kind": _Kind,
        "format": _Word | None,
        "language": _Word | None,
        "links": tuple[LinkLine, ...],
        "of": _Name | None,
        "file_hash": _Word | None,
        "origin": _Word | None,
    },
    names={"of": "aspectOf"},
)
"""The lines of ``sources.jsonl``."""

CHUNK_LINES = LineFormat(
    ChunkRecord,
    {
        "collection": None,
        "embedding": None,
        "parent": None,
        "kind": _Kind,
        "created_at": _Time,
        "page": _Positive | None,
        "start_line": _Positive | None,
        "end_line": _Positive | None,
        "facets": list[_Word],
        "dates": list[_Day],
        "vector_key": Annotated[str, Meta(max_length=64)] | None,
        "terms": list[_Count],
        "weights": list[_Weight],
        "lengths": Annotated[list[_Count], Meta(min_length=2, max_length=2)],
        "average_length": Annotated[float, Meta(ge=SHORTEST_AVERAGE, le=LONGEST_AVERAGE)],
    },
    names={"of": "aspectOf"},
)
"""The lines of ``chunks.jsonl``, which have a ``text_hash`` too; the vectors are elsewhere."""

USE_LINES = LineFormat(
    Use,
    {
        "collection": None,
        "agent": _Name,
        "chunk_id": Annotated[str, Meta(min_length=1, max_length=4200)],
        "uses": _Sum,
        "last_at": _Time,
    },
)
"""The lines of ``usage.jsonl``."""


def text_hash(chunk: ChunkRecord) -> str:
    """Return the SHA-256 of a chunk's title, headings and content, each in lines of its own."""
    parts = (chunk.title, chunk.breadcrumb, chunk.content)
    return sha256("\n".join(parts).encode()).hexdigest()


def _check_source(source: SourceRecord) -> None:
    """Check what the types leave open."""
    check_size(source.metadata)
    facets_of(source.metadata)
    if not source.generated:
        check_kind(source.source, source.of)
    elif (
        source.of is None
        or source.kind not in KINDS
        or source.source != generated_source(source.of, source.kind)
    ):
        raise InvalidInput("generated", "is set, but the source is not that of a derived kind")


def _check_chunk(chunk: ChunkRecord) -> None:
    """Check what the types leave open."""
    check_size(chunk.metadata)
    facets_of(chunk.metadata)
    if chunk.of is not None and chunk.kind not in KINDS:
        raise InvalidInput("kind", f"is {chunk.kind!r}, not a kind of another document")
    if chunk.section is not None and chunk.section > chunk.chunk_index:
        raise InvalidInput("section", "begins after the chunk")
    if chunk.overlap > len(chunk.content):
        raise InvalidInput("overlap", "is longer than the chunk")
    if _reversed(chunk.start_line, chunk.end_line):
        raise InvalidInput("endLine", "is before startLine")
    if _reversed(chunk.start_offset, chunk.end_offset):
        raise InvalidInput("endOffset", "is before startOffset")
    days = chunk.dates
    if len(days) % 2 or any(a > b for a, b in zip(days[::2], days[1::2], strict=True)):
        raise InvalidInput("dates", "are not pairs of a first and a last day")
    ascending = all(a < b for a, b in zip(chunk.terms, chunk.terms[1:], strict=False))
    if not ascending or len(chunk.terms) != len(chunk.weights):
        raise InvalidInput("terms", "are out of order or without a weight")


def _reversed(first: int | None, last: int | None) -> bool:
    return first is not None and last is not None and last < first
