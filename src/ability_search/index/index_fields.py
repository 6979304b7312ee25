"""Options of indexing: one model for the tools, the services, the jobs and the command line."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AliasChoices, Field

from ability_search.text.chunkers import Strategy
from ability_search.wire import Count, Input, Model, NonBlank

Format = Literal["markdown", "text", "code", "json", "html", "rst", "csv", "conversation"]
FileFormat = (
    Format
    | Literal["pdf", "docx", "pptx", "xlsx", "odf", "rtf", "epub", "svg", "email", "mbox", "image"]
    | Literal["notebook"]
)

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


class RebuildFields(Input):
    """The chunking, analysis and embedding of texts; ``None`` leaves a choice to the collection.

    These are the settings of a collection, which a rebuild may change.
    """

    chunk_strategy: Strategy | None = Field(
        None, description="Chunking strategy. Default: the collection's, or auto if it is new."
    )
    max_tokens: Count | None = Field(
        None, ge=16, le=8192, description="Maximum tokens per chunk.", examples=[500]
    )
    context: Annotated[Count, Field(ge=0, le=8)] | Literal["section"] | None = Field(
        None,
        description="Context that each chunk of prose is embedded and searched with: as many chunks"
        " before and after it (for a turn of a conversation: turns before it), or the beginning of"
        " its section. Default: the collection's; if it is new, that of the settings for turns and"
        " none for prose.",
        examples=[1, "section"],
    )
    model: Model = None
    language: str | None = Field(
        None,
        description="Language for keyword search (english, german, none, ...). Default: the"
        " collection's; for a new collection detected from the first documents.",
    )
    kinds: list[Literal["title", "summary", "keywords", "propositions"]] | None = Field(
        None,
        max_length=4,
        description="Kinds of texts made of each document, searched by the option extended of"
        " search-query. Default: the collection's, or none if it is new.",
        examples=[["title", "summary"]],
    )
    kinds_by: Literal["local", "chat"] | None = Field(
        None,
        description="How kinds are made: extracted from the text (local), or written by a language"
        " model (chat), with extraction as fallback. Default: the collection's, or local if it is"
        " new.",
    )


class IndexFields(RebuildFields):
    """The options of an index call."""

    overlap: Count | None = Field(
        None, ge=0, le=4096, description="Overlap of consecutive sliding windows, in tokens."
    )
    force: bool = Field(
        False, description="Index unchanged documents too, and embed every text again."
    )
    dedup_threshold: DedupThreshold = None


class FileFields(Input):
    """A selection of files to index, and their format."""

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
    sweep: bool = Field(
        False, description="Delete sources below path whose files are gone or excluded."
    )
    sweep_all: bool = Field(
        False,
        description="Even if they are most sources; else refused: the drive may not be mounted.",
    )
