"""Run a component in this process until it is stopped: settings, log, traces, metrics."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ability_search.client.tool_client import find_target, joined_environ, require_shared
from ability_search.config.loader import load_settings, require_decrypted
from ability_search.config.schema import Settings
from ability_search.errors import ConfigurationError
from ability_search.extensions.localstack.component_metrics import metered, watch_calls
from ability_search.extensions.localstack.extras import install_command
from ability_search.extensions.localstack.lifecycle import heartbeat, write_beat
from ability_search.ops import logs
from ability_search.ops.metrics.meter import Meter
from ability_search.ops.metrics.metric_table import ComponentName

if TYPE_CHECKING:
    from ability_search.extensions.localstack.contexts import Component

log = logging.getLogger(__name__)

Opener = Callable[[Settings, Meter], AbstractAsyncContextManager["Component"]]
Complete = Callable[[Settings], Awaitable[Settings]]
"""Returns the settings with the values that only the network provides."""

_COLLECTOR = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""These apply to every program of the machine, so a missing extra is only a warning."""
_FULL_COLLECTIONS = 1_000_000
"""Number of younger collections before a full one, which never comes: it would traverse the
candidates of all running queries for up to 1.5 s, and find nothing. ``heartbeat`` collects."""
SWITCH_SECONDS = 0.00005
"""Time after which a thread that computes hands over to the event loop. A thread that itself lets
go of the interpreter lock more often, as calls of NumPy do, would keep it from the loop."""


def prepare(name: str, *, join: bool = True) -> Settings:
    """Load the settings and set up the log of a component.

    With ``join`` the component uses the broker and the model of the running stack if a client
    would, see :func:`ability_search.client.tool_client.find_target`.

    Raises:
        ConfigurationError: with every problem of the settings, or if a worker would join a stack
            that keeps everything in memory.
    """
    settings = load_settings(os.environ, Path.cwd())
    require_decrypted(settings)
    if join:
        if name == "worker":
            require_shared(find_target(settings, os.environ, None))
        settings = load_settings(joined_environ(settings, os.environ), Path.cwd())
    logs.configure(settings.logging.level, settings.logging.format, component=name)
    for warning in settings.warnings:
        log.warning("%s", warning)
    return settings


async def run_component(
    name: ComponentName,
    settings: Settings,
    open_component: Opener,
    *,
    supervised: bool,
    complete: Complete | None = None,
) -> None:
    """Run a component until it is cancelled.

    A supervised component reports on standard output, see
    :mod:`ability_search.extensions.localstack.component_process`.
    Nothing is opened before ``complete`` has returned the settings to use.

    Raises:
        SearchError, KadiError: if it does not start.
    """
    if complete is not None:
        settings = await complete(settings)
    sys.setswitchinterval(SWITCH_SECONDS)
    with traced(settings, name):
        async with (
            metered(settings, name) as metering,
            open_component(settings, metering.meter) as component,
        ):
            # Objects created so far are permanent. Full collections traversed them for 50 to 75 ms.
            gc.freeze()
            gc.set_threshold(*gc.get_threshold()[:2], _FULL_COLLECTIONS)
            if supervised:
                announce({"ready": {**component.details, **metering.details}})
            log.info("ready: %s", component.details.get("address", ""))
            if metering.details:
                log.info("metrics at %s", metering.details["metrics"])
            async with heartbeat(metering.meter, write_beat if supervised else None):
                if component.connection is None:
                    await asyncio.Event().wait()
                else:
                    watch_calls(metering.meter, name, component.connection)
                    await component.connection.serve_forever()


def announce(report: Mapping[str, Any]) -> None:
    """Write a report for the supervising parent to standard output."""
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()


@contextmanager
def traced(settings: Settings, name: str) -> Iterator[None]:
    """Send traces of the block to the collector set in the settings or by OpenTelemetry, if any.

    Raises:
        ConfigurationError: if the settings set one and the extra is missing.
    """
    endpoint = settings.tracing.endpoint
    if endpoint is None and not any(map(os.environ.get, _COLLECTOR)):
        yield
        return
    try:
        from ability_search.ops.traces import exporting
    except ModuleNotFoundError as exc:
        problem = f"the extra 'otel' is not installed ({exc.name} is missing)"
        if endpoint is not None:
            raise ConfigurationError(problem, hint=f"Run: {install_command('otel')}") from exc
        log.warning("traces are not sent: %s", problem)
        yield
        return
    with exporting(endpoint.get_secret_value() if endpoint else None, name):
        yield
