"""The plan of a stack: its components, their ports and the embedding model."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from ability_search.config.schema import Settings
from ability_search.errors import ConfigurationError
from ability_search.extension import loaded
from ability_search.extensions.cli import output
from ability_search.extensions.cli.extras import (
    EXTRAS,
    install_command,
    missing_modules,
    require_extra,
)
from ability_search.extensions.cli.parameters import (
    DataDirOption,
    OfferOption,
    named_families,
    port_option,
)
from ability_search.extensions.cli.settings import Metrics
from ability_search.extensions.localstack.contexts import require_nats_server
from ability_search.extensions.localstack.served_models import require_installed, served_names
from ability_search.extensions.localstack.settings import LocalBroker, Models
from ability_search.tools.table import OFFER_ALL, offered_families

_OWN = frozenset({"backplane", "broker", "database", "models", "worker"})
"""The components that a stack starts by itself; those of other extensions are added."""
_FURTHER = 100
"""Distance of the metrics ports of a backplane and of further brokers."""
_METRICS_ORDER = ("broker", "database", "models", "gateway", "worker")


def kind_of(name: str) -> str:
    """Return the kind of a component, such as ``worker`` for ``worker-1``."""
    return name.partition("-")[0]


@dataclass(frozen=True, kw_only=True)
class StackOptions:
    """The options of `up` that choose the components of a stack and their ports."""

    data_dir: DataDirOption = None
    port: Annotated[
        int | None,
        port_option(
            "local_broker_port",
            "Port of the broker, several use the following ports; 0 for free ports.",
        ),
    ] = None
    models_port: Annotated[
        int | None, port_option("model_http_port", "Port of the embeddings HTTP API.")
    ] = None
    brokers: Annotated[
        int,
        typer.Option(min=1, max=16, help="Number of brokers, which are one network over NATS."),
    ] = 1
    workers: Annotated[int, typer.Option(min=0, max=64, help="Number of workers.")] = 1
    no_broker: Annotated[bool, "Use the configured broker instead."] = False
    no_database: Annotated[bool, "Use a database that is on the network."] = False
    memory: Annotated[bool, "Keep everything in memory, without a database."] = False
    offer: OfferOption = None
    no_models: Annotated[bool, "Use an embedder that is elsewhere."] = False
    gateway_port: Annotated[
        int | None, port_option("gateway_port", "Port of the gateway (HTTP and MCP).")
    ] = None
    no_gateway: Annotated[bool, "Do not start a gateway."] = False
    metrics_port: Annotated[
        int | None,
        port_option(
            "metrics_port, else 0",
            "Port of the broker's metrics; the other components use the following ports."
            " 0 for free ports.",
        ),
    ] = None


@dataclass
class Plan:
    """The components of a stack.

    Args:
        settings: The settings.
        options: What is chosen for this stack.
        log_level: Minimum severity of log messages.
        alone: Whether it has no components of other extensions, such as the gateway.
        environ: Further settings of the components, as environment variables.

    Raises:
        ConfigurationError: if an extra or the weights that the components need are missing, or
            the offer names what no extension has.
    """

    settings: Settings
    options: StackOptions
    log_level: str
    alone: bool = False
    environ: Mapping[str, str] = field(default_factory=dict)
    ports: dict[str, int | None] = field(init=False)
    """Port of each component in the order of their list, 0 for a free one; ``None`` if it listens
    on none. Without a broker they use that of the settings."""
    offer: tuple[str, ...] = field(init=False)
    """Families of tools that the workers offer besides the eight: all unless they are chosen."""
    model: str | None = field(init=False)
    """Embedding model; ``None`` for the first one that the model manager serves."""

    def __post_init__(self) -> None:
        options, settings = self.options, self.settings
        database = not (options.no_database or options.memory)
        models = not options.no_models and settings.embedding.transport == "broker"
        first = settings.of(LocalBroker).port if options.port is None else options.port

        def chosen(port: int | None, usual: int) -> int:
            return port if port is not None else usual if first else 0

        self.ports = {}
        if options.brokers > 1 and settings.of(LocalBroker).backplane is None:
            require_extra("nats")
            require_nats_server()
            self.ports["backplane"] = 0
        require_installed(settings, database=database, models=models)
        if not options.no_broker:
            self.ports["broker"] = first
            for number in range(2, options.brokers + 1):
                self.ports[f"broker-{number}"] = first and first + number - 1
        if database:
            self.ports["database"] = None
        if models:
            self.ports["models"] = chosen(options.models_port, settings.of(Models).http_port)
        self.ports |= dict.fromkeys(f"worker-{n}" for n in range(1, options.workers + 1))
        if not self.alone:
            gateway = chosen(options.gateway_port, added_address("gateway", settings)[1])
            self.ports |= added_ports(None if options.no_gateway else gateway)
        self.offer = _offered(options, settings)
        self.model = settings.embedding.model
        named = os.environ.get("SEARCH_EMBEDDING_MODEL", "").strip()
        if models and not named and self.model not in served_names(settings):
            self.model = None
        if options.memory:
            self.environ = {**self.environ, "SEARCH_DATABASE_MEMORY": "true"}

    @property
    def data_dir(self) -> Path:
        """Directory of the data."""
        return (self.options.data_dir or self.settings.files.data_dir).absolute()

    def metrics_port(self, name: str) -> int:
        """Return the metrics port of a component, 0 for a free one, see :func:`metrics_port`."""
        first = self.options.metrics_port
        return metrics_port(name, (self.settings.of(Metrics).port or 0) if first is None else first)

    @property
    def guests(self) -> frozenset[str]:
        """Return the components that run in the process of the first broker."""
        if not self.settings.of(LocalBroker).shared_process or not self.of("broker"):
            return frozenset()
        return frozenset({"gateway", "worker-1"} & self.ports.keys())

    def of(self, *kinds: str) -> list[str]:
        """Return the components of some kinds."""
        return [name for name in self.ports if kind_of(name) in kinds]

    @property
    def private_network(self) -> tuple[str, ...]:
        """Return the network of the components that other agents may not join, if there is one."""
        network = self.settings.of(LocalBroker).private_network
        return (network,) if network and self.of("broker") else ()


def _offered(options: StackOptions, settings: Settings) -> tuple[str, ...]:
    """Return the families of tools that the workers of a stack offer besides the eight.

    They are those of the option, else those of the setting, else all.

    Raises:
        ConfigurationError: if one is none of an extension.
    """
    for families in (named_families(options.offer), settings.loading.offer):
        if families is not None:
            return offered_families(families)
    return offered_families((OFFER_ALL,))


def added_ports(gateway_port: int | None) -> dict[str, int]:
    """Return the ports of the components of other extensions; ``None`` for no gateway.

    Warn of those that are not installed, so that the stack runs without them.
    """
    ports = {}
    for name, each in loaded().components.items():
        port = gateway_port if name == "gateway" else 0
        if name in _OWN or port is None:
            continue
        missing = missing_modules(EXTRAS[each.extra]) if each.extra else ()
        if each.extra and missing:
            command = install_command(each.extra)
            output.warn(f"no {name}: {', '.join(missing)} missing. Run: {command}")
        else:
            ports[name] = port
    return ports


def check_ports(plan: Plan) -> None:
    """Check that the ports of a plan are free.

    Raises:
        ConfigurationError: naming every port that is not.
    """
    settings = plan.settings
    listening = {
        "broker": ("", "--port", settings.of(LocalBroker).host),
        "models": ("embeddings API", "--models-port", settings.of(Models).http_host),
    }
    listening |= {
        name: ("", f"--{name}-port", added_address(name, settings)[0])
        for name in plan.ports
        if kind_of(name) not in _OWN
    }
    wanted = [
        (listening[kind][0] or name, *listening[kind][1:], port)
        for name, port in plan.ports.items()
        if (kind := kind_of(name)) in listening
    ]
    for name in plan.ports:
        port = plan.metrics_port(name)
        wanted.append((f"metrics of {name}", "--metrics-port", settings.of(Metrics).host, port))
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
