"""Candidate retrieval: all retrievers of a query in one round trip."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ability_search.collection import Collection
from ability_search.errors import NotFound, StatementRefused
from ability_search.ports import Store
from ability_search.querying.model import Candidate
from ability_search.ranking.phrasing import Phrasing
from ability_search.store import arcadedb
from ability_search.store.arcadedb import Arm, Predicate, Shown, TermsArm, VectorArm, aspect_type
from ability_search.store.registry import Registry
from ability_search.text.bm25 import QueryTerms

log = logging.getLogger(__name__)

Rows = dict[str, Sequence[Mapping[str, Any]]]
"""Rows found by each retriever, by its name."""

_PAUSES = (0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128)
"""Seconds to wait before each repeated search after a commit in progress was seen."""

OWN = "own"
"""Column with the cosine to the query's own vector, if the search uses another vector."""


By = Sequence[float] | QueryTerms
"""A vector, or weighted terms, possibly none."""


@dataclass(frozen=True, slots=True)
class Search:
    """One ranked list of candidates to request from the database."""

    name: str
    """Name of the retriever: ``semantic``, ``keyword``, or that of an option."""
    by: By
    limit: int
    predicate: Predicate | None = None
    """Filter on the chunks."""
    aspects: bool = False
    """Whether to search the aspects of documents instead of their chunks."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The searches to request from the database for one query."""

    searches: Sequence[Search]
    depths: tuple[int, ...]
    """Candidates per retriever: for the first page, then in steps up to the number needed."""
    beam: int
    scan_below: int
    """Number of chunks below which embeddings are scanned even if there is a graph."""
    columns: Sequence[str] = ()
    """Candidate columns that the stages need."""
    cosines: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Further vectors by the column for each candidate's cosine to them."""
    products: Mapping[str, QueryTerms] = field(default_factory=dict)
    """Terms by the column for each candidate's raw score by them, for candidates of all
    retrievers."""
    words: Mapping[str, QueryTerms] = field(default_factory=dict)
    """Single terms of the query, by the column for the scores of keyword candidates by that term;
    none unless keyword and semantic scores are combined."""
    first: int = 0
    """Number of candidates per retriever whose terms and embeddings are read too."""
    learned: Mapping[str, Any] | None = None
    """Effect of pseudo-relevance feedback on the query, for ``explain``."""
    phrasing: Phrasing | None = None
    """Word pairs of the query for phrase matches, if enabled."""
    informative: float = 0.0
    """Information of the query's terms, in units of a term that occurs in a single chunk."""

    def exact(self, collection: Collection) -> bool:
        """Return whether embeddings are scanned instead of searched through the graph."""
        return collection.scanned(below=self.scan_below)

    def shown(self, compared: Sequence[float] | None) -> Shown:
        """Return the columns to read of every candidate; no cosine without a vector."""
        return Shown(
            self.columns,
            {} if compared is None else {"cosine": compared, **self.cosines},
            _dots(self.products),
        )

    @property
    def vector(self) -> Sequence[float] | None:
        """The query vector, if the semantic retriever is used."""
        found = (each.by for each in self.searches if each.name == "semantic")
        return next((by for by in found if not isinstance(by, QueryTerms)), None)

    @property
    def terms(self) -> QueryTerms | None:
        """The query terms, if the keyword retriever is used."""
        found = (each.by for each in self.searches if each.name == "keyword")
        return next((by for by in found if isinstance(by, QueryTerms)), None)


@dataclass(slots=True)
class Pool:
    """The candidates of all retrievers, each chunk once."""

    collection: Collection
    candidates: list[Candidate]
    failed: dict[str, str] = field(default_factory=dict)
    """Retrievers that failed, with the reasons."""
    exhausted: bool = True
    """Whether a deeper search would find nothing more."""

    @property
    def chunks(self) -> list[Candidate]:
        """The chunks to show, each once; an aspect is replaced by the chunk it stands for."""
        chunks = {(item.stands_for or item).chunk_id: item for item in self.candidates}
        return [item.stands_for or item for item in chunks.values()]


async def find_candidates(
    store: Store, registry: Registry, collection: Collection, plan: Plan
) -> Pool:
    """Run the searches of a plan; the failure of one does not affect the others.

    Raises:
        NotFound: if the collection is gone.
        DatabaseUnavailable: if all of them failed.
    """
    try:
        current, lists = await _search(store, registry, collection, plan, plan.searches)
        candidates = pooled(lists, compared=_compared(plan))
        return Pool(current, candidates, exhausted=_exhausted(lists, plan))
    except StatementRefused as exc:
        if len(plan.searches) < 2:
            raise
        log.warning("combined search failed, searching each retriever: %s", exc.detail[:500])
    found: Rows = {}
    failed: dict[str, str] = {}
    for each in plan.searches:
        try:
            current, rows = await _search(store, registry, collection, plan, [each])
        except StatementRefused as exc:
            failed[each.name] = str(exc)
            last = exc
        else:
            found |= rows
    if not found:
        raise last
    candidates = pooled(found, compared=_compared(plan))
    return Pool(current, candidates, failed, _exhausted(found, plan))


