"""Semantics of filters, in the Python predicate and in the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.ability_search.filter_engine import (
    TYPE,
    Engine,
    Rows,
    filter_engine_in,
    numbers_by_predicate,
)

from ability_search.filters.parser import parse_filter, source_filter
from ability_search.filters.tree import Filter, combine
from ability_search.store.arcadedb.core import Parameters
from ability_search.store.arcadedb.filter_sql import to_sql

Select = Callable[[Filter, Rows], list[int]]


@pytest.fixture(scope="module")
def filter_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with filter_engine_in(tmp_path_factory.mktemp("filters")) as engine:
        yield engine


@pytest.fixture(params=["predicate", pytest.param("engine", marks=pytest.mark.engine)])
def select(request: pytest.FixtureRequest) -> Select:
    if request.param == "predicate":
        return numbers_by_predicate
    engine: Engine = request.getfixturevalue("filter_engine")

    def ask(filter: Filter, rows: Rows) -> list[int]:
        engine.fill(rows)
        return engine.numbers(filter)

    return ask


ABSENT = object()

VALUES: dict[str, Any] = {
    "absent": ABSENT,
    "null": None,
    "one": 1,
    "one decimal": 1.0,
    "one and a half": 1.5,
    "minus one": -1,
    "true": True,
    "false": False,
    "string one": "1",
    "string true": "true",
    "empty": "",
    "en": "en",
    "EN": "EN",
    "lines": "line\nbreak",
    "percent": "100% real_thing",
    "École": "École",
    "emoji": "😀x",
    "halfwidth": "\uffee",
    "list": ["en", "de"],
    "numbers": [1, 2],
    "empty list": [],
    "list of null": [None],
    "nested list": [["en"]],
    "list of maps": [{"b": "x"}],
    "map": {"b": "x", "c d": {"e": 7}},
    "large": 2**53 + 1,
    "largest": 2**63 - 1,
}
NOTHING_THERE = {"absent", "null"}
NUMBERS = {"one", "one decimal", "one and a half", "minus one", "large", "largest"}
STRINGS = {name for name, value in VALUES.items() if isinstance(value, str)}
ROWS = [
    {"source": "s", "metadata": {} if value is ABSENT else {"k": value}}
    for value in VALUES.values()
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("en", {"en", "list"}),
        ({"$eq": "en"}, {"en", "list"}),
        (1, {"one", "one decimal", "numbers"}),
        (1.0, {"one", "one decimal", "numbers"}),
        (True, {"true"}),
        ("1", {"string one"}),
        ("", {"empty"}),
        (2**53 + 1, {"large"}),
        (float(2**53), set()),
        (2**63 - 1, {"largest"}),
        (None, NOTHING_THERE),
        (["en", "de"], {"list"}),
        (["de", "en"], set()),
        ([1.0, 2], {"numbers"}),
        ([True, 2], set()),
        ([], {"empty list"}),
        ({"$ne": "en"}, set(VALUES) - {"en", "list"}),
        ({"$ne": None}, set(VALUES) - NOTHING_THERE),
        ({"$in": ["en", 1, True]}, {"en", "list", "one", "one decimal", "numbers", "true"}),
        ({"$in": []}, set()),
        ({"$in": [None, "en"]}, {"en", "list"} | NOTHING_THERE),
        ({"$nin": ["en", 1]}, set(VALUES) - {"en", "list", "one", "one decimal", "numbers"}),
        ({"$nin": []}, set(VALUES)),
        ({"$gt": 1}, {"one and a half", "large", "largest"}),
        ({"$gte": 1}, NUMBERS - {"minus one"}),
        ({"$lt": 1.5}, {"one", "one decimal", "minus one"}),
        ({"$lte": -1}, {"minus one"}),
        ({"$gt": 2**53}, {"large", "largest"}),
        ({"$gt": "😀"}, {"emoji"}),
        ({"$gt": "\uffed"}, {"emoji", "halfwidth"}),
        ({"$lt": "1"}, {"empty"}),
        ({"$gte": ""}, STRINGS),
        ({"$not": {"$gt": 1}}, set(VALUES) - {"one and a half", "large", "largest"}),
        ({"$between": [1, 1.5]}, {"one", "one decimal", "one and a half"}),
        ({"$between": ["1", "10"]}, {"string one"}),
        ({"$between": [2, 1]}, set()),
        ({"$gt": 0, "$lt": 1.5}, {"one", "one decimal"}),
        ({"$exists": True}, set(VALUES) - NOTHING_THERE),
        ({"$exists": False}, NOTHING_THERE),
        ({"$contains": "en"}, {"en", "EN", "list"}),
        ({"$contains": "éco"}, {"École"}),
        ({"$contains": "E\nB"}, {"lines"}),
        ({"$contains": 1}, {"numbers"}),
        ({"$contains": ""}, STRINGS),
        ({"$contains": True}, set()),
        ({"$like": "e_"}, {"en"}),
        ({"$like": "%e%"}, {"en", "lines", "percent", "string true", "École"}),
        ({"$like": "100\\%%\\_%"}, {"percent"}),
        ({"$like": "_x"}, {"emoji"}),
        ({"$like": "%"}, STRINGS),
        ({"$ilike": "E_"}, {"en", "EN"}),
        ({"$ilike": "é%E"}, {"École"}),
        ({"$ilike": "100\\%%REAL\\_%"}, {"percent"}),
        ({"$not": {"$like": "%"}}, set(VALUES) - STRINGS),
    ],
)
def test_conditions_on_metadata(select: Select, condition: Any, expected: set[str]) -> None:
    names = list(VALUES)
    found = select(parse_filter({"metadata.k": condition}), ROWS)
    assert {names[number] for number in found} == expected


@pytest.mark.parametrize(
    ("path", "condition", "expected"),
    [
        ("k.b", "x", {"map"}),
        ("k.b", {"$exists": True}, {"map"}),
        ("k.b", {"$like": "x"}, {"map"}),
        ("k.c d.e", {"$gte": 7}, {"map"}),
        ("k.c d.e", {"$ne": 7}, set(VALUES) - {"map"}),
        ("k.c d.e.f", {"$exists": True}, set()),
        ("k.0", {"$exists": True}, set()),
    ],
)
def test_paths_go_through_maps_only(
    select: Select, path: str, condition: Any, expected: set[str]
) -> None:
    names = list(VALUES)
    found = select(parse_filter({f"metadata.{path}": condition}), ROWS)
    assert {names[number] for number in found} == expected


@pytest.mark.parametrize(
    "key",
    ["a b", "O'Brien", 'say "x"', "back\\slash\\", "`tick`", "ключ😀", "", "a.b", "a=b", "@rid",
     "1", ":f0", "a') OR (1=1", "#4:0", "size()", "\n", "--", "/*", "x" * 300],
)  # fmt: skip
@pytest.mark.parametrize("condition", [{"$eq": 5}, {"$gte": 5}, {"$exists": True}])
def test_any_key_is_safe(select: Select, key: str, condition: dict[str, Any]) -> None:
    rows = [{"source": "s", "metadata": {key: 5}}, {"source": "s", "metadata": {key + "x": 5}}]
    path = key.replace("\\", "\\\\").replace(".", "\\.")
    assert select(parse_filter({f"metadata.{path}": condition}), rows) == [0]


@pytest.mark.parametrize("operator", ["$eq", "$gte", "$like", "$contains"])
@pytest.mark.parametrize(
    "value", ["O'Brien", 'a "b"', "' OR '1'='1", "tail\\", "`x`", ":f1", "a\nb", "\x00", "😀"]
)
@pytest.mark.parametrize("field", ["metadata.k", "source"])
def test_any_value_is_safe(select: Select, field: str, operator: str, value: str) -> None:
    rows = [
        {"source": value, "metadata": {"k": value}},
        {"source": "\x00", "metadata": {"k": "\x00"}},
        {"source": "", "metadata": {"k": ""}},
    ]
    operand = value.replace("\\", "\\\\") if operator == "$like" else value
    found = select(parse_filter({field: {operator: operand}}), rows)
    assert found == ([0, 1] if value == "\x00" else [0])


DAY = 1_714_521_600_000  # 2024-05-01T00:00:00Z


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("2024-05-01", [1, 2]),
        ("2024-05-01T00:00:00Z", [1]),
        ({"$ne": "2024-05-01"}, [0, 3, 4]),
        ({"$gt": "2024-05-01"}, [3]),
        ({"$gt": "2024-05-01T00:00:00+00:00"}, [2, 3]),
        ({"$lte": "2024-05-01"}, [0, 1, 2]),
        ({"$lt": "2024-05-01"}, [0]),
        ({"$between": ["2024-04-30", "2024-05-01"]}, [0, 1, 2]),
        ({"$in": ["2024-04-30", "2024-05-02", None]}, [0, 3, 4]),
        ({"$exists": False}, [4]),
        ({"$not": {"$gte": "2024-05-01"}}, [0, 4]),
    ],
)
def test_instants(select: Select, condition: Any, expected: list[int]) -> None:
    instants: list[int | None] = [DAY - 1, DAY, DAY + 86_399_999, DAY + 86_400_000, None]
    rows: list[dict[str, Any]] = [
        {"source": "s", "createdAt": instant, "metadata": {}} for instant in instants
    ]
    assert select(parse_filter({"createdAt": condition}), rows) == expected


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"title": "T"}, [0]),
        ({"title": {"$ne": "T"}}, [1, 2, 3]),
        ({"title": {"$in": ["T", "t"]}}, [0, 1]),
        ({"title": {"$contains": "T"}}, [0, 1]),
        ({"title": {"$not": {"$contains": "T"}}}, [2, 3]),
        ({"title": None}, [3]),
        ({"kind": "document", "$or": [{"title": "T"}, {"title": "t"}]}, [0]),
        ({"$or": [{"kind": "summary"}, {"title": "T", "kind": "document"}]}, [0, 1]),
        ({"$and": [{"$or": [{"title": "T"}, {"title": "x"}]}, {"kind": "document"}]}, [0, 2]),
        ({"$not": {"$or": [{"title": "T"}, {"kind": "summary"}]}}, [2, 3]),
        ({"$not": {"title": "T", "kind": "document"}}, [1, 2, 3]),
        ({}, [0, 1, 2, 3]),
    ],
)
def test_fields_and_their_combination(
    select: Select, document: dict[str, Any], expected: list[int]
) -> None:
    rows: list[dict[str, Any]] = [
        {"source": "a", "title": "T", "kind": "document", "metadata": {}},
        {"source": "b", "title": "t", "kind": "summary", "metadata": {}},
        {"source": "c", "title": "x", "kind": "document", "metadata": None},
        {"source": "d", "kind": "document"},
    ]
    assert select(parse_filter(document), rows) == expected


SOURCES = [
    "docs/a.md", "docs/x/b.md", "docs0", "Docs/a.md", "a.md", "secret/key", "we[ird]/a b",
    "\U0010ffff\U0010ffffz", "https://x.org/?q=1", "日本/語.md", "multi\nline", "\ud7ffz",
]  # fmt: skip


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        (["docs/**"], None, ["docs/a.md", "docs/x/b.md"]),
        (["docs/*"], None, ["docs/a.md"]),
        (["**/a.md"], None, ["docs/a.md", "Docs/a.md", "a.md"]),
        (["a.md", "docs0"], None, ["docs0", "a.md"]),
        (["a.md", "日本/?.md"], None, ["a.md", "日本/語.md"]),
        (["we[[]ird]/*"], None, ["we[ird]/a b"]),
        (["\U0010ffff*"], None, ["\U0010ffff\U0010ffffz"]),
        (["https://x.org/[?]q=*"], None, ["https://x.org/?q=1"]),
        (["\ud7ff*"], None, ["\ud7ffz"]),
        (["multi*"], None, ["multi\nline"]),
        (["**"], ["secret/**", "docs/**"], SOURCES[2:5] + SOURCES[6:]),
        (None, ["**/*.md"], ["docs0", *SOURCES[5:9], *SOURCES[10:]]),
        (["secret/key"], ["secret/key"], []),
    ],
)
def test_source_globs(
    select: Select, include: list[str] | None, exclude: list[str] | None, expected: list[str]
) -> None:
    rows = [{"source": source, "metadata": {}} for source in SOURCES]
    found = select(source_filter(include, exclude), rows)
    assert [SOURCES[number] for number in found] == expected


def test_the_largest_filter_is_understood(select: Select) -> None:
    document: dict[str, Any] = {"metadata.a": 1}
    for _ in range(3):
        document = {"$not": {"$or": [document, {"metadata.b": {"$like": "%x%"}}]}}
    wide = [{f"metadata.k{number}.x": {"$gt": number}} for number in range(119)]
    filter = parse_filter({"$and": [document, {"$not": {"$or": wide}}]})
    assert select(filter, [{"metadata": {"a": 1}}, {"metadata": {"a": 2}}]) == [1]


def test_the_longest_patterns_are_understood(select: Select) -> None:
    rows = [{"source": "aB" * 2000, "metadata": {}}, {"source": "aB" * 20, "metadata": {}}]
    assert select(parse_filter({"source": {"$contains": "ab" * 512}}), rows) == [0]
    assert select(parse_filter({"source": {"$like": "%a" * 511 + "B"}}), rows) == [0]
    assert select(source_filter(["*a" * 511 + "*"], None), rows) == [0]
    assert select(parse_filter({"source": {"$in": ["x" * 1024] * 999 + ["aB" * 20]}}), rows) == [1]


@pytest.mark.parametrize("glob", ["**a*a*a*a*/b", "*a*a*a*a*b", "**/a*a*/**/*a*b", "**a**a**a**b"])
def test_hostile_globs_take_linear_time(select: Select, glob: str) -> None:
    # Exponential or cubic matching of these sources would run into the timeout of the test.
    rows = [{"source": "a" * 8000, "metadata": {}}, {"source": "aa/" * 2700, "metadata": {}}]
    assert select(source_filter([glob], None), rows) == []


@pytest.mark.engine
def test_selective_conditions_use_an_index(filter_engine: Engine) -> None:
    filter_engine.fill([{"source": "s", "metadata": {"k": 1}}])
    equality = parse_filter({"metadata.k": 1})
    scanned = parse_filter({"metadata.n": {"$gt": 1}})
    for filter in (
        equality,
        parse_filter({"metadata.k": {"$in": [1, 2]}}),
        parse_filter({"$or": [{"metadata.k": 1}, {"metadata.k": {"$eq": "x"}}]}),
        combine(scanned, equality, parse_filter({"metadata.k": {"$ne": 3}})),
        combine(equality, source_filter(None, ["x/**"])),
    ):
        assert "FETCH FROM INDEX Chunk_x_1[facetsbyitem]" in filter_engine.plan(filter)
    for filter in (
        source_filter(["docs/a.md"], None),
        source_filter(["docs/a.md", "docs/b.md"], None),
        source_filter(["docs/**"], None),
        source_filter(["docs/**", "a.md"], None),
        combine(scanned, source_filter(["docs/**"], ["docs/x"])),
    ):
        assert "FETCH FROM INDEX Chunk_x_1[source]" in filter_engine.plan(filter)
    assert "INDEX" not in filter_engine.plan(scanned)


@pytest.mark.engine
def test_two_filters_live_in_one_statement(filter_engine: Engine) -> None:
    filter_engine.fill([{"source": name, "metadata": {"k": name}} for name in "abc"])
    params = Parameters()
    first = to_sql(parse_filter({"$or": [{"metadata.k": "a"}, {"source": "b"}]}), params)
    second = to_sql(parse_filter({"source": {"$ne": "a"}}), params)
    found = filter_engine.database.query(
        "sql",
        f"SELECT source FROM (SELECT FROM `{TYPE}` WHERE {first} AND {second})",
        dict(params),
    )
    assert [row["source"] for row in found.to_list()] == ["b"]


@pytest.mark.parametrize(
    "filter",
    [
        source_filter([f"docs/*{n}*/**" for n in range(100)], None),
        parse_filter({"$or": [{"title": {"$contains": f"no {n}"}} for n in range(100)]}),
    ],
)
def test_a_row_is_matched_once_with_all_patterns_of_a_field(filter: Filter) -> None:
    params = Parameters()
    assert to_sql(filter, params).count("MATCHES") == 1
    [regex] = [value for value in params.values() if "|" in value]
    assert regex.count("|") == 99
