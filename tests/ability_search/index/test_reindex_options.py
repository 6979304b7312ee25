"""The options of a reindex as its job records them."""

from __future__ import annotations

from ability_search.index import reindex
from ability_search.index.index_fields import IndexFields


def test_recorded_options_are_read_back_under_the_names_on_disk() -> None:
    options = IndexFields(model="m", kinds=["title"], force=True)
    recorded = reindex._recorded(options)
    assert recorded == {
        "chunk_strategy": None,
        "max_tokens": None,
        "overlap": None,
        "context": None,
        "model": "m",
        "language": None,
        "kinds": ["title"],
        "kinds_by": None,
        "force": True,
        "dedup_threshold": None,
    }
    assert IndexFields.model_construct(**recorded) == options
