"""The manifest of an artifact, ``index_manifest.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    model_validator,
)

from ability_search.collection import K1, B, Collection, is_collection_name
from ability_search.config.setting_fields import ModelName
from ability_search.errors import InvalidInput
from ability_search.index.preparation import LAYOUT
from ability_search.text.analyzer import languages
from ability_search.text.chunkers import Strategy

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
