"""Globs of sources."""

from __future__ import annotations

from typing import Any

import pytest

from ability_search.errors import InvalidInput
from ability_search.filters.source_globs import source_filter
from ability_search.filters.tree import (
    EVERYTHING,
)


@pytest.mark.parametrize(
    ("include", "exclude", "field", "message"),
    [
        ([], None, "sources", "is empty"),
        ("a*", None, "sources", "is a string, not a list"),
        (["a", ""], None, "sources.1", "is empty"),
        ([3], None, "sources.0", "is a number, not a string"),
        (["a"] * 300, None, "sources", "at most 256"),
        (["a" * 2000], None, "sources.0", "at most 1024"),
        (None, ["a", "b["], "excludeSources.1", "not closed"),
        (None, ["\ud800"], "excludeSources.0", "lone surrogate"),
    ],
)
def test_invalid_globs_are_rejected_with_their_place(
    include: Any, exclude: Any, field: str, message: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        source_filter(include, exclude)
    assert caught.value.field == field
    assert message in str(caught.value)


def test_without_globs_every_source_matches() -> None:
    assert source_filter(None, None) == EVERYTHING
    assert source_filter(None, []) == EVERYTHING
