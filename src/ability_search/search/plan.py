"""The plan of a query: what to request from the store for one collection. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ability_search.collection import Collection
from ability_search.filters.tree import Filter
from ability_search.search.query import Retriever
from ability_search.store.records import Search, TermSearch, VectorSearch
from ability_search.store.values import Columns
from ability_search.text.bm25 import QueryTerms

OWN: Final = "own"
"""Column with the cosine to the query's own vector, if the search uses another vector."""
BM25: Final = "bm25"
"""Column with the raw keyword score of what the keyword retriever did not find."""
FULL_TEXT: Final = "fullText"
"""Name of the full-text retriever, and of the column with its raw score."""
DATED: Final = 30
"""Maximum number of chunks of the requested period that join the candidates."""

Vectors = Mapping[str, Sequence[float]]
"""Vectors of a query by name, see :attr:`.query.Query.texts`."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The searches to request from the store for one query."""

    vector: Sequence[float] | None = None
    """Vector of the semantic retriever; ``None`` without it."""
    terms: QueryTerms | None = None
    """Terms of the keyword retriever; ``None`` without it."""
    filter: Filter | None = None
    """Filter on the chunks."""
    kinds: Filter | None = None
    """Filter on the kinds made of documents; ``None`` if they are not searched."""
    dated: Filter | None = None
    """Filter on the chunks of the requested period, if there is one."""
    depths: tuple[int, ...] = (0,)
    """Candidates per retriever: for the first page, then in steps up to the number needed."""
    beam: int = 0
    """Minimum beam width of the vector search."""
    scan_below: int = 0
    """Number of chunks below which embeddings are scanned even if there is a graph."""
    fields: Sequence[str] = ()
    """Fields of chunks that the stages need."""
    cosines: Vectors = field(default_factory=dict)
    """Further vectors by the column for each candidate's cosine to them."""
    products: Mapping[str, QueryTerms] = field(default_factory=dict)
    """Terms by the column for each candidate's raw score by them, for candidates of all
    retrievers; those of :data:`FULL_TEXT` are a retriever too."""
    first: int = 0
    """Number of candidates per retriever whose terms and embeddings are read too."""
    learned: Mapping[str, Any] | None = None
    """Effect of pseudo-relevance feedback on the query, for ``explain``."""
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

    def names(self, retriever: Retriever) -> list[str]:
        """Return the names that searches by a retriever's vector or terms may have."""
        dated = ["dated"] if self.retrievers[:1] == [retriever] else []
        return [retriever, f"{retriever}Aspects", *dated]

    def searches(self, collection: Collection) -> list[Search]:
        """Return the searches: of all retrievers, of kinds, and of the requested period."""
        used, depths = self.retrievers, self.depths
        *heads, depth = depths
        copies = collection.duplicates > 0
        found = [
            self._search(by, by, depths, self.filter, collection, copies=copies) for by in used
        ]
        if FULL_TEXT in self.products:
            in_fields = self.products[FULL_TEXT]
            found.append(
                TermSearch(FULL_TEXT, in_fields, depth, self.filter, heads=heads, copies=copies)
            )
        if self.kinds is not None:
            found += [
                self._search(by, f"{by}Aspects", depths, self.kinds, collection, kinds=True)
                for by in used
            ]
        if self.dated is not None:
            limits = (min(DATED, depths[0]),)
            found.append(self._search(used[0], "dated", limits, self.dated, collection))
        return found

    def exact(self, collection: Collection) -> bool:
        """Return whether embeddings are scanned instead of searched through the graph."""
        return collection.scanned(below=self.scan_below)

    def columns(self, compared: Sequence[float] | None) -> Columns:
        """Return the columns to read of every candidate; no cosine without a vector."""
        cosines = {} if compared is None else {"cosine": compared, **self.cosines}
        others = compared is not None or FULL_TEXT in self.products
        own = {BM25: self.terms} if others and self.terms is not None else {}
        return Columns(self.fields, cosines, {**own, **self.products})

    def _search(
        self,
        by: Retriever,
        name: str,
        limits: Sequence[int],
        filter: Filter | None,
        collection: Collection,
        *,
        kinds: bool = False,
        copies: bool = False,
    ) -> Search:
        *heads, limit = limits
        if by == "semantic" and self.vector is not None:
            exact = (
                collection.kinds_scanned(below=self.scan_below) if kinds else self.exact(collection)
            )
            return VectorSearch(
                name, self.vector, limit, self.beam, exact, filter, kinds, heads, copies
            )
        assert self.terms is not None
        return TermSearch(name, self.terms, limit, filter, kinds, heads, copies)
