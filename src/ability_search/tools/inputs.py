"""Inputs of the eight tools."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

from pydantic import (
    AliasChoices,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from ability_search.extensions.notes.consolidation_report import Judge
from ability_search.extensions.sessions.session_options import EVERY as EVERY
from ability_search.extensions.sessions.session_options import Scope as Scope
from ability_search.extensions.sessions.session_options import SessionErase as SessionErase
from ability_search.extensions.sessions.session_options import SessionId as SessionId
from ability_search.extensions.sessions.session_options import SessionRead as SessionRead
from ability_search.extensions.sessions.session_options import SessionWrite as SessionWrite
from ability_search.search.options import Collections as Collections
from ability_search.search.options import Mode as Mode
from ability_search.search.options import Model
from ability_search.search.options import QueryInput as QueryInput
from ability_search.text.chunkers import Strategy
from ability_search.wire import Count, Input, NonBlank, Share

Format = Literal["markdown", "text", "code", "json", "html", "rst", "csv", "conversation"]
Included = Literal["tokens", "growth", "map", "graph", "consolidation"]
FileFormat = (
    Format
    | Literal["pdf", "docx", "pptx", "xlsx", "odf", "rtf", "epub", "svg", "email", "mbox", "image"]
    | Literal["notebook"]
)

CollectionName = Annotated[
    str,
    Field(
        description="Collection name: 1 to 64 letters, digits, . _ -, first a letter or digit.",
        examples=["docs"],
        # Letters of all scripts; a class of them is written differently in each dialect.
        json_schema_extra={"pattern": r"^[^\x00-/:-@\[-`{-\x7f][^\x00-,/:-@\[-\^`{-\x7f]{0,63}$"},
    ),
]
ChunkStrategy = Annotated[
    Strategy | None,
    Field(description="Chunking strategy. Default: the collection's, or auto if it is new."),
]
MaxTokens = Annotated[
    Count | None,
    Field(ge=16, le=8192, description="Maximum tokens per chunk.", examples=[500]),
]
Language = Annotated[
    str | None,
    Field(
        description="Language for keyword search (english, german, none, ...). Default: the"
        " collection's; for a new collection detected from the first documents."
    ),
]
Kinds = Annotated[
    list[Literal["title", "summary", "keywords", "propositions"]] | None,
    Field(
        max_length=4,
        description="Kinds of texts made of each document, searched by the option extended of"
        " search-query. Default: the collection's, or none if it is new.",
        examples=[["title", "summary"]],
    ),
]
KindsBy = Annotated[
    Literal["local", "chat"] | None,
    Field(
        description="How kinds are made: extracted from the text (local), or written by a language"
        " model (chat), with extraction as fallback. Default: the collection's, or local if it is"
        " new."
    ),
]
Overlap = Annotated[
    Count | None,
    Field(ge=0, le=4096, description="Overlap of consecutive sliding windows, in tokens."),
]
ChunkContext = Annotated[
    Annotated[Count, Field(ge=0, le=8)] | Literal["section"] | None,
    Field(
        description="Context that each chunk of prose is embedded and searched with: as many chunks"
        " before and after it (for a turn of a conversation: turns before it), or the beginning of"
        " its section. Default: the collection's; if it is new, that of the settings for turns and"
        " none for prose.",
        examples=[1, "section"],
    ),
]
DedupThreshold = Annotated[
    float | None,
    Field(
        gt=0,
        le=1,
        description="Near-duplicate threshold: a chunk whose nearest neighbour in the collection"
        " has at least this cosine is found only by filters that exclude the neighbour; .95 is"
        " usual. If the neighbour is replaced or deleted, one of those that it represents takes its"
        " place. Unchanged documents are left as they are, unless force is set. Default: that which"
        " the collection was created with, if any.",
    ),
]
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


class IndexInput(Input):
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

    collection: CollectionName = Field(default_factory=str)
    documents: list[Annotated[DocumentInput, WrapValidator(_valid_or_refused)]] = Field(
        default_factory=list, description="Documents to index; at least one."
    )
    chunk_strategy: ChunkStrategy = None
    max_tokens: MaxTokens = None
    overlap: Overlap = None
    context: ChunkContext = None
    model: Model = None
    language: Language = None
    kinds: Kinds = None
    kinds_by: KindsBy = None
    force: bool = Field(
        False, description="Index unchanged documents too, and embed every text again."
    )
    dedup_threshold: DedupThreshold = None
    session: SessionWrite | None = Field(
        None,
        description="Instead of collection and documents, which are required otherwise: write the"
        " scratchpad, the tasks and the history of a session of an agent. Repeating the call adds"
        " new tasks and the history again.",
    )
    job_id: JobId = None

    @model_validator(mode="after")
    def _one_thing(self) -> IndexInput:
        if self.session is not None:
            _check_alone(self, allowed={"job_id"})
        elif not (self.collection and self.documents):
            raise ValueError("collection and at least one of documents are required, or session")
        return self


class IndexFileInput(Input):
    """Input of search-index-file."""

    collection: CollectionName
    path: NonBlank = Field(
        validation_alias=AliasChoices("path", "filePath"),
        description="File or directory on the worker's machine, inside an allowed root.",
        examples=["docs/"],
    )
    format: FileFormat | None = Field(
        None, description="Format of the files. Default: detected from file name, then content."
    )
    include: list[NonBlank] = Field(
        default_factory=list,
        max_length=256,
        description="Patterns (gitignore syntax) of files to include.",
        examples=[["*.md"]],
    )
    exclude: list[NonBlank] = Field(
        default_factory=list, max_length=256, description="Patterns of files to exclude."
    )
    gitignore: bool = Field(False, description="Also exclude files listed in .gitignore.")
    chunk_strategy: ChunkStrategy = None
    max_tokens: MaxTokens = None
    overlap: Overlap = None
    context: ChunkContext = None
    model: Model = None
    language: Language = None
    kinds: Kinds = None
    kinds_by: KindsBy = None
    force: bool = Field(False, description="Index unchanged files too, and embed every text again.")
    sweep: bool = Field(
        False, description="Delete sources below path whose files are gone or excluded."
    )
    sweep_all: bool = Field(
        False,
        description="Even if they are most sources; else refused: the drive may not be mounted.",
    )
    dedup_threshold: DedupThreshold = None
    job_id: JobId = None


class SimilarInput(Input):
    """Input of search-similar."""

    collection: CollectionName
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
    to: NonBlank | None = Field(
        None,
        max_length=4096,
        description="With source: return the paths over links between the two sources, and the"
        " sources that both are linked with, instead of similar chunks.",
        examples=["guide/update.md"],
    )
    hops: Count = Field(3, ge=1, le=3, description="Maximum number of links of a path.")
    limit: Count = Field(10, ge=1, description="Maximum number of results, or of paths.")
    filter: dict[str, Any] | None = Field(None, description="As for search-query.")
    min_score: float | None = Field(None, ge=-1, le=1, description="Minimum cosine.")

    @model_validator(mode="after")
    def _one_start(self) -> SimilarInput:
        if (self.chunk_id is None) == (self.source is None):
            raise ValueError("exactly one of chunkId and source is required")
        if self.to is not None and (self.source is None or self.to == self.source):
            raise ValueError("to requires source, and another one")
        return self


class Consolidate(Input):
    """Consolidate the notes of a collection: its documents."""

    apply: bool = Field(
        False,
        description="Set near-duplicates aside, out of the indexes, and add the missing links.",
    )
    undo: bool = Field(
        False, description="Take back what the last apply changed; a second call, the one before."
    )
    judge: Judge = Field(
        "rules",
        description="Who decides on contradictions: rules, or a language model (chat), which also"
        " reads pairs that no rule found.",
    )

    @model_validator(mode="after")
    def _one_thing(self) -> Consolidate:
        if self.apply and self.undo:
            raise ValueError("apply and undo are mutually exclusive")
        return self


class ReindexInput(Input):
    """Input of search-reindex."""

    collection: CollectionName
    model: Model = None
    chunk_strategy: ChunkStrategy = None
    max_tokens: MaxTokens = None
    context: ChunkContext = None
    language: str | None = Field(
        None, description="New language for keyword search.", examples=["german"]
    )
    kinds: Kinds = None
    kinds_by: KindsBy = None
    clear: bool = Field(
        False,
        description="Only delete all chunks; the collection stays, empty, with its settings.",
    )
    background: bool = Field(
        False, description="Return at once; search-collection-info shows the job's progress."
    )
    cancel: bool = Field(
        False, description="Cancel the job that is rebuilding the collection; it stays unchanged."
    )
    analyze: bool = Field(
        False,
        description="Only analyse the graph of the chunks, and store their centrality and novelty"
        " for the option boost of search-query; the chunks stay as they are.",
    )
    consolidate: Consolidate | None = Field(
        None,
        description="Only report near-duplicates, contradictions, stale notes and missing links;"
        " search-collection-info returns the report. {} changes nothing.",
    )
    job_id: JobId = None

    @model_validator(mode="after")
    def _one_thing(self) -> ReindexInput:
        if self.clear + self.background + self.cancel + self.analyze > 1:
            raise ValueError("clear, background, cancel and analyze are mutually exclusive")
        for name in ("clear", "analyze", "consolidate"):
            others = self.model_fields_set - {"collection", name, "job_id"}
            if getattr(self, name) not in (False, None) and others:
                raise ValueError(
                    f"{name} changes no setting of the collection; leave the others out"
                )
        return self


class DeleteInput(Input):
    """Input of search-delete."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"collection": "docs"}]})

    collection: CollectionName = Field(default_factory=str)
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
    session: SessionErase | None = Field(
        None,
        description="Instead of collection, which is required otherwise: delete records of a"
        " session of an agent, a whole session, all of an agent, or what is older than a time.",
    )

    @model_validator(mode="after")
    def _one_thing(self) -> DeleteInput:
        if self.session is not None:
            _check_alone(self)
        elif not self.collection:
            raise ValueError("collection or session is required")
        elif self.source is not None and self.sources is not None:
            raise ValueError("source and sources are mutually exclusive")
        return self


