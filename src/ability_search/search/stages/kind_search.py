"""The option ``extended``: documents are also found by their titles, summaries, ...

Kinds derived from documents are searched together with the chunks, by the same retrievers. A hit on
a kind becomes a hit on the chunk of its document that is nearest to the query.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ability_search.collection import Collection
from ability_search.errors import DatabaseUnavailable
from ability_search.filters.tree import Field, Filter, OneOf, combine
from ability_search.search.candidates import By, Candidate, Candidates, Plan, PlannedSearch
from ability_search.search.query import Query
from ability_search.search.retrievers import candidate_of
from ability_search.search.stage import Ports, Stage
from ability_search.store.records import Columns, SparseVector

DOCUMENTS: Final = "documents"
_SUFFIX = "Aspects"
_OWN_WORDS = "ownWords"
"""Column with a chunk's score by the query's terms."""


def searches_kinds(query: Query) -> bool:
    """Return whether kinds are searched."""
    return bool(_kinds(query))


def chunk_filter(query: Query) -> Filter | None:
    """Return the filter on chunks: without kind ``documents``, only chunks of the requested kinds.

    Such chunks are of documents that were indexed as a summary, ..., but were not made of another
    document.
    """
    if not searches_kinds(query) or DOCUMENTS in query.asked.extended:
        return query.filter
    return _of_kinds(query)


def kind_searches(query: Query, by: Mapping[str, By], limit: int) -> list[PlannedSearch]:
    """Return the searches of kinds, one for each retriever's vector or terms."""
    if not searches_kinds(query):
        return []
    filter = _of_kinds(query)
    return [
        PlannedSearch(f"{name}{_SUFFIX}", each, limit, filter, kinds=True)
        for name, each in by.items()
    ]


def all_searched(query: Query, assumed: Collection, current: Collection) -> bool:
    """Return whether the assumption that a collection has kinds, or none, still holds.

    Always true if the query searches no kinds.
    """
    return not searches_kinds(query) or bool(assumed.kind_chunks) == bool(current.kind_chunks)


def count_chunks(candidates: Candidates) -> int:
    """Return the number of chunks after each kind is replaced by the chunk it represents."""
    return len({item.chunk_id for item in candidates.chunks})


async def resolve_kinds(candidates: Candidates, ports: Ports) -> None:
    """Find the chunk that each kind represents; a kind without one is dropped."""
    kinds = [item for item in candidates.found if item.columns.get("of")]
    if not kinds:
        return
    chunks = [item for item in candidates.found if not item.columns.get("of")]
    candidates.found = chunks
    kinds.sort(key=lambda item: (min(item.ranks.values()), item.chunk_id))
    sources = list(dict.fromkeys(item.columns["of"] for item in kinds))
    columns, by = _compared(candidates.plan)
    collection = candidates.collection
    try:
        best = await ports.store.best_chunks(
            collection.type, sources, columns, candidates.query.filter, by=by
        )
    except DatabaseUnavailable as exc:
        candidates.warnings.append(f"extended: kinds are ignored: {exc}")
        return
    known = {item.chunk_id: item for item in chunks}
    targets: dict[str, Candidate] = {}
    for source, row in best.items():
        new = candidate_of(row, row.columns.get("cosine"), collection)
        targets[source] = known.get(new.chunk_id, new)
    for item in kinds:
        item.stands_for = targets.get(item.columns["of"])
        if item.stands_for is not None:
            raw = item.cosine if by == "cosine" else max(item.values.values())
            _record_kind(item, item.stands_for, raw)
            candidates.found.append(item)


def _record_kind(item: Candidate, target: Candidate, raw: float | None) -> None:
    """Record the kinds by which a chunk was found, with the best raw score of each."""
    if raw is not None:
        kind = item.columns["kind"]
        target.kinds[kind] = max(raw, target.kinds.get(kind, raw))
    if item.cosine is not None:
        target.kind_cosine = max(item.cosine, target.kind_cosine or -1.0)


def _compared(plan: Plan) -> tuple[Columns, str]:
    """Return the columns to read of a document's chunks, and the one to compare them by."""
    columns = plan.columns(plan.vector)
    if plan.vector is not None:
        return columns, "cosine"
    terms = plan.terms
    own = {} if terms is None else {_OWN_WORDS: SparseVector(terms.ids, terms.weights)}
    return replace(columns, products={**columns.products, **own}), _OWN_WORDS


def _kinds(query: Query) -> tuple[str, ...]:
    return tuple(dict.fromkeys(kind for kind in query.asked.extended if kind != DOCUMENTS))


def _of_kinds(query: Query) -> Filter:
    return combine(OneOf(Field("kind"), _kinds(query)), query.filter)


KIND_SEARCH = Stage(
    "extended",
    lambda candidates: searches_kinds(candidates.query),
    resolve_kinds,
    lambda query: ("of", "kind") if searches_kinds(query) else (),
    step="extended",
)
