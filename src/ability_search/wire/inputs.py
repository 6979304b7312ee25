"""Inputs of the eight tools."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

Mode = Literal["semantic", "keyword", "hybrid"]
Format = Literal["markdown", "text", "code", "json", "html", "rst", "csv"]
Strategy = Literal["auto", "markdown-headers", "code-blocks", "paragraph", "sliding-window"]


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


NonBlank = Annotated[
    str,
    AfterValidator(_not_blank),
    WithJsonSchema({"type": "string", "minLength": 1, "pattern": r"\S"}),
]
Count = Annotated[int, Field(strict=True)]


class Input(BaseModel):
    """Base: camelCase names, unknown fields refused by name."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
    )


CollectionName = Annotated[
    str,
    Field(
        description="Collection name: 1 to 64 of A-Z a-z 0-9 . _ -, first a letter or digit.",
        examples=["docs"],
    ),
]
Model = Annotated[
    str | None,
    Field(
        min_length=1,
        max_length=256,
        description="Embedding model. Left out: the collection's own; of a new collection the"
        " default model.",
        examples=["all-MiniLM-L6-v2"],
    ),
]
ChunkStrategy = Annotated[
    Strategy | None,
    Field(description="How texts are cut. Left out: as the collection was begun, or auto."),
]
MaxTokens = Annotated[
    Count | None,
    Field(ge=16, le=8192, description="Most tokens in a chunk.", examples=[500]),
]
Overlap = Annotated[
    Count | None,
    Field(ge=0, le=4096, description="Tokens that neighbouring sliding windows share."),
]
JobId = Annotated[
    str | None,
    Field(min_length=1, max_length=128, description="Your name for the job, in its events."),
]


class Link(Input):
    """An edge to another document."""

    target: NonBlank = Field(description="Source of the other document.", examples=["intro.md"])
    kind: NonBlank = Field("references", description="Kind of the edge.", examples=["derives_from"])
    weight: float = Field(1.0, ge=0, le=1, description="Strength of the edge.")


class DocumentInput(Input):
    """A document to index."""

    source: Annotated[str, StringConstraints(max_length=1024)] = Field(
        min_length=1,
        description="Unique name within the collection (path, URL).",
        examples=["guide/install.md"],
    )
    title: str = Field(max_length=4096, description="Title for people.", examples=["Installation"])
    content: str = Field(description="The whole text.", examples=["# Installation\n\nRun ..."])
    metadata: dict[str, Any] = Field(
        default_factory=dict,
        description="Anything to filter by or to get back with hits.",
        examples=[{"lang": "en", "year": 2026}],
    )
    kind: str = Field(
        "document",
        pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$",
        description="Kind of chunk: document, title, summary, keywords, propositions.",
    )
    format: Format | None = Field(
        None, description="Format of the content. Left out: by looking at it."
    )
    language: str | None = Field(
        None,
        max_length=64,
        description="Programming language of a content in format code.",
        examples=["python"],
    )
    links: list[Link] = Field(
        default_factory=list, max_length=1000, description="Edges to other documents."
    )


class IndexInput(Input):
    """search-index."""

    collection: CollectionName
    documents: list[DocumentInput] = Field(min_length=1, description="Documents to index.")
    chunk_strategy: ChunkStrategy = None
    max_tokens: MaxTokens = None
    overlap: Overlap = None
    model: Model = None
    language: str | None = Field(
        None, description="Language of the keyword search (english, german, none, ...)."
    )
    force: bool = Field(False, description="Index unchanged documents too.")
    dedup_threshold: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Do not find a chunk again whose nearest neighbour in the collection has at"
        " least this cosine; .95 is usual. The neighbour stands for it, in filters too, until it"
        " is replaced or deleted. Unchanged documents stay as they are, unless force is set.",
    )
    job_id: JobId = None


