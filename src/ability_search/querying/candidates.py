"""From a query to candidates: both arms in one round trip."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ability_search import statements
from ability_search.catalogue import Catalogue
from ability_search.collection import Collection
from ability_search.errors import NotFound, StatementRefused
from ability_search.ports import Store
from ability_search.querying.model import Candidate
from ability_search.ranking.bm25 import QueryTerms
from ability_search.ranking.phrasing import Phrasing
from ability_search.statements import Arm, Predicate, Shown, TermsArm, VectorArm, aspect_type

log = logging.getLogger(__name__)

Rows = dict[str, Sequence[Mapping[str, Any]]]
"""What each arm found, by its name."""

_PAUSES = (0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128)
"""Seconds to wait before each further search where a commit was seen to be under way."""

OWN = "own"
"""Column with the cosine to the query's own vector, where another one is searched by."""


By = Sequence[float] | QueryTerms
"""A vector, or weighted terms; there may be no terms."""


@dataclass(frozen=True, slots=True)
class Search:
    """One list of candidates that the database is asked for."""

    name: str
    """Of the arm: ``semantic``, ``keyword``, or what an option calls its own."""
    by: By
    limit: int
    predicate: Predicate | None = None
    """Which chunks count at all."""
    aspects: bool = False
    """Whether the aspects of documents are searched rather than their chunks."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the database is asked for."""

    searches: Sequence[Search]
    depths: tuple[int, ...]
    """Candidates of each arm: those of a first page, and in further steps as many as wanted."""
    beam: int
    scan_below: int
    """Chunks below which embeddings are scanned although there is a graph."""
    columns: Sequence[str] = ()
    """Columns of the candidates that stages need."""
    cosines: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Vectors by the column that holds each candidate's cosine to them, besides the query's."""
    products: Mapping[str, QueryTerms] = field(default_factory=dict)
    """Terms by the column that holds the raw score of each candidate by them, whichever arm
    found it."""
    words: Mapping[str, QueryTerms] = field(default_factory=dict)
    """Terms of the query one by one, by the column that holds the score by each of what the keyword
    arm found; none unless words are to be weighed against meaning."""
    first: int = 0
    """Of so many candidates of each arm terms and embedding are read too."""
    learned: Mapping[str, Any] | None = None
    """What feedback made of the query, for ``explain``."""
    phrasing: Phrasing | None = None
    """The query's wording, if that counts."""
    informative: float = 0.0
    """How much the query's words tell: as so many terms that a single chunk has."""

    def exact(self, collection: Collection) -> bool:
        """Whether embeddings are scanned rather than looked up in the graph."""
        return collection.scanned(below=self.scan_below)

    def shown(self, compared: Sequence[float] | None) -> Shown:
        """What is wanted of every candidate; without a vector to compare with, no cosine."""
        return Shown(
            self.columns,
            {} if compared is None else {"cosine": compared, **self.cosines},
            _dots(self.products),
        )

    @property
    def vector(self) -> Sequence[float] | None:
        """The query's vector, if the semantic arm takes part."""
        found = (each.by for each in self.searches if each.name == "semantic")
        return next((by for by in found if not isinstance(by, QueryTerms)), None)

    @property
    def terms(self) -> QueryTerms | None:
        """The query's terms, if the keyword arm takes part."""
        found = (each.by for each in self.searches if each.name == "keyword")
        return next((by for by in found if isinstance(by, QueryTerms)), None)


@dataclass(slots=True)
class Pool:
    """The candidates of all arms, each chunk once."""

    collection: Collection
    candidates: list[Candidate]
    failed: dict[str, str] = field(default_factory=dict)
    """Arms that could not be searched, and why."""
    exhausted: bool = True
    """Whether asking for more candidates would find none."""

    @property
    def chunks(self) -> list[Candidate]:
        """What may be shown: an aspect is replaced by the chunk it stands for. Each once."""
        chunks = {(item.stands_for or item).chunk_id: item for item in self.candidates}
        return [item.stands_for or item for item in chunks.values()]


async def find_candidates(
    store: Store, catalogue: Catalogue, collection: Collection, plan: Plan
) -> Pool:
    """Make the searches of a plan; one that fails does not fail the others.

    Raises:
        NotFound: if the collection is gone.
        DatabaseUnavailable: if none of them could be made.
    """
    try:
        current, lists = await _search(store, catalogue, collection, plan, plan.searches)
        candidates = pooled(lists, compared=_compared(plan))
        return Pool(current, candidates, exhausted=_exhausted(lists, plan))
    except StatementRefused as exc:
        if len(plan.searches) < 2:
            raise
        log.warning("searching each arm alone, as all together failed: %s", exc.detail[:500])
    found: Rows = {}
    failed: dict[str, str] = {}
    for each in plan.searches:
        try:
            current, rows = await _search(store, catalogue, collection, plan, [each])
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
    catalogue: Catalogue,
    collection: Collection,
    plan: Plan,
    searches: Sequence[Search],
) -> tuple[Collection, Rows]:
    # Without the semantic arm nothing is compared with its vector, which may be what failed.
    compared = plan.vector if any(each.name == "semantic" for each in searches) else None

    async def ask(current: Collection) -> tuple[list[Mapping[str, Any]], Rows]:
        statement = statements.candidates(
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

    found = await catalogue.consult(collection, ask)
    if found is None:
        raise NotFound("collection", collection.name)
    return found


def _settled(answer: Mapping[str, Any]) -> bool:
    """Whether no commit was under way, of which the arms may have found one half."""
    before, after = ({row["revision"] for row in answer[name]} for name in ("collection", "later"))
    return not answer["unindexed"] and before <= after


def _lists(answer: Mapping[str, Any], names: Sequence[str]) -> Rows:
    """The rows of each arm, with what was read besides of the first ones of any."""
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
    """Put the rows of all arms together, each chunk once.

    Args:
        lists: by the name of each arm its rows, in the order they were searched: of a chunk that
            was replaced in between, what the last one saw counts.
        compared: the arms whose scores are cosines to the query's vector.
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
    """A candidate by its row, with its cosine to the vector that was searched by."""
    candidate = Candidate(row["rid"], row["chunkId"], cosine, columns=row)
    if OWN in row:
        candidate.cosine, candidate.moved = row[OWN], cosine
    return candidate
