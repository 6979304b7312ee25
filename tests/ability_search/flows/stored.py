"""Stored data of a collection, read without the worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tests.ability_search.flows.conftest import PATIENCE, Network

from ability_search.collection import Collection
from ability_search.extensions.sessions.uses import Use, use_of, uses_of
from ability_search.index.jobs import job_of, jobs_of
from ability_search.providers.embedder import EMBEDDINGS, RemoteEmbedder
from ability_search.providers.transports import OverBroker
from ability_search.store.arcadedb.client import BrokerScripts
from ability_search.store.arcadedb.core import kind_type, link_type, source_type
from ability_search.store.arcadedb.rows import chunk_row, source_row
from ability_search.store.memory import MemoryStore
from ability_search.store.pages import read_all
from ability_search.store.records import Job
from ability_search.store.statistics_cache import (
    EMPTY,
    TERMS,
    TermStatisticsEntry,
    advanced,
    term_log,
)
from ability_search.store.stored_collections import read_collection, read_collections
from ability_search.store.values import Read, Records
from ability_search.text.term_statistics import TermStatistics
from ability_search.tools.calls import Services
from ability_search.worker import build_services, open_worker
from kadi_client import Brokers, Connection
from kadi_client.tools import Call
from kadi_localnet.database.tools import database_tools

_READS = 10
"""Reads of a collection that changes, at most."""


async def rows(network: Network, query: str, *, language: str = "sql", **params: Any) -> list[Any]:
    """Return the rows of a query in the engine, asked past the worker."""
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
    """Change something in the engine, past the worker."""
    await network.client.invoke(
        "arcade-command",
        {"database": network.settings.database.name, "command": text, "params": params},
        timeout=PATIENCE,
    )


async def record(network: Network, name: str) -> Collection:
    """Return the record of a collection."""
    await asyncio.sleep(0)  # a store in memory gives way to nobody by itself
    found = await read_collection(network.store, name)
    assert found is not None
    return found


async def collections(network: Network) -> list[str]:
    """Return the names of all records, those under construction included, in order."""
    return [each.name for each in await read_collections(network.store)]


async def chunks(network: Network, name: str) -> list[Any]:
    """Return the rows of all chunks of a collection, by chunkId."""
    found = await _table(network, (await record(network, name)).type)
    return sorted(found, key=lambda row: str(row["chunkId"]))


async def kind_chunks(network: Network, name: str) -> list[Any]:
    """Return the rows of all chunks of a collection's kinds, by chunkId."""
    found = await _table(network, kind_type((await record(network, name)).type))
    return sorted(found, key=lambda row: str(row["chunkId"]))


async def source_rows(network: Network, name: str) -> list[Any]:
    """Return the rows of all sources of a collection, by source."""
    found = await _table(network, source_type((await record(network, name)).type))
    return sorted(found, key=lambda row: str(row["source"]))


async def links(network: Network, name: str) -> list[tuple[str, str, str, float]]:
    """Return all links of a collection: source, target, kind, weight."""
    found = await _table(network, link_type((await record(network, name)).type))
    return sorted((row["source"], row["target"], row["kind"], row["weight"]) for row in found)


async def statistics(network: Network, generation: str) -> list[TermStatisticsEntry]:
    """Return the whole log of the term statistics of a generation."""
    return await term_log(network.store, generation)


async def logged(network: Network) -> set[str]:
    """Return the generations that have a log of term statistics."""
    await asyncio.sleep(0)
    found = await read_all(network.store, Read(Records(TERMS)))
    return {record.scope.partition("/")[2] for record in found}


async def _table(network: Network, kind: str) -> list[Any]:
    """Return the rows of a type of a generation; none if there is no such type."""
    if isinstance(network.store, MemoryStore):
        return _memory_table(network.store, kind)
    if kind not in await types(network):
        return []
    return await rows(network, f"SELECT FROM `{kind}`")


def _memory_table(store: MemoryStore, kind: str) -> list[Any]:
    """Return the rows that the engine would hold of what is in memory."""
    for name, generation in store._generations.items():
        if kind == name:
            return [chunk_row(chunk.whole()) for chunk in generation.chunks.values()]
        if kind == kind_type(name):
            return [chunk_row(chunk.whole()) for chunk in generation.kinds.values()]
        if kind == source_type(name):
            return [source_row(source) for source in generation.sources.values()]
        if kind == link_type(name):
            return list(map(asdict, generation.links))
    return []


def _memory_types(store: MemoryStore) -> set[str]:
    found = set()
    for name, generation in store._generations.items():
        found |= {name, source_type(name)}
        if generation.links:
            found.add(link_type(name))
        if generation.kinds:
            found.add(kind_type(name))
    return found


async def types(network: Network) -> set[str]:
    """Return the names of all types of generations; in memory, those the engine would have."""
    if isinstance(network.store, MemoryStore):
        await asyncio.sleep(0)
        return _memory_types(network.store)
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