def _check_alone(value: IndexInput | DeleteInput, *, allowed: Set[str] = frozenset()) -> None:
    """Check that no field but ``session`` is set.

    Raises:
        ValueError: if another one is.
    """
    others = value.model_fields_set - {"session", *allowed}
    if others:
        raise ValueError(f"session excludes {', '.join(map(to_camel, sorted(others)))}")


class CollectionsInput(Input):
    """Input of search-collections."""

    session: SessionRead | None = Field(
        None,
        description="Read a session of an agent instead: its scratchpad, tasks and history;"
        " collections then has the collection of the history.",
    )


class CollectionInfoInput(Input):
    """Input of search-collection-info."""

    collection: CollectionName
    limit: Count = Field(1000, ge=1, le=10_000, description="Maximum sources per page.")
    cursor: str | None = Field(
        None, max_length=8192, description="nextCursor of the previous page."
    )
    children: bool = Field(True, description="Also list sources that belong to another one (of).")
    include: list[Included] = Field(
        default_factory=list,
        max_length=5,
        description="Additional parts. tokens: histogram of chunk sizes, to judge the chunking."
        " growth: how much was indexed when. map: sample of the chunks as points, close to each"
        " other if similar, for plotting; it is long. Each of these reads the chunks."
        " graph: the last analysis of the chunks' graph, made by search-reindex with analyze."
        " consolidation: the last report on its notes, made by search-reindex with consolidate.",
        examples=[["tokens", "growth"]],
    )
    map_points: Count = Field(1000, ge=1, le=5000, description="Maximum points on the map.")
