"""The wants of the stages of a query from retrieval, and the request to the store. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from ability_search.collection import Collection
from ability_search.documents import SparseVector
from ability_search.filters.tree import Filter, combine
from ability_search.store.records import Search
from ability_search.store.values import Columns
from ability_search.text.bm25 import QueryTerms

Retriever = Literal["semantic", "keyword"]

COSINE: Final = "cosine"
"""Name of the vector of the query itself, and column for the cosine to it."""
OWN: Final = "own"
"""Column with the cosine to the query's own vector, if the search uses another vector."""
BM25: Final = "bm25"
"""Column with the raw keyword score of what the keyword retriever did not find."""

Vectors = Mapping[str, Sequence[float]]
"""Vectors of a query by name, see :attr:`Wants.vectors`."""


class Words(NamedTuple):
    """Further words for the keyword retriever."""

    text: str
    known: str
    """Text whose words do not count again."""
    weight: float
    """Weight of all of them together, relative to the query."""
    untrusted: bool = False
    """Whether they count only as far as the model of the collection cannot be trusted."""


class Product(NamedTuple):
    """A text whose words give each candidate a further raw score."""

    text: str
    fields: tuple[str, ...] = ()
    """Fields of the chunks; empty for the terms of the whole."""
    language: str | None = None
    """Language that the collection must be analyzed in."""
    retrieves: bool = False
    """Whether it is a retriever too."""


class FurtherSearch(NamedTuple):
    """A search of other chunks by the vector or the terms of the query."""

    name: str
    """Appended to the name of the retriever if ``each``."""
    filter: Filter | None
    each: bool = False
    """By each retriever, instead of by the first."""
    limit: int | None = None
    """Maximum number of chunks; ``None`` for the depths of the retrievers."""
    kinds: bool = False
    """Search the kinds made of documents."""


class Wants(msgspec.Struct, frozen=True):
    """The wants of stages from retrieval; ``+`` adds up those of several."""

    fields: tuple[str, ...] = ()
    """Fields of each candidate."""
    vectors: Mapping[str, str] = {}
    """Texts to embed, by the column for the cosine of each candidate to them."""
    towards: Mapping[str, float] = {}
    """Further texts to embed by name: how far the vector of the search moves towards theirs."""
    words: tuple[Words, ...] = ()
    products: Mapping[str, Product] = {}
    """By the column for the raw score, and the name of the retriever."""
    searches: tuple[FurtherSearch, ...] = ()
    narrow: Filter | None = None
    """Filter on what the retrievers search, besides that of the query."""
    depth: int = 0
    """Ranked candidates that are read."""
    spare: int = 0
    """Candidates that are dropped."""
    statistics: bool = False
    """Whether term statistics are needed, even without words."""

    def __add__(self, other: Wants) -> Wants:
        """Return what both want."""
        if other is NOTHING:
            return self
        return Wants(
            tuple(dict.fromkeys(self.fields + other.fields)),
            {**self.vectors, **other.vectors},
            {**self.towards, **other.towards},
            self.words + other.words,
            {**self.products, **other.products},
            self.searches + other.searches,
            other.narrow if self.narrow is None else combine(self.narrow, other.narrow),
            max(self.depth, other.depth),
            self.spare + other.spare,
            self.statistics or other.statistics,
        )


NOTHING: Final = Wants()


class SearchRequest(msgspec.Struct, frozen=True):
    """The searches to request from the store for one query in one collection."""

    vector: Sequence[float] | None = None
    """Vector of the semantic retriever; ``None`` without it."""
    terms: QueryTerms | None = None
    """Terms of the keyword retriever; ``None`` without it."""
    filter: Filter | None = None
    """Filter on the chunks."""
    further: Sequence[FurtherSearch] = ()
    depths: tuple[int, ...] = (0,)
    """Candidates per retriever: for the first page, then in steps up to the number needed."""
    fields: Sequence[str] = ()
    """Fields of chunks that the stages need."""
    cosines: Vectors = {}
    """Further vectors by the column for each candidate's cosine to them."""
    products: Mapping[str, QueryTerms] = {}
    """Terms by the column for each candidate's raw score by them, for candidates of all
    retrievers."""
    retrieving: Sequence[str] = ()
    """Those of the products that are retrievers too."""
    specific: float = 1.0
    """Inverse document frequency of the rarest word of the query, relative to the greatest possible
    one, 0 to 1."""
    informative: float = 0.0
    """Information of the query's terms, in units of a term that occurs in a single chunk."""

    @property
    def retrievers(self) -> list[Retriever]:
        """The retrievers that are used."""
        by: dict[Retriever, object] = {"semantic": self.vector, "keyword": self.terms}
        return [name for name, value in by.items() if value is not None]

    def names(self, retriever: Retriever, *, deep: bool = False) -> list[str]:
        """Return the names of the searches by a retriever's vector or terms.

        With ``deep`` without those that have a limit of their own.
        """
        further = [each for each in self.further if not (deep and each.limit)]
        first = self.retrievers[:1] == [retriever]
        return [
            retriever,
            *(f"{retriever}{each.name}" for each in further if each.each),
            *(each.name for each in further if first and not each.each),
        ]

    def searches(self) -> list[Search]:
        """Return the searches: of all retrievers, then the further ones."""
        *heads, depth = self.depths
        searches = [
            Search(name, self._by(name), depth, self.filter, heads=heads)
            for name in (*self.retrievers, *self.retrieving)
        ]
        for wish in self.further:
            limit = depth if wish.limit is None else min(wish.limit, self.depths[0])
            searches += [
                Search(
                    f"{by}{wish.name}" if wish.each else wish.name,
                    self._by(by),
                    limit,
                    wish.filter,
                    wish.kinds,
                    heads if wish.limit is None else (),
                )
                for by in (self.retrievers if wish.each else self.retrievers[:1])
            ]
        return searches

    def holds(self, assumed: Collection, current: Collection) -> bool:
        """Return whether what the searches assume of the record of a collection still holds.

        That is its generation, and whether it has kinds, and duplicates, if that matters.
        """
        kinds = any(wish.kinds for wish in self.further)
        return (
            current.type == assumed.type
            and not (kinds and bool(assumed.kind_chunks) != bool(current.kind_chunks))
            and (self.filter is None or bool(assumed.duplicates) == bool(current.duplicates))
        )

    def columns(self, compared: Sequence[float] | None) -> Columns:
        """Return the columns to read of every candidate; no cosine without a vector."""
        cosines = {} if compared is None else {COSINE: compared, **self.cosines}
        others = compared is not None or self.retrieving
        own = {BM25: self.terms} if others and self.terms is not None else {}
        return Columns(self.fields, cosines, {**own, **self.products})

    def _by(self, retriever: str) -> Sequence[float] | SparseVector:
        """Return the vector or the terms of a retriever."""
        own = {"semantic": self.vector, "keyword": self.terms, **self.products}
        by = own[retriever]
        assert by is not None
        return by
