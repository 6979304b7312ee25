"""What the database holds of a collection, counted from its rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.ability_search.flows.conftest import Network

from ability_search.collection import Collection
from ability_search.providers.embedder import EMBEDDINGS, RemoteEmbedder
from ability_search.providers.transports import over_broker
from ability_search.store.arcadedb.client import BrokerScripts
from ability_search.store.arcadedb.collections import from_record
from ability_search.store.arcadedb.core import kind_type, link_type, source_type
from ability_search.store.arcadedb.rows import statistics_entry
from ability_search.store.arcadedb.store import ArcadeStore
from ability_search.store.statistics_cache import EMPTY, advanced
from ability_search.text.term_statistics import TermStatistics
from ability_search.tools.handlers import Services
from ability_search.worker import build_services, open_worker
from kadi_client import Brokers, Connection

PATIENCE = 60.0
"""Seconds that anything here may take at most."""


async def rows(network: Network, query: str, *, language: str = "sql", **params: Any) -> list[Any]:
    """The rows of a query, asked past the worker."""
    answer = await network.client.invoke(
        "arcade-query",
        {
            "database": network.settings.database.name,
            "query": query,
            "language": language,
            "params": params,
        },
        timeout=PATIENCE,
    )
    result: list[Any] = answer["result"]
    return result


async def command(network: Network, text: str, **params: Any) -> None:
    """Change something in the database past the worker."""
    await network.client.invoke(
        "arcade-command",
        {"database": network.settings.database.name, "command": text, "params": params},
        timeout=PATIENCE,
    )


async def record(network: Network, name: str) -> Collection:
    """The record of a collection."""
    (found,) = await rows(network, "SELECT FROM Collection WHERE name = :name", name=name)
    return from_record(found)


async def chunks(network: Network, name: str) -> list[Any]:
    """All chunks of a collection, by chunkId."""
    kind = (await record(network, name)).type
    return await rows(network, f"SELECT FROM `{kind}` ORDER BY chunkId")


async def types(network: Network) -> set[str]:
    """The names of all types of generations."""
    found: list[Any] | None = None
    async with asyncio.timeout(PATIENCE):
        while found is None:  # the engine may stumble over a type that is being dropped
            answer = await network.client.invoke(
                "arcade-query",
                {
                    "database": network.settings.database.name,
                    "query": "SELECT name FROM schema:types",
                },
                timeout=PATIENCE,
                check=False,
            )
            found = answer.get("result")
    prefixes = ("Chunk_", "Source_", "Link_", "Aspect_")
    return {row["name"] for row in found if row["name"].startswith(prefixes)}


async def links(network: Network, name: str) -> list[tuple[str, str, str, float]]:
    """All links of a collection: source, target, kind, weight."""
    kind = link_type((await record(network, name)).type)
    if kind not in await types(network):
        return []
    found = await rows(network, f"SELECT FROM `{kind}` ORDER BY source, target, kind")
    return [(row["source"], row["target"], row["kind"], row["weight"]) for row in found]


async def kind_chunks(network: Network, name: str) -> list[Any]:
    """All chunks of a collection's kinds, by chunkId."""
    kind = kind_type((await record(network, name)).type)
    if kind not in await types(network):
        return []
    return await rows(network, f"SELECT FROM `{kind}` ORDER BY chunkId")


