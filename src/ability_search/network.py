"""The connections to the KADI network; all of them are created here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Unpack

from ability_search.config.schema import Broker, Settings
from kadi_client import Brokers, Connection, Endpoint, Identity, Tool
from kadi_client.options import ConnectionOptions
from kadi_client.provider import Observe, OnBusy


def client_connection(
    settings: Settings,
    url: str,
    networks: Sequence[str],
    *,
    name: str,
    open_timeout: float = 5.0,
    connect_timeout: float = 0.0,
    identity: Identity | None = None,
) -> Connection:
    """Return a connection of an agent; open it with ``async with``.

    Args:
        settings: Limits and tracing.
        url: Address of the broker.
        networks: Networks to join there.
        name: Display name.
        open_timeout: Seconds for one attempt to connect.
        connect_timeout: Seconds that the broker may take to appear.
        identity: Key pair of the agent; a new one if not given.
    """
    options = _options(
        settings,
        role="agent",
        name=name,
        identity=identity,
        open_timeout=open_timeout,
        connect_timeout=connect_timeout,
        grace=0.0,
    )
    return Connection(url, networks=networks, **options)


def part_connection(
    settings: Settings,
    component: str,
    tools: Iterable[Tool] = (),
    *,
    connect_timeout: float,
    max_concurrent: int = 128,
    patience: Mapping[str, float] | None = None,
) -> Connection:
    """Return a connection of a component to the first broker, under an identity of its own.

    Args:
        settings: Broker, identity file, limits and tracing.
        component: Name of the component; its key file is next to that of the worker.
        tools: Tools that it serves.
        connect_timeout: Seconds that the broker may take to appear.
        max_concurrent: Maximum number of calls that its tools handle at a time.
        patience: As ``provider_patience`` of :class:`kadi_client.Connection`.
    """
    url, networks = settings.broker.url.get_secret_value(), settings.broker.networks
    options = _options(
        settings,
        identity=Identity.load_or_create(component_key(settings, component)),
        name=f"{settings.agent.name}-{component}",
        connect_timeout=connect_timeout,
        max_concurrent=max_concurrent,
        provider_patience=patience or {},
    )
    return Connection(url, networks=networks, tools=tools, **options)


def component_key(settings: Settings, component: str) -> Path:
    """Return the file of a component's private key."""
    own = settings.files.identity_file
    return own if own.stem == component else own.with_name(f"{own.stem}-{component}{own.suffix}")


def worker_connection(
    settings: Settings, broker: Broker, identity: Identity, *, connect_timeout: float
) -> Connection:
    """Return a connection of the worker, as that identity, to one broker."""
    options = _options(settings, identity=identity, connect_timeout=connect_timeout)
    return Connection(broker.url.get_secret_value(), networks=broker.networks, **options)


def worker_brokers(
    settings: Settings, *, connect_timeout: float, observe: Observe, on_busy: OnBusy
) -> Brokers:
    """Return the connections of the worker to all its brokers, without tools yet."""
    endpoints = {
        broker.name: Endpoint(broker.url.get_secret_value(), broker.networks)
        for broker in settings.brokers
    }
    options = _options(
        settings,
        identity=Identity.load_or_create(settings.files.identity_file),
        connect_timeout=connect_timeout,
        max_concurrent=settings.limits.concurrent_calls,
        max_queued=settings.limits.waiting_calls,
        observe=observe,
        on_busy=on_busy,
    )
    return Brokers(endpoints, **options)


def _options(settings: Settings, **further: Unpack[ConnectionOptions]) -> ConnectionOptions:
    """Return the options of all components; ``further`` ones outrank them."""
    return {
        "name": settings.agent.name,
        "version": settings.agent.version,
        "role": "ability",
        "max_message_bytes": settings.limits.message_bytes,
        "propagate": settings.tracing.propagate,
        **further,
    }
