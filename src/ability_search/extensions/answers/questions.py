"""Inputs and results of questions, as callers see them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ability_search.search.options import Collections
from ability_search.search.response import Hit
from ability_search.tools.inputs import QueryInput
from ability_search.wire import NonBlank, Result

Support = Literal["full", "partial", "none"]


class AskInput(QueryInput):
    """Input of a question: options of search-query for its passages, and the language model."""

    collection: Collections = Field(
        "*",
        description="A collection, a list of collections, or * for all of them.",
        examples=["docs"],
    )
    query: NonBlank = Field(description="The question.", examples=["when do the backups run?"])
    chat_model: str | None = Field(
        None, min_length=1, max_length=256, description="Default: the configured language model."
    )


class Sentence(Result):
    """A sentence of an answer, checked against the passages that it cites."""

    text: str = Field(description="The sentence without its citations.")
    citations: list[int] = Field(description="Numbers of its passages, from 1.")
    support: Support = Field(
        description="full: numbers, names and most words are in these passages; partial: too few"
        " words are; none: no word, or a number or a name is not; the answer leaves it out."
    )
    missing: list[str] | None = Field(None, description="What is not in these passages.")


class AskResult(Result):
    """The answer to a question."""

    outcome: Literal["answered", "not_in_sources", "passages"] = Field(
        description="passages: there is no answer, because no language model gave one."
    )
    answer: str | None = Field(
        None, description="The sentences with support, each with its citations."
    )
    reason: str | None = Field(None, description="Why there is no answer.")
    sentences: list[Sentence] = Field(description="All sentences of the language model.")
    passages: list[Hit] = Field(description="The hits; the first one is passage 1.")
    relevance: float | None = Field(None, description="As in search-query.")
    warnings: list[str] | None = None
    timings: dict[str, float] = Field(
        description="Milliseconds of the search, until the first sentence, and in total."
    )
