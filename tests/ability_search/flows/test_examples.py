"""The examples do what they say, run as a user would run them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.extensions.answers.chat_server import chat_server, said
from tests.ability_search.flows.conftest import Network
from tests.ability_search.flows.playing import Talker, playing
from tests.interop.real_client import HOME, NODE, needs_real_client

from ability_search.client import SearchClient
from kadi_client import ToolError

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
SECONDS = 30.0
"""Longest wait for a line or an end."""
RECORDS = [
    {"id": "pump", "title": "Pump", "text": "The pump is replaced in May.", "year": 2026},
    {"id": "valve", "title": "Valve", "text": "The valve stays closed.", "year": 2025},
]


async def start(
    network: Network, directory: Path, *command: str | Path
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command,
        cwd=directory,
        env={**os.environ, "BROKER_URL": network.url, "HOME": str(directory)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def run(network: Network, directory: Path, name: str, *arguments: str) -> str:
    """What an example prints."""
    process = await start(network, directory, sys.executable, EXAMPLES / name, *arguments)
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


class Agent:
    """An example that runs until Ctrl-C."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self, start: str) -> str:
        """The rest of the next line that begins so."""
        assert self._process.stdout is not None
        async with asyncio.timeout(SECONDS):
            while line := (await self._process.stdout.readline()).decode():
                if line.startswith(start):
                    return line.removeprefix(start).strip()
        raise AssertionError(f"ended without printing {start!r}")


@asynccontextmanager
async def running(network: Network, directory: Path, *command: str | Path) -> AsyncIterator[Agent]:
    """Run an agent and end it by Ctrl-C, which it takes without complaint."""
    process = await start(network, directory, *command)
    try:
        yield Agent(process)
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(SECONDS):
            _, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    assert process.returncode == 0, err.decode()
    # The TypeScript client tells of reconnects.
    assert [line for line in err.decode().splitlines() if not line.startswith("[KADI] ")] == []


@pytest.fixture
async def filled(network: Network) -> Network:
    async with SearchClient(network.url) as search:
        documents = [
            {"source": each["id"], "title": each["title"], "content": each["text"]}
            for each in RECORDS
        ]
        await search.index("notes", documents)
    return network


async def test_an_indexing_pipeline(network: Network, tmp_path: Path) -> None:
    lines = tmp_path / "records.jsonl"
    lines.write_text("\n".join(map(json.dumps, RECORDS)), encoding="utf-8")
    printed = await run(network, tmp_path, "indexing_pipeline.py", str(lines), "notes")
    assert "2 added, 0 updated, 0 unchanged" in printed
    again = await run(network, tmp_path, "indexing_pipeline.py", str(lines), "notes")
    assert "0 added, 0 updated, 2 unchanged" in again
    found = await network.call(
        "search-query", collection="notes", query="valve", filter={"metadata.year": {"$gte": 2026}}
    )
    assert [hit["source"] for hit in found["results"]] == ["pump"]


async def test_an_agent_with_and_without_a_chat_model(filled: Network, tmp_path: Path) -> None:
    question = "when is the pump replaced"
    alone = await run(filled, tmp_path, "agent_loop.py", "notes", question)
    assert "[pump] The pump is replaced in May." in alone
    async with playing(filled.url, Talker(says="In May [pump].")) as talker:
        answered = await run(filled, tmp_path, "agent_loop.py", "notes", question)
    assert answered.strip() == "In May [pump]."
    assert "The pump is replaced in May." in talker.requests[0]["messages"][0]["content"]


async def test_statistics_for_a_user_interface(filled: Network, tmp_path: Path) -> None:
    (notes,) = json.loads(await run(filled, tmp_path, "collection_statistics.py"))
    assert (notes["name"], notes["documents"], notes["embedded"]) == ("notes", 2, "100 %")


@pytest.mark.parametrize("name", ["langchain_retriever.py", "llamaindex_retriever.py"])
async def test_retrievers_of_other_frameworks(filled: Network, tmp_path: Path, name: str) -> None:
    printed = await run(filled, tmp_path, name, "notes", "pump replaced")
    assert printed.startswith("pump: The pump is replaced in May.")


