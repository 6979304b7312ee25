"""The search of indexes without SQL, beside the SQL functions of the same engine."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kadi_client.calls import PlainCall

from kadi_client.messages import decode, encode
from kadi_client.tools import Call, Tool
from kadi_localnet.database.backend import Statement
from kadi_localnet.database.embedded import EmbeddedDatabases
from kadi_localnet.database.tools import database_tools

pytestmark = pytest.mark.engine

DIMENSIONS, RECORDS = 8, 300
TERMS, WEIGHTS = [3, 7, 21], [1.5, 0.5, 2.0]
SCHEMA = """
    CREATE DOCUMENT TYPE Doc BUCKETS 3;
    CREATE PROPERTY Doc.name STRING;
    CREATE PROPERTY Doc.vector ARRAY_OF_FLOATS;
    CREATE PROPERTY Doc.ids ARRAY_OF_INTEGERS;
    CREATE PROPERTY Doc.weights ARRAY_OF_FLOATS;
    CREATE INDEX ON Doc (name) UNIQUE;
    CREATE INDEX ON Doc (ids, weights)
        LSM_SPARSE_VECTOR METADATA {"dimensions": 0, "weightQuantization": "FP32"};
    CREATE INDEX ON Doc (vector) LSM_VECTOR METADATA {"dimensions": 8, "similarity": "COSINE"};
