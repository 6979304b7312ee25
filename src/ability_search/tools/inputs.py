"""Inputs of the eight tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import (
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from ability_search.extension import loaded
from ability_search.index.index_fields import DedupThreshold as DedupThreshold
from ability_search.index.index_fields import FileFields, Format, IndexFields, RebuildFields
from ability_search.search import options
from ability_search.search.options import Collections as Collections
from ability_search.search.options import Mode as Mode
from ability_search.wire import Count, Input, NonBlank, Share

CollectionName = Annotated[
    str,
    Field(
        description="Collection name: 1 to 64 letters, digits, . _ -, first a letter or digit.",
        examples=["docs"],
        # Letters of all scripts; a class of them is written differently in each dialect.
        json_schema_extra={"pattern": r"^[^\x00-/:-@\[-`{-\x7f][^\x00-,/:-@\[-\^`{-\x7f]{0,63}$"},
    ),
]
if TYPE_CHECKING:
    from ability_search.search.options import QueryInput as QueryInput
else:
    QueryInput = options.with_options(loaded().query_options)

JobId = Annotated[
    str | None,
    Field(
        min_length=1, max_length=128, description="Job id chosen by the caller, used in its events."
    ),
]


class Link(Input):
    """An edge to another document."""

    target: NonBlank = Field(
        max_length=1024, description="Source of the other document.", examples=["intro.md"]
    )
    kind: NonBlank = Field(
        "references", max_length=64, description="Kind of the edge.", examples=["derives_from"]
    )
    weight: Share = Field(
        1.0, description="Strength of the edge: stronger edges are followed first, 0 never."
    )


class DocumentInput(Input):
    """A document to index."""

    source: Annotated[str, StringConstraints(max_length=1024)] = Field(
        min_length=1,
        description="Unique name within the collection (path, URL).",
        examples=["guide/install.md"],
    )
    title: str | None = Field(
        None,
        max_length=4096,
        description="Display title. Default: a heading of the text, else the source.",
        examples=["Installation"],
    )
    content: str = Field(
        description="The full text. A form feed ends a page.",
        examples=["# Installation\n\nRun ..."],
    )
    file_hash: str | None = Field(
        None,
        pattern=r"^[0-9a-f]{64}$",
        description="Hash of the file that the content was read from. If it equals the stored hash,"
        " the document is unchanged, whatever its content. With empty content the document is only"
        " compared; if it is missing or changed, wanted lists its source.",
    )
    metadata: dict[str, Any] | None = Field(
        None,
        description="JSON object to filter by; returned with hits.",
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
        description="Source of the document that this one belongs to, such as the message of an"
        " attachment; it is deleted together with that document. If it is a title, summary,"
        " keywords or propositions (kind), it is searched only if the option extended of"
        " search-query lists its kind, and a hit returns the other document.",
        examples=["guide/install.md"],
    )
    children: list[str] | None = Field(
        None,
        max_length=100_000,
        description="Sources of the documents that were read from the same file, such as"
        " attachments; index them first. Other stored documents of this one (of) whose metadata"
        " path is its source are deleted. Default: none is deleted.",
    )
    format: Format | None = Field(
        None,
        description="Format of the content. Default: by the suffix of source, else by the content.",
    )
    language: str | None = Field(
        None,
        max_length=64,
        description="Programming language of content in format code.",
        examples=["python"],
    )
    links: list[Link] = Field(
        default_factory=list, max_length=1000, description="Edges to other documents."
    )


@dataclass(frozen=True, slots=True)
class RefusedDocument:
    """A document that is not valid."""

    source: str
    """Its source; empty if that is not valid."""
    error: ValidationError
    """The problem; its text is made when it is read, because that takes time."""


def _valid_or_refused(
    value: Any, validate: ValidatorFunctionWrapHandler
) -> DocumentInput | RefusedDocument:
    try:
        return cast(DocumentInput, validate(value))
    except ValidationError as exc:
        source = value.get("source") if isinstance(value, dict) else None
        return RefusedDocument(source if isinstance(source, str) else "", exc)


class InCollection(Input):
    """A call about one collection."""

    collection: CollectionName


class Documents(InCollection):
    """Documents for a collection."""

    documents: list[Annotated[DocumentInput, WrapValidator(_valid_or_refused)]] = Field(
        min_length=1, description="Documents to index; at least one."
    )


class IndexInput(IndexFields, Documents):
    """Input of search-index."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "collection": "docs",
                    "documents": [
                        {
                            "source": "guide/install.md",
                            "title": "Installation",
                            "content": "# Installation\n\nRun ...",
                        }
                    ],
                }
            ]
        }
    )

    job_id: JobId = None


class IndexFileInput(IndexFields, FileFields, InCollection):
    """Input of search-index-file."""

    force: bool = Field(False, description="Index unchanged files too, and embed every text again.")
    job_id: JobId = None


class SimilarInput(InCollection):
    """Input of search-similar."""

    chunk_id: NonBlank | None = Field(
        None,
        max_length=4200,
        description="Id of the chunk to find neighbours of; this or source.",
        examples=["docs:guide/install.md:0"],
    )
    source: NonBlank | None = Field(
        None,
        max_length=4096,
        description="Source to find similar chunks of other sources for: those nearest to the mean"
        " of its first 100 chunks.",
        examples=["guide/install.md"],
    )
    limit: Count = Field(10, ge=1, description="Maximum number of results.")
    filter: dict[str, Any] | None = Field(None, description="As for search-query.")
    min_score: float | None = Field(None, ge=-1, le=1, description="Minimum cosine.")

    @model_validator(mode="after")
    def _one_start(self) -> SimilarInput:
        if (self.chunk_id is None) == (self.source is None):
            raise ValueError("exactly one of chunkId and source is required")
        return self


class ReindexInput(RebuildFields, InCollection):
    """Input of search-reindex."""

    language: str | None = Field(
        None, description="New language for keyword search.", examples=["german"]
    )
    clear: bool = Field(
        False, description="Only delete all chunks; the collection stays, empty, with its settings."
    )
    background: bool = Field(
        False, description="Return at once; search-collection-info shows the job's progress."
    )
    cancel: bool = Field(
        False, description="Cancel the job that is rebuilding the collection; it stays unchanged."
    )
    job_id: JobId = None

    @model_validator(mode="after")
    def _one_thing(self) -> ReindexInput:
        if self.clear + self.background + self.cancel > 1:
            raise ValueError("clear, background and cancel are mutually exclusive")
        if self.clear and self.model_fields_set - {"collection", "clear", "job_id"}:
            raise ValueError("clear changes no setting of the collection; leave the others out")
        return self


class DeleteInput(InCollection):
    """Input of search-delete."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"collection": "docs"}]})

    source: NonBlank | None = Field(
        None, max_length=4096, description="Source to delete. Default: the whole collection."
    )
    sources: list[NonBlank] | None = Field(
        None,
        min_length=1,
        max_length=1000,
        description="Sources to delete.",
        examples=[["guide/old.md", "guide/older.md"]],
    )

    @model_validator(mode="after")
    def _one_thing(self) -> DeleteInput:
        if self.source is not None and self.sources is not None:
            raise ValueError("source and sources are mutually exclusive")
        return self


class CollectionsInput(Input):
    """Input of search-collections."""


class CollectionInfoInput(InCollection):
    """Input of search-collection-info."""

    limit: Count = Field(1000, ge=1, le=10_000, description="Maximum sources per page.")
    cursor: str | None = Field(
        None, max_length=8192, description="nextCursor of the previous page."
    )
    children: bool = Field(True, description="Also list sources that belong to another one (of).")
