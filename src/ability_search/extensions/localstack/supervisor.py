"""Supervisor of a stack: starts its components in order and stops them in reverse order."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from ability_search.config.schema import Settings
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

_FURTHER = 100
"""Distance of the metrics ports of a backplane and of further brokers."""
_METRICS_ORDER = ("broker", "database", "models", "gateway", "worker")


def kind_of(name: str) -> str:
    """Return the kind of a component, such as ``worker`` for ``worker-1``."""
    return name.partition("-")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The components of a stack, and their settings."""

    settings: Settings
    data_dir: Path
    ports: Mapping[str, int | None]
    """Port of each component in the order of their list, 0 for a free one; ``None`` if it listens
    on none. Without a broker they use that of the settings."""
    model: str | None
    """Embedding model; ``None`` for the first one that the model manager serves."""
    metrics_port: int
    """Port of the broker's metrics, see :func:`metrics_port`; 0 for free ports."""
    log_level: str
    """Minimum severity of log messages."""
    environ: Mapping[str, str]
    """Further settings of the components, as environment variables."""

    def of(self, *kinds: str) -> list[str]:
        """Return the components of some kinds."""
        return [name for name in self.ports if kind_of(name) in kinds]

    @property
    def private_network(self) -> tuple[str, ...]:
        """Return the network of the components that other agents may not join, if there is one."""
        network = self.settings.local_broker.private_network
        return (network,) if network and self.of("broker") else ()


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
            memory="SEARCH_DATABASE_MEMORY" in self._plan.environ,
            environ=self._worker_environ,
        )

    async def start(self) -> RunningStack:
        """Start the components at once, the broker first; wait until the broker lists their tools.

        Raises:
            ComponentFailed: if a component does not start.
            ConfigurationError: if the chosen model is not served.
        """
        first = ("backplane", "broker", "models", "worker")
        try:
            for name in self._plan.of("backplane"):
                details = await self._child(name).start()
                self._backplane = {"SEARCH_LOCAL_BROKER_BACKPLANE": str(details["url"])}
            brokers = await self._start(self._plan.of("broker"))
            self._urls = [str(each["url"]) for each in brokers] or self._urls
            async with asyncio.TaskGroup() as group:
                for name in self._plan.ports:
                    if kind_of(name) not in first:
                        group.create_task(self._child(name).start())
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
        remove_running(self._plan.data_dir)

    def kill(self) -> None:
        """Kill every component."""
        for child in reversed(self._children):
            child.kill()

    def _child(self, name: str) -> ComponentProcess:
        """Return a new component; one with a port keeps it when it is restarted."""
        plan, kind, port = self._plan, kind_of(name), self._plan.ports[name]
        environ = {
            "SEARCH_DATA_DIR": str(plan.data_dir),
            "SEARCH_IDENTITY_FILE": str(identity_file(plan.data_dir, name)),
            "SEARCH_LOG_LEVEL": plan.log_level,
            **plan.environ,
            **(self._worker_environ if kind == "worker" else {}),
        }
        # If the stack starts no broker, a worker joins all brokers that the files name.
        if kind != "worker" or plan.of("broker"):
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
            ready_timeout=plan.settings.files.stack_start_timeout,
        )
        self._children.append(child)
        return child

    def _broker(self) -> dict[str, str]:
        """Return the setting of the brokers; the components begin with different ones."""
        first = len(self._children) % len(self._urls)
        return {"BROKER_URL": ",".join(self._urls[first:] + self._urls[:first])}

    def _networks(self, kind: str) -> tuple[str, ...]:
        """Return the networks of a component; the database and the models join the private one."""
        private = self._plan.private_network
        if kind in ("database", "models") and private:
            return private
        return (*self._plan.settings.broker.networks, *(private if kind != "broker" else ()))

    def _access(self) -> dict[str, str]:
        """Return the broker settings that reserve the private network and the tools."""
        plan, local = self._plan, self._plan.settings.local_broker
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
            "worker": [row.name for row in all_tools()],
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
