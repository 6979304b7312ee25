"""A long run of an agent with a memory: the same script over KADI and over MCP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.ability_search.extensions.mcp.conftest import text_of
from tests.ability_search.extensions.mcp.test_mcp_server import over_http, profiled
from tests.ability_search.flows.conftest import PATIENCE, Network
from tests.ability_search.flows.playing import Talker, playing

from ability_search.extensions.answers.answerer import AskInput, open_answerer
from kadi_client import Connection, ToolError

CallTool = Callable[..., Awaitable[Any]]
"""Calls a tool; raises ToolError with the code."""

MONDAY = [
    {"role": "user", "content": "Where are the tapes kept?", "time": "2026-05-04T09:00:00Z"},
    {"role": "assistant", "content": "In the vault below the harbour.", "time": "2026-05-04"},
    {"role": "user", "content": "Bread rests for an hour.", "time": "2026-05-04T09:05:00Z"},
]
KEPT = "The tapes of the archive are kept in the vault below the harbour."
NOTES: list[dict[str, Any]] = [
    {"source": "tapes", "content": KEPT, "metadata": {"date": "2026-05-04"}},
    {"source": "tapes again", "content": KEPT.rstrip("."), "metadata": {"date": "2026-05-05"}},
    {
        "source": "crane",
        "content": "The limit of the crane is 100 crates per hour.",
        "metadata": {"date": "2026-05-01"},
    },
    {
        "source": "crane of May",
        "content": "The limit of the crane is 200 crates per hour.",
        "metadata": {"date": "2026-05-05"},
    },
    {
        "source": "harbour",
        "content": "Ships land behind the market.",
        "links": [{"target": "tapes", "kind": "near"}],
        "metadata": {"source_id": "crane"},
    },
    {
        "source": "market",
        "content": "Bread is sold every morning.",
        "links": [{"target": "harbour", "kind": "near"}],
    },
]


@asynccontextmanager
async def over(way: str, network: Network) -> AsyncIterator[CallTool]:
    if way == "kadi":

        async def connected() -> Connection:
            return network.client

        async def search(wanted: Mapping[str, Any]) -> Any:
            return await network.call("search-query", **wanted)

        async with open_answerer(network.settings, search, connected) as answerer:

            async def direct(tool: str, **given: Any) -> Any:
                if tool == "search-ask":
                    answer = await answerer.answer(AskInput.model_validate(given))
                    return answer.model_dump(mode="json", by_alias=True, exclude_none=True)
                return await network.call(tool, **given)

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


@pytest.mark.slow
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
        left = await call("memory-read", **monday, status="open")
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

        # Notes: consolidated, analysed, searched over links and in several phrasings, asked about.
        notes = {"collection": "notes"}
        await call("search-index", **notes, documents=[{"title": "", **each} for each in NOTES])
        await call("notes-consolidate", **notes, apply=True)
        await call("notes-analyze", **notes)
        reports = ["consolidation", "graph"]
        info = await call("notes-overview", **notes, include=reports)
        report, graph = info["consolidation"], info["graph"]
        assert [(e["source"], e["kept"]) for e in report["duplicates"]] == [
            ("tapes again", "tapes")
        ]
        (contradiction,) = report["contradictions"]
        assert (contradiction["source"], contradiction["other"]) == ("crane of May", "crane")
        assert ("crane", "superseded") in {(e["source"], e["reason"]) for e in report["stale"]}
        links = {(e["source"], e["target"], e["kind"]) for e in report["links"]}
        assert ("harbour", "crane", "derives_from") in links
        assert (graph["chunks"], graph["edges"]["link"] >= 4) == (5, True)
        linked = await call("notes-paths", **notes, source="market", to="tapes")
        assert linked["paths"][0]["sources"] == ["market", "harbour", "tapes"]
        hops = {"graph": {"hops": 2}, "boost": {"centrality": 0.1}, "maxResultTokens": 4000}
        near = await call("search-query", **notes, query="bread every morning", limit=3, **hops)
        assert {"market", "harbour", "tapes"} == {hit["source"] for hit in near["results"]}
        phrasings = {"query": "bread", "queries": ["limit of the crane"], "maxResultTokens": 4000}
        both = await call("search-query", **notes, **phrasings, limit=3)
        assert {"market", "crane of May"} <= {hit["source"] for hit in both["results"]}
        asked = {**notes, "query": "Where are the tapes of the archive kept?"}
        async with playing(network.url, Talker(says=f"{KEPT[:-1]} [1].")) as talker:
            answer = await call("search-ask", **asked)
            assert (answer["outcome"], answer["answer"]) == ("answered", f"{KEPT} [1]")
            assert answer["passages"][0]["source"] == "tapes"
            talker.says = "It is kept in Berlin by 7 people [1]."
            assert (await call("search-ask", **asked))["outcome"] == "not_in_sources"
            talker.says = ""
            empty = await call("search-ask", **asked)
            assert (empty["outcome"], "empty answer" in empty["reason"]) == ("passages", True)
        without = await call("search-ask", **asked)
        assert (without["outcome"], "chat-completion" in without["reason"]) == ("passages", True)
        await call("notes-consolidate", **notes, undo=True)
        info = await call("notes-overview", **notes, include=reports)
        assert info["consolidation"]["undone"] >= 3

        # Wednesday: forget what is old, then everything.
        old = ada | {"sessionId": "*", "before": "2026-05-05"}
        counted = await call("memory-delete", **old, dryRun=True)
        assert (counted["history"], counted["dryRun"]) == (3, True)
        assert (await call("memory-delete", **old))["history"] == 3
        with pytest.raises(ToolError) as failure:
            await call("memory-delete", **monday, tasks=["7"])
        assert failure.value.code == "not_found"
        rest = await call("memory-read", **tuesday, include=["history", "sessions"])
        assert len(rest["history"]) == 1
        assert [each["sessionId"] for each in rest["sessions"]] == ["monday", "tuesday"]
        gone = await call("memory-delete", **ada, sessionId="*")
        assert (gone["scratch"], gone["tasks"], gone["history"]) == (2, 2, 1)
        names = [each["name"] for each in (await call("search-collections"))["collections"]]
        assert names == ["logs", "notes"]
