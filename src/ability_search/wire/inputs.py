"""Inputs of the eight tools."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, StringConstraints, model_validator

from ability_search.wire import options
from ability_search.wire.base import Count, Input, NonBlank, Share
from ability_search.wire.fields import (
    ChunkStrategy,
    CollectionName,
    JobId,
    Kinds,
    KindsBy,
    MaxTokens,
    Model,
    Overlap,
)

Mode = Literal["semantic", "keyword", "hybrid"]
Format = Literal["markdown", "text", "code", "json", "html", "rst", "csv"]
Included = Literal["tokens", "growth", "map"]
FileFormat = Format | Literal["pdf", "docx", "pptx", "xlsx", "notebook"]


class Link(Input):
    """An edge to another document."""

    target: NonBlank = Field(
        max_length=1024, description="Source of the other document.", examples=["intro.md"]
    )
    kind: NonBlank = Field(
        "references", max_length=64, description="Kind of the edge.", examples=["derives_from"]
    )
    weight: Share = Field(
        1.0, description="Strength of the edge: stronger ones are walked first, 0 not at all."
    )


class DocumentInput(Input):
    """A document to index."""

    source: Annotated[str, StringConstraints(max_length=1024)] = Field(
        min_length=1,
        description="Unique name within the collection (path, URL).",
        examples=["guide/install.md"],
    )
    title: str = Field(max_length=4096, description="Title for people.", examples=["Installation"])
    content: str = Field(
        description="The whole text. A form feed in it ends a page.",
        examples=["# Installation\n\nRun ..."],
    )
    file_hash: str | None = Field(
        None,
        pattern=r"^[0-9a-f]{64}$",
        description="Hash of the file that the content was read from. It tells whether the document"
        " is unchanged, whatever its content. With an empty content the document is only compared:"
        " one that is not stored as it is is listed in wanted.",
    )
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
    of: NonBlank | None = Field(
        None,
        max_length=1024,
        description="Source of the document that this one is the title, summary, keywords or"
        " propositions (kind) of. It is searched where the option extended of search-query asks"
        " for its kind, and the other document is found in its stead; it is deleted with it.",
        examples=["guide/install.md"],
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
    kinds: Kinds = None
    kinds_by: KindsBy = None
    force: bool = Field(
        False, description="Index unchanged documents too, and embed every text anew."
    )
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
    format: FileFormat | None = Field(
        None, description="Format of the files. Left out: by their names, else by how they begin."
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
    gitignore: bool = Field(False, description="Leave out what .gitignore files name, too.")
    chunk_strategy: ChunkStrategy = None
    max_tokens: MaxTokens = None
    overlap: Overlap = None
    model: Model = None
    kinds: Kinds = None
    kinds_by: KindsBy = None
    force: bool = Field(False, description="Index unchanged files too, and embed every text anew.")
    sweep: bool = Field(
        False, description="Remove sources under this directory whose files are gone."
    )
    job_id: JobId = None


Collections = str | Annotated[list[str], Field(min_length=1, max_length=1000)]


class QueryInput(Input):
    """search-query."""

    collection: Collections = Field(
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
        examples=[["drafts/**", "**/CHANGELOG.md"]],
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
        None,
        description="An answer as you imagine it, embedded instead of the query (HyDE).",
        examples=["The archive is copied to tape every night at two."],
    )
    fusion: options.Fusion | None = Field(
        None,
        description="How the arms are fused. Left out: measured.",
        examples=[{"method": "convex", "weights": {"semantic": 0.5, "keyword": 0.5}}],
    )
    full_text: options.FullText | None = Field(
        None,
        description="Words in chosen fields count by a share of the score.",
        examples=[{"weight": 0.3, "fields": ["title", "metadata.tags"]}],
    )
    rerank: dict[options.FieldName, options.FieldRule] = Field(
        default_factory=dict,
        max_length=16,
        description="Rules on fields that raise scores.",
        examples=[
            {
                "metadata.category": {"weight": 0.5, "rules": {"contains": "security"}},
                "createdAt": {"weight": 0.3, "rules": {"sort": "desc"}},
            }
        ],
    )
    reranker: options.Reranker | None = Field(
        None, description="A model reads the first hits again.", examples=[{"top": 20}]
    )
    extended: list[options.Kind] = Field(
        default_factory=list,
        description="Kinds to search: a hit on a title, summary, ... that was indexed as one of a"
        " document returns the document, by its best kind; documents are the chunks themselves.",
        examples=[["title", "summary", "documents"]],
    )
    prf: options.Feedback | bool | None = Field(
        None,
        description="Pseudo-relevance feedback: true lets the query search again with the words"
        " and vectors of its first hits, false learns nothing. Left out: a hybrid query weighs its"
        " first hits anew by what they have in common.",
        examples=[True, {"chunks": 3, "terms": 12}],
    )
    understand: bool = Field(
        True,
        description="Understand times (last March, before the outage, latest) and exclusions"
        " (besides X) in an English query; false takes it literally.",
    )
    temporal: options.Temporal | None = Field(
        None,
        description="How much dates count where the query, or timeRange, names a time; which end"
        " of time comes first.",
        examples=[{"weight": 0.5, "sigmaDays": 15}, {"order": "newest"}],
    )
    time_range: options.TimeRange | None = Field(
        None,
        description="Prefer chunks that speak of this period, whatever the query says; those"
        " without any date count half by when they were indexed.",
        examples=[{"from": "2026-01-01", "to": "2026-03-31"}],
    )
    as_of: NonBlank | None = Field(
        None,
        max_length=64,
        description="When the question is asked: YYYY-MM-DD, the end of that day in UTC, or an"
        " instant (RFC 3339). Times in the query and ages of decay count from then. Documents that"
        " were indexed later are not left out (filter by createdAt for that). Left out: now.",
        examples=["2026-03-25", "2026-03-25T09:30:00+01:00"],
    )
    exclude: list[Annotated[NonBlank, Field(max_length=1024)]] = Field(
        default_factory=list,
        max_length=16,
        description="What the hits should not be about, besides what the query excludes; such"
        " hits are pushed down, not left out (see excludeSources for that).",
        examples=[["pagination"]],
    )
    decay: options.Decay | None = Field(
        None, description="Age lowers scores, use raises them.", examples=[{"halfLifeDays": 90}]
    )
    graph: options.Graph | None = Field(
        None,
        description="Neighbours of the first hits join, and move a little towards these.",
        examples=[{"hops": 1}],
    )
    diversity: Share | None = Field(
        None,
        description="Lambda of maximal marginal relevance: 1 is relevance alone, 0 variety alone.",
        examples=[0.7],
    )
    max_per_source: Count | None = Field(
        None,
        ge=1,
        description="Most hits of one source of a collection; others take their places.",
        examples=[2],
    )
    expand: options.Expand | Literal["neighbors", "section"] | None = Field(
        None,
        description="Text around each hit comes along; adjacent hits are merged.",
        examples=["neighbors", {"mode": "neighbors", "window": 2}],
    )
    max_result_tokens: Count | None = Field(
        None,
        ge=1,
        le=10_000_000,
        description="Tokens that the texts of all hits may have; what does not fit is cut.",
        examples=[2000],
    )
    expand_query: options.ExpandQuery | bool = Field(
        False,
        description="Ask a language model for further words.",
        examples=[True, {"method": "stepBack"}],
    )
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
    kinds: Kinds = None
    kinds_by: KindsBy = None
    clear: bool = Field(
        False, description="Only delete everything; the caller indexes again (the old behaviour)."
    )
    background: bool = Field(
        False, description="Answer at once; search-collection-info shows how far the job is."
    )
    cancel: bool = Field(
        False, description="End the job that is rebuilding the collection, which stays as it is."
    )
    job_id: JobId = None

    @model_validator(mode="after")
    def _one_thing(self) -> ReindexInput:
        if self.clear + self.background + self.cancel > 1:
            raise ValueError("clear, background and cancel exclude each other")
        return self


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
    include: list[Included] = Field(
        default_factory=list,
        max_length=3,
        description="What else to tell. tokens: a histogram of chunk sizes, to judge the chunking."
        " growth: how much was indexed when. map: a sample of the chunks as points, near each other"
        " if they mean the same, to be drawn; it is long. Each looks at the chunks.",
        examples=[["tokens", "growth"]],
    )
    map_points: Count = Field(1000, ge=1, le=5000, description="Most points of the map.")