async def _search(
    store: Store,
    registry: Registry,
    collection: Collection,
    plan: Plan,
    searches: Sequence[Search],
) -> tuple[Collection, Rows]:
    # Without the semantic retriever, compare nothing with its vector: that may be what failed.
    compared = plan.vector if any(each.name == "semantic" for each in searches) else None

    async def ask(current: Collection) -> tuple[list[Mapping[str, Any]], Rows]:
        statement = arcadedb.candidates(
            current.name,
            current.type,
            [_arm(each, plan, current) for each in searches if current.aspects or not each.aspects],
            plan.shown(compared),
            first=plan.first,
        )
        for pause in (*_PAUSES, None):
            answer = await store.read(*statement)
            if pause is None or _settled(answer):
                break
            await asyncio.sleep(pause)
        return answer["collection"], _lists(answer, [each.name for each in searches])

    found = await registry.consult(collection, ask)
    if found is None:
        raise NotFound("collection", collection.name)
    return found


def _settled(answer: Mapping[str, Any]) -> bool:
    """Return whether no commit was in progress, of which the retrievers may have seen only half."""
    before, after = ({row["revision"] for row in answer[name]} for name in ("collection", "later"))
    return not answer["unindexed"] and before <= after


def _lists(answer: Mapping[str, Any], names: Sequence[str]) -> Rows:
    """Return the rows of each retriever, with the extra columns read for its first rows."""
    lists: Rows = {name: answer.get(name) or () for name in names}
    first = {row["rid"]: row for name in names for row in answer.get(f"first_{name}") or ()}
    if not first:
        return lists
    return {
        name: [{**row, **first.get(row["rid"], {})} for row in rows] for name, rows in lists.items()
    }


def _arm(search: Search, plan: Plan, collection: Collection) -> Arm:
    chunk_type = aspect_type(collection.type) if search.aspects else collection.type
    if isinstance(search.by, QueryTerms):
        return TermsArm(
            search.name,
            search.by.ids,
            search.by.weights,
            search.limit,
            search.predicate,
            chunk_type=chunk_type,
            dots=_dots(plan.words) if search.by is plan.terms else {},
        )
    exact = (
        collection.aspects_scanned(below=plan.scan_below)
        if search.aspects
        else plan.exact(collection)
    )
    return VectorArm(
        search.name,
        search.by,
        search.limit,
        plan.beam,
        exact,
        search.predicate,
        chunk_type=chunk_type,
    )


def _dots(terms: Mapping[str, QueryTerms]) -> dict[str, tuple[Sequence[int], Sequence[float]]]:
    return {name: (by.ids, by.weights) for name, by in terms.items()}


def _exhausted(lists: Rows, plan: Plan) -> bool:
    growing = [each for each in plan.searches if each.limit == plan.depths[-1]]
    return all(len(lists.get(each.name, ())) < each.limit for each in growing)


def _compared(plan: Plan) -> set[str]:
    return {each.name for each in plan.searches if each.by is plan.vector}


def pooled(lists: Rows, *, compared: Container[str] = ("semantic",)) -> list[Candidate]:
    """Merge the rows of all retrievers, each chunk once.

    Args:
        lists: rows by retriever name, in the order of the searches; if a chunk was replaced in
            between, the last search wins.
        compared: the retrievers whose scores are cosines to the query vector.
    """
    pool: dict[str, Candidate] = {}
    for name, rows in lists.items():
        ordered = sorted(rows, key=lambda row: (-row["score"], row["chunkId"]))
        for rank, row in enumerate(ordered, start=1):
            chunk_id, rid = row["chunkId"], row["rid"]
            candidate = pool.get(chunk_id)
            if candidate is None or candidate.rid != rid:
                cosine = row["score"] if name in compared else row.get("cosine")
                candidate = pool[chunk_id] = candidate_of(row, cosine)
            elif name not in compared:
                candidate.columns = {**row, **candidate.columns}
            candidate.ranks[name] = rank
            candidate.values[name] = row["score"]
    return list(pool.values())


def candidate_of(row: Mapping[str, Any], cosine: float | None) -> Candidate:
    """Return the candidate of a row, with its cosine to the vector that was searched by."""
    candidate = Candidate(row["rid"], row["chunkId"], cosine, columns=row)
    if OWN in row:
        candidate.cosine, candidate.moved = row[OWN], cosine
    return candidate
