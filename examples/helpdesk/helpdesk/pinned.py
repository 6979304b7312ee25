"""The option ``pinned``: answers that an editor pinned come before others."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from ability_search.search.candidates import Candidate, Candidates, scale
from ability_search.search.options import QueryInput
from ability_search.search.query import Query
from ability_search.search.stage import scorer
from ability_search.search.wants import Wants
from ability_search.store.records import metadata_column
from ability_search.wire import Share


class PinnedOptions(QueryInput):
    """The option of search-query."""

    pinned: Share | None = Field(
        None,
        description="How much documents with metadata pinned: true are preferred; 0 not at all.",
        examples=[0.5],
    )


def prefer(weight: float, items: Sequence[Candidate], _candidates: Candidates) -> None:
    """Multiply the scores of candidates that are not pinned by ``1 - weight``."""
    for item in items:
        pinned = (item.columns.get("metadata") or {}).get("pinned") is True
        scale(item, "pinned", 1.0 if pinned else 1.0 - weight, pinned=pinned)


def wants(_weight: float, _query: Query) -> Wants:
    """Return the column that the stage reads of each candidate."""
    return Wants(fields=(metadata_column("pinned"),))


PINNED = scorer("pinned", 75, prefer, option=lambda asked: asked.pinned, wants=wants)
