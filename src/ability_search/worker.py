"""The worker: builds the services over a connection and serves them as tools."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ability_search.compute_turns import ComputeTurns
from ability_search.config.schema import Settings
from ability_search.errors import Busy, SearchError
from ability_search.extension import loaded
from ability_search.index.file_indexing import FileIndexing
from ability_search.index.generations import Generations
from ability_search.index.index_ports import AddedSteps, IndexPorts
from ability_search.index.jobs import Jobs, Publish
from ability_search.index.maintenance import Maintenance
from ability_search.index.pipeline import IndexPipeline
from ability_search.index.reindex import Reindexer
from ability_search.index.stored_sources import StoredSources
from ability_search.index.verification import SelfRepair
from ability_search.network import worker_brokers
from ability_search.ops.metrics.call_metrics import metered_tools
from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.ops.metrics.metric_table import BREAKER_OPEN, COLLECTIONS_KNOWN, JOBS_RUNNING
from ability_search.ports import Agents, Chat, Embedder, Invoke, RerankerPort
from ability_search.providers.chat import PacedChat
from ability_search.providers.model_servers import ModelServers, metered_invoke
from ability_search.search.limits import SCORE_FLOOR, SIGNAL_FLOOR, SOURCE_LIMIT
from ability_search.search.pipeline import QueryPipeline
from ability_search.search.similar import OTHERS
from ability_search.search.stage import Ports, Stage
from ability_search.store.arcadedb.client import BrokerScripts
from ability_search.store.arcadedb.store import ArcadeStore
from ability_search.store.memory import MemoryStore
from ability_search.store.port import Store
from ability_search.store.registry import Registry
from ability_search.store.statistics_cache import StatisticsCache
from ability_search.text.token_counter import EstimatedTokens, TokenCounter, TokenizerTokens
from ability_search.tools.boundary import failure
from ability_search.tools.calls import Services
from ability_search.tools.handlers import served_tools
from ability_search.tools.requests import read_policy
from ability_search.tools.table import offered_families
from kadi_client import Agent, Brokers, Connection, KadiError, Tool
from kadi_client.context import handling
from kadi_client.provider import Observe, noted
from kadi_client.tracing import span

log = logging.getLogger(__name__)

_LIST_SECONDS = 2.0
"""Seconds that a broker may take to list its tools."""

_SELF_REPAIR = 600.0
"""Seconds between two checks for terms missing from the keyword index."""
_POSTPONED = 1.0
"""Seconds after which a check that is due is tried again."""
LOGGED: Observe = partial(noted, level=logging.INFO)
"""Logs each tool call at info; the outgoing calls it makes are logged at debug, as there are
several per call."""


CORE_STAGES: tuple[Stage, ...] = (OTHERS, SIGNAL_FLOOR, SCORE_FLOOR, SOURCE_LIMIT)


@asynccontextmanager
async def open_worker(
    settings: Settings,
    *,
    base: Path,
    connect_timeout: float = 30.0,
    meter: Meter = UNMETERED,
    store: Store | None = None,
) -> AsyncIterator[Brokers]:
    """Connect to the brokers and serve the tools during the block.

    Args:
        settings: The settings.
        base: Directory that relative paths of search-index-file start from.
        connect_timeout: Seconds to wait for the first broker.
        meter: Meter for the metrics of the worker.
        store: The store; ``None`` for the one that the settings choose.

    Raises:
        ConfigurationError: if the setting ``offer`` names what no extension has.
        KadiError: if no broker can be reached, or none accepts the worker.
    """
    async with open_tools(
        settings, base=base, connect_timeout=connect_timeout, meter=meter, store=store
    ) as tools:
        connection, table = tools
        await connection.serve(table)
        urls = ", ".join(str(broker.url) for broker in settings.brokers)
        log.info("serving on %s as %s", urls, settings.agent.name)
        yield connection


@asynccontextmanager
async def open_tools(
    settings: Settings,
    *,
    base: Path,
    connect_timeout: float = 30.0,
    meter: Meter = UNMETERED,
    store: Store | None = None,
) -> AsyncIterator[tuple[Brokers, list[Tool]]]:
    """Connect to the brokers and yield the tools, not yet registered.

    Arguments and errors as for :func:`open_worker`.
    """
    offered_families(settings.loading.offer)  # before anything is opened
    connection = worker_brokers(
        settings, connect_timeout=connect_timeout, observe=LOGGED, on_busy=_busy
    )
    async with open_services(settings, connection, base=base, meter=meter, store=store) as services:

        async def resume_jobs() -> None:
            await services.reindexing.resume()
            await services.generations.drop_due()

        async with (
            repeating("abandoned jobs", resume_jobs, every=settings.jobs.lease / 2),
            checked(services, every=_SELF_REPAIR),
        ):
            yield connection, metered_tools(served_tools(services), meter)


@asynccontextmanager
async def open_services(
    settings: Settings,
    connection: Connection | Brokers,
    *,
    base: Path,
    meter: Meter = UNMETERED,
    store: Store | None = None,
) -> AsyncIterator[Services]:
    """Build the services over a connection, open it, and close it after the block.

    Arguments and errors as for :func:`open_worker`.
    """

    async def agents(tool: str) -> list[Agent]:
        return await connection.agents(tool, timeout=_LIST_SECONDS)

    async with AsyncExitStack() as stack:
        invoke = metered_invoke(connection.invoke, meter)
        servers = ModelServers(settings, invoke, meter, agents)
        embedder = await stack.enter_async_context(servers.embedder())
        reranker = await stack.enter_async_context(servers.reranker())
        chat = await stack.enter_async_context(servers.chat())
        if store is None:

            def restarted() -> None:
                services.ports.registry.doubts.restarted()

            store = open_store(settings, invoke, meter, agents=agents, restarted=restarted)
        clients = {"embedder": embedder, "reranker": reranker, "chat": chat}
        meter.watch(
            BREAKER_OPEN, lambda: {(n,): each.breaker.any_open for n, each in clients.items()}
        )

        async def publish(channel: str, data: dict[str, Any]) -> None:
            try:
                await connection.publish(channel, data)
            except KadiError as exc:
                log.debug("event on %s not published: %s", channel, exc)

        services = build_services(
            settings, store, embedder, reranker, chat, base=base, publish=publish, meter=meter
        )
        meter.watch(JOBS_RUNNING, lambda: {(): len(services.reindexing.runs)})
        meter.watch(COLLECTIONS_KNOWN, lambda: {(): services.ports.registry.remembered})
        await stack.enter_async_context(connection)
        # They need the connection to close, so they are closed before it.
        stack.push_async_callback(services.jobs.close)
        stack.push_async_callback(services.generations.close)
        stack.push_async_callback(services.reindexing.close)
        stack.push_async_callback(services.maintenance.close)
        stack.push_async_callback(services.queries.close)
        yield services


def in_memory(settings: Settings) -> Settings:
    """Return the settings of a worker that keeps everything in memory."""
    return replace(settings, database=settings.database.model_copy(update={"memory": True}))


def open_store(
    settings: Settings,
    invoke: Invoke,
    meter: Meter = UNMETERED,
    *,
    agents: Agents,
    restarted: Callable[[], None],
) -> Store:
    """Return the store chosen by the settings: the database on the network, or memory.

    ``restarted`` is called when the database was restarted.
    """
    if settings.database.memory:
        return MemoryStore(_now, scan_below=settings.ranking.scan_below)
    database = BrokerScripts(
        invoke,
        database=settings.database.name,
        timeout=settings.database.timeout,
        meter=meter,
        agents=agents,
        patience=settings.database.patience,
        restarted=restarted,
    )
    return ArcadeStore(
        database,
        message_bytes=settings.database.write_group_bytes,
        beam=settings.ranking.ef_search,
        scan_below=settings.ranking.scan_below,
        now=_now,
        meter=meter,
    )


def build_services(
    settings: Settings,
    store: Store,
    embedder: Embedder,
    reranker: RerankerPort,
    chat: Chat,
    *,
    base: Path,
    publish: Publish | None = None,
    meter: Meter = UNMETERED,
) -> Services:
    """Build the services over a store and models; ``publish`` sends events of background jobs."""
    registry = Registry(store)
    turns = ComputeTurns()
    statistics_cache = StatisticsCache(store)
    counter = token_counter(settings)
    paced = PacedChat(chat)
    steps = sum(loaded().steps, start=AddedSteps())
    ports = IndexPorts(store, registry, embedder, paced, settings, counter, _now, meter, steps)
    query_ports = Ports(
        store, embedder, reranker, chat, registry, statistics_cache, settings, counter, _now, turns
    )
    generations = Generations(ports)
    jobs = Jobs(store, lease=settings.jobs.lease)
    sources = StoredSources(ports)
    indexing = IndexPipeline(ports, sources)
    maintenance = Maintenance(ports, statistics_cache, generations)
    reindexing = Reindexer(
        ports, generations, jobs, indexing, sources, maintenance, publish=publish or _unheard
    )
    return Services(
        ports=ports,
        indexing=indexing,
        sources=sources,
        files=FileIndexing(ports, indexing, sources, base=base),
        generations=generations,
        jobs=jobs,
        reindexing=reindexing,
        self_repair=SelfRepair(ports, reindexing.start),
        queries=QueryPipeline((*CORE_STAGES, *loaded().stages), query_ports),
        turns=turns,
        maintenance=maintenance,
        policy=read_policy(settings.reading),
    )


def token_counter(settings: Settings) -> TokenCounter:
    """Return the token counter: the tokenizer from the settings, or an estimate.

    Raises:
        ConfigurationError: if the tokenizer cannot be read.
    """
    path = settings.chunking.tokenizer
    return EstimatedTokens() if path is None else TokenizerTokens(path)


async def _unheard(_channel: str, _data: dict[str, Any]) -> None:
    """Discard an event."""


@asynccontextmanager
async def checked(services: Services, *, every: float) -> AsyncIterator[None]:
    """Check the keyword indexes while the block runs: at once, after each restart, and regularly.

    Until the check after a restart is done, answers say so.
    """
    doubts = services.ports.registry.doubts
    doubts.checking = True
    async with repeating("lost terms", services.self_repair.check, every=every, wake=doubts.raised):
        yield


@asynccontextmanager
async def repeating(
    name: str,
    check: Callable[[], Awaitable[None]],
    *,
    every: float,
    wake: asyncio.Event | None = None,
) -> AsyncIterator[None]:
    """Call ``check`` periodically while the block runs: at once, then about ``every`` seconds.

    The pauses vary randomly, so that workers that started together drift apart. ``name`` names
    the task in the log. Each run has its own call id and span. An event, which ``check`` clears,
    ends a pause; after a failure that sets it again a short one follows.
    """
    task = asyncio.create_task(_repeat(name, check, every, wake or asyncio.Event()), name=name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _repeat(
    name: str, check: Callable[[], Awaitable[None]], every: float, wake: asyncio.Event
) -> None:
    while True:
        postponed = False
        with handling({}):
            try:
                with span(name):
                    await check()
            except SearchError as exc:
                log.debug("%s postponed: %s", name, exc)
                postponed = True
            except Exception:
                log.exception("%s failed", name)
        if postponed and wake.is_set():
            await asyncio.sleep(_POSTPONED)
            continue
        with suppress(TimeoutError):
            async with asyncio.timeout(every * random.uniform(0.75, 1.25)):
                await wake.wait()


def _busy(tool: str) -> Mapping[str, Any]:
    return failure(Busy("too many calls are waiting", retry_after=1.0), tool)


def _now() -> int:
    return time.time_ns() // 1_000_000
