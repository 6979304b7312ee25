"""The option ``extended``: documents are also found by their titles, summaries, ...

Kinds derived from documents are searched together with the chunks, by the same retrievers. A hit on
a kind becomes a hit on the chunk that it was made of, else on the chunk of its document that is
nearest to the query.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ability_search.errors import DatabaseUnavailable
from ability_search.extensions.kinds import Kind, KindOptions
from ability_search.filters.tree import Field, OneOf, combine
from ability_search.search.candidates import Candidates
from ability_search.search.query import Query
from ability_search.search.retrievers import candidate_of
from ability_search.search.stage import Phase, Ports, Stage
from ability_search.search.wants import FurtherSearch, Wants
from ability_search.store.records import Search, source_of
from ability_search.store.values import Chunks

DOCUMENTS: Final = "documents"
"""The kind of chunks that are no kind made of a document."""
_MOST = 10_000
"""Chunks that kinds represent."""


class Extended(NamedTuple):
    """The option."""

    kinds: tuple[Kind, ...]
    """Kinds made of documents to search; at least one."""
    documents: bool
    """Whether chunks of all kinds are searched too, instead of chunks of these kinds."""


def extended(asked: KindOptions) -> Extended | None:
    """Return the option of a request; ``None`` without kinds made of documents."""
    kinds = tuple(dict.fromkeys(kind for kind in asked.extended if kind != DOCUMENTS))
    return Extended(kinds, DOCUMENTS in asked.extended) if kinds else None


def kinds_wanted(option: Extended, query: Query) -> Wants:
    """Return the searches of the kinds made of documents.

    Without the kind ``documents``, only chunks of the requested kinds are searched besides. Such
    chunks are of documents that were indexed as a summary, ..., but were not made of another one.
    """
    narrow = OneOf(Field("kind"), option.kinds)
    filter = combine(narrow, query.filter)
    return Wants(
        fields=("of", "of_chunk", "kind"),
        searches=(FurtherSearch("Aspects", filter, each=True, kinds=True),),
        narrow=None if option.documents else narrow,
    )


async def resolve_kinds(_kinds: Extended, candidates: Candidates, ports: Ports) -> None:
    """Find the chunk that each kind represents; a kind without one is dropped."""
    kinds = [item for item in candidates.found if item.columns.get("of")]
    if not kinds:
        return
    chunks = [item for item in candidates.found if not item.columns.get("of")]
    candidates.found = chunks
    kinds.sort(key=lambda item: (min(item.ranks.values()), item.chunk_id))
    request, collection = candidates.request, candidates.collection
    # The chunks that kinds were made of, if each was made of one.
    origins = {
        item.chunk_id: f"{collection.public_name}:{item.columns['of']}:{item.columns['of_chunk']}"
        for item in kinds
        if item.columns.get("of_chunk") is not None
    }
    within = {
        "best": Chunks(sources=list(dict.fromkeys(item.columns["of"] for item in kinds))),
        "made": Chunks(ids=list(dict.fromkeys(origins.values()))),
    }
    by = request.terms if request.vector is None else request.vector
    assert by is not None
    searches = [
        Search(name, by, _MOST, candidates.query.filter, within=chosen)
        for name, chosen in within.items()
    ]
    try:
        found = await ports.store.search(collection, searches, request.columns(request.vector))
    except DatabaseUnavailable as exc:
        candidates.warnings.append(f"extended: kinds are ignored: {exc}")
        return
    best = {source_of(row.chunk_id): row for row in found.rows["best"]}
    made = {row.chunk_id: row for row in found.rows["made"]}
    known = {item.chunk_id: item for item in chunks}
    for item in kinds:
        row = made.get(origins.get(item.chunk_id, "")) or best.get(item.columns["of"])
        if row is not None:
            new = candidate_of(row, collection, depth=item.depth)
            item.stands_for = known.setdefault(new.chunk_id, new)
            item.stands_for.reach(new)
            raw = max(item.values.values()) if request.vector is None else item.cosine
            item.kinds = {} if raw is None else {item.columns["kind"]: raw}
            item.kind_cosine = item.cosine
            candidates.found.append(item)


KIND_SEARCH = Stage("extended", Phase.FIND, 20, resolve_kinds, option=extended, wants=kinds_wanted)
