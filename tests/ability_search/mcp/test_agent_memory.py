"""A long run of an agent with a memory: the same script over KADI and over MCP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.ability_search.flows.conftest import PATIENCE, Network
from tests.ability_search.mcp.conftest import text_of
from tests.ability_search.mcp.test_mcp_server import over_http, profiled

from ability_search.edges.memory_calls import MEMORY, memory_call
from kadi_client import ToolError

CallTool = Callable[..., Awaitable[Any]]
"""Calls ``memory-*`` or a tool; raises ToolError with the code."""

MONDAY = [
    {"role": "user", "content": "Where are the tapes kept?", "time": "2026-05-04T09:00:00Z"},
    {"role": "assistant", "content": "In the vault below the harbour.", "time": "2026-05-04"},
    {"role": "user", "content": "Bread rests for an hour.", "time": "2026-05-04T09:05:00Z"},
]


@asynccontextmanager
async def over(way: str, network: Network) -> AsyncIterator[CallTool]:
    if way == "kadi":

        async def direct(tool: str, **given: Any) -> Any:
            name, tool_input = memory_call(tool, given) if tool in MEMORY else (tool, given)
            return await network.call(name, **tool_input)

        yield direct
        return
    async with over_http(profiled(network.settings, "lean"), "auto") as client:

        async def called(tool: str, **given: Any) -> Any:
            answer = await client.call_tool(tool, given)
            if answer.is_error:
                text = text_of(answer.content[0])
                raise ToolError(tool, {"error": text, "code": text.partition(":")[0]})
            return answer.structured_content

        yield called


@pytest.mark.parametrize("way", ["kadi", "mcp"])
async def test_an_agent_works_for_three_days(network: Network, way: str) -> None:
    async with over(way, network) as call:
        ada = {"agentId": "ada"}
        monday, tuesday = ada | {"sessionId": "monday"}, ada | {"sessionId": "tuesday"}

        # Monday: a plan, two tasks, a conversation.
        plan = {"plan": "find the tapes", "mood": "curious"}
        tasks = [{"content": "ask for the tapes"}, {"content": "buy bread"}]
        await call("memory-write", **monday, scratch=plan, tasks=tasks)
        await call("memory-write", **monday, history=MONDAY)
        await call("memory-write", **monday, tasks=[{"id": "1", "status": "done"}])

        # Tuesday: another session starts from what Monday left.
        left = (await call("memory-read", **monday, status="open"))["session"]
        assert [each["content"] for each in left["tasks"]] == ["buy bread"]
        assert [each["key"] for each in left["scratch"]] == ["mood", "plan"]
        assert [each["turn"] for each in left["history"]] == [3, 2, 1]
        said = [{"role": "user", "content": "Any news of the harbour?"}]
        await call("memory-write", **tuesday, history=said)
        found = (await call("memory-search", **ada, query="where are the tapes kept"))["results"]
        sessions = {hit["metadata"]["session"] for hit in found}
        assert "monday" in sessions
        only = await call("memory-search", **tuesday, query="tapes harbour")
        assert [hit["source"] for hit in only["results"]] == ["tuesday/000000001"]

        # What was useful comes first; what was not stays, ranked lower.
        decay = {"agentId": "ada", "field": "metadata.time"}
        query = {"collection": "history-ada", "query": "harbour", "limit": 10}
        vault, news = "history-ada:monday/000000002:0", "history-ada:tuesday/000000001:0"
        marks = decay | {"useful": [vault], "notUseful": [news]}
        options = {"explain": True, "maxResultTokens": 4000}
        before = await call("search-query", **query, **options, decay=marks)
        explained: dict[str, Any] = {}
        async with asyncio.timeout(PATIENCE):
            while "useful" not in explained.get(vault, {"decay": {}})["decay"]:
                after = await call("search-query", **query, **options, decay=decay)
                explained = {hit["chunkId"]: hit["explain"] for hit in after["results"]}
        assert {hit["chunkId"] for hit in before["results"]} == explained.keys()
        assert explained[vault]["decay"]["useful"] is True
        assert explained[news]["decay"]["useful"] is False
        assert explained[news]["decay"]["familiarity"] < explained[vault]["decay"]["familiarity"]

        # A chat log of somebody else, in a collection of its own.
        log = [{"role": "Bo", "content": "The tide is low."}, {"role": "Cy", "content": "Yes."}]
        text = "\n".join(map(json.dumps, log))
        document = {"source": "log", "title": "Log", "content": text, "format": "conversation"}
        indexed = await call("search-index", collection="logs", documents=[document])
        assert indexed["chunks"] == 2

        # Wednesday: forget what is old, then everything.
        old = ada | {"sessionId": "*", "before": "2026-05-05"}
        counted = await call("memory-delete", **old, dryRun=True)
        assert (counted["session"]["history"], counted["deleted"]) == (3, 0)
        assert (await call("memory-delete", **old))["session"]["history"] == 3
        with pytest.raises(ToolError) as failure:
            await call("memory-delete", **monday, tasks=["7"])
        assert failure.value.code == "not_found"
        rest = (await call("memory-read", **tuesday, include=["history", "sessions"]))["session"]
        assert len(rest["history"]) == 1
        assert [each["sessionId"] for each in rest["sessions"]] == ["monday", "tuesday"]
        gone = (await call("memory-delete", **ada, sessionId="*"))["session"]
        assert (gone["scratch"], gone["tasks"], gone["history"]) == (2, 2, 1)
        names = [each["name"] for each in (await call("search-collections"))["collections"]]
        assert names == ["logs"]
