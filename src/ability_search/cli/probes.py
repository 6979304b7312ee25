"""The network checks of `doctor`: the broker, the tools, a query, the models."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import httpx

from ability_search.cli import output
from ability_search.cli.checks import Check
from ability_search.cli.client import chosen_target, target_connection
from ability_search.cli.looking import look, metrics_client
from ability_search.client.calling import call_tool
from ability_search.client.target import Target
from ability_search.config.schema import Broker, Settings
from ability_search.edges.network_state import NEEDED
from ability_search.errors import SearchError
from ability_search.stack.data_directory import RunningStack
from ability_search.worker import open_embedder, open_reranker
from kadi_client import Connection, KadiError, ToolError

_CLOCK_SECONDS = 5.0
_CALL_SECONDS = 15.0
_SKEW_SECONDS = 60.0
_TOKEN = "Set SEARCH_METRICS_TOKEN to the token of the stack."
_START = "Start the stack with `ability-search up`, or only this with `ability-search {}`."


async def check_network(settings: Settings, broker: str | None) -> AsyncIterator[Check]:
    """Check the broker and, if it can be reached, each component behind it."""
    target = chosen_target(settings, broker)
    started = time.perf_counter()
    connection = target_connection(settings, target, name="ability-search-doctor")
    try:
        await connection.open()
    except KadiError as exc:
        remedy = "Start one with `ability-search up`, or set BROKER_URL."
        yield Check("broker", "fail", f"{exc} ({target.origin})", remedy)
        return
    try:
        text = f"{target.shown} as {connection.agent_id} in {_since(started)} ({target.origin})"
        yield Check("broker", "ok", text)
        async for check in _over(connection, settings, target):
            yield check
    except KadiError as exc:
        yield Check("broker", "fail", str(exc), "See the log of the broker.")
    finally:
        await connection.close()
    if target.url == settings.broker.url.get_secret_value():
        for other in settings.brokers[1:]:
            yield await _further(other, settings)


async def _further(broker: Broker, settings: Settings) -> Check:
    """Check one of the additional brokers that the worker joins."""
    started = time.perf_counter()
    name = f"broker {broker.name}"
    target = Target(broker.url.get_secret_value(), broker.networks, f"broker {broker.name}")
    try:
        async with target_connection(settings, target, name="ability-search-doctor") as connection:
            count = output.counted(len(await connection.list_tools()), "tool")
    except KadiError as exc:
        return Check(
            name, "fail", str(exc), "Correct or remove its entry; the worker keeps retrying."
        )
    return Check(name, "ok", f"{target.shown}, {count} visible, {_since(started)}")


async def _over(connection: Connection, settings: Settings, target: Target) -> AsyncIterator[Check]:
    yield await _clock(target)
    visible = {str(tool.get("name")) for tool in await connection.list_tools()}
    api = settings.embedding.transport == "api"
    for part, names in NEEDED.items():
        missing = [name for name in names if name not in visible]
        if part == "models" and api:
            continue
        if missing:
            text = f"{', '.join(missing)} not found in {', '.join(target.networks)}"
            yield Check(part, "fail", text, _START.format(part))
        else:
            yield Check(part, "ok", output.counted(len(names), "tool"))
    if "arcade-query" in visible:
        yield await _database(connection, settings)
    if api or "create-embedding" in visible:
        yield await _embedding(connection, settings, target)
    if settings.reranker.transport == "api" or "rerank" in visible:
        yield await _reranking(connection, settings)
    if "search-collections" in visible:
        yield await _search(connection)
    if target.stack is not None:
        yield await _metrics(target.stack, settings)


async def _clock(target: Target) -> Check:
    """Compare the local clock with the broker's, from the Date header of its health page."""
    parts = urlsplit(target.url)
    scheme = "https" if parts.scheme == "wss" else "http"
    host = parts.netloc.rpartition("@")[2]
    try:
        async with httpx.AsyncClient(timeout=_CLOCK_SECONDS, trust_env=False) as client:
            answer = await client.get(f"{scheme}://{host}/health")
        skew = abs(parsedate_to_datetime(answer.headers["date"]).timestamp() - time.time())
    except (httpx.HTTPError, KeyError, ValueError, TypeError):
        return Check("clock", "ok", "the broker does not report its time")
    if skew > _SKEW_SECONDS:
        text = f"differs from the broker's by {skew:.0f} s"
        return Check("clock", "warn", text, "Synchronise both clocks (NTP).")
    return Check("clock", "ok", "agrees with the broker's")


async def _database(connection: Connection, settings: Settings) -> Check:
    started = time.perf_counter()
    name = settings.database.name
    query = {"database": name, "query": "SELECT version() AS version"}
    try:
        listed = await call_tool(connection, "arcade-db-list", {}, timeout=_CALL_SECONDS)
        if name not in listed.get("databases", ()):
            return Check("database", "ok", f"{name} does not exist yet; the first index creates it")
        answer = await call_tool(connection, "arcade-query", query, timeout=_CALL_SECONDS)
    except KadiError as exc:
        return Check("database", "fail", str(exc), "See the log of the database ability.")
    version = next((row.get("version") for row in answer.get("result", ())), "?")
    return Check("database", "ok", f"{name} on ArcadeDB {version}, {_since(started)}")


async def _embedding(connection: Connection, settings: Settings, target: Target) -> Check:
    model = (target.stack and target.stack.model) or settings.embedding.model
    started = time.perf_counter()
    try:
        async with open_embedder(settings, connection.invoke) as embedder:
            vectors = await embedder.embed(model, ["doctor"], timeout=_CALL_SECONDS)
    except SearchError as exc:
        return Check("embedding", "fail", str(exc), exc.hint)
    return Check("embedding", "ok", f"{model}, {vectors.shape[1]} dimensions, {_since(started)}")


async def _reranking(connection: Connection, settings: Settings) -> Check:
    started = time.perf_counter()
    try:
        async with open_reranker(settings, connection.invoke) as reranker:
            texts = ("A doctor finds out what is wrong.", "Lunch is at noon.")
            await reranker.rerank(None, "What does a doctor do?", texts, timeout=_CALL_SECONDS)
    except SearchError as exc:
        return Check("reranker", "warn", str(exc), exc.hint)
    model = settings.reranker.model or "the server's default model"
    return Check("reranker", "ok", f"{model}, {_since(started)}")


async def _search(connection: Connection) -> Check:
    started = time.perf_counter()
    try:
        answer = await call_tool(connection, "search-collections", {}, timeout=_CALL_SECONDS)
    except KadiError as exc:
        return Check("search", "fail", str(exc), exc.hint if isinstance(exc, ToolError) else "")
    count = len(answer.get("collections", ()))
    return Check("search", "ok", f"{output.counted(count, 'collection')}, {_since(started)}")


async def _metrics(stack: RunningStack, settings: Settings) -> Check:
    served = {part.metrics: part.name for part in stack.parts if part.metrics}
    token = settings.metrics.token
    async with metrics_client(token.get_secret_value() if token else None) as client:
        looks = await asyncio.gather(*(look(client, url, name) for url, name in served.items()))
    silent = [each for each in looks if each.state != "up"]
    if silent:
        text = f"no metrics from {', '.join(each.name for each in silent)}"
        refused = any(each.state == "refused" for each in silent)
        remedy = "`ability-search status` shows the running components."
        return Check("metrics", "warn", text, _TOKEN if refused else remedy)
    served_by = output.counted(len(looks), "component")
    return Check("metrics", "ok", f"of {served_by}; `ability-search top` shows them")


def _since(started: float) -> str:
    return f"{(time.perf_counter() - started) * 1e3:.0f} ms"
