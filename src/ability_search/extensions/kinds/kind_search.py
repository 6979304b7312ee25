"""The option ``extended``: documents are also found by their titles, summaries, ...

Kinds derived from documents are searched together with the chunks, by the same retrievers. A hit on
a kind becomes a hit on the chunk that it was made of, else on the chunk of its document that is
nearest to the query.
"""

from __future__ import annotations

from dataclasses import replace

from ability_search.collection import Collection
from ability_search.errors import DatabaseUnavailable
from ability_search.filters.tree import Field, Filter, OneOf, combine
from ability_search.search.candidates import Candidate, Candidates
from ability_search.search.plan import Plan
from ability_search.search.query import DOCUMENTS, Query
from ability_search.search.retrievers import candidate_of
from ability_search.search.stage import Ports, option_stage
from ability_search.store.records import Columns

_OWN_WORDS = "ownWords"
"""Column with a chunk's score by the query's terms."""


def kind_filter(query: Query) -> Filter | None:
    """Return the filter on the kinds to search; ``None`` if no kinds are searched."""
    return combine(OneOf(Field("kind"), query.kinds), query.filter) if query.kinds else None


def chunk_filter(query: Query) -> Filter | None:
    """Return the filter on chunks: without kind ``documents``, only chunks of the requested kinds.

    Such chunks are of documents that were indexed as a summary, ..., but were not made of another
    document.
    """
    return query.filter if DOCUMENTS in query.asked.extended else kind_filter(query) or query.filter


def all_searched(query: Query, assumed: Collection, current: Collection) -> bool:
    """Return whether the assumption that a collection has kinds, or none, still holds.

    The same for duplicates. Always true if the query searches no kinds and has no filter.
    """
    kinds = not query.kinds or bool(assumed.kind_chunks) == bool(current.kind_chunks)
    return kinds and (query.filter is None or bool(assumed.duplicates) == bool(current.duplicates))


async def resolve_kinds(_kinds: object, candidates: Candidates, ports: Ports) -> None:
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
    origins = {item.chunk_id: origin for item in kinds if (origin := _origin(item, collection))}
    try:
        best, made_of = await ports.store.best_chunks(
            collection.type,
            sources,
            columns,
            candidates.query.filter,
            by=by,
            chunk_ids=list(dict.fromkeys(origins.values())),
        )
    except DatabaseUnavailable as exc:
        candidates.warnings.append(f"extended: kinds are ignored: {exc}")
        return
    known = {item.chunk_id: item for item in chunks}

    for item in kinds:
        row = made_of.get(origins.get(item.chunk_id, "")) or best.get(item.columns["of"])
        if row is not None:
            new = candidate_of(row, row.columns.get("cosine"), collection, depth=item.depth)
            item.stands_for = known.setdefault(new.chunk_id, new)
            item.stands_for.reach(new)
            raw = item.cosine if by == "cosine" else max(item.values.values())
            item.kinds = {} if raw is None else {item.columns["kind"]: raw}
            item.kind_cosine = item.cosine
            candidates.found.append(item)


def _origin(item: Candidate, collection: Collection) -> str | None:
    """Return the chunkId of the chunk that a kind was made of; ``None`` if it is not one chunk."""
    index = item.columns.get("of_chunk")
    return None if index is None else f"{collection.public_name}:{item.columns['of']}:{index}"


def _compared(plan: Plan) -> tuple[Columns, str]:
    """Return the columns to read of a document's chunks, and the one to compare them by."""
    columns = plan.columns(plan.vector)
    if plan.vector is not None:
        return columns, "cosine"
    own = {} if plan.terms is None else {_OWN_WORDS: plan.terms}
    return replace(columns, products={**columns.products, **own}), _OWN_WORDS


KIND_SEARCH = option_stage(
    "extended",
    lambda query: query.kinds,
    resolve_kinds,
    fields=lambda _: ("of", "of_chunk", "kind"),
)
