"""Results of the eight tools."""

from __future__ import annotations

from typing import Any, Literal, cast

from pydantic import (
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from ability_search.wire import Result


class FailedDocument(Result):
    """A document that was not indexed, or not completely."""

    source: str
    error: str
    code: str


class IndexResult(Result):
    """Result of search-index."""

    indexed: bool = True
    collection: str
    documents: int = Field(description="Documents in the call.")
    chunks: int = Field(description="Chunks stored by the call.")
    model: str
    dimensions: int
    added: int
    updated: int
    unchanged: int
    deduplicated: int = Field(
        description="Stored chunks that are near-duplicates of others, see dedupThreshold."
    )
    reused: int = Field(
        0, description="Stored chunks whose vectors were reused instead of computed."
    )
    failed: list[FailedDocument]
    warnings: list[str] | None = None
    wanted: list[str] | None = Field(
        None, description="Sources to send again with content, see fileHash."
    )
    job_id: str
    took_ms: float


COUNTED = ("documents", "chunks", "added", "updated", "unchanged", "deduplicated", "reused")
"""Numbers of an :class:`IndexResult`, whose sums are those of several calls."""


class SkippedFile(Result):
    """A file that was not indexed."""

    path: str
    reason: str


class IndexFileResult(IndexResult):
    """Result of search-index-file."""

    files: int = Field(description="Files read.")
    skipped: list[SkippedFile]
    removed: int = Field(description="Sources deleted because their files no longer exist.")


class ReindexResult(Result):
    """Result of search-reindex."""

    collection: str
    deleted: int
    message: str
    state: str | None = Field(None, description="State of the job: running, done or cancelled.")
    generation: int | None = None
    chunks: int | None = None
    documents: int | None = None
    model: str | None = None
    dimensions: int | None = None
    reused: int | None = Field(
        None, description="Chunks whose vectors were reused instead of computed."
    )
    failed: list[FailedDocument] | None = Field(
        None,
        description="Sources of which the embedder refuses a text. They are kept: keyword search"
        " finds the text, semantic search what the embedder accepts of it.",
    )
    warnings: list[str] | None = None
    job_id: str | None = None
    took_ms: float | None = None


class DeleteResult(Result):
    """Result of search-delete."""

    deleted: int = Field(description="Chunks deleted.")
    collection: str
    source: str | None = Field(None, description="The source, if one was named; else null.")

    @model_serializer(mode="wrap")
    def _with_source(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Serialize the source even if it is null, as callers of the predecessor read it."""
        return {**serialize(self), "source": self.source}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the schema of the fields; that of the serializer alone is any object."""
        fields = {name: part for name, part in schema.items() if name != "serialization"}
        return handler(cast("CoreSchema", fields))


class IndexDegraded(Result):
    """Why keyword search may miss chunks of a collection at present."""

    reason: str
    code: str


class CollectionSummary(Result):
    """A collection in a list."""

    name: str
    chunks: int
    sources: int
    min_tokens: int
    max_tokens: int
    avg_tokens: float
    model: str
    dimensions: int
    updated_at: str
    warnings: list[str] | None = Field(
        None, description="Set if the model does not fit the language of the texts."
    )
    degraded: IndexDegraded | None = Field(
        None, description="Set while keyword search may miss chunks."
    )


class CollectionsResult(Result):
    """Result of search-collections."""

    collections: list[CollectionSummary]


class JobError(Result):
    """Why a job failed."""

    code: str
    message: str
    hint: str


class JobRun(Result):
    """An earlier job of a kind."""

    job_id: str
    state: Literal["interrupted", "done", "failed", "cancelled"]
    done: int = Field(description="Sources done.")
    total: int
    started_at: str
    updated_at: str
    error: JobError | None = None
    result: dict[str, Any] | None = Field(None, description="Result of the job, once done.")


class JobStatus(Result):
    """The last job of its kind."""

    job_id: str
    kind: str = Field(
        description="reindex, index-file, index (a search-index that ran for more than two"
        " seconds), or that of an extension, such as analysis."
    )
    state: Literal["running", "interrupted", "done", "failed", "cancelled"] = Field(
        description="interrupted: no worker runs it. A reindex is resumed by the next worker that"
        " checks; the others are completed by calling them again."
    )
    stage: str
    done: int = Field(description="Sources done.")
    total: int
    started_at: str
    updated_at: str
    error: JobError | None = None
    result: dict[str, Any] | None = Field(None, description="Result of the job, once done.")
    history: list[JobRun] | None = Field(
        None, description="Up to 20 earlier jobs of an indexing kind, newest first."
    )


class CollectionInfoResult(Result):
    """Result of search-collection-info."""

    collection: str
    chunks: int
    min_tokens: int
    max_tokens: int
    avg_tokens: float
    sources: list[str]
    source_count: int
    next_cursor: str | None = None
    model: str
    dimensions: int
    similarity: str
    language: str
    kinds: list[str] = Field(
        default_factory=list, description="Kinds made of each document, unless a call sets others."
    )
    context: int | str | None = Field(
        None, description="Context of each chunk of prose, unless a call sets another."
    )
    generation: int
    state: str
    embedded_percent: float = Field(
        description="Percentage of chunks in the vector index; near-duplicates are not in it."
    )
    created_at: str
    updated_at: str
    jobs: list[JobStatus] = Field([], description="The last job of each kind.")
    warnings: list[str] | None = Field(
        None, description="Set if the model does not fit the language of the texts."
    )
    degraded: IndexDegraded | None = Field(
        None, description="Set while keyword search may miss chunks."
    )
