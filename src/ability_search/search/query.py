"""A query: what the caller asked for, and what was read out of its text. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

import msgspec
from msgspec.structs import replace

from ability_search.errors import InvalidInput
from ability_search.filters.operands import instants
from ability_search.filters.parser import key_path
from ability_search.filters.tree import Field, Filter
from ability_search.search.options import QueryInput
from ability_search.search.response import Understood
from ability_search.search.wants import Retriever

_CHUNK_FIELDS = ("source", "title", "content", "kind", "createdAt")
METADATA: Final = "metadata."
CREATED_AT: Final = "createdAt"


class Query(msgspec.Struct, frozen=True):
    """A query on its way through the stages."""

    asked: QueryInput
    topic: str
    """Text to search for; at first, the query taken literally."""
    filter: Filter | None = None
    as_of: int | None = None
    """Time of the query, in epoch milliseconds; ``None`` is now."""
    options: Mapping[str, Any] = {}
    """The options that have an effect, by the name of the stage."""
    understood: Understood | None = None
    """The reading of its text; ``None`` if it is taken literally."""
    explained: Mapping[str, Any] = {}
    """The understanding of the query, for ``explain``."""
    phrasing: int = 0
    """Place among the phrasings of the query, from 0."""
    others: tuple[Query, ...] = ()
    """The other phrasings, of the option ``queries``."""

    @property
    def phrasings(self) -> tuple[Query, ...]:
        """All phrasings of the query, itself first."""
        return (self, *self.others)

    @property
    def end(self) -> int:
        """Number of hits up to the end of the page."""
        return self.asked.offset + self.asked.limit

    @property
    def several(self) -> bool:
        """Return whether the query is for several collections, so that hits name theirs."""
        return self.asked.collection == "*" or not isinstance(self.asked.collection, str)

    @property
    def work(self) -> int:
        """Estimated work of its analysis, in candidates."""
        return sum(len(each.asked.query) for each in self.phrasings) // 10

    def with_option(self, name: str, value: Any, **explained: Any) -> Query:
        """Return the query with an option, and with what ``explain`` says of it."""
        options = {**self.options, name: value}
        return replace(self, options=options, explained={**self.explained, **explained})


def phrased(query: Query, text: str, place: int) -> Query:
    """Return another phrasing of a query; what a model wrote belongs to the query itself."""
    change: dict[str, Any] = {"query": text, "queries": [], "hypothetical_answer": None}
    return replace(query, asked=query.asked.model_copy(update=change), topic=text, phrasing=place)


def literal_query(asked: QueryInput, filter: Filter | None = None) -> Query:
    """Return the query of a request, taken literally and without options.

    Raises:
        InvalidInput: if all retrievers have no weight, or ``asOf`` is invalid.
    """
    weights = {} if asked.fusion is None else asked.fusion.weights
    if len(weights) == len(get_args(Retriever)) and not any(weights.values()):
        raise InvalidInput("fusion.weights", "at least one must be greater than 0")
    as_of = None if asked.as_of is None else instants("asOf", asked.as_of)[1] - 1
    return Query(asked, asked.query, filter, as_of)


def chunk_field(at: str, name: str) -> Field:
    """Return a field of chunks; one that is not their own is in their metadata.

    Raises:
        InvalidInput: for the field ``at`` of the request.
    """
    if name in _CHUNK_FIELDS:
        return Field(name)
    return Field("metadata", key_path(at, name.removeprefix(METADATA)))
