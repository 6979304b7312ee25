"""Joining of filters."""

from __future__ import annotations

from ability_search.filters.tree import EVERYTHING, And, Exists, Field, OneOf, combine

LANG = Field("metadata", ("lang",))


def test_combining_keeps_the_order_of_the_parts() -> None:
    first, second = OneOf(LANG, ("en",)), Exists(LANG)
    assert combine() == EVERYTHING
    assert combine(None, first, EVERYTHING) == first
    assert combine(And((first, second)), None, first) == And((first, second, first))