async def assert_consistent(network: Network, name: str) -> Collection:
    """Record, Source records, chunks and term statistics say the same, and nothing is twice."""
    collection = await record(network, name)
    ordinary = await rows(network, f"SELECT FROM `{collection.type}`")
    covering = await kind_chunks(network, name)
    assert collection.kind_chunks == len(covering)
    assert all(row.get("aspectOf") for row in covering)
    assert not any(row.get("aspectOf") for row in ordinary)
    stored = [*ordinary, *covering]
    sources = await rows(network, f"SELECT FROM `{source_type(collection.type)}`")
    by_source: dict[str, list[Any]] = {row["source"]: [] for row in sources}
    assert len(by_source) == len(sources)
    assert collection.sources == sum(not row.get("generated") for row in sources)
    for row in stored:
        by_source[row["source"]].append(row)
    for source in sources:
        own = sorted(by_source[source["source"]], key=lambda row: row["chunkIndex"])
        assert [row["chunkIndex"] for row in own] == list(range(source["chunks"]))
        assert {row["totalChunks"] for row in own} == {source["chunks"]}
        assert sum(row["tokens"] for row in own) == source["tokens"]
        assert [row["chunkId"] for row in own] == [
            f"{name}:{source['source']}:{index}" for index in range(source["chunks"])
        ]
    tokens = [row["tokens"] for row in stored]
    assert (collection.chunks, collection.tokens) == (len(tokens), sum(tokens))
    assert (collection.tokens_min, collection.tokens_max) == (
        min(tokens, default=None),
        max(tokens, default=None),
    )
    duplicates = {row["chunkId"]: row["duplicateOf"] for row in stored if row.get("duplicateOf")}
    assert collection.duplicates == len(duplicates)
    assert set(duplicates.values()) <= {row["chunkId"] for row in stored} - duplicates.keys()
    for row in stored:
        indexed = [row.get(name) is not None for name in ("embedding", "terms", "weights")]
        spared = [row.get(f"spare{name}") is not None for name in ("Embedding", "Terms", "Weights")]
        assert (indexed, spared) in (([True] * 3, [False] * 3), ([False] * 3, [True] * 3))
        assert spared[0] == (row["chunkId"] in duplicates)
    await _assert_statistics(network, collection, ordinary)
    found = await links(network, name)
    assert collection.links == len(found) == len(set(found))
    assert {source for source, *_ in found} <= by_source.keys()
    return collection


async def _assert_statistics(network: Network, collection: Collection, stored: list[Any]) -> None:
    log = await rows(
        network,
        "SELECT FROM TermStatistics WHERE type = :type ORDER BY seq",
        type=collection.type,
    )
    told = advanced(EMPTY, list(map(statistics_entry, log)), collection.revision).statistics
    counted = TermStatistics.of_chunks(
        [row["terms"] or row.get("spareTerms") or [] for row in stored],
        [row["lengths"] for row in stored],
    )
    assert told == counted


@asynccontextmanager
async def second_worker(network: Network, home: Path) -> AsyncIterator[Brokers]:
    """Another worker on the same network and database, with an identity of its own."""
    files = network.settings.files.model_copy(update={"identity_file": home / "second.pem"})
    settings = replace(network.settings, files=files)
    async with open_worker(settings, base=home) as worker:
        yield worker


def scripts_of(network: Network) -> BrokerScripts:
    """Runs statements on the network's database."""
    name = network.settings.database.name
    return BrokerScripts(network.client.invoke, database=name, timeout=PATIENCE)


def store_of(network: Network) -> ArcadeStore:
    """The store in the network's database."""
    group = network.settings.database.write_group_bytes
    return ArcadeStore(scripts_of(network), message_bytes=group)


def services_of(network: Network, base: Path) -> Services:
    """The services in this process, over the network's database and model manager."""
    settings = network.settings
    embedding = settings.embedding
    embedder = RemoteEmbedder(
        over_broker(EMBEDDINGS, network.client.invoke, api_key=None),
        batch_texts=embedding.batch_texts,
        batch_bytes=embedding.batch_bytes,
        concurrency=embedding.concurrency,
        timeout=embedding.timeout,
        attempts=1,
        breaker_failures=embedding.breaker_failures,
        breaker_reset=embedding.breaker_reset,
    )
    nobody: Any = None  # reranks or chats: no query is asked for that here
    return build_services(settings, store_of(network), embedder, nobody, nobody, base=base)


async def on(
    network: Network, worker: Brokers | Connection, tool: str, /, **tool_input: Any
) -> Any:
    """Call a tool of one of several workers."""
    return await network.client.invoke(
        tool, tool_input, timeout=PATIENCE, target_agent=worker.agent_id
    )


async def settled(services: Services, name: str) -> None:
    """Do now what maintenance does behind the callers' backs."""
    services.maintenance.schedule(name)
    async with asyncio.timeout(PATIENCE):
        await services.maintenance.idle()
