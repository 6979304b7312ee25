"""Columns of numbers as blocks, beside the same ones as lists."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kadi_client.calls import PlainCall

from ability_search.store.arcadedb.rows import packed
from kadi_client.messages import decode, encode
from kadi_client.tools import Tool
from kadi_localnet.database.embedded import EmbeddedDatabases
from kadi_localnet.database.tools import database_tools

pytestmark = pytest.mark.engine

NUMBERS = np.random.default_rng(1).standard_normal(384).round(7).tolist()
ROWS: list[dict[str, Any]] = [
    {"n": 0, "embedding": NUMBERS, "terms": [3, 2**30], "weights": [0.5, 1.25], "dates": [1, 2]},
    {"n": 1, "embedding": None, "spareEmbedding": NUMBERS[:16], "terms": [], "weights": []},
    {"n": 2, "metadata": {"embedding": [0.5]}, "terms": [7]},
]
SCHEMA = """
    CREATE DOCUMENT TYPE T;
    CREATE PROPERTY T.embedding ARRAY_OF_FLOATS;
    CREATE PROPERTY T.spareEmbedding ARRAY_OF_FLOATS;
    CREATE PROPERTY T.weights ARRAY_OF_FLOATS;
    CREATE PROPERTY T.terms ARRAY_OF_INTEGERS;
"""


@pytest.fixture
async def command(tmp_path: Path) -> AsyncIterator[Tool]:
    """The tool, over an engine with an empty type."""
    async with EmbeddedDatabases(tmp_path, heap_mb=256, warm_up=False) as databases:
        await databases.create("db", timeout=60)
        tools = {each.name: each for each in database_tools(databases)}
        await run(tools["arcade-command"], SCHEMA, {})
        yield tools["arcade-command"]


async def run(command: Tool, text: str, given: dict[str, Any]) -> Any:
    asked = {"database": "db", "command": text, "language": "sqlscript", **given}
    answer = await command.handler(decode(encode(asked)), PlainCall(60.0))
    return decode(encode(answer))


async def test_rows_with_blocks_are_stored_like_rows_with_lists(command: Tool) -> None:
    stored = []
    for given in ({"params": {"rows": ROWS, "x": [1]}}, packed({"rows": ROWS, "x": [1]})):
        await run(command, "DELETE FROM T; INSERT INTO T CONTENT :rows", given)
        found = await run(command, "SELECT *, :x AS x FROM T ORDER BY n", given)
        stored.append([{**row, "@rid": None} for row in found["result"]])
    assert stored[0] == stored[1]
    assert len(encode(given)) < len(encode(ROWS))


def test_params_without_numbers_stay_as_they_are() -> None:
    params = {"rows": [{"a": 1}], "terms": [1, 2], "none": [], "row": {"terms": [1]}}
    assert packed(params) == {"params": params}


@pytest.mark.parametrize(
    ("params", "column", "problem"),
    [
        ({"rows": [{}]}, {"block": "AAAAAA=="}, "four bytes for each number"),
        ({"rows": [{}]}, {"block": "AADAfw==", "lengths": [1]}, "finite numbers"),
        ({"rows": [{}, {}]}, {"block": "AAAAAA==", "lengths": [1]}, "a length for each object"),
        ({"rows": [1]}, {"block": "AAAAAA==", "lengths": [1]}, "a length for each object"),
        ({}, {"block": "AAAAAA==", "lengths": [1]}, "a length for each object"),
    ],
)
async def test_a_block_that_does_not_fit_is_refused(
    command: Tool, params: dict[str, Any], column: dict[str, Any], problem: str
) -> None:
    numbers = {"rows": {"terms": {"type": "float", "lengths": [], **column}}}
    answer = await run(command, "SELECT 1", {"params": params, "numbers": numbers})
    assert not answer["success"]
    assert problem in answer["error"]