async def test_an_agent_in_python_serves_tools_and_hears_events(
    network: Network, tmp_path: Path
) -> None:
    client = network.client
    pump = {"name": "pump", "text": "The pump is replaced in May."}
    question = {"question": "when is the pump replaced?"}
    async with running(network, tmp_path, sys.executable, EXAMPLES / "agent.py") as agent:
        agent_id = await agent.line("ready as ")
        assert await client.invoke("recall", question) == {"notes": []}
        assert await client.invoke("remember", pump) == {"changed": True}
        assert "'agent-notes'" in await agent.line("search.index.completed")
        assert await client.invoke("remember", pump) == {"changed": False}
        assert await client.invoke("recall", question) == {"notes": [pump]}
    assert "remember" not in [tool["name"] for tool in await client.list_tools()]
    async with running(network, tmp_path, sys.executable, EXAMPLES / "agent.py") as agent:
        assert await agent.line("ready as ") == agent_id


async def test_an_agent_offers_a_language_model_to_the_network(
    filled: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = {"collection": "notes", "query": "pump", "expandQuery": {"method": "terms"}}
    async with chat_server(tmp_path) as server:
        server.body = json.dumps(said("granite\nmarble"))
        monkeypatch.setenv("MODEL_URL", server.url)
        monkeypatch.setenv("MODEL", "usual")
        command = sys.executable, EXAMPLES / "chat_model.py"
        async with running(filled, tmp_path, *command) as agent:
            await agent.line("ready as ")
            assert "warnings" not in await filled.call("search-query", **question)
            assert (server.requests[0]["model"], server.requests[0]["max_tokens"]) == ("usual", 256)
            server.status, server.body = 404, '{"error": {"message": "model \'usual\' not found"}}'
            (warning,) = (await filled.call("search-query", **question))["warnings"]
            assert "refused the model" in warning


@needs_real_client
async def test_an_agent_in_typescript_serves_tools_and_hears_events(
    filled: Network, tmp_path: Path
) -> None:
    client = filled.client
    async with running(filled, tmp_path, *typescript(tmp_path)) as agent:
        await agent.line("ready as ")
        found = await client.invoke("quote", {"collection": "notes", "question": "pump replaced"})
        assert found == {"source": "pump", "text": "The pump is replaced in May."}
        with pytest.raises(ToolError, match="nots") as failure:
            await client.invoke("quote", {"collection": "nots", "question": "pump"})
        assert (failure.value.code, failure.value.tool) == ("not_found", "quote")
        await client.invoke("search-delete", {"collection": "notes", "source": "pump"})
        async with SearchClient(filled.url) as search:
            await search.index("notes", [{"source": "n", "title": "N", "content": "Nuts."}])
        event: dict[str, Any] = json.loads(await agent.line("search.index.completed"))
        assert event["collection"] == "notes"


@needs_real_client
async def test_an_agent_in_typescript_subscribes_again_after_a_reconnect(
    network: Network, tmp_path: Path
) -> None:
    async with running(network, tmp_path, *typescript(tmp_path)) as agent:
        agent_id = await agent.line("ready as ")
        await network.restart_broker()
        event = asyncio.create_task(agent.line("search.index.completed"))
        async with asyncio.timeout(SECONDS):
            while not event.done():
                await network.client.publish("search.index.completed", {"jobId": agent_id})
        assert json.loads(await event) == {"jobId": agent_id}


def typescript(directory: Path) -> tuple[Path, str]:
    """The command of the example, installed in a directory."""
    shown = subprocess.run([NODE, "--version"], capture_output=True, text=True, timeout=SECONDS)
    major, minor, _ = shown.stdout.strip().removeprefix("v").split(".")
    if (int(major), int(minor)) < (22, 18):
        pytest.skip(f"Node.js {major}.{minor} runs no TypeScript; `make .venv/.node` installs one")
    shutil.copytree(EXAMPLES / "typescript", directory, dirs_exist_ok=True)
    (directory / "node_modules").symlink_to(HOME / "node_modules")
    return NODE, "agent.ts"
