"""Assistants that start with nothing running, configured as the README says."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from tests.ability_search.extensions.mcp.conftest import text_of
from tests.built_models import lend_models
from tests.java_machine import SHORT_LIVED

from ability_search.client.running_stack import read_running
from ability_search.extensions.localstack.supervisor import released

pytestmark = [pytest.mark.process, pytest.mark.engine, pytest.mark.model, pytest.mark.timeout(600)]

README = Path(__file__).resolve().parents[4] / "README.md"
SECONDS = 150.0


def assistant(home: Path) -> Client:
    """The configuration in the README, over a data directory of the test's own."""
    block = re.findall(r"^```json\n(.*?)^```$", README.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    configured = json.loads(block[0])["mcpServers"]["search"]
    assert configured["command"] == "ability-search"
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "ability_search", *configured["args"]],
        env={
            **SHORT_LIVED,
            **configured["env"],
            "HOME": str(home),
            "SEARCH_DATA_DIR": str(home / "data"),
        },
        cwd=home,
    )
    return Client(server, mode="legacy", read_timeout_seconds=SECONDS)


async def test_second_assistant_joins_the_stack_and_takes_over(tmp_path: Path) -> None:
    lend_models(tmp_path)
    texts = tmp_path / "Documents"
    texts.mkdir()
    (texts / "bread.md").write_text("The dough rests for an hour before it goes into the oven.")
    (tmp_path / "elsewhere.md").write_text("Not for everybody.")
    indexed, leave = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        async with assistant(tmp_path) as client:
            path = {"collection": "kitchen", "path": str(texts)}
            answer = await client.call_tool("search-index-file", path)
            assert answer.structured_content["added"] == 1, answer
            outside = {"collection": "kitchen", "path": str(tmp_path / "elsewhere.md")}
            refused = await client.call_tool("search-index-file", outside)
            assert text_of(refused.content[0]).startswith("forbidden_path: ")
            indexed.set()
            async with asyncio.timeout(SECONDS):
                await leave.wait()

    task = asyncio.create_task(first())
    async with asyncio.timeout(SECONDS):
        waiting = asyncio.create_task(indexed.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
    before = read_running(tmp_path / "data")
    async with assistant(tmp_path) as client:
        query = {"collection": "kitchen", "query": "how long does it rest"}
        found = await client.call_tool("search-query", query)
        assert found.structured_content["results"][0]["source"] == "bread.md", found
        assert read_running(tmp_path / "data") == before, "there is one stack"
        leave.set()
        await task
        for _ in range(3):
            again = await client.call_tool("search-query", query)
            if not again.is_error:
                break
        assert again.structured_content["results"][0]["source"] == "bread.md", again
        after = read_running(tmp_path / "data")
        assert after is not None
        assert after != before
    assert await released(tmp_path / "data", timeout=SECONDS), "a part outlived its assistant"
