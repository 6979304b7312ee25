"""Supervisor of a stack: starts its components in order and stops them in reverse order."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ability_search.config.running_stack import (
    CLIENT,
    JOINED_WORKER,
    RunningComponent,
    RunningStack,
    identity_file,
)
from ability_search.errors import ConfigurationError, first_failure
from ability_search.extension import loaded
from ability_search.extensions.localstack.component_process import (
    ComponentProcess,
    Notify,
    child_environ,
)
from ability_search.extensions.localstack.data_directory import remove_running, write_running
from ability_search.network import plain_connection
from ability_search.tools.table import all_tools
from kadi_client import Identity, KadiError

log = logging.getLogger(__name__)

VISIBLE_SECONDS = 20.0
_POLL_SECONDS = 0.1

OWN = frozenset({"backplane", "broker", "database", "models", "worker"})
"""The components that a stack starts by itself; the others are in its plan by name."""
_FURTHER = 100
"""Distance of the metrics ports of a backplane and of further brokers."""
_METRICS_ORDER = ("broker", "database", "models", "gateway", "worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The components of a stack, and their settings."""

    data_dir: Path
    url: str
    """Address of the broker if the stack starts none."""
    networks: tuple[str, ...]
    port: int | None
    """Port of the first broker, 0 for free ones; ``None`` starts none."""
    brokers: int = 1
    """Number of brokers, which are one network."""
    own_backplane: bool = False
    """Start a NATS server for the brokers; otherwise they use that of the settings, if any."""
    private_network: str | None = None
    """Network of the components, which other agents may not join; ``None`` for none, and without
    effect if the stack starts no broker."""
    members: tuple[str, ...] = ()
    """Further members of restricted networks, as ``NETWORK=AGENT_ID``."""
    providers: tuple[str, ...] = ()
    """Further agents that may offer tools, as ``TOOL=AGENT_ID``."""
    database: bool
    models_port: int | None
    """Port of the embeddings API, 0 for a free one; ``None`` starts no model manager."""
    added: Mapping[str, int]
    """Ports of the components of other extensions, such as the gateway, 0 for a free one."""
    workers: int
    model: str | None
    """Embedding model; ``None`` for the first one that the model manager serves."""
    own_tokenizer: bool
    """The settings name the tokenizer of that model."""
    own_max_tokens: bool
    """The settings name the maximum input of that model."""
    metrics_port: int
    """Port of the broker's metrics, see :func:`metrics_port`; 0 for free ports."""
    ready_timeout: float
    """Seconds for each component to be ready."""
    log_level: str
    """Minimum severity of log messages."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Further settings of the components, as environment variables."""

    @property
    def broker_ports(self) -> dict[str, int]:
        """Return the port of each broker by name, 0 for a free one."""
        if self.port is None:
            return {}
        names = ["broker", *(f"broker-{number}" for number in range(2, self.brokers + 1))]
        return {name: self.port and self.port + index for index, name in enumerate(names)}

    @property
    def own_network(self) -> tuple[str, ...]:
        """Return the private network, if there is one."""
        if self.port is None or self.private_network is None:
            return ()
        return (self.private_network,)


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
        self._children: list[ComponentProcess] = []
        self._urls = [plan.url]
        self._backplane: dict[str, str] = {}
        """Settings of the brokers for the NATS server of the stack."""
        self._model = plan.model
        self._worker_environ: dict[str, str] = {}
        self._started = datetime.now(UTC).isoformat(timespec="seconds")

    @property
    def running(self) -> RunningStack:
        """Return the current state, as it is written to the data directory."""
        return RunningStack(
            pid=os.getpid(),
            url=",".join(self._urls),
            networks=(*self._plan.networks, *self._plan.own_network),
            started=self._started,
            model=self._model,
            parts=tuple(
                RunningComponent(
                    child.name,
                    child.pid,
                    str(child.details.get("address", "")),
                    str(child.details.get("metrics", "")),
                )
                for child in sorted(self._children, key=lambda child: _place(child.name))
            ),
            memory="SEARCH_DATABASE_MEMORY" in self._plan.environ,
            environ=self._worker_environ,
        )

    async def start(self) -> RunningStack:
        """Start the components at once, the broker first; wait until the broker lists their tools.

        Raises:
            ComponentFailed: if a component does not start.
            ConfigurationError: if the chosen model is not served.
        """
        served: Mapping[str, Any] = {}
        try:
            await self._start_brokers()
            async with asyncio.TaskGroup() as group:
                if self._plan.database:
                    group.create_task(self._child("database").start())
                for name, port in self._plan.added.items():
                    group.create_task(self._child(name, port=port).start())
                if self._plan.models_port is not None:
                    served = await self._child("models", port=self._plan.models_port).start()
                # Only the workers wait for another component: their settings name its model.
                self._worker_environ = self._embedding(served)
                for number in range(1, self._plan.workers + 1):
                    group.create_task(self._child(f"worker-{number}").start())
        except ExceptionGroup as failures:
            raise first_failure(failures) from failures
        await self._visible()
        self._write_state()
        return self.running

    async def _start_brokers(self) -> None:
        if self._plan.own_backplane:
            details = await self._child("backplane", port=0).start()
            self._backplane = {"SEARCH_LOCAL_BROKER_BACKPLANE": str(details["url"])}
        async with asyncio.TaskGroup() as group:
            starting = [
                group.create_task(self._child(name, port=port).start())
                for name, port in self._plan.broker_ports.items()
            ]
        self._urls = [str(each.result()["url"]) for each in starting] or self._urls

    async def stop(self) -> None:
        """Stop every component, in reverse order of their start."""
        for kind in reversed(loaded().components):
            stopping = [child.stop() for child in self._children if child.name.startswith(kind)]
            await asyncio.gather(*stopping)
        remove_running(self._plan.data_dir)

    def kill(self) -> None:
        """Kill every component."""
        for child in reversed(self._children):
            child.kill()

    def _child(self, name: str, *, port: int | None = None) -> ComponentProcess:
        """Return a new component; one with a ``port`` keeps it when it is restarted."""
        plan, kind = self._plan, name.partition("-")[0]
        environ = {
            "SEARCH_DATA_DIR": str(plan.data_dir),
            "SEARCH_IDENTITY_FILE": str(identity_file(plan.data_dir, name)),
            "SEARCH_LOG_LEVEL": plan.log_level,
            **plan.environ,
            **(self._worker_environ if kind == "worker" else {}),
        }
        # If the stack starts no broker, a worker joins all brokers that the files name.
        if kind != "worker" or plan.port is not None:
            environ["BROKER_NETWORKS"] = ",".join(self._networks(kind))
            environ |= self._access() | self._backplane if kind == "broker" else self._broker()
        first_metrics_port = metrics_port(name, plan.metrics_port)

        def arguments(before: Mapping[str, Any]) -> Sequence[str]:
            own = () if port is None else ("--port", str(before.get("port", port)))
            return (*loaded().components[kind].command, "--supervised", *own)

        def environ_of(before: Mapping[str, Any]) -> Mapping[str, str]:
            own = str(before.get("metricsPort", first_metrics_port))
            return child_environ(name, {**environ, "SEARCH_METRICS_PORT": own})

        child = ComponentProcess(
            name,
            arguments,
            environ_of,
            inherit=self._inherit,
            notify=self._notify,
            changed=self._write_state,
            ready_timeout=self._plan.ready_timeout,
        )
        self._children.append(child)
        return child

    def _broker(self) -> dict[str, str]:
        """Return the setting of the brokers; the components begin with different ones."""
        first = len(self._children) % len(self._urls)
        return {"BROKER_URL": ",".join(self._urls[first:] + self._urls[:first])}

    def _networks(self, kind: str) -> tuple[str, ...]:
        """Return the networks of a component; the database and the models join the private one."""
        plan = self._plan
        if kind in ("database", "models") and plan.own_network:
            return plan.own_network
        return (*plan.networks, *(plan.own_network if kind != "broker" else ()))

    def _access(self) -> dict[str, str]:
        """Return the broker settings that reserve the private network and the tools."""
        plan = self._plan
        if not plan.own_network:
            return {}
        (network,) = plan.own_network
        workers = [f"worker-{number}" for number in range(1, plan.workers + 1)]
        serving = {
            "database": ["database"] if plan.database else [],
            "models": ["models"] if plan.models_port is not None else [],
            "worker": [*workers, JOINED_WORKER],
        }
        names = [*(name for own in serving.values() for name in own), *plan.added, CLIENT]
        ids = {name: Identity.load_or_create(identity_file(plan.data_dir, name)) for name in names}
        members = [f"{network}={each.agent_id}" for each in ids.values()]
        reserved = {
            "database": ["arcade-*"],
            "models": ["create-embedding", "rerank"],
            "worker": [row.name for row in all_tools()],
        }
        providers = [
            f"{tool}={ids[name].agent_id}"
            for kind, own in serving.items()
            for tool in reserved[kind]
            for name in own
        ]
        return {
            "SEARCH_LOCAL_BROKER_MEMBERS": ",".join([*plan.members, *members]),
            "SEARCH_LOCAL_BROKER_PROVIDERS": ",".join([*plan.providers, *providers]),
        }

    def _embedding(self, served: Mapping[str, Any]) -> dict[str, str]:
        """Return the worker's settings for the embedding model, given the models served."""
        if not served:
            return {}
        models: Mapping[str, Mapping[str, Any]] = served["models"]
        if not models:
            raise ConfigurationError(
                "this stack serves no embedding model",
                hint="Add one, see `ability-search models --help`, or use `up --no-models`.",
            )
        if self._model is None:
            self._model = next(iter(models))
        if self._model not in models:
            raise ConfigurationError(
                f"SEARCH_EMBEDDING_MODEL: {self._model!r} is not served by this stack;"
                f" served: {', '.join(models)}",
                hint="Unset it, or add the model, see `ability-search models --help`.",
            )
        changes = {"SEARCH_EMBEDDING_MODEL": self._model, "SEARCH_EMBEDDING_TRANSPORT": "broker"}
        about = models[self._model]
        if about.get("tokenizer") and not self._plan.own_tokenizer:
            changes["SEARCH_TOKENIZER"] = str(about["tokenizer"])
        if about.get("maxTokens") and not self._plan.own_max_tokens:
            changes["SEARCH_EMBEDDING_MAX_TOKENS"] = str(about["maxTokens"])
        return changes

    async def _visible(self) -> None:
        """Wait until the broker lists the tools of every component."""
        kinds = {child.name.partition("-")[0] for child in self._children}
        expected = {tool for kind in kinds for tool in loaded().components[kind].tools}
        missing = expected
        try:
            async with (
                asyncio.timeout(VISIBLE_SECONDS),
                plain_connection(
                    self.running.url,
                    self.running.networks,
                    name="ability-search up",
                    connect_timeout=VISIBLE_SECONDS,
                    identity=Identity.load_or_create(identity_file(self._plan.data_dir, CLIENT)),
                ) as connection,
            ):
                while missing:
                    missing = expected - {tool["name"] for tool in await connection.list_tools()}
                    await asyncio.sleep(_POLL_SECONDS if missing else 0)
        except (TimeoutError, KadiError) as exc:
            raise ConfigurationError(
                f"the broker at {self.running.url} does not list {', '.join(sorted(missing))}",
                hint="See the log above.",
            ) from exc

    def _write_state(self) -> None:
        write_running(self._plan.data_dir, self.running)


def _place(name: str) -> tuple[int, int]:
    """Return the place of a component in the list of all."""
    kind, _, number = name.partition("-")
    return list(loaded().components).index(kind), int(number or 0)


def metrics_port(name: str, first: int) -> int:
    """Return the metrics port of a component, given the broker's; 0 if ``first`` is 0.

    The ports are consecutive: broker, database, models, gateway, worker-1 and so on; 100 further
    on, backplane, broker-2 and so on. Other components have free ones.
    """
    kind, _, number = name.partition("-")
    if kind == "backplane" or (kind == "broker" and number):
        return first and first + _FURTHER + int(number or 1) - 1
    if kind not in _METRICS_ORDER:
        return 0
    return first and first + _METRICS_ORDER.index(kind) + int(number or 1) - 1
