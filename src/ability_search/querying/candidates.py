"""From a query to candidates: both arms in one round trip."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ability_search import statements
from ability_search.catalogue import Catalogue, Collection
from ability_search.errors import NotFound, StatementRefused
from ability_search.ports import Store
from ability_search.querying.model import Arm, Candidate
from ability_search.ranking.bm25 import QueryTerms
from ability_search.statements import Predicate

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """What the database is asked for."""

    vector: Sequence[float] | None
    terms: QueryTerms | None
    """``None`` where the keyword arm is not wanted; it may be empty."""
    depths: tuple[int, ...]
    """Candidates of each arm: those of a first page, and in further steps as many as wanted."""
    beam: int
    scan_below: int
    """Chunks below which embeddings are scanned although there is a graph."""
    predicate: Predicate | None

    def exact(self, collection: Collection) -> bool:
        """Whether the semantic arm scans the embeddings."""
        return collection.scanned(below=self.scan_below)

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The arms that take part."""
        semantic: tuple[Arm, ...] = ("semantic",) if self.vector is not None else ()
        return (*semantic, "keyword") if self.terms is not None else semantic


@dataclass(slots=True)
class Pool:
    """The candidates of all arms, each chunk once."""

    collection: Collection
    candidates: list[Candidate]
    failed: dict[Arm, str] = field(default_factory=dict)
    """Arms that could not be searched."""


async def find_candidates(
    store: Store, catalogue: Catalogue, collection: Collection, plan: Plan
) -> Pool:
    """Search the arms of a plan; one that fails does not fail the other.

    Raises:
        NotFound: if the collection is gone.
        DatabaseUnavailable: if no arm could be searched.
    """
    try:
        return await _search(store, catalogue, collection, plan, plan.arms)
    except StatementRefused as exc:
        if len(plan.arms) < 2:
            raise
        log.warning("both arms failed together, searching each alone: %s", exc.detail[:500])
    failed: dict[Arm, str] = {}
    for arm in plan.arms:
        try:
            pool = await _search(store, catalogue, collection, plan, (arm,))
        except StatementRefused as exc:
            failed[arm] = str(exc)
            last = exc
        else:
            survivors = pool
    if len(failed) == len(plan.arms):
        raise last
    survivors.failed = failed
    return survivors


async def _search(
    store: Store,
    catalogue: Catalogue,
    collection: Collection,
    plan: Plan,
    arms: Sequence[Arm],
) -> Pool:
    async def ask(current: Collection) -> tuple[list[Mapping[str, Any]], Mapping[str, Any]]:
        answer = await store.read(
            *statements.candidates(
                current.name,
                current.type,
                vector=plan.vector if "semantic" in arms else None,
                terms=(plan.terms.ids, plan.terms.weights)
                if plan.terms is not None and "keyword" in arms
                else None,
                limit=plan.depths[-1],
                beam=plan.beam,
                exact=plan.exact(current),
                predicate=plan.predicate,
            )
        )
        return answer["collection"], answer

    found = await catalogue.consult(collection, ask)
    if found is None:
        raise NotFound("collection", collection.name)
    current, answer = found
    return Pool(current, pooled(answer.get("semantic") or (), answer.get("keyword") or ()))


def pooled(
    semantic: Sequence[Mapping[str, Any]], keyword: Sequence[Mapping[str, Any]]
) -> list[Candidate]:
    """Put the rows of both arms together, best first in each, each chunk once.

    The arms are searched one after the other: of a chunk that was replaced in between, what the
    keyword arm saw counts, which is searched last.
    """
    pool: dict[str, Candidate] = {}
    for rank, row in enumerate(_ordered(semantic, "cosine"), start=1):
        chunk_id = row["chunkId"]
        pool[chunk_id] = Candidate(row["rid"], chunk_id, row["cosine"], ranks={"semantic": rank})
    for rank, row in enumerate(_ordered(keyword, "bm25"), start=1):
        chunk_id = row["chunkId"]
        candidate = pool.get(chunk_id)
        if candidate is None or candidate.rid != row["rid"]:
            candidate = pool[chunk_id] = Candidate(row["rid"], chunk_id, row.get("cosine"))
        candidate.bm25 = row["bm25"]
        candidate.ranks["keyword"] = rank
    return list(pool.values())


def _ordered(rows: Sequence[Mapping[str, Any]], score: str) -> list[Mapping[str, Any]]:
    return sorted(rows, key=lambda row: (-row[score], row["chunkId"]))
