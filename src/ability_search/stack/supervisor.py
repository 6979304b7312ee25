"""The parts of a stack, started in order, kept running, stopped in reverse order."""

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

from ability_search.errors import ConfigurationError, first_failure
from ability_search.stack.component_environment import child_environ
from ability_search.stack.component_process import Child, Tell
from ability_search.stack.data_directory import (
    RunningPart,
    RunningStack,
    remove_running,
    write_running,
)
from kadi_client import Connection, KadiError

log = logging.getLogger(__name__)

VISIBLE_SECONDS = 20.0
_POLL_SECONDS = 0.1

_METRICS_ORDER = ("broker", "database", "models", "gateway", "worker")
_TOOLS = {
    "database": ("arcade-query", "arcade-command"),
    "models": ("create-embedding",),
    "worker": ("search-index", "search-query"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a stack is made of."""

    data_dir: Path
    url: str
    """Broker to use if none is started."""
    networks: tuple[str, ...]
    port: int | None
    """Port of the broker, 0 for a free one; ``None`` starts none."""
    database: bool
    models_port: int | None
    """Port of the embeddings API, 0 for a free one; ``None`` starts no model manager."""
    gateway_port: int | None
    """Port of the gateway, 0 for a free one; ``None`` starts none."""
    workers: int
    model: str | None
    """Model that was chosen; ``None`` takes the one that the model manager serves first."""
    own_tokenizer: bool
    """Whether the settings name the tokenizer of that model."""
    own_max_tokens: bool
    """Whether the settings name the longest text of that model."""
    metrics_port: int
    """Port of the broker's numbers, which those of the other parts follow; 0 for free ones."""
    log_level: str
    """Least severity of what the parts log."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Further settings of the parts."""


class Stack:
    """A running stack; :meth:`start` it, and :meth:`stop` it whatever happened.

    Args:
        plan: What to start.
        lock: Descriptor of the held data directory.
        tell: Receives a sentence when a part ends and when it is back.
    """

    def __init__(self, plan: Plan, *, lock: int, tell: Tell) -> None:
        self._plan = plan
        self._inherit = () if sys.platform == "win32" else (lock,)
        self._tell = tell
        self._children: list[Child] = []
        self._url = plan.url
        self._model = plan.model
        self._changes: dict[str, str] = {}
        self._started = datetime.now(UTC).isoformat(timespec="seconds")

    @property
    def running(self) -> RunningStack:
        """Return the running stack."""
        return RunningStack(
            pid=os.getpid(),
            url=self._url,
            networks=self._plan.networks,
            started=self._started,
            model=self._model,
            parts=tuple(
                RunningPart(
                    child.name,
                    child.pid,
                    str(child.details.get("address", "")),
                    str(child.details.get("metrics", "")),
                )
                for child in self._children
            ),
            environ=self._changes,
        )

    async def start(self) -> RunningStack:
        """Start every part and wait until the network shows their tools.

        Raises:
            PartFailed: if a part does not start.
            ConfigurationError: if the chosen model is not served.
        """
        if self._plan.port is not None:
            details = await self._child("broker", self._broker_arguments).start()
            self._url = str(details["url"])
        served: Mapping[str, Any] = {}
        try:
            async with asyncio.TaskGroup() as group:
                if self._plan.database:
                    group.create_task(self._child("database", _plain("database")).start())
                if self._plan.models_port is not None:
                    models = group.create_task(self._child("models", self._models).start())
            if self._plan.models_port is not None:
                served = models.result()
            self._changes = self._embedding(served)
            async with asyncio.TaskGroup() as group:
                for number in range(1, self._plan.workers + 1):
                    child = self._child(f"worker-{number}", _plain("worker"), self._changes)
                    group.create_task(child.start())
                if self._plan.gateway_port is not None:
                    group.create_task(self._child("gateway", self._gateway).start())
        except ExceptionGroup as failures:
            raise first_failure(failures) from failures
        await self._visible()
        write_running(self._plan.data_dir, self.running)
        return self.running

    async def stop(self) -> None:
        """Stop every part, those started last first."""
        kinds = ("gateway", "worker", "models", "database", "broker")
        for kind in kinds:
            stopping = [child.stop() for child in self._children if child.name.startswith(kind)]
            await asyncio.gather(*stopping)
        remove_running(self._plan.data_dir)

    def kill(self) -> None:
        """End every part at once."""
        for child in reversed(self._children):
            child.kill()

    def _child(self, name: str, arguments: Any, changes: Mapping[str, str] | None = None) -> Child:
        identities = self._plan.data_dir / "identities"
        environ = {
            "SEARCH_DATA_DIR": str(self._plan.data_dir),
            "SEARCH_IDENTITY_FILE": str(identities / f"{name}.pem"),
            "SEARCH_LOG_LEVEL": self._plan.log_level,
            **self._plan.environ,
            **(changes or {}),
        }
        # Without a broker of the stack's own, a worker joins all that the files name.
        if not name.startswith("worker") or self._plan.port is not None:
            environ["BROKER_NETWORKS"] = ",".join(self._plan.networks)
        if name != "broker" and "BROKER_NETWORKS" in environ:
            environ["BROKER_URL"] = self._url
        port = metrics_port(name, self._plan.metrics_port)

        def environ_of(before: Mapping[str, Any]) -> Mapping[str, str]:
            own = str(before.get("metricsPort", port))
            return child_environ(name, {**environ, "SEARCH_METRICS_PORT": own})

        child = Child(
            name,
            arguments,
            environ_of,
            inherit=self._inherit,
            tell=self._tell,
            changed=self._changed,
        )
        self._children.append(child)
        return child

    def _broker_arguments(self, before: Mapping[str, Any]) -> Sequence[str]:
        return ("broker", "--supervised", "--port", str(before.get("port", self._plan.port)))

    def _models(self, before: Mapping[str, Any]) -> Sequence[str]:
        port = before.get("port", self._plan.models_port)
        return ("models", "serve", "--supervised", "--port", str(port))

    def _gateway(self, before: Mapping[str, Any]) -> Sequence[str]:
        port = before.get("port", self._plan.gateway_port)
        return ("gateway", "--supervised", "--port", str(port))

    def _embedding(self, served: Mapping[str, Any]) -> dict[str, str]:
        """The worker's settings for the model that is served."""
        if not served:
            return {}
        models: Mapping[str, Mapping[str, Any]] = served["models"]
        if not models:
            raise ConfigurationError(
                "this stack serves no model that embeds",
                hint="Have one served: `ability-search models --help`; or use `up --no-models`.",
            )
        if self._model is None:
            self._model = next(iter(models))
        if self._model not in models:
            raise ConfigurationError(
                f"SEARCH_EMBEDDING_MODEL: {self._model!r} is not served by this stack;"
                f" served: {', '.join(models)}",
                hint="Unset it, or have the model served: `ability-search models --help`.",
            )
        changes = {"SEARCH_EMBEDDING_MODEL": self._model, "SEARCH_EMBEDDING_TRANSPORT": "broker"}
        about = models[self._model]
        if about.get("tokenizer") and not self._plan.own_tokenizer:
            changes["SEARCH_TOKENIZER"] = str(about["tokenizer"])
        if about.get("maxTokens") and not self._plan.own_max_tokens:
            changes["SEARCH_EMBEDDING_MAX_TOKENS"] = str(about["maxTokens"])
        return changes

    async def _visible(self) -> None:
        """Wait until a client sees the tools of every part."""
        kinds = {child.name.partition("-")[0] for child in self._children}
        expected = {tool for kind in kinds for tool in _TOOLS.get(kind, ())}
        missing = expected
        try:
            async with (
                asyncio.timeout(VISIBLE_SECONDS),
                Connection(
                    self._url,
                    name="ability-search up",
                    networks=self._plan.networks,
                    connect_timeout=VISIBLE_SECONDS,
                ) as connection,
            ):
                while missing:
                    missing = expected - {tool["name"] for tool in await connection.list_tools()}
                    await asyncio.sleep(_POLL_SECONDS if missing else 0)
        except (TimeoutError, KadiError) as exc:
            raise ConfigurationError(
                f"the broker at {self._url} does not show {', '.join(sorted(missing))}",
                hint="Look at the log above for what the parts say.",
            ) from exc

    def _changed(self) -> None:
        write_running(self._plan.data_dir, self.running)


def metrics_port(name: str, first: int) -> int:
    """The port of a part's numbers, where that of the broker is ``first``; 0 for any.

    They follow each other: broker, database, models, gateway, worker-1 and so on.
    """
    kind, _, number = name.partition("-")
    return first and first + _METRICS_ORDER.index(kind) + int(number or 1) - 1


def _plain(part: str) -> Any:
    return lambda _before: (part, "--supervised")
