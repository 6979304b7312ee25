"""Runs a component until it is stopped."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ability_search.cli.client import joining
from ability_search.cli.failures import explain
from ability_search.cli.metering import metered, watch_calls
from ability_search.cli.tracing import traced
from ability_search.config.loader import load_settings
from ability_search.config.schema import Settings
from ability_search.ops import logs
from ability_search.ops.metrics.meter import Meter
from ability_search.ops.metrics.metric_table import Part as PartName
from ability_search.stack.lifecycle import heartbeat, stop_signals, stop_with_parent, write_beat

if TYPE_CHECKING:
    from ability_search.cli.parts import Part

if sys.platform == "win32":
    from asyncio import new_event_loop
else:
    from uvloop import new_event_loop

log = logging.getLogger(__name__)

Opener = Callable[[Settings, Meter], AbstractAsyncContextManager["Part"]]
Complete = Callable[[Settings], Awaitable[Settings]]
"""Returns the settings with the values that only the network provides."""


def prepare(part: str, *, join: bool = True) -> Settings:
    """Load the settings and set up the log of a component.

    With ``join`` the component uses the broker and the model of the running stack if a client
    would, see :func:`ability_search.cli.client.find_target`.

    Raises:
        ConfigurationError: with every problem of the settings.
    """
    environ = joined_environ() if join else os.environ
    settings = load_settings(environ, Path.cwd())
    logs.configure(settings.logging.level, settings.logging.format, part=part)
    for warning in settings.warnings:
        log.warning("%s", warning)
    return settings


def joined_environ() -> Mapping[str, str]:
    """Return the environment of a component, which joins the running stack if a client would.

    Raises:
        ConfigurationError: with every problem of the settings.
    """
    return joining(load_settings(os.environ, Path.cwd()), os.environ)


def serve(
    part: PartName, open_part: Opener, *, supervised: bool, complete: Complete | None = None
) -> None:
    """Run a component until a signal or, if supervised, until standard input ends.

    A supervised component reports on standard output, see
    :mod:`ability_search.stack.component_process`.
    Nothing is opened before ``complete`` has returned the settings to use.

    Raises:
        SearchError, KadiError: if it does not start; a supervised component reports that and exits.
    """
    try:
        settings = prepare(part, join=part != "broker")
        work = run_until_stopped(_run(part, settings, open_part, supervised, complete), supervised)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(work)
    except Exception as exc:
        if not supervised:
            raise
        report = explain(exc)
        _announce({"error": report.text, "hint": report.hint})
        if report.unexpected:
            log.error("%s", report.text, exc_info=exc)
        raise typer.Exit(1) from exc


async def run_until_stopped(
    work: Coroutine[Any, Any, None], supervised: bool = False, *, ending: bool = False
) -> None:
    """Run a coroutine; cancel it at a signal or, if supervised, when standard input ends.

    With ``ending`` the process exits after the coroutine, and later signals are ignored.
    """
    task = asyncio.create_task(work)
    asked = False

    def stop() -> None:
        nonlocal asked
        asked = True
        task.cancel()

    with stop_signals(stop, ending=ending):
        if supervised:
            stop_with_parent(stop)
        try:
            await task
        except asyncio.CancelledError:
            if not asked:
                raise


async def _run(
    name: PartName,
    settings: Settings,
    open_part: Opener,
    supervised: bool,
    complete: Complete | None,
) -> None:
    if complete is not None:
        settings = await complete(settings)
    with traced(settings, name):
        await _serve(name, settings, open_part, supervised)


async def _serve(name: PartName, settings: Settings, open_part: Opener, supervised: bool) -> None:
    async with metered(settings, name) as metering, open_part(settings, metering.meter) as part:
        # Objects created so far are permanent. Full collections traversed them for 50 to 75 ms.
        gc.freeze()
        if supervised:
            _announce({"ready": {**part.details, **metering.details}})
        log.info("ready: %s", part.details.get("address", ""))
        if metering.details:
            log.info("metrics at %s", metering.details["metrics"])
        async with heartbeat(metering.meter, write_beat if supervised else None):
            if part.connection is None:
                await asyncio.Event().wait()
            else:
                watch_calls(metering.meter, name, part.connection)
                await part.connection.serve_forever()


def _announce(report: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()
