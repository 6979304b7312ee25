"""The options of a reindex as its job records them."""

from __future__ import annotations

from ability_search.index import reindex
from ability_search.index.index_calls import IndexOptions


def test_recorded_options_are_read_back_under_the_names_on_disk() -> None:
    options = IndexOptions(model="m", kinds=("title",), embed_all=True)
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
        "force": False,
        "embed_all": True,
        "dedup_threshold": None,
    }
    assert IndexOptions.model_validate(recorded) == options


def test_options_of_another_version_are_ignored() -> None:
    assert IndexOptions.model_validate({"model": "m", "later": 1}) == IndexOptions(model="m")
