"""Parsing of filter documents and of globs of sources."""

from __future__ import annotations

from typing import Any

import pytest

from ability_search.errors import InvalidInput
from ability_search.filters.parser import parse_filter, source_filter
from ability_search.filters.tree import EVERYTHING, And, Compare, Exists, Field, Not, OneOf, Or
from ability_search.store.arcadedb.core import Parameters
from ability_search.store.arcadedb.filter_sql import to_sql


def test_an_empty_filter_matches_everything() -> None:
    assert parse_filter({}) == EVERYTHING
    params = Parameters()
    assert (to_sql(EVERYTHING, params), params) == ("true", {})


LANG = Field("metadata", ("lang",))


@pytest.mark.parametrize(
    ("document", "tree"),
    [
        ({"metadata.lang": "en"}, OneOf(LANG, ("en",))),
        ({"metadata.lang": {"$eq": "en"}}, OneOf(LANG, ("en",))),
        ({"metadata.lang": ["en", 2.0]}, OneOf(LANG, (("en", 2),))),
        ({"metadata.lang": None}, Not(Exists(LANG))),
        ({"metadata.lang": {"$in": []}}, Or(())),
        ({"metadata.lang": {"$in": ["en", None]}}, Or((Not(Exists(LANG)), OneOf(LANG, ("en",))))),
        ({"metadata.a.b\\.c.\\\\": 1}, OneOf(Field("metadata", ("a", "b.c", "\\")), (1,))),
        (
            {"source": "s", "metadata.lang": {"$gt": "a", "$lt": "b"}},
            And((OneOf(Field("source"), ("s",)), Compare(LANG, ">", "a"), Compare(LANG, "<", "b"))),
        ),
        (
            {"metadata.lang": {"$not": {"$between": [1, 2]}}},
            Not(And((Compare(LANG, ">=", 1), Compare(LANG, "<=", 2)))),
        ),
    ],
)
def test_documents_are_parsed_into_trees(document: Any, tree: Any) -> None:
    assert parse_filter(document) == tree


CREATED = Field("createdAt")


DAY = 1_714_521_600_000  # 2024-05-01T00:00:00Z


@pytest.mark.parametrize(
    ("document", "start", "end"),
    [
        ("2024-05-01", DAY, DAY + 86_400_000),
        ("2024-05-01T00:00Z", DAY, DAY + 1),
        ("2024-05-01t02:00:00.001999999+02:00", DAY + 1, DAY + 2),
        ("2024-05-01 00:00:00", DAY, DAY + 1),
        ("1969-12-31T23:59:59.999Z", -1, 0),
        ("9999-12-31", 253_402_214_400_000, 253_402_300_800_000),
        ("0001-01-01T00:00:00+14:00", -62_135_596_800_000 - 50_400_000, None),
    ],
)
def test_instants_and_days_are_ranges_of_milliseconds(
    document: str, start: int, end: int | None
) -> None:
    end = start + 1 if end is None else end
    assert parse_filter({"createdAt": document}) == And(
        (Compare(CREATED, ">=", start), Compare(CREATED, "<", end))
    )
    assert parse_filter({"createdAt": {"$gt": document}}) == Compare(CREATED, ">=", end)
    assert parse_filter({"createdAt": {"$gte": document}}) == Compare(CREATED, ">=", start)
    assert parse_filter({"createdAt": {"$lt": document}}) == Compare(CREATED, "<", start)
    assert parse_filter({"createdAt": {"$lte": document}}) == Compare(CREATED, "<", end)


