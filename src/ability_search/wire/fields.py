"""Fields that the inputs of several tools share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ability_search.wire.base import Count

Strategy = Literal["auto", "markdown-headers", "code-blocks", "paragraph", "sliding-window"]

CollectionName = Annotated[
    str,
    Field(
        description="Collection name: 1 to 64 of A-Z a-z 0-9 . _ -, first a letter or digit.",
        examples=["docs"],
        json_schema_extra={"pattern": r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"},
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
Kinds = Annotated[
    list[Literal["title", "summary", "keywords", "propositions"]] | None,
    Field(
        max_length=4,
        description="What is made of each document, to be searched by the option extended of"
        " search-query. Left out: as the collection was begun, or nothing.",
        examples=[["title", "summary"]],
    ),
]
KindsBy = Annotated[
    Literal["local", "chat"] | None,
    Field(
        description="Who makes it: extraction from the text (local), or a language model (chat);"
        " what that does not answer is extracted. Left out: as the collection was begun, or local."
    ),
]
Overlap = Annotated[
    Count | None,
    Field(ge=0, le=4096, description="Tokens that neighbouring sliding windows share."),
]
JobId = Annotated[
    str | None,
    Field(min_length=1, max_length=128, description="Your name for the job, in its events."),
]
