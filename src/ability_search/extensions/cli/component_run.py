"""Run a component in this process until it is stopped: settings, log, traces, metrics."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import typer

from ability_search import __version__
from ability_search.client.tool_client import joined_environ
from ability_search.config.agent_card import API_KEY
from ability_search.config.loader import load_settings
from ability_search.config.schema import Settings
from ability_search.errors import ConfigurationError, first_failure
from ability_search.extension import loaded
from ability_search.extensions.cli import logs
from ability_search.extensions.cli.app import app, explain
from ability_search.extensions.cli.extras import install_command
from ability_search.extensions.cli.lifecycle import heartbeat, run_until_stopped, write_beat
from ability_search.extensions.cli.settings import Logging, Metrics
from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.ops.metrics.metric_table import CALLS_WAITING, ComponentName
from kadi_client import Brokers, Connection, tracing

if sys.platform == "win32":
    from asyncio import new_event_loop
else:
    from uvloop import new_event_loop

log = logging.getLogger(__name__)

_COLLECTOR = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""These apply to every program of the machine, so a missing extra is only a warning."""
_FULL_COLLECTIONS = 1_000_000
"""Number of younger collections before a full one, which never comes: it would traverse the
candidates of all running queries for up to 1.5 s, and find nothing. ``heartbeat`` collects."""
SWITCH_SECONDS = 0.00005
"""Time after which a thread that computes hands over to the event loop. A thread that itself lets
go of the interpreter lock more often, as calls of NumPy do, would keep it from the loop."""


@dataclass(frozen=True, slots=True)
class Component:
    """A running component."""

    details: Mapping[str, Any] = field(default_factory=dict)
    """Details for a supervising parent: ``address`` (for display), ``url``, ``port``."""
    connection: Connection | Brokers | None = None
    """Its connection to the network."""


Opener = Callable[[Settings, Meter], AbstractAsyncContextManager[Component]]
Complete = Callable[[Settings], Awaitable[Settings]]
"""Returns the settings with the values that only the network provides."""


@dataclass(frozen=True, slots=True)
class Served:
    """The component that a command serves."""

    name: ComponentName
    open: Opener
    complete: Complete | None


_asked: ContextVar[list[Served] | None] = ContextVar("asked", default=None)
"""While set, :func:`serve` adds to the list what it would run."""


def prepare(name: str, *, join: bool = True, warn: bool = True) -> Settings:
    """Load the settings and set up the log of a component.

    Args:
        name: Its name in the log.
        join: Whether it uses the broker and the model of the running stack if a client would, see
            :func:`ability_search.client.tool_client.find_target`.
        warn: Whether the warnings about the settings are logged.

    Raises:
        ConfigurationError: with every problem of the settings.
    """
    settings = _complete_settings(os.environ)
    if join:
        settings = load_settings(joined_environ(settings, os.environ), Path.cwd())
    logs.configure(settings.of(Logging).level, settings.of(Logging).format, component=name)
    for warning in settings.warnings if warn else ():
        log.warning("%s", warning)
    return settings


def _complete_settings(environ: Mapping[str, str]) -> Settings:
    settings = load_settings(environ, Path.cwd())
    require_decrypted(settings)
    return settings


def require_decrypted(settings: Settings) -> None:
    """Check that every secret of secrets.toml was decrypted, except those that a network provides.

    Clients need no secrets; a component without its token would admit everyone.

    Raises:
        ConfigurationError: naming each secret that was not.
    """
    problems = [
        problem
        for name, problem in settings.undecrypted_secrets.items()
        if name not in (API_KEY, *settings.agent.required_secrets)
    ]
    if problems:
        raise ConfigurationError(*problems)


async def run_component(
    served: Served,
    settings: Settings,
    *,
    report: Callable[[Mapping[str, Any]], None] | None = None,
    guests: Guests | None = None,
) -> None:
    """Run a component until it is cancelled.

    With ``report`` it has a parent, to which it tells that it is ready. Nothing is opened before
    ``complete`` has returned the settings to use.

    Raises:
        SearchError, KadiError: if it does not start.
    """
    name = served.name
    if served.complete is not None:
        settings = await served.complete(settings)
    sys.setswitchinterval(SWITCH_SECONDS)
    with traced(settings, name):
        async with (
            metered(settings, name) as (meter, metrics),
            served.open(settings, meter) as component,
        ):
            # Objects created so far are permanent. Full collections traversed them for 50 to 75 ms.
            gc.freeze()
            gc.set_threshold(*gc.get_threshold()[:2], _FULL_COLLECTIONS)
            if report is not None:
                report({"ready": {**component.details, **metrics}})
            log.info("ready: %s", component.details.get("address", ""))
            if metrics:
                log.info("metrics at %s", metrics["metrics"])
            async with (
                heartbeat(meter, write_beat if report is not None else None),
                guests.running() if guests is not None else nullcontext(),
            ):
                if (connection := component.connection) is None:
                    await asyncio.Event().wait()
                    return
                if name in CALLS_WAITING.components:
                    meter.watch(CALLS_WAITING, lambda: {(): connection.calls_waiting})
                await connection.serve_forever()


