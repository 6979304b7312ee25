"""Supervisor of a stack: starts its components in order and stops them in reverse order.

A process may run one of its own for a while, or share that of another process. The parent of a
stack locks its data directory, and the children inherit the lock.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ability_search.client.running_stack import (
    CLIENT,
    JOINED_WORKER,
    LOCK,
    STATE,
    RunningComponent,
    RunningStack,
    identity_file,
    is_locked,
    read_running,
    read_state,
)
from ability_search.client.tool_client import ToolClient, client_target
from ability_search.config.schema import Settings
from ability_search.errors import ConfigurationError, first_failure
from ability_search.extension import loaded
from ability_search.extensions.cli import logs, output
from ability_search.extensions.cli.clients import CLIENT_NAME
from ability_search.extensions.cli.settings import Logging
from ability_search.extensions.cli.tool_calls import LiveConnection
from ability_search.extensions.localstack.component_process import (
    ComponentProcess,
    Guest,
    Notify,
    child_environ,
)
from ability_search.extensions.localstack.settings import LocalBroker
from ability_search.extensions.localstack.stack_plan import Plan, StackOptions, kind_of
from ability_search.network import client_connection
from ability_search.ops.locks import lock, replace_file
from ability_search.tools.table import offered_tools
from kadi_client import Identity, KadiError, NotConnected
from kadi_client.addresses import local_url

_VISIBLE_SECONDS = 20.0
_POLL_SECONDS = 0.1
_ABANDONED_SECONDS = 40.0
_JOINED_SECONDS = 1.0
"""Interval at which a joined stack is looked for."""
_LOCK_RETRIES = 5
_LOCK_PAUSE_SECONDS = 0.02


class Stack:
    """A stack; call :meth:`start`, and always :meth:`stop`, also if the start failed.

    Args:
        plan: The components to start.
        lock: File descriptor of the locked data directory.
        notify: Receives a sentence when a component ends and when it is back.
    """

    def __init__(self, plan: Plan, *, lock: int, notify: Notify) -> None:
        self._plan = plan
        self._inherit = () if sys.platform == "win32" else (lock,)
        self._notify = notify
        self._children: list[ComponentProcess | Guest] = []
        self._urls = [plan.settings.broker.url.get_secret_value()]
        self._backplane: dict[str, str] = {}
        """Settings of the brokers for the NATS server of the stack."""
        self._model = plan.model
        self._worker_environ: dict[str, str] = {}
        self._started = datetime.now(UTC).isoformat(timespec="seconds")

    @property
    def running(self) -> RunningStack:
        """Return the current state, as it is written to the data directory."""
        order = list(self._plan.ports)
        return RunningStack(
            pid=os.getpid(),
            url=",".join(self._urls),
            networks=(*self._plan.settings.broker.networks, *self._plan.private_network),
            started=self._started,
            model=self._model,
            parts=tuple(
                RunningComponent(
                    child.name,
                    child.pid,
                    str(child.details.get("address", "")),
                    str(child.details.get("metrics", "")),
                )
                for child in sorted(self._children, key=lambda child: order.index(child.name))
            ),
            private_network="".join(self._plan.private_network),
            offer=self._plan.offer if self._plan.of("worker") else (),
            memory=self._plan.options.memory,
            environ=self._worker_environ,
        )

    async def start(self) -> RunningStack:
        """Start the components at once; wait until the broker lists their tools.

        All wait for a broker of which the system chooses the port. The models always do, since
        they start as fast as a broker.

        Raises:
            ComponentFailed: if a component does not start.
            ConfigurationError: if the chosen model is not served.
        """
        first = ("backplane", "broker", "models", "worker")
        try:
            for name in self._plan.of("backplane"):
                details = await self._child(name).start()
                self._backplane = {"SEARCH_LOCAL_BROKER_BACKPLANE": str(details["url"])}
            brokers = [self._child(name) for name in self._plan.of("broker")]
            ports = [self._plan.ports[each.name] for each in brokers]
            host = self._plan.settings.of(LocalBroker).host
            async with asyncio.TaskGroup() as group:
                starting = [group.create_task(each.start()) for each in brokers]
                if all(ports):
                    self._urls = [local_url(host, port) for port in ports if port] or self._urls
                else:
                    self._urls = [str((await each)["url"]) for each in starting]
                for name in self._plan.ports:
                    if kind_of(name) not in first:
                        group.create_task(self._child(name).start())
                await asyncio.gather(*starting)
                # Only the workers wait for another component: their settings name its model.
                for served in await self._start(self._plan.of("models")):
                    self._worker_environ = self._embedding(served["models"])
                group.create_task(self._start(self._plan.of("worker")))
        except ExceptionGroup as failures:
            raise first_failure(failures) from failures
        await self._visible()
        self._write_state()
        return self.running

    async def _start(self, names: Sequence[str]) -> list[Mapping[str, Any]]:
        """Start components at once; return the details that they reported."""
        async with asyncio.TaskGroup() as group:
            starting = [group.create_task(self._child(name).start()) for name in names]
        return [each.result() for each in starting]

    async def stop(self) -> None:
        """Stop every component, in reverse order of their start."""
        for kind in reversed(loaded().components):
            stopping = [child.stop() for child in self._children if child.name.startswith(kind)]
            await asyncio.gather(*stopping)
        (self._plan.data_dir / STATE).unlink(missing_ok=True)

    def kill(self) -> None:
        """Kill every component."""
        for child in reversed(self._children):
            if isinstance(child, ComponentProcess):
                child.kill()

    def _child(self, name: str) -> ComponentProcess | Guest:
        """Return a new component; one with a port keeps it when it is restarted.

        It runs in the process of the broker, where the plan says so.
        """
        plan, kind, port = self._plan, kind_of(name), self._plan.ports[name]
        environ = {
            "SEARCH_DATA_DIR": str(plan.data_dir),
            "SEARCH_IDENTITY_FILE": str(identity_file(plan.data_dir, name)),
            "SEARCH_LOG_LEVEL": plan.log_level,
            **plan.environ,
            **(self._worker_environ if kind == "worker" else {}),
        }
        if kind in ("worker", "gateway"):
            environ["SEARCH_OFFER"] = ",".join(plan.offer)
        # If the stack starts no broker, a worker joins all brokers that the files name.
        if kind != "worker" or plan.of("broker"):
            environ["BROKER_NETWORKS"] = ",".join(self._networks(kind))
            if kind == "broker":
                environ |= self._access() | self._backplane
            else:
                # The components begin with different brokers.
                first = len(self._children) % len(self._urls)
                environ["BROKER_URL"] = ",".join(self._urls[first:] + self._urls[:first])
        first_metrics_port = plan.metrics_port(name)

        def arguments(before: Mapping[str, Any]) -> Sequence[str]:
            own = () if port is None else ("--port", str(before.get("port", port)))
            return (*loaded().components[kind].command, "--supervised", *own)

        def environ_of(before: Mapping[str, Any]) -> Mapping[str, str]:
            own = str(before.get("metricsPort", first_metrics_port))
            return child_environ(name, {**environ, "SEARCH_METRICS_PORT": own})

        if name in plan.guests:
            brokers = [each for each in self._children if kind_of(each.name) == "broker"]
            assert isinstance(brokers[0], ComponentProcess)
            guest = Guest(name, arguments, environ_of, brokers[0])
            self._children.append(guest)
            return guest
        child = ComponentProcess(
            name,
            arguments,
            environ_of,
            inherit=self._inherit,
            notify=self._notify,
            changed=self._write_state,
            ready_timeout=plan.settings.files.stack_start_timeout,
        )
        self._children.append(child)
        return child

    def _networks(self, kind: str) -> tuple[str, ...]:
        """Return the networks of a component; the database and the models join the private one."""
        private = self._plan.private_network
        if kind in ("database", "models") and private:
            return private
        return (*self._plan.settings.broker.networks, *(private if kind != "broker" else ()))

    def _access(self) -> dict[str, str]:
        """Return the broker settings that reserve the private network and the tools."""
        plan, local = self._plan, self._plan.settings.of(LocalBroker)
        if not plan.private_network:
            return {}
        names = [name for name in plan.ports if kind_of(name) not in ("backplane", "broker")]
        ids = {
            name: Identity.load_or_create(identity_file(plan.data_dir, name)).agent_id
            for name in (*names, JOINED_WORKER, CLIENT)
        }
        reserved = {
            "database": ["arcade-*"],
            "models": ["create-embedding", "rerank"],
            "worker": [row.name for row in offered_tools(plan.offer)],
        }
        members = [f"{plan.private_network[0]}={agent}" for agent in ids.values()]
        providers = [
            f"{tool}={agent}"
            for name, agent in ids.items()
            for tool in reserved.get(kind_of(name), ())
        ]
        return {
            "SEARCH_LOCAL_BROKER_MEMBERS": ",".join([*local.members, *members]),
            "SEARCH_LOCAL_BROKER_PROVIDERS": ",".join([*local.providers, *providers]),
            "SEARCH_LOCAL_BROKER_ANNOUNCE": ",".join([*local.announce, *plan.private_network]),
        }

    def _embedding(self, served: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
        """Return the worker's settings for the embedding model, given the models served."""
        if not served:
            raise ConfigurationError(
                "this stack serves no embedding model",
                hint="Add one, see `ability-search models --help`, or use `up --no-models`.",
            )
        if self._model is None:
            self._model = next(iter(served))
        if self._model not in served:
            raise ConfigurationError(
                f"SEARCH_EMBEDDING_MODEL: {self._model!r} is not served by this stack;"
                f" served: {', '.join(served)}",
                hint="Unset it, or add the model, see `ability-search models --help`.",
            )
        changes = {"SEARCH_EMBEDDING_MODEL": self._model, "SEARCH_EMBEDDING_TRANSPORT": "broker"}
        settings, about = self._plan.settings, served[self._model]
        for variable, own, usual in (
            ("SEARCH_TOKENIZER", settings.chunking.tokenizer, about.get("tokenizer")),
            ("SEARCH_EMBEDDING_MAX_TOKENS", settings.embedding.max_tokens, about.get("maxTokens")),
        ):
            # A setting of the files is for the model that they name.
            is_own = own is not None and (self._plan.model is not None or variable in os.environ)
            if usual and not is_own:
                changes[variable] = str(usual)
        return changes

    async def _visible(self) -> None:
        """Wait until the broker lists the tools of every component."""
        kinds = {kind_of(name) for name in self._plan.ports}
        expected = {tool for kind in kinds for tool in loaded().components[kind].tools}
        missing = expected
        try:
            async with (
                asyncio.timeout(_VISIBLE_SECONDS),
                client_connection(
                    self._plan.settings,
                    self.running.url,
                    self.running.networks,
                    name="ability-search up",
                    connect_timeout=_VISIBLE_SECONDS,
                    identity=Identity.load_or_create(identity_file(self._plan.data_dir, CLIENT)),
                ) as connection,
            ):
                while missing:
                    missing = expected - {tool["name"] for tool in await connection.list_tools()}
                    await asyncio.sleep(_POLL_SECONDS if missing else 0)
        except (TimeoutError, KadiError) as exc:
            problem = f"the broker at {self.running.url} does not list {', '.join(sorted(missing))}"
            why = f": {exc}" if isinstance(exc, KadiError) else f" within {_VISIBLE_SECONDS:g} s"
            raise ConfigurationError(problem + why, hint="See the log above.") from exc

    def _write_state(self) -> None:
        write_running(self._plan.data_dir, self.running)


