"""Kinds derived from a document: title, summary, keywords, propositions."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ability_search.search.options import QueryInput

Kind = Literal["title", "summary", "keywords", "propositions", "documents"]


class KindOptions(QueryInput):
    """The option ``extended`` of search-query."""

    extended: list[Kind] = Field(
        default_factory=list,
        description="Kinds to search: a hit on the title, summary, ... of a document returns the"
        " document, scored by its best kind; documents are the chunks themselves.",
        examples=[["title", "summary", "documents"]],
    )