class Guests:
    """The components that run in the process of another one, as the parent orders.

    An order is a line with a JSON object: ``{"run": name, "arguments": [...], "environ": {...}}``
    runs the component of a command of ability-search, and ``{"stop": name}`` ends it. The report
    names it: ``{"of": name, "ready": {...}}``, ``{"of": name, "error": ...}`` as for a component in
    a process of its own, and ``{"of": name, "stopped": true}``. All end with the process, and the
    process with the first that fails.
    """

    def __init__(self) -> None:
        self._orders: asyncio.Queue[bytes] = asyncio.Queue()
        self._running: dict[str, asyncio.Task[None]] = {}
        self.received = self._orders.put_nowait
        """Takes an order."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the orders during the block.

        Raises:
            SearchError, KadiError: if a guest does not start.
        """
        try:
            async with asyncio.TaskGroup() as group:
                following = group.create_task(self._follow(group))
                yield
                following.cancel()
        except ExceptionGroup as failures:
            raise first_failure(failures) from failures

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        while True:
            order = json.loads(await self._orders.get())
            if (name := order.get("run")) is not None:
                self._running[name] = group.create_task(self._run(order), name=f"guest-{name}")
            elif (task := self._running.get(order["stop"])) is not None:
                task.cancel()

    async def _run(self, order: Mapping[str, Any]) -> None:
        def report(what: Mapping[str, Any]) -> None:
            announce({"of": order["run"], **what})

        try:
            served = await asyncio.to_thread(_commanded, order["arguments"])
            logs.guest.set(served.name)
            tracing.separate()
            settings = _complete_settings(order["environ"])
            await run_component(served, settings, report=report)
        except asyncio.CancelledError:
            report({"stopped": True})
            raise
        except Exception as exc:
            _report_failure(exc, report)
            raise


def _commanded(arguments: Sequence[str]) -> Served:
    """Return what a command of ability-search serves."""
    served: list[Served] = []
    token = _asked.set(served)
    try:
        import_module(loaded().commands[arguments[0]].module)
        app(arguments, standalone_mode=False)
    finally:
        _asked.reset(token)
    return served[0]


def announce(report: Mapping[str, Any]) -> None:
    """Write a report for the supervising parent to standard output."""
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()


def _report_failure(exc: Exception, report: Callable[[Mapping[str, Any]], None]) -> None:
    explained = explain(exc)
    report({"error": explained.text, "hint": explained.hint})
    if explained.unexpected:
        log.error("%s", explained.text, exc_info=exc)


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
        from ability_search.extensions.cli.traces import exporting
    except ModuleNotFoundError as exc:
        problem = f"the extra 'otel' is not installed ({exc.name} is missing)"
        if endpoint is not None:
            raise ConfigurationError(problem, hint=f"Run: {install_command('otel')}") from exc
        log.warning("traces are not sent: %s", problem)
        yield
        return
    with exporting(endpoint.get_secret_value() if endpoint else None, name):
        yield


def serve(
    name: ComponentName,
    open_component: Opener,
    *,
    supervised: bool,
    complete: Complete | None = None,
) -> None:
    """Run a component until a signal or, if supervised, until standard input ends.

    Raises:
        SearchError, KadiError: if it does not start; a supervised component reports that and exits.
    """
    served = Served(name, open_component, complete)
    if (asked := _asked.get()) is not None:
        asked.append(served)
        return
    try:
        # The environment of a supervised component names its networks, which it must not leave.
        joins = not supervised and name not in ("backplane", "broker")
        # The parent of a supervised component has the same settings, and has warned.
        settings = prepare(name, join=joins, warn=not supervised)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_supervised(served, settings) if supervised else _alone(served, settings))
    except Exception as exc:
        if not supervised:
            raise
        _report_failure(exc, announce)
        raise typer.Exit(1) from exc


async def _alone(served: Served, settings: Settings) -> None:
    await run_until_stopped(run_component(served, settings))


async def _supervised(served: Served, settings: Settings) -> None:
    guests = Guests()
    work = run_component(served, settings, report=announce, guests=guests)
    await run_until_stopped(work, guests.received)


@asynccontextmanager
async def metered(
    settings: Settings, component: ComponentName
) -> AsyncIterator[tuple[Meter, Mapping[str, Any]]]:
    """Record the metrics of this process and serve them, if the settings name a port.

    Yields:
        The meter, and details for a supervising parent: ``metrics``, the address, and
        ``metricsPort``.

    Raises:
        ConfigurationError: if the port cannot be bound, or the settings do not allow serving it.
    """
    own = settings.of(Metrics)
    if own.port is None:
        yield UNMETERED, {}
        return
    from ability_search.extensions.cli.prometheus_meter import PrometheusMeter, serve_metrics

    meter = PrometheusMeter(component, __version__)
    token = own.token.get_secret_value() if own.token else None
    async with serve_metrics(meter.text, own.host, own.port, token=token) as url:
        yield meter, {"metrics": url, "metricsPort": urlsplit(url).port}
