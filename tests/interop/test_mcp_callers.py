"""The worker at a broker with an MCP side, which marks the calls of MCP clients."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.kadi_client.fake_broker import FakeBroker, Frame, Peer

from ability_search.config.loader import load_settings
from ability_search.tools.table import TOOLS
from ability_search.worker import open_worker

META = {"callerProtocol": "mcp", "network": "global"}


async def no_rows(peer: Peer, frame: Frame) -> None:
    """Answer every call of the worker as an empty database does."""
    await peer.reply(frame, {"success": True, "result": [], "count": 0})


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[Peer]:
    """The worker as the broker sees it."""
    async with FakeBroker() as broker:
        broker.script["kadi.ability.request"] = no_rows
        environ = {"HOME": str(tmp_path), "BROKER_URL": broker.url, "BROKER_NETWORKS": "global"}
        async with open_worker(load_settings(environ, tmp_path), base=tmp_path):
            yield await broker.peer()


async def answer(worker: Peer, tool: str, tool_input: Any, **more: Any) -> Any:
    await worker.call("the-call", tool, tool_input, **more)
    response = await worker.expect("")
    assert response["id"] == "the-call"
    return response["result"]


async def test_mcp_clients_get_content_and_structure(worker: Peer) -> None:
    plain = await answer(worker, "search-collections", {}, _meta={"callerProtocol": "kadi"})
    assert plain == {"collections": []}
    shaped = await answer(worker, "search-collections", {}, _meta=META)
    assert shaped == {
        "content": [{"type": "text", "text": json.dumps(plain, separators=(",", ":"))}],
        "structuredContent": plain,
        "isError": False,
    }
    (row,) = (row for row in TOOLS if row.name == "search-collections")
    schema = row.result.model_json_schema(by_alias=True, mode="serialization")
    jsonschema.validate(shaped["structuredContent"], schema)


async def test_mcp_clients_get_failures_as_errors(worker: Peer) -> None:
    for tool, tool_input, code in (
        ("search-query", {"collection": "docs"}, "invalid_input"),
        ("search-query", {"collection": "docs", "query": "x"}, "not_found"),
        ("search-index-file", {"collection": "docs", "path": "/"}, "forbidden_path"),
    ):
        plain = await answer(worker, tool, tool_input)
        assert (plain["success"], plain["code"]) == (False, code)
        shaped = await answer(worker, tool, tool_input, _meta=META)
        assert shaped.keys() == {"content", "isError"}
        assert shaped["isError"] is True
        (block,) = shaped["content"]
        assert block["type"] == "text"
        assert json.loads(block["text"]) == plain


async def test_mcp_clients_get_an_error_for_an_unknown_tool(worker: Peer) -> None:
    shaped = await answer(worker, "search-everything", {}, _meta=META)
    assert shaped == {
        "content": [{"type": "text", "text": "unknown tool: search-everything"}],
        "isError": True,
    }
