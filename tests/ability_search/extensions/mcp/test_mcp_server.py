"""The MCP server, asked by the SDK's own client over both transports, as of 2025 and of 2026."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp_types import (
    EmbeddedResource,
    TextResourceContents,
)
from tests.ability_search.edge_network import SECONDS, Stage, opened, settings_for, soon
from tests.ability_search.extensions.mcp.conftest import text_of
from tests.ability_search.flows.conftest import Network, document

from ability_search.config.schema import Settings
from ability_search.extensions.gateway.settings import Gateway, McpProfile
from ability_search.tools.table import BY_NAME, all_tools, offered_tools
from kadi_client import Connection, Tool
from kadi_localnet.broker import serve_broker

LISTED = {row.name: row for row in all_tools()}
MODES = ("legacy", "auto")


def profiled(settings: Settings, profile: McpProfile) -> Settings:
    gateway = settings.of(Gateway)
    return settings.with_group(gateway.model_copy(update={"mcp_profile": profile}))


@asynccontextmanager
async def over_http(settings: Any, mode: str) -> AsyncIterator[Client]:
    async with (
        opened(settings) as url,
        Client(f"{url}/mcp", mode=mode, read_timeout_seconds=SECONDS) as client,
    ):
        yield client


@asynccontextmanager
async def over_stdio(
    broker: str, home: Path, mode: str, profile: str = "full"
) -> AsyncIterator[Client]:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "ability_search", "mcp", "--broker", broker, "--profile", profile],
        cwd=home,
        env={"HOME": str(home), "SEARCH_DATA_DIR": str(home / "data")},
    )
    async with Client(server, mode=mode, read_timeout_seconds=SECONDS) as client:
        yield client


async def use(client: Client) -> None:
    """What an assistant does, from the first question to the last."""
    listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert [*listed] == [*LISTED]
    for name, row in LISTED.items():
        tool = listed[name]
        assert (tool.title, tool.description) == (row.title, row.description)
        assert (tool.input_schema, tool.output_schema) == (row.input_schema, row.output_schema)
        hints = tool.annotations
        assert hints is not None
        assert (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint) == (
            row.read_only,
            row.destructive,
            row.idempotent,
        )

    told: list[float] = []
    complete = asyncio.Event()

    async def report(progress: float, total: float | None, message: str | None) -> None:
        assert total == 2
        assert message
        told.append(progress)
        if progress == total:
            complete.set()

    sentences = [f"Rule {number}: knot {number} holds rope {number}." for number in range(40)]
    documents = [document("knots & splices/a?b.md", "\n\n".join(sentences)), document("n", "Nets.")]
    indexed = await client.call_tool(
        "search-index",
        {"collection": "ropes", "documents": documents, "maxTokens": 16},
        progress_callback=report,
    )
    assert not indexed.is_error
    assert indexed.structured_content["added"] == 2
    assert indexed.structured_content["chunks"] > 20
    await soon(complete)
    assert told == sorted(set(told)), "it only grows"

    found = await client.call_tool("search-query", {"collection": "ropes", "query": "knot 7"})
    assert found.structured_content["results"][0]["source"] == "knots & splices/a?b.md"
    assert json.loads(text_of(found.content[0])) == found.structured_content

    failed = await client.call_tool("search-query", {"collection": "rope", "query": "knot"})
    assert failed.is_error
    assert text_of(failed.content[0]).startswith("not_found: ")
    assert "Hint: Did you mean ropes?" in text_of(failed.content[0])
    wrong = await client.call_tool("search-query", {"collection": "ropes", "quary": "knot"})
    assert wrong.is_error
    assert "quary" in text_of(wrong.content[0])
    huge = await client.call_tool("search-query", {"collection": "ropes", "limit": 10**30})
    assert text_of(huge.content[0]).startswith("invalid_input: ")
    with pytest.raises(MCPError, match="unknown tool 'arcade-command'"):
        await client.call_tool("arcade-command", {})

    resources = (await client.list_resources()).resources
    assert [resource.uri for resource in resources] == ["search://collection/ropes"]
    about = (await client.read_resource(resources[0].uri)).contents[0]
    assert isinstance(about, TextResourceContents)
    assert json.loads(about.text)["sources"] == ["knots & splices/a?b.md", "n"]
    uri = "search://collection/ropes/source/knots%20%26%20splices%2Fa%3Fb.md"
    whole = (await client.read_resource(uri)).contents[0]
    assert isinstance(whole, TextResourceContents)
    assert whole.text.split() == " ".join(sentences).split(), "the whole source, in order"
    for missing in ("search://collection/none", f"{uri}x", "search://other", "file:///etc/passwd"):
        with pytest.raises(MCPError):
            await client.read_resource(missing)

    templates = (await client.list_resource_templates()).resource_templates
    assert templates[1].uri_template == "search://collection/{collection}/source/{source}"

    prompts = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
    assert set(prompts) == {"answer-from-collection", "explore-collection"}
    asked = await client.get_prompt("answer-from-collection", {"question": "Which {knot}?"})
    assert "Which {knot}?" in text_of(asked.messages[0].content)
    explored = await client.get_prompt("explore-collection", {"collection": "ropes"})
    attached = explored.messages[0].content
    assert isinstance(attached, EmbeddedResource)
    assert isinstance(attached.resource, TextResourceContents)
    assert json.loads(attached.resource.text)["collection"] == "ropes"
    with pytest.raises(MCPError, match="collection is missing"):
        await client.get_prompt("explore-collection", {"collection": " "})


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
async def test_assistant_works_over_http(network: Network, mode: str) -> None:
    async with over_http(profiled(network.settings, "full"), mode) as client:
        await use(client)


@pytest.mark.parametrize("transport", ["http", pytest.param("stdio", marks=pytest.mark.process)])
async def test_lean_profile_is_short_and_returns_references(
    network: Network, tmp_path: Path, transport: str
) -> None:
    opened = (
        over_http(profiled(network.settings, "lean"), "auto")
        if transport == "http"
        else over_stdio(network.url, tmp_path, "legacy", "lean")
    )
    async with opened as client:
        listed = await client.list_tools()
        search = [tool for tool in listed.tools if tool.name.startswith("search-")]
        size, most = (
            sum(len(tool.model_dump_json(by_alias=True, exclude_unset=True)) for tool in tools)
            for tools in (search, listed.tools)
        )
        # A token has about four characters.
        assert size < 3500 * 4 and most < 5000 * 4
        names = [tool.name for tool in listed.tools]
        assert names == [*LISTED, "search-ask", "search-read"]
        await use_references(client)


async def use_references(client: Client) -> None:
    """What an assistant does with hits that have no texts."""
    rules = " ".join(f"Rule {number}: this line is about nothing." for number in range(30))
    text = f"{rules} The bowline holds a loop. {rules}"
    given = {"documents": [document("a b.md", text)], "options": {"maxTokens": 4000}}
    indexed = await client.call_tool("search-index", {"collection": "ropes", **given})
    assert indexed.structured_content["chunks"] == 1

    query = {"collection": "ropes", "query": "bowline"}
    found = await client.call_tool("search-query", query)
    assert json.loads(text_of(found.content[0])) == found.structured_content
    (hit,) = found.structured_content["results"]
    assert (hit["source"], hit["uri"]) == (
        "a b.md",
        "search://collection/ropes/chunk/ropes%3Aa%20b.md%3A0",
    )
    assert "The bowline holds a loop." in hit["snippet"]
    assert len(hit["snippet"]) <= 202
    assert "content" not in hit
    assert "timings" not in found.structured_content

    answer = await client.call_tool(
        "search-ask", {"collection": "ropes", "query": "which bowline?", "mode": "keyword"}
    )
    assert answer.structured_content["outcome"] == "passages"
    assert "chat-completion" in answer.structured_content["reason"]
    assert answer.structured_content["passages"][0]["content"] == text
    refused = await client.call_tool("search-ask", {"query": "which bowline?", "limt": 3})
    assert refused.is_error
    assert "limt" in text_of(refused.content[0])

    read = await client.call_tool("search-read", {"uri": hit["uri"]})
    assert text_of(read.content[0]) == text
    source = {"uri": "search://collection/ropes/source/a%20b.md", "offset": 10}
    assert text_of((await client.call_tool("search-read", source)).content[0]) == text[10:]
    whole = await client.read_resource("search://tool/search-query")
    assert isinstance(whole.contents[0], TextResourceContents)
    described = json.loads(whole.contents[0].text)
    assert described["inputSchema"] == BY_NAME["search-query"].input_schema
    missing = await client.call_tool("search-read", {"uri": "search://tool/search-qery"})
    assert missing.is_error
    assert "no tool named 'search-qery'" in text_of(missing.content[0])

    for asking in ({"maxResultTokens": 4000}, {"options": {"expand": "section"}}):
        texts = (await client.call_tool("search-query", {**query, **asking})).structured_content
        assert texts["results"][0]["content"] == text
    similar = {"collection": "ropes", "chunkId": hit["chunkId"]}
    near = (await client.call_tool("search-similar", similar)).structured_content
    assert near["sourceChunk"] == hit["chunkId"]
    direct = await client.call_tool("search-query", {**query, "maxPerSource": 1, "offset": 1})
    assert direct.structured_content["results"] == [], "an option is accepted as a parameter too"
    for wrong, named in (
        ({"options": "limit 3"}, "invalid_input: options: expected an object"),
        ({"limit": 3, "options": {"limit": 4}}, "invalid_input: options.limit: "),
        ({"options": {"ofset": 4}}, "invalid_input: options.ofset: "),
        ({"options": {"decay": {"floor": 2}}}, "invalid_input: options.decay.floor: "),
        ({"options": {"timeRange": {"from": "soon"}}, "limit": 3}, "options.timeRange"),
    ):
        failed = await client.call_tool("search-query", {**query, **wrong})
        assert failed.is_error
        assert named in text_of(failed.content[0])


def test_lean_parameters_are_parameters_of_the_tools() -> None:
    for row in all_tools():
        schema = row.input_schema
        shown = set(schema["properties"] if row.lean is None else row.lean)
        assert set(schema.get("required", ())) <= shown <= set(schema["properties"])


def test_listed_schemas_state_what_is_required() -> None:
    required = {name: row.input_schema.get("required", []) for name, row in LISTED.items()}
    assert required["search-index"] == ["collection", "documents"]
    assert required["search-delete"] == ["collection"]
    for name, row in LISTED.items():
        schema = row.input_schema
        # The APIs of Anthropic and OpenAI refuse these at the top level.
        assert not {"anyOf", "oneOf", "allOf", "not", "enum"} & schema.keys(), name


@pytest.mark.slow
async def test_assistant_works_over_stdio(network: Network, tmp_path: Path) -> None:
    async with over_stdio(network.url, tmp_path, "legacy") as client:
        await use(client)


@pytest.mark.parametrize("mode", MODES)
async def test_cancelled_request_cancels_the_call_over_http(
    stage: Stage, tmp_path: Path, mode: str
) -> None:
    async with over_http(settings_for(stage.url, tmp_path), mode) as client:
        await cancel(client, stage)


@pytest.mark.process
async def test_cancelled_request_cancels_the_call_over_stdio(stage: Stage, tmp_path: Path) -> None:
    async with over_stdio(stage.url, tmp_path, "auto") as client:
        await cancel(client, stage)


async def cancel(client: Client, stage: Stage) -> None:
    stage.hold = asyncio.Event()
    call = asyncio.create_task(client.call_tool("search-query", {"query": "x"}))
    await soon(stage.begun)
    call.cancel()
    await asyncio.wait([call])
    await soon(stage.dropped)
    stage.hold.set()
    stage.answers["search-collections"] = lambda _: {"collections": []}
    after = await client.call_tool("search-collections", {})
    assert after.structured_content == {"collections": []}


async def test_unreachable_broker_is_reported_as_a_tool_failure(
    stage: Stage, tmp_path: Path
) -> None:
    async with over_http(settings_for(stage.url, tmp_path), "legacy") as client:
        await stage.close()
        failed = await client.call_tool("search-collections", {})
        assert failed.is_error
        assert text_of(failed.content[0]).startswith("unavailable: ")
        assert "Retry after" in text_of(failed.content[0])
        with pytest.raises(MCPError, match="unavailable"):
            await client.list_resources()


_HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "t", "version": "1"},
}


async def _process(stage: Stage, home: Path, **environ: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ability_search", "mcp", "--broker", stage.url),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=home,
        env={"HOME": str(home), **environ},
    )


@pytest.mark.process
async def test_stdout_carries_only_the_protocol(stage: Stage, tmp_path: Path) -> None:
    process = await _process(stage, tmp_path, SEARCH_LOG_LEVEL="debug")
    lines = [
        "this is no JSON",
        '{"jsonrpc": "2.0", "id": 5, "method": ',
        "[1, 2",
        '{"id": 6, "method": "tools/list"}',
        '{"jsonrpc": "2.0", "id": 7}',
        '{"jsonrpc": "2.0", "id": 8, "method": "tools/list", "params": [1]}',
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": _HELLO}),
        json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json.dumps({"jsonrpc": "2.0", "id": "two", "method": "tools/list"}),
    ]
    async with asyncio.timeout(SECONDS):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        answers: dict[Any, Any] = {}
        refused: list[int] = []
        while "two" not in answers:
            message = json.loads(await process.stdout.readline())
            assert message["jsonrpc"] == "2.0"
            if message["id"] is None:
                refused.append(message["error"]["code"])
                continue
            answers[message.get("id")] = message.get("result")
        process.stdin.close()
        out, err = await process.communicate()
    assert refused == [-32700, -32700, -32700, -32600, -32600, -32600]
    assert answers[1]["serverInfo"]["name"] == "ability-search"
    assert "search-query" in answers[1]["instructions"]
    names = [each["name"] for each in answers["two"]["tools"]]
    assert names == [*LISTED, "search-ask", "search-read"]
    assert (out, process.returncode) == (b"", 0)
    assert b" cli: " in err


@pytest.mark.process
async def test_what_came_in_is_answered_after_standard_input_has_ended(
    stage: Stage, tmp_path: Path
) -> None:
    process = await _process(stage, tmp_path)
    call = {"name": "search-collections", "arguments": {}}
    cancelled = {"requestId": 3}
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": _HELLO},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": call},
        {"id": 3, "method": "tools/call", "params": call},
        {"method": "notifications/cancelled", "params": cancelled},
        {"id": "four", "method": "tools/call", "params": call},
    ]
    lines = "".join(json.dumps({"jsonrpc": "2.0", **each}) + "\n" for each in messages)
    async with asyncio.timeout(SECONDS):
        out, _ = await process.communicate(lines.encode())
    answers = {each["id"]: each for each in map(json.loads, out.splitlines())}
    assert process.returncode == 0
    assert {1, 2, "four"} <= answers.keys()
    assert all("result" in answers[each] for each in (1, 2, "four"))


@pytest.mark.parametrize(("offer", "families"), [("memory", ["memory"]), ("", []), ("all", None)])
async def test_an_assistant_sees_what_the_workers_are_set_to_offer(
    stage: Stage, tmp_path: Path, offer: str, families: list[str] | None
) -> None:
    settings = settings_for(stage.url, tmp_path, SEARCH_OFFER=offer, SEARCH_MCP_PROFILE="full")
    async with over_http(settings, "auto") as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
    expected = all_tools() if families is None else offered_tools(families)
    assert names == [row.name for row in expected]


async def test_an_assistant_is_told_how_a_tool_is_offered(tmp_path: Path) -> None:
    async def answer(_given: dict[str, Any], _call: Any) -> dict[str, Any]:
        return {"collections": []}

    eight = [Tool(name, name, {"type": "object"}, answer) for name in BY_NAME]
    async with (
        serve_broker("127.0.0.1", 0) as broker,
        Connection(broker.url, role="ability", tools=eight),
        over_http(settings_for(broker.url, tmp_path), "auto") as client,
    ):
        refused = await client.call_tool("memory-read", {})
        assert refused.is_error
        text = text_of(refused.content[0])
        assert "no worker offers memory-read" in text
        assert "SEARCH_OFFER=memory" in text
        assert not (await client.call_tool("search-collections", {})).is_error
