"""The option ``extended``: documents are also found by their titles, summaries, ...

The aspects of documents are searched besides the chunks, by the same retrievers. A hit on an
aspect stands for its document: for the chunk of it that is nearest to the query itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ability_search.collection import Collection
from ability_search.errors import DatabaseUnavailable
from ability_search.querying.adjusting import Context
from ability_search.querying.candidates import By, Plan, Pool, Search, candidate_of
from ability_search.querying.model import Candidate, Query, QueryAnswer
from ability_search.querying.steps import Look, Reach
from ability_search.store import arcadedb
from ability_search.store.arcadedb import Predicate, Shown

DOCUMENTS: Final = "documents"
_SUFFIX = "Aspects"
_OWN_WORDS = "ownWords"
"""Column with a chunk's score by the query's terms."""


def wanted(query: Query) -> bool:
    """Return whether aspects are searched."""
    return bool(_kinds(query))


def columns(query: Query) -> Sequence[str]:
    """Return the columns that distinguish aspects from chunks."""
    return ("aspectOf", "kind") if wanted(query) else ()


def chunk_predicate(query: Query) -> Predicate | None:
    """Return the filter on chunks: without kind ``documents``, only chunks of the requested kinds.

    Such chunks are of documents that were indexed as a summary, ..., but not as an aspect of
    another document.
    """
    if not wanted(query) or DOCUMENTS in query.options.extended:
        return query.predicate
    return _of_kinds(query)


def aspect_searches(query: Query, arms: Mapping[str, By], limit: int) -> list[Search]:
    """Return the searches of aspects, one for each retriever's vector or terms."""
    if not wanted(query):
        return []
    predicate = _of_kinds(query)
    return [
        Search(f"{name}{_SUFFIX}", by, limit, predicate, aspects=True) for name, by in arms.items()
    ]


def all_searched(query: Query, asked: Collection, pool: Pool) -> bool:
    """Return whether the assumption that a collection has aspects, or none, still holds.

    Always true if the query searches no aspects.
    """
    return not wanted(query) or bool(asked.aspects) == bool(pool.collection.aspects)


def kept(pool: Pool) -> int:
    """Return the number of chunks after each aspect is replaced by the chunk it stands for."""
    return len({item.chunk_id for item in pool.chunks})


async def look(pool: Pool, context: Context, reach: Reach, answer: QueryAnswer) -> None:
    """Find the chunk that each aspect stands for; an aspect without one is dropped."""
    aspects = [item for item in pool.candidates if item.columns.get("aspectOf")]
    if not aspects:
        return
    chunks = [item for item in pool.candidates if not item.columns.get("aspectOf")]
    pool.candidates = chunks
    aspects.sort(key=lambda item: (min(item.ranks.values()), item.chunk_id))
    sources = list(dict.fromkeys(item.columns["aspectOf"] for item in aspects))
    shown, by = _compared(context.plan)
    try:
        found = await reach.store.read(
            *arcadedb.best_chunks(
                pool.collection.type, sources, shown, context.query.predicate, by=by
            )
        )
    except DatabaseUnavailable as exc:
        answer.warnings.append(f"extended: aspects are ignored: {exc}")
        return
    known = {item.chunk_id: item for item in chunks}
    targets: dict[str, Candidate] = {}
    for row in found["best"]:
        new = candidate_of(row, row.get("cosine"))
        targets[row["source"]] = known.get(new.chunk_id, new)
    for item in aspects:
        item.stands_for = targets.get(item.columns["aspectOf"])
        if item.stands_for is not None:
            _note(
                item,
                item.stands_for,
                raw=item.cosine if by == "cosine" else max(item.values.values()),
            )
            pool.candidates.append(item)


def _note(aspect: Candidate, target: Candidate, *, raw: float | None) -> None:
    """Record the kinds by which a chunk was found, with the best raw score of each."""
    if raw is not None:
        kind = aspect.columns["kind"]
        target.aspects[kind] = max(raw, target.aspects.get(kind, raw))
    if aspect.cosine is not None:
        target.aspect_cosine = max(aspect.cosine, target.aspect_cosine or -1.0)


def _compared(plan: Plan) -> tuple[Shown, str]:
    """Return the columns to read of a document's chunks, and the one to compare them by."""
    shown = plan.shown(plan.vector)
    if plan.vector is not None:
        return shown, "cosine"
    terms = plan.terms
    own = {} if terms is None else {_OWN_WORDS: (terms.ids, terms.weights)}
    return Shown(shown.columns, shown.cosines, {**shown.dots, **own}), _OWN_WORDS


def _kinds(query: Query) -> list[str]:
    return [kind for kind in query.options.extended if kind != DOCUMENTS]


def _of_kinds(query: Query) -> Predicate:
    text, params = "kind IN :aspectKinds", {"aspectKinds": _kinds(query)}
    if query.predicate is None:
        return Predicate(text, params)
    return Predicate(f"{text} AND ({query.predicate.text})", {**query.predicate.params, **params})


EXTENDED = Look("extended", wanted, look)
