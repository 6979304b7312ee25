"""The plan of a stack: its components, their ports and the embedding model."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ability_search.config.schema import Settings
from ability_search.errors import ConfigurationError
from ability_search.extension import loaded
from ability_search.extensions.localstack.contexts import require_nats_server
from ability_search.extensions.localstack.served_models import require_installed, served_names
from ability_search.extensions.localstack.settings import LocalBroker, Models
from ability_search.ops.extras import require_extra

_FURTHER = 100
"""Distance of the metrics ports of a backplane and of further brokers."""
_METRICS_ORDER = ("broker", "database", "models", "gateway", "worker")


def kind_of(name: str) -> str:
    """Return the kind of a component, such as ``worker`` for ``worker-1``."""
    return name.partition("-")[0]


@dataclass(kw_only=True)
class Plan:
    """The components of a stack, and their settings.

    Raises:
        ConfigurationError: if an extra or the weights that the components need are missing.
    """

    settings: Settings
    data_dir: Path
    log_level: str
    """Minimum severity of log messages."""
    port: int | None = 0
    """Port of the first broker, 0 for free ones; with ``None`` there is none, and the components
    use that of the settings."""
    models_port: int = 0
    """Port of the embeddings API, 0 for a free one."""
    metrics_port: int = 0
    """Port of the broker's metrics, see :func:`metrics_port`; 0 for free ports."""
    brokers: int = 1
    """Number of brokers, which are one network."""
    workers: int = 1
    database: bool = True
    models: bool = True
    """Whether to start a model manager, if the settings use none that is elsewhere."""
    added: Mapping[str, int] = field(default_factory=dict)
    """Ports of the components of other extensions, such as the gateway, 0 for a free one."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Further settings of the components, as environment variables."""

    def __post_init__(self) -> None:
        self.data_dir = self.data_dir.absolute()
        if self._needs_backplane:
            require_extra("nats")
            require_nats_server()
        require_installed(self.settings, database=self.database, models=self._serves_models)

    @property
    def _needs_backplane(self) -> bool:
        return self.brokers > 1 and self.settings.of(LocalBroker).backplane is None

    @property
    def _serves_models(self) -> bool:
        return self.models and self.settings.embedding.transport == "broker"

    @cached_property
    def ports(self) -> Mapping[str, int | None]:
        """The port of each component in the order of their list; ``None`` if it has none."""
        ports: dict[str, int | None] = {"backplane": 0} if self._needs_backplane else {}
        if (first := self.port) is not None:
            ports["broker"] = first
            ports |= {f"broker-{n}": first and first + n - 1 for n in range(2, self.brokers + 1)}
        ports |= {"database": None} if self.database else {}
        ports |= {"models": self.models_port} if self._serves_models else {}
        ports |= dict.fromkeys(f"worker-{number}" for number in range(1, self.workers + 1))
        return ports | dict(self.added)

    @cached_property
    def model(self) -> str | None:
        """The embedding model; ``None`` for the first one that the model manager serves."""
        model = self.settings.embedding.model
        # The model of a file may be for another network.
        own = os.environ.get("SEARCH_EMBEDDING_MODEL", "").strip() or not self._serves_models
        return model if own or model in served_names(self.settings) else None

    def of(self, *kinds: str) -> list[str]:
        """Return the components of some kinds."""
        return [name for name in self.ports if kind_of(name) in kinds]

    @property
    def private_network(self) -> tuple[str, ...]:
        """Return the network of the components that other agents may not join, if there is one."""
        network = self.settings.of(LocalBroker).private_network
        return (network,) if network and self.of("broker") else ()


def check_ports(plan: Plan) -> None:
    """Check that the ports of a plan are free.

    Raises:
        ConfigurationError: naming every port that is not.
    """
    settings = plan.settings
    listening = {
        "broker": ("", "--port", settings.of(LocalBroker).host),
        "models": ("embeddings API", "--models-port", settings.of(Models).http_host),
        **{name: ("", f"--{name}-port", added_address(name, settings)[0]) for name in plan.added},
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


def added_address(name: str, settings: Settings) -> tuple[str, int]:
    """Return host and port of a component of another extension; port 0 if the settings have none.

    The component may be one that is not loaded.
    """
    component = loaded().components.get(name)
    return component.address(settings) if component and component.address else ("", 0)


def _port_problem(host: str, port: int) -> str | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as exc:
        return os.strerror(exc.errno) if exc.errno else str(exc)
    return None


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
