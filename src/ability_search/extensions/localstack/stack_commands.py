"""`up`, `down`, `status`: run a complete stack on this machine."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from ability_search.client.running_stack import RunningStack, read_running
from ability_search.config.setting_fields import Url
from ability_search.errors import InvalidInput
from ability_search.extensions.cli import logs, output
from ability_search.extensions.cli.app import FAILED, NOT_FOUND, app, command
from ability_search.extensions.cli.clients import client_settings
from ability_search.extensions.cli.component_run import prepare
from ability_search.extensions.cli.lifecycle import stop_signals
from ability_search.extensions.cli.parameters import DataDirOption, JsonOption
from ability_search.extensions.cli.settings import Logging
from ability_search.extensions.localstack.settings import OPEN_NETWORK
from ability_search.extensions.localstack.stack_plan import (
    Plan,
    StackOptions,
    check_ports,
    kind_of,
)
from ability_search.extensions.localstack.supervisor import new_stack, released

_DOWN_SECONDS = 90.0
_RESTART_SECONDS = 60.0
_POLL_SECONDS = 0.1


@command(app, "up")
def up(
    options: StackOptions,
    *,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Show the log of the components, not only warnings."),
    ] = False,
) -> None:
    """Run a stack: broker, database, model manager, workers and gateway.

    A component that dies is restarted. Ctrl-C or SIGTERM stops everything in order.
    The workers offer the eight tools and those of all extensions, unless the setting
    `offer` or --offer chooses some. The data stays in the data directory. The other
    commands use that directory to find the stack: with a --data-dir other than the
    default, set SEARCH_DATA_DIR for them. New collections use the configured
    embedding model if the stack serves it, otherwise all-MiniLM-L6-v2.

    Example:
        ability-search up
        ability-search up --data-dir ./data --port 0 --workers 2
        ability-search up --brokers 3 --workers 4
        ability-search up --memory
        ability-search up --offer memory
    """
    began = time.monotonic()
    if options.memory and options.workers > 1:
        raise typer.BadParameter("workers do not share their memory", param_hint="--workers")
    if options.no_broker and options.brokers > 1:
        raise typer.BadParameter("--no-broker starts none", param_hint="--brokers")
    settings = prepare("up", join=False)
    # The log of the components is shown on request, or as JSON for a collector.
    logging = settings.of(Logging)
    shown = verbose or logs.level_is_set() or logging.format == "json"
    log_level = logging.level if shown else "warning"
    logs.configure(log_level, logging.format, component="up")
    asyncio.run(_up(Plan(settings, options, log_level=log_level), began))
    output.stdout().print("stopped")


async def _up(plan: Plan, began: float) -> None:
    async with new_stack(plan) as stack:
        check_ports(plan)
        stopping = asyncio.Event()
        starting = asyncio.ensure_future(stack.start())

        def stop() -> None:
            if stopping.is_set():
                stack.kill()
            stopping.set()
            starting.cancel()

        with stop_signals(stop):
            try:
                _print_stack(await starting)
                took = time.monotonic() - began
                output.stdout().print(
                    f"[bold green]ready[/bold green] in {took:.1f} s. Ctrl-C stops it."
                )
                await stopping.wait()
            except asyncio.CancelledError:
                if not stopping.is_set():
                    raise
            finally:
                output.stdout().print("stopping")
                await stack.stop()


def _print_stack(running: RunningStack) -> None:
    rows = [
        (part.name, str(part.pid), part.address, str(urlsplit(part.metrics).port or ""))
        for part in running.parts
    ]
    output.print_table(("component", "process", "address", "metrics port"), rows)
    pairs = [
        ("broker", str(Url(running.url))),
        ("networks", ", ".join(running.networks)),
    ]
    if running.private_network:
        text = f"{running.private_network}; {OPEN_NETWORK} ability-search up opens it to all agents"
        pairs.append(("private", text))
    if any(kind_of(part.name) == "worker" for part in running.parts):
        pairs.append(("offers", ", ".join(f"{name}-*" for name in ("search", *running.offer))))
    output.print_pairs([*pairs, ("model", running.model)])


@command(app, "status")
def status(data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Show the stack running in the data directory; exit code 3 if there is none.

    Example:
        ability-search status
    """
    _, running = _running(data_dir)
    if not as_json:
        _print_stack(running)
        return
    shown = asdict(running) | {"url": str(Url(running.url))}
    del shown["environ"]
    output.print_json(shown)


def _running(data_dir: Path | None) -> tuple[Path, RunningStack]:
    """Return the data directory and the stack in it; exit if there is none."""
    directory = data_dir or client_settings().files.data_dir
    running = read_running(directory)
    if running is None:
        output.fail(f"no stack is running in {directory}", "Start one with `ability-search up`.")
        raise typer.Exit(NOT_FOUND)
    return directory, running


def _terminate(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        pass  # It was killed, and its components are exiting.
    except PermissionError as exc:
        raise InvalidInput("--data-dir", f"process {pid} belongs to another user") from exc


@command(app, "prune")
def prune(data_dir: DataDirOption = None) -> None:
    """Remove the texts of deleted documents from the log of the running database.

    The engine keeps recent changes, with their texts, in its log until it restarts.
    This command restarts the database; calls wait for it meanwhile. Exit code 3
    means that no stack with a database is running in the data directory.

    Example:
        ability-search prune
    """
    directory, running = _running(data_dir)
    before = _database_pid(running)
    if not before:
        output.fail(f"the stack in {directory} runs no database")
        raise typer.Exit(NOT_FOUND)
    _terminate(before)

    async def replaced() -> None:
        async with asyncio.timeout(_RESTART_SECONDS):
            while _database_pid(read_running(directory)) in (0, before):  # noqa: ASYNC110 - a file
                await asyncio.sleep(_POLL_SECONDS)

    try:
        asyncio.run(replaced())
    except TimeoutError as exc:
        output.fail(f"the database did not restart within {_RESTART_SECONDS:g} s")
        raise typer.Exit(FAILED) from exc
    output.stdout().print("pruned")


def _database_pid(running: RunningStack | None) -> int:
    parts = running.parts if running else ()
    return next((part.pid for part in parts if part.name == "database"), 0)


@command(app, "down")
def down(data_dir: DataDirOption = None) -> None:
    """Stop the stack running in the data directory; exit code 3 if there is none.

    Example:
        ability-search down
    """
    directory, running = _running(data_dir)
    _terminate(running.pid)
    if not asyncio.run(released(directory, timeout=_DOWN_SECONDS)):
        output.fail(f"process {running.pid} did not stop within {_DOWN_SECONDS:g} s")
        raise typer.Exit(FAILED)
    output.stdout().print("stopped")