class IndexFileInput(Input):
    """search-index-file."""

    collection: CollectionName
    path: NonBlank = Field(
        validation_alias=AliasChoices("path", "filePath"),
        description="File or directory on the worker's machine, inside an allowed root.",
        examples=["docs/"],
    )
    format: Format | None = Field(
        None, description="Format of the files. Left out: by their names."
    )
    include: list[NonBlank] = Field(
        default_factory=list,
        max_length=256,
        description="Patterns (gitignore syntax) of files to take.",
        examples=[["*.md"]],
    )
    exclude: list[NonBlank] = Field(
        default_factory=list, max_length=256, description="Patterns of files to leave out."
    )
    chunk_strategy: ChunkStrategy = None
    max_tokens: MaxTokens = None
    overlap: Overlap = None
    model: Model = None
    force: bool = Field(False, description="Index unchanged files too.")
    sweep: bool = Field(
        False, description="Remove sources under this directory whose files are gone."
    )
    job_id: JobId = None


class Fusion(Input):
    """How the lists of the arms become one."""

    method: Literal["convex", "rrf"] = Field(description="Convex combination, or rank fusion.")
    k: float | None = Field(None, ge=0, le=10_000, description="Rank constant of rrf.")
    weights: dict[Literal["semantic", "keyword"], Annotated[float, Field(ge=0, le=100)]] = Field(
        default_factory=dict,
        description="Weights of the arms.",
        examples=[{"semantic": 0.7, "keyword": 0.3}],
    )


class QueryInput(Input):
    """search-query."""

    collection: str | Annotated[list[str], Field(min_length=1, max_length=1000)] = Field(
        description="A collection, a list of collections, or * for all of them.",
        examples=["docs", ["docs", "notes"], "*"],
    )
    query: NonBlank = Field(description="What to search for.", examples=["how do I install it"])
    limit: Count = Field(10, ge=1, description="Most results.")
    offset: Count = Field(0, ge=0, le=10_000, description="Results to leave out at the top.")
    mode: Mode = Field(
        "hybrid",
        description="semantic: by meaning; keyword: by words (exact BM25); hybrid: both.",
    )
    model: Model = None
    filter: dict[str, Any] | None = Field(
        None,
        description="Which chunks count at all: $and $or $not over conditions on source, title,"
        " kind, createdAt, metadata.*.",
        examples=[{"metadata.lang": "en", "metadata.year": {"$gte": 2024}}],
    )
    sources: list[NonBlank] | None = Field(
        None,
        max_length=256,
        description="Only sources that fit these globs. An empty list is refused.",
        examples=[["guide/**"]],
    )
    exclude_sources: list[NonBlank] = Field(
        default_factory=list,
        max_length=256,
        description="Sources that must not be searched, as globs. They never leave the database.",
    )
    min_score: float | None = Field(
        None,
        ge=-1,
        le=1,
        description="Floor: on the cosine in semantic and hybrid mode, on the normalized BM25"
        " score in keyword mode.",
        examples=[0.3],
    )
    hypothetical_answer: NonBlank | None = Field(
        None, description="An answer as you imagine it, embedded instead of the query (HyDE)."
    )
    fusion: Fusion | None = Field(None, description="How the arms are fused. Left out: measured.")
    highlights: bool = Field(False, description="Mark what matched in each hit.")
    explain: bool = Field(False, description="Say how each score came about.")


class SimilarInput(Input):
    """search-similar."""

    collection: CollectionName
    chunk_id: NonBlank = Field(
        max_length=4200,
        description="Chunk to find neighbours of.",
        examples=["docs:guide/install.md:0"],
    )
    limit: Count = Field(10, ge=1, description="Most results.")
    filter: dict[str, Any] | None = Field(None, description="As for search-query.")
    min_score: float | None = Field(None, ge=-1, le=1, description="Floor on the cosine.")


class ReindexInput(Input):
    """search-reindex."""

    collection: CollectionName
    model: Model = None
    chunk_strategy: ChunkStrategy = None
    max_tokens: MaxTokens = None
    language: str | None = Field(
        None, description="Language of the keyword search from now on.", examples=["german"]
    )
    clear: bool = Field(
        False, description="Only delete everything; the caller indexes again (the old behaviour)."
    )
    job_id: JobId = None


class DeleteInput(Input):
    """search-delete."""

    collection: CollectionName
    source: NonBlank | None = Field(
        None, max_length=4096, description="Only this source. Left out: the whole collection."
    )


class CollectionsInput(Input):
    """search-collections."""


class CollectionInfoInput(Input):
    """search-collection-info."""

    collection: CollectionName
    limit: Count = Field(1000, ge=1, le=10_000, description="Most sources listed.")
    cursor: str | None = Field(None, max_length=8192, description="nextCursor of the page before.")