@pytest.mark.parametrize(
    ("document", "field", "message"),
    [
        ([], "filter", "is a list, not an object"),
        ({"category": 1}, "filter.category", "is not a field"),
        ({"metadata": {"a": 1}}, "filter.metadata", "is not a field"),
        ({"$nor": []}, "filter.$nor", "is not allowed here"),
        ({"$and": {}}, "filter.$and", "is an object, not a list"),
        ({"$or": []}, "filter.$or", "is empty"),
        ({"$and": [{}]}, "filter.$and.0", "is empty"),
        ({"$not": 3}, "filter.$not", "is a number, not a filter"),
        ({1: 2}, "filter.1", "is not a string"),
        (
            {"$and": [{"source": "a"}, {"metadata.year": {"$gtt": 1}}]},
            "filter.$and.1.metadata.year.$gtt",
            "not an operator of metadata",
        ),
        ({"source": {"gt": "a"}}, "filter.source.gt", "'gt' is not an operator of source"),
        ({"createdAt": {"$like": "2024%"}}, "filter.createdAt.$like", "not an operator of"),
        ({"metadata.a": {}}, "filter.metadata.a", "has no operator"),
        ({"metadata.a": {"$not": 3}}, "filter.metadata.a.$not", "use $ne"),
        ({"metadata.a": {"$in": "x"}}, "filter.metadata.a.$in", "is a string, not a list"),
        ({"metadata.a": {"$in": [{}]}}, "filter.metadata.a.$in.0", "is an object, not a string,"),
        ({"metadata.a": {"$eq": [[1]]}}, "filter.metadata.a.$eq.0", "is a list, not a string,"),
        ({"metadata.a": {"$gt": True}}, "filter.metadata.a.$gt", "only strings and numbers"),
        ({"metadata.a": {"$gt": None}}, "filter.metadata.a.$gt", "only strings and numbers"),
        ({"metadata.a": float("nan")}, "filter.metadata.a", "is not a finite number"),
        ({"metadata.a": 2**63}, "filter.metadata.a", "more than 64 bits"),
        ({"metadata.a": "\ud800"}, "filter.metadata.a", "lone surrogate"),
        ({"metadata.\ud800": 1}, "filter.metadata.\ud800", "lone surrogate"),
        ({"metadata.a\\x": 1}, "filter.metadata.a\\x", "backslash"),
        ({"metadata.a": {"$between": [1]}}, "filter.metadata.a.$between", "has 1 values"),
        ({"metadata.a": {"$between": [1, "a"]}}, "filter.metadata.a.$between", "a number and a"),
        ({"metadata.a": {"$exists": 1}}, "filter.metadata.a.$exists", "not true or false"),
        ({"metadata.a": {"$like": 1}}, "filter.metadata.a.$like", "is a number, not a string"),
        ({"metadata.a": {"$like": "\\a"}}, "filter.metadata.a.$like", "backslash"),
        ({"metadata.a": {"$contains": None}}, "filter.metadata.a.$contains", "is null"),
        ({"source": 3}, "filter.source", "is a number, not a string"),
        ({"source": ["a"]}, "filter.source", "is a list"),
        ({"title": {"$gt": 3}}, "filter.title.$gt", "is a number, not a string"),
        ({"createdAt": 3}, "filter.createdAt", "is not a date or an instant"),
        ({"createdAt": "yesterday"}, "filter.createdAt", "is not a date or an instant"),
        ({"createdAt": {"$in": ["2024-02-30"]}}, "filter.createdAt.$in.0", "not a date that"),
        ({"createdAt": "2024-05-01T24:30:00Z"}, "filter.createdAt", "not a date that exists"),
    ],
)
def test_an_invalid_document_is_rejected_with_its_place(
    document: Any, field: str, message: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_filter(document)
    assert caught.value.field == field
    assert message in str(caught.value)


def test_the_hint_lists_the_valid_operators() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_filter({"category": 1})
    assert "metadata.category" in caught.value.hint
    assert "createdAt" in caught.value.hint
    with pytest.raises(InvalidInput) as caught:
        parse_filter({"title": {"$regex": "x"}})
    assert "$like" in caught.value.hint
    with pytest.raises(InvalidInput) as caught:
        parse_filter({"createdAt": {"$like": "x"}})
    assert "$like" not in caught.value.hint


def nest(levels: int) -> dict[str, Any]:
    document: dict[str, Any] = {"source": "a"}
    for _ in range(levels - 1):
        document = {"$not": document}
    return document


def test_limits_are_enforced() -> None:
    parse_filter(nest(4), max_depth=4)
    with pytest.raises(InvalidInput, match="nested deeper than 4 levels"):
        parse_filter(nest(5), max_depth=4)
    with pytest.raises(InvalidInput, match="nested deeper than 2 levels"):
        parse_filter({"source": {"$not": {"$not": {"$eq": "a"}}}}, max_depth=2)
    with pytest.raises(InvalidInput, match="more than 3 keys"):
        parse_filter({"metadata.a.b.c.d": 1}, max_depth=3)
    three = {"metadata.a": {"$gt": 1, "$lt": 2}}
    parse_filter(three, max_nodes=3)
    with pytest.raises(InvalidInput, match="exceeds the number of conditions"):
        parse_filter(three, max_nodes=2)
    with pytest.raises(InvalidInput, match=r"filter\.source\.\$in: has 1001 values, at most 1000"):
        parse_filter({"source": {"$in": ["a"] * 1001}})
    with pytest.raises(InvalidInput, match=r"filter\.source: has 1025 characters, at most 1024"):
        parse_filter({"source": "a" * 1025})


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