@asynccontextmanager
async def new_stack(plan: Plan) -> AsyncIterator[Stack]:
    """Yield a stack, not yet started, and lock its data directory meanwhile.

    Raises:
        ConfigurationError: if another process has locked the directory.
    """
    if is_abandoned(plan.data_dir):
        output.say("waiting for the components of a killed stack to exit")
        await released(plan.data_dir, timeout=_ABANDONED_SECONDS)
    with hold(plan.data_dir) as lock:
        yield Stack(plan, lock=lock, notify=output.warn)


@asynccontextmanager
async def temporary_stack(
    settings: Settings, data_dir: Path, *, environ: Mapping[str, str] | None = None
) -> AsyncIterator[RunningStack]:
    """Start a stack on free ports and stop it at the end of the block.

    Args:
        settings: Settings to plan the stack from.
        data_dir: Its data directory.
        environ: Additional environment of its components.

    Raises:
        ConfigurationError: if the stack cannot be started.
    """
    level = settings.of(Logging).level if logs.level_is_set() else "warning"
    options = StackOptions(data_dir=data_dir, port=0, metrics_port=0)
    plan = Plan(settings, options, log_level=level, alone=True, environ=environ or {})
    async with new_stack(plan) as stack:
        output.say(f"starting a stack in {plan.data_dir}")
        try:
            yield await stack.start()
        finally:
            await stack.stop()