"""


def rows() -> list[dict[str, Any]]:
    rng = np.random.default_rng(7)
    return [
        {
            "name": f"d{n:03d}",
            "team": "red" if n % 3 else "blue",
            "page": None if n % 2 else n,
            "tags": {"a.b": [n, "é\u0000x"]},
            "vector": rng.standard_normal(DIMENSIONS).round(4).tolist(),
            "ids": sorted(rng.choice(40, 6, replace=False).tolist()),
            "weights": rng.uniform(0.1, 2.0, 6).round(4).tolist(),
        }
        for n in range(RECORDS)
    ]


@asynccontextmanager
async def engine(directory: Path, count: int, **options: Any) -> AsyncIterator[Tool]:
    """The tool over an engine with so many records."""
    async with EmbeddedDatabases(directory, heap_mb=256, warm_up=False, **options) as databases:
        await databases.create("db", timeout=60)
        await databases.write("db", [Statement(SCHEMA, "sqlscript")], timeout=60)
        for row in rows()[:count]:
            row = {"row": row}
            await databases.write(
                "db", [Statement("INSERT INTO Doc CONTENT :row", params=row)], timeout=60
            )
        tools = {each.name: each for each in database_tools(databases)}
        yield tools["arcade-index-search"]


@pytest.fixture
async def tool(tmp_path: Path) -> AsyncIterator[Tool]:
    async with engine(tmp_path, RECORDS) as tool:
        yield tool


async def answer(tool: Tool, call: Call, **asked: Any) -> Any:
    found = decode(encode(await tool.handler({"database": "db", **asked}, call)))
    return found["result"] if found["success"] else found["error"]


@pytest.fixture
def call() -> Call:
    return PlainCall(20.0)


VECTOR = np.linspace(-1, 1, DIMENSIONS).astype("<f4")
BY_VECTOR = {"properties": ["vector"], "vector": base64.b64encode(VECTOR.tobytes()).decode()}
BY_TERMS = {"properties": ["ids", "weights"], "ids": TERMS, "weights": WEIGHTS}
COMPARED = {"near": BY_VECTOR, "heavy": BY_TERMS}


def true_scores() -> dict[str, dict[str, float]]:
    """The scores of all records, computed here."""
    weights = dict(zip(TERMS, WEIGHTS, strict=True))
    unit = VECTOR / np.linalg.norm(VECTOR)
    return {
        row["name"]: {
            "near": float(unit @ row["vector"] / np.linalg.norm(row["vector"])),
            "heavy": sum(
                weights.get(each, 0.0) * weight
                for each, weight in zip(row["ids"], row["weights"], strict=True)
            ),
        }
        for row in rows()
    }


def scores_in(found: Mapping[str, Any], by: str) -> list[float]:
    values: list[float] = np.frombuffer(base64.b64decode(found["scores"][by]), "<f4").tolist()
    return values


@pytest.mark.parametrize("where", [None, "team = :team"])
async def test_both_lists_and_the_scores_of_all_are_those_of_an_exact_scan(
    tool: Tool, call: Call, where: str | None
) -> None:
    searches = {
        name: {"type": "Doc", "by": name, "limits": [5, 20], "beam": 300, "where": where}
        for name in COMPARED
    }
    found = await answer(
        tool,
        call,
        compared=COMPARED,
        searches=searches,
        params={"team": "blue"},
        columns=["name", "page", "tags"],
    )
    true, stored = true_scores(), {row["name"]: row for row in rows()}
    allowed = [name for name in true if where is None or stored[name]["team"] == "blue"]
    names = [row[0] for row in found["rows"]]
    assert len(set(found["rids"])) == len(names) == len(set(names))
    for name in COMPARED:
        best = [each for _, each in sorted((-true[each][name], each) for each in allowed)]
        for places, limit in zip(found["lists"][name], (5, 20), strict=True):
            assert {names[place] for place in places} == set(best[:limit])
        expected = [true[each][name] for each in names]
        assert scores_in(found, name) == pytest.approx(expected, abs=1e-5)
    for each, page, tags in found["rows"]:
        assert (page, tags) == (stored[each]["page"], stored[each]["tags"])


async def test_no_record_is_found_if_the_condition_leaves_none(tool: Tool, call: Call) -> None:
    searches = {"near": {"type": "Doc", "by": "near", "limits": [5], "where": "team = 'green'"}}
    found = await answer(tool, call, compared=COMPARED, searches=searches, columns=["name"])
    assert (found["rids"], found["rows"], found["lists"]) == ([], [], {"near": [[]]})


async def test_further_columns_are_of_the_first_by_each_order(tool: Tool, call: Call) -> None:
    searches = {name: {"type": "Doc", "by": name, "limits": [20]} for name in COMPARED}
    found = await answer(
        tool,
        call,
        compared=COMPARED,
        searches=searches,
        columns=["name"],
        ahead=["team"],
        first=3,
        orders=[{"near": [1.0, None]}, {"near": [0.5, None], "heavy": [2.0, 1.5]}],
    )
    near, heavy = scores_in(found, "near"), scores_in(found, "heavy")
    sums = [0.5 * n + 2.0 * h / (h + 1.5) for n, h in zip(near, heavy, strict=True)]
    best = [np.argsort([-each for each in by])[:3].tolist() for by in (near, sums)]
    assert found["ahead"]["places"] == list(dict.fromkeys([*best[0], *best[1]]))
    stored = {row["name"]: row for row in rows()}
    teams = [stored[found["rows"][place][0]]["team"] for place in found["ahead"]["places"]]
    assert found["ahead"]["rows"] == [[team] for team in teams]


async def test_records_are_looked_up_unless_they_are_known(tool: Tool, call: Call) -> None:
    indexed = {"type": "Doc", "where": {"name": "d004"}, "columns": ["team", "page"]}
    scanned = {"type": "Doc", "where": {"team": "blue", "page": 12}, "columns": ["name"]}
    found = await answer(
        tool,
        call,
        compared={},
        searches={},
        before=[indexed, {**indexed, "unless": {"page": 4}}, {**indexed, "unless": {"page": 5}}],
        after=[scanned, {**scanned, "where": {"team": "green"}}],
    )
    assert found["before"] == [[["red", 4]], None, [["red", 4]]]
    assert found["after"] == [[["d012"]], []]


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"compared": {"near": {"properties": ["vector"]}}}, "two properties, and a weight"),
        ({"compared": {"near": {**BY_VECTOR, "vector": "AAA="}}}, "four bytes for each number"),
        ({"compared": {"near": {**BY_VECTOR, "vector": "AADAfw=="}}}, "finite numbers"),
        ({"compared": {"near": {**BY_VECTOR, "vector": "%"}}}, "compared.near"),
        ({"compared": {"near": {**BY_TERMS, "weights": [1.0]}}}, "a weight for each id"),
        ({"compared": {"near": {**BY_TERMS, "ids": [-1, 2, 3]}}}, "compared.near.ids"),
        ({"searches": {"near": {"type": "Doc", "by": "far", "limits": [5]}}}, "far is not in"),
        ({"orders": [{"far": [1.0, None]}]}, "far is not in compared"),
        ({"searches": {"near": {"type": "Doc", "by": "near", "limits": [0]}}}, "limits"),
        ({"searches": {"near": {"type": "Gone", "by": "near", "limits": [5]}}}, "'Gone' was not"),
        ({"compared": {"near": {**BY_VECTOR, "properties": ["name"]}}}, "is no vector index"),
        ({"compared": {"near": {**BY_TERMS, "properties": ["a", "b"]}}}, "is no sparse index"),
        (
            {
                "searches": {
                    "near": {"type": "Doc", "by": "near", "limits": [5], "where": "eval('1')"}
                }
            },
            "eval() is not allowed",
        ),
    ],
)
async def test_invalid_input_is_refused_with_its_field(
    tmp_path: Path, call: Call, asked: Mapping[str, Any], error: str
) -> None:
    searches = {"near": {"type": "Doc", "by": "near", "limits": [5]}}
    async with engine(tmp_path, 0) as tool:
        text = await answer(tool, call, **{"compared": COMPARED, "searches": searches, **asked})
    assert isinstance(text, str)
    assert error in text
    assert "incident" not in text


async def test_an_answer_that_does_not_fit_into_a_message_is_an_error(
    tmp_path: Path, call: Call
) -> None:
    searches = {"near": {"type": "Doc", "by": "near", "limits": [60]}}
    async with engine(tmp_path, 60, max_bytes=2000) as tool:
        columns = ["name", "vector"]
        text = await answer(tool, call, compared=COMPARED, searches=searches, columns=columns)
    assert "the answer is too large: more than 2000 bytes" in text
