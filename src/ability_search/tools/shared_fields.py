"""Fields shared by the inputs of several tools."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ability_search.text.chunkers import Strategy
from ability_search.wire import Count

CollectionName = Annotated[
    str,
    Field(
        description="Collection name: 1 to 64 of A-Z a-z 0-9 . _ -, first a letter or digit.",
        examples=["docs"],
        json_schema_extra={"pattern": r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"},
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
JobId = Annotated[
    str | None,
    Field(
        min_length=1, max_length=128, description="Job id chosen by the caller, used in its events."
    ),
]