async def keep_connected(
    live: LiveConnection, settings: Settings, broker: str | None, environ: Mapping[str, str]
) -> None:
    """Keep a live connection to the usual target, or else to a stack that is started.

    Several processes share the stack in the data directory; when it stops, one of them starts
    a new one.

    Args:
        live: The connection for calls.
        settings: Settings of the client and of the stack.
        broker: Address of the broker; ``None`` for the usual target.
        environ: Additional environment of the components of a started stack.

    Raises:
        ConfigurationError: if a stack cannot be started.
        KadiError: if the configured broker cannot be reached.
    """
    while True:
        async with AsyncExitStack() as stack:
            client, joined = await _connect(stack, settings, broker, environ)
            live.use(client.connection)
            try:
                while joined is None or _runs(joined, settings):  # noqa: ASYNC110 - a file
                    await asyncio.sleep(_JOINED_SECONDS)
            finally:
                live.use(None)


async def _connect(
    stack: AsyncExitStack, settings: Settings, broker: str | None, environ: Mapping[str, str]
) -> tuple[ToolClient, RunningStack | None]:
    """Connect to the usual target, or else to a new stack.

    Return the client, and the stack if another process runs it.
    """
    directory = settings.files.data_dir
    while True:
        target = client_target(settings, os.environ, broker, given_as="--broker")
        try:
            client = ToolClient(settings, target, name=CLIENT_NAME)
            return await stack.enter_async_context(client), target.stack
        except NotConnected:
            if not target.assumed and target.stack is None:
                raise
        try:
            started = await stack.enter_async_context(
                temporary_stack(settings, directory, environ=environ)
            )
            break
        except ConfigurationError:
            if await released(directory, timeout=0):
                raise
            await asyncio.sleep(_JOINED_SECONDS)  # another process is starting one
    target = client_target(settings, os.environ, started.url, given_as="--broker")
    client = await stack.enter_async_context(ToolClient(settings, target, name=CLIENT_NAME))
    output.say("ready")
    return client, None


