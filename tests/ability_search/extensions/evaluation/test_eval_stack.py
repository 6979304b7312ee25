"""`eval` as a person calls it, on the real stack that it starts for itself."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.extensions.evaluation.sets import CORPUS, QRELS, QUERIES, write_set

from ability_search.extensions.localstack.supervisor import released

pytestmark = [pytest.mark.process, pytest.mark.engine, pytest.mark.model]

SECONDS = 90.0
LONG = {"_id": "d4", "title": "Long", "text": "A sentence about ships and harbours. " * 40}
ASKED = {"_id": "q4", "text": "ships in a harbour", "category": "long"}


async def evaluate(home: Path, *options: str) -> Any:
    mine = ("SEARCH_", "BROKER_", "KADI_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
    environ["SEARCH_DATA_DIR"] = str(home / "nothing runs here")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ability_search", "eval", str(home / "set"), "--json", "--up"),
        *("--data-dir", str(home / "data"), "--max-tokens", "32", *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=home,
        env=environ,
    )
    try:
        async with asyncio.timeout(SECONDS):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, err.decode()
    return json.loads(out)


async def test_a_set_is_indexed_once_and_measured_again_without(tmp_path: Path) -> None:
    write_set(tmp_path / "set", [*CORPUS, LONG], [*QUERIES, ASKED], [*QRELS, ("q4", "d4", 1)])
    first = await evaluate(tmp_path, "--output", "runs")
    assert (first["indexing"]["added"], first["indexing"]["failed"]) == (4, [])
    assert first["collection"]["chunks"] > first["collection"]["sourceCount"] == 4
    for mode in ("semantic", "keyword", "hybrid"):
        found = first["modes"][mode]
        assert found["metrics"]["Hit@1"] == 1, mode
        assert found["metrics"]["Recall@100"] == found["recallCurve"]["100"] == 1
        assert set(found["categories"]) == {"plain", "long"}
    assert await released(tmp_path / "data", timeout=SECONDS), "the stack outlived the command"

    again = await evaluate(tmp_path, "--mode", "hybrid")
    assert again["indexing"]["added"] == 0
    assert again["collection"] == first["collection"]
    assert again["modes"]["hybrid"]["metrics"] == first["modes"]["hybrid"]["metrics"]
    assert not (tmp_path / "nothing runs here").exists()
