"""The examples of docs/examples do what they say, run as a user would run them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from tests.ability_search.flows.conftest import Network
from tests.ability_search.flows.playing import Talker, playing

from ability_search.client import SearchClient

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "docs" / "examples"
RECORDS = [
    {"id": "pump", "title": "Pump", "text": "The pump is replaced in May.", "year": 2026},
    {"id": "valve", "title": "Valve", "text": "The valve stays closed.", "year": 2025},
]


async def run(network: Network, directory: Path, name: str, *arguments: str) -> str:
    """What an example prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLES / name),
        *arguments,
        cwd=directory,
        env={**os.environ, "BROKER_URL": network.url, "HOME": str(directory)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


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