async def assert_consistent(network: Network, name: str) -> Collection:
    """Do as :func:`_assert_consistent`, again if something was committed between the reads.

    That may be the last transaction of a worker that was killed.
    """
    for _ in range(_READS):
        before = await record(network, name)
        try:
            return await _assert_consistent(network, name)
        except AssertionError:
            if await record(network, name) == before:
                raise
    raise AssertionError(f"{name} keeps changing")


async def _assert_consistent(network: Network, name: str) -> Collection:
    """Record, Source records, chunks and term statistics say the same, and nothing is twice."""
    collection = await record(network, name)
    ordinary = await chunks(network, name)
    covering = await kind_chunks(network, name)
    assert collection.kind_chunks == len(covering)
    assert all(row.get("aspectOf") for row in covering)
    assert not any(row.get("aspectOf") for row in ordinary)
    stored = [*ordinary, *covering]
    sources = await source_rows(network, name)
    by_source: dict[str, list[Any]] = {row["source"]: [] for row in sources}
    assert len(by_source) == len(sources)
    counted = [row for row in sources if row["chunks"] and not row.get("generated")]
    assert collection.sources == len(counted)
    for row in stored:
        by_source[row["source"]].append(row)
    for source in sources:
        own = sorted(by_source[source["source"]], key=lambda row: row["chunkIndex"])
        assert [row["chunkIndex"] for row in own] == list(range(source["chunks"]))
        assert all(row["totalChunks"] == source["chunks"] for row in own)
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
    log = await statistics(network, collection.type)
    told = advanced(EMPTY, log, collection.revision).statistics
    counted = TermStatistics.of_chunks(
        [row["terms"] or row.get("spareTerms") or [] for row in stored],
        [row["lengths"] for row in stored],
    )
    assert told == counted


async def under_construction(network: Network) -> list[Collection]:
    """Return the records that jobs build."""
    await asyncio.sleep(0)
    return [each for each in await read_collections(network.store) if "@" in each.name]


async def jobs_listed(network: Network, name: str) -> list[Job]:
    """Return the last job of each kind of a collection."""
    await asyncio.sleep(0)
    return list(map(job_of, await read_all(network.store, Read(jobs_of(name)))))


async def expire_leases(network: Network) -> None:
    """End the leases of all running jobs."""
    if not isinstance(network.store, MemoryStore):
        await command(
            network,
            "UPDATE Record SET until = 0 WHERE kind = 'job' AND fields.state = 'running'",
        )
        return
    table = network.store._table
    for key, held in table.items():
        if held.kind == "job" and held.fields["state"] == "running":
            table[key] = replace(held, until=0)


async def backdate(network: Network, name: str, source: str, milliseconds: int) -> None:
    """Make the chunks of a source older."""
    collection = await record(network, name)
    if not isinstance(network.store, MemoryStore):
        change = f"UPDATE `{collection.type}` SET createdAt = createdAt - :age WHERE source = :name"
        await command(network, change, age=milliseconds, name=source)
        return
    for chunk in network.store._generations[collection.type].chunks.values():
        if chunk.record.source == source:
            created_at = chunk.record.created_at - milliseconds
            chunk.record = replace(chunk.record, created_at=created_at)


async def uses(network: Network, *names: str) -> list[Use]:
    """Return what was counted of the use of these collections, by all agents."""
    await asyncio.sleep(0)
    return [
        use
        for name in names
        for use in map(use_of, await read_all(network.store, Read(uses_of(name))))
    ]


@asynccontextmanager
async def second_worker(network: Network, home: Path) -> AsyncIterator[Brokers]:
    """Another worker on the same network and database, with an identity of its own."""
    files = network.settings.files.model_copy(update={"identity_file": home / "second.pem"})
    settings = replace(network.settings, files=files)
    store = network.store if isinstance(network.store, MemoryStore) else None
    async with open_worker(settings, base=home, store=store) as worker:
        yield worker


def scripts_of(network: Network) -> BrokerScripts:
    """Return a client for statements in the network's database."""
    name = network.settings.database.name
    return BrokerScripts(network.client.invoke, database=name, timeout=PATIENCE)


def services_of(network: Network, base: Path) -> Services:
    """Return services in this process, over the network's store and model manager."""
    settings = network.settings
    transport = OverBroker(EMBEDDINGS, network.client.invoke, api_key=None)
    embedder = RemoteEmbedder(transport, settings.embedding.model_copy(update={"attempts": 1}))
    nobody: Any = None  # reranks or chats: no query is asked for that here
    return build_services(settings, network.store, embedder, nobody, nobody, base=base)


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


def bound_answers(network: Network, most: int) -> None:
    """Let the database refuse answers of more than ``most`` bytes, as the broker does."""
    query = next(
        tool.handler for tool in database_tools(network.engine) if tool.name == "arcade-query"
    )

    async def bounded(tool_input: dict[str, Any], call: Call) -> Any:
        answer = await query(tool_input, call)
        if len(answer.get("result", b"")) > most:
            raise ValueError("the result of arcade-query is too large")
        return answer

    network.instead["arcade-query"] = bounded
