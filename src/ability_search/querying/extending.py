"""The option ``extended``: documents are found by their titles, summaries, ... as well.

What is said of a document is searched beside the chunks, by the same arms. A hit on it stands for
the document: for that chunk of it which is nearest to the query itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ability_search import statements
from ability_search.collection import Collection
from ability_search.errors import DatabaseUnavailable
from ability_search.querying.adjusting import Context
from ability_search.querying.candidates import By, Plan, Pool, Search, candidate_of
from ability_search.querying.model import Candidate, Query, QueryAnswer
from ability_search.querying.steps import Look, Reach
from ability_search.statements import Predicate, Shown

DOCUMENTS: Final = "documents"
_SUFFIX = "Aspects"
_OWN_WORDS = "ownWords"
"""The column that holds a chunk's score by the query's terms."""


def wanted(query: Query) -> bool:
    """Whether anything but the chunks of documents is searched."""
    return bool(_kinds(query))


def columns(query: Query) -> Sequence[str]:
    """What tells aspects from chunks."""
    return ("aspectOf", "kind") if wanted(query) else ()


def chunk_predicate(query: Query) -> Predicate | None:
    """Which chunks count: where documents are not asked for, those that are of a kind themselves.

    These are of documents that were indexed as a summary, ..., but not said to be of another.
    """
    if not wanted(query) or DOCUMENTS in query.options.extended:
        return query.predicate
    return _of_kinds(query)


def aspect_searches(query: Query, arms: Mapping[str, By], limit: int) -> list[Search]:
    """The searches of aspects, by vector or terms of each arm."""
    if not wanted(query):
        return []
    predicate = _of_kinds(query)
    return [
        Search(f"{name}{_SUFFIX}", by, limit, predicate, aspects=True) for name, by in arms.items()
    ]


def all_searched(query: Query, asked: Collection, pool: Pool) -> bool:
    """Whether a collection that was taken to be without aspects is indeed, or none are wanted."""
    return not wanted(query) or bool(asked.aspects) == bool(pool.collection.aspects)


def kept(pool: Pool) -> int:
    """How many chunks are left when each aspect is replaced by what it stands for."""
    return len({item.chunk_id for item in pool.chunks})


async def look(pool: Pool, context: Context, reach: Reach, answer: QueryAnswer) -> None:
    """Find the chunk that each aspect stands for; an aspect without one is no candidate."""
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
            *statements.best_chunks(
                pool.collection.type, sources, shown, context.query.predicate, by=by
            )
        )
    except DatabaseUnavailable as exc:
        answer.warnings.append(f"what is said of documents does not count: {exc}")
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
    """Remember the kinds by which a chunk was found, and the best raw score of each."""
    if raw is not None:
        kind = aspect.columns["kind"]
        target.aspects[kind] = max(raw, target.aspects.get(kind, raw))
    if aspect.cosine is not None:
        target.aspect_cosine = max(aspect.cosine, target.aspect_cosine or -1.0)


def _compared(plan: Plan) -> tuple[Shown, str]:
    """What is wanted of a document's chunks, and the column by which they are compared."""
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
