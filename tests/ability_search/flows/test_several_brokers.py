"""A worker on several brokers, with its database on one and its models on another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.ability_search.flows.conftest import MODEL, WordModel

from ability_search.config.loader import load_settings
from ability_search.worker import open_worker
from kadi_client import Brokers, Connection
from kadi_localnet.broker import serve_broker
from kadi_localnet.database.embedded import EmbeddedDatabases
from kadi_localnet.database.tools import database_tools

PATIENCE = 20.0
NOTE = {"source": "n1", "title": "Backups", "content": "They run at two in the morning."}


@dataclass
class Split:
    """Two brokers, an agent on each, and the worker on both."""

    near: Connection
    far: Connection
    worker: Brokers


@pytest.fixture
async def split(data_dir: Path, tmp_path: Path) -> AsyncIterator[Split]:
    async with AsyncExitStack() as stack:
        near = await stack.enter_async_context(serve_broker(port=0))
        far = await stack.enter_async_context(serve_broker(port=0))
        engine = await stack.enter_async_context(EmbeddedDatabases(data_dir))
        enter = stack.enter_async_context
        await enter(Connection(near.url, networks=["search"], tools=database_tools(engine)))
        await enter(Connection(far.url, networks=["models"], tools=[WordModel().tool]))
        agent = {
            "brokers": {
                "local": {"url": near.url, "networks": ["search"]},
                "office": {"url": far.url, "networks": ["team", "models"]},
            }
        }
        (tmp_path / "agent.json").write_text(json.dumps(agent), encoding="utf-8")
        environ = {"HOME": str(tmp_path), "SEARCH_EMBEDDING_MODEL": MODEL}
        worker = await enter(open_worker(load_settings(environ, tmp_path), base=tmp_path))
        yield Split(
            await enter(Connection(near.url, networks=["search"])),
            await enter(Connection(far.url, networks=["team"])),
            worker,
        )


async def test_tools_answer_on_every_broker_over_database_and_models_elsewhere(
    split: Split,
) -> None:
    indexed = await split.far.invoke("search-index", {"collection": "c", "documents": [NOTE]})
    assert indexed["added"] == 1
    for agent in (split.near, split.far):
        query = {"collection": "c", "query": "when do backups run?"}
        found = await agent.invoke("search-query", query)
        assert [hit["source"] for hit in found["results"]] == ["n1"]
        assert "degraded" not in found
    assert split.worker.connected == ["local", "office"]


async def test_progress_is_published_on_every_broker(split: Split) -> None:
    async with (
        split.near.subscribe("search.index.#") as near,
        split.far.subscribe("search.index.#") as far,
        asyncio.timeout(PATIENCE),
    ):
        await split.near.invoke("search-index", {"collection": "c", "documents": [NOTE]})
        asked = {"collection": "c", "background": True}
        await split.near.invoke("search-reindex", asked)
        for events in (near, far):
            async for event in events:
                if event.channel == "search.index.completed" and event.data["collection"] == "c":
                    assert event.source == split.worker.agent_id
                    break
