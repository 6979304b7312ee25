"""The text of an answer: its length around each hit, and its token budget."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ability_search.search.options import QueryInput
from ability_search.wire import Count, Input


class Expand(Input):
    """Context expansion: text around each hit."""

    mode: Literal["neighbors", "section"] = Field(
        "neighbors", description="Adjacent chunks, or the whole section (same headings)."
    )
    window: Count = Field(1, ge=1, le=10, description="Chunks on each side, for neighbors.")


class ContextOptions(QueryInput):
    """The options ``expand`` and ``maxResultTokens`` of search-query."""

    expand: Expand | Literal["neighbors", "section"] | None = Field(
        None,
        description="Context expansion: return the text around each hit; adjacent hits are merged.",
        examples=["neighbors", {"mode": "neighbors", "window": 2}],
    )
    max_result_tokens: Count | None = Field(
        None,
        ge=1,
        le=10_000_000,
        description="Token budget for the whole answer; what does not fit is left out and named in"
        " budget. The smallest answer has about 400 tokens.",
        examples=[2000],
    )