def _runs(joined: RunningStack, settings: Settings) -> bool:
    running = read_running(settings.files.data_dir)
    return running is not None and running.url == joined.url


def write_running(data_dir: Path, running: RunningStack) -> None:
    """Write the state file atomically: readers see the old file or the new one."""
    replace_file(data_dir / STATE, f"{json.dumps(asdict(running), indent=2)}\n".encode())


@contextmanager
def hold(data_dir: Path) -> Iterator[int]:
    """Lock a data directory; create it with mode 0700, or close an existing one to other users.

    Yields:
        The file descriptor of the lock. Children inherit it, so that the directory stays locked
        until all of them have ended.

    Raises:
        ConfigurationError: if another process holds the lock, the directory is not writable, or
            it is open to other users and belongs to one of them.
    """
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (mode := data_dir.stat().st_mode) & 0o077:
            data_dir.chmod(mode & 0o700)
        descriptor = os.open(data_dir / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as exc:
        raise ConfigurationError(
            f"data directory {data_dir}: {exc.strerror}",
            hint="Choose another directory with --data-dir or SEARCH_DATA_DIR.",
        ) from exc
    try:
        # Another process may only be checking whether the lock is held.
        left = _LOCK_RETRIES
        while not lock(descriptor, exclusive=True):
            if not left:
                raise _held(data_dir)
            left -= 1
            time.sleep(_LOCK_PAUSE_SECONDS)
        yield descriptor
    finally:
        os.close(descriptor)


async def released(data_dir: Path, *, timeout: float) -> bool:
    """Wait until the directory is unlocked; return False if it is not in ``timeout`` seconds."""
    try:
        async with asyncio.timeout(timeout):
            while is_locked(data_dir):  # noqa: ASYNC110 - a lock cannot be awaited
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        return False
    return True


def is_abandoned(data_dir: Path) -> bool:
    """Return True if child processes of a stack are still alive but its parent is not."""
    state = read_state(data_dir) if is_locked(data_dir) else None
    try:
        if state is not None:
            os.kill(state.pid, 0)
    except OSError as exc:
        return isinstance(exc, ProcessLookupError)
    return False


def _held(data_dir: Path) -> ConfigurationError:
    state = read_state(data_dir)
    if state is None:
        who = "another stack, which is starting or stopping"
    else:
        who = f"the stack of process {state.pid}, started {state.started}, broker {state.url}"
    return ConfigurationError(
        f"data directory {data_dir} is in use by {who}",
        hint="Stop it with `ability-search down`, or choose another directory with --data-dir.",
    )
