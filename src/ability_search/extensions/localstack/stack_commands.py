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

from ability_search.config.running_stack import RunningStack, read_running
from ability_search.config.schema import Settings
from ability_search.config.setting_fields import Url
from ability_search.errors import InvalidInput
from ability_search.extension import loaded
from ability_search.extensions.cli import output
from ability_search.extensions.cli.app import FAILED, NOT_FOUND, app, command
from ability_search.extensions.cli.clients import client_settings
from ability_search.extensions.cli.component_run import prepare
from ability_search.extensions.cli.lifecycle import stop_signals
from ability_search.extensions.cli.parameters import DataDirOption, JsonOption, port_option
from ability_search.extensions.localstack.data_directory import released
from ability_search.extensions.localstack.settings import LocalBroker, Models
from ability_search.extensions.localstack.stack_plan import Plan, added_address, check_ports
from ability_search.extensions.localstack.supervisor import new_stack
from ability_search.ops import logs
from ability_search.ops.extras import EXTRAS, install_command, missing_modules

_OWN = frozenset({"backplane", "broker", "database", "models", "worker"})
"""The components that a stack starts by itself; those of other extensions are added."""
_DOWN_SECONDS = 90.0
_RESTART_SECONDS = 60.0
_POLL_SECONDS = 0.1


@command(app, "up")
def up(
    data_dir: DataDirOption = None,
    port: Annotated[
        int | None,
        port_option(
            "--port",
            "Port of the broker, several use the following ports; 0 for free ports."
            "  [default: local_broker_port]",
        ),
    ] = None,
    models_port: Annotated[
        int | None,
        port_option(
            "--models-port", "Port of the embeddings HTTP API.  [default: model_http_port]"
        ),
    ] = None,
    brokers: Annotated[
        int,
        typer.Option(min=1, max=16, help="Number of brokers, which are one network over NATS."),
    ] = 1,
    workers: Annotated[int, typer.Option(min=0, max=64, help="Number of workers.")] = 1,
    no_broker: Annotated[
        bool, typer.Option("--no-broker", help="Use the configured broker instead.")
    ] = False,
    no_database: Annotated[
        bool, typer.Option("--no-database", help="Use a database that is on the network.")
    ] = False,
    memory: Annotated[
        bool,
        typer.Option("--memory", help="Keep everything in memory, without a database."),
    ] = False,
    no_models: Annotated[
        bool, typer.Option("--no-models", help="Use an embedder that is elsewhere.")
    ] = False,
    gateway_port: Annotated[
        int | None,
        port_option(
            "--gateway-port", "Port of the gateway (HTTP and MCP).  [default: gateway_port]"
        ),
    ] = None,
    no_gateway: Annotated[
        bool, typer.Option("--no-gateway", help="Do not start a gateway.")
    ] = False,
    metrics_port: Annotated[
        int | None,
        port_option(
            "--metrics-port",
            "Port of the broker's metrics; the other components use the following ports."
            " 0 for free ports.  [default: metrics_port, else 0]",
        ),
    ] = None,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Show the log of the components, not only warnings."),
    ] = False,
) -> None:
    """Run a stack: broker, database, model manager, workers and gateway.

    A component that dies is restarted. Ctrl-C or SIGTERM stops everything in order.
    The data stays in the data directory. The other commands use that directory to
    find the stack: with a --data-dir other than the default, set SEARCH_DATA_DIR
    for them. New collections use the configured embedding model if the stack serves
    it, otherwise all-MiniLM-L6-v2.

    Example:
        ability-search up
        ability-search up --data-dir ./data --port 0 --workers 2
        ability-search up --brokers 3 --workers 4
        ability-search up --memory
    """
    began = time.monotonic()
    if memory and workers > 1:
        raise typer.BadParameter("workers do not share their memory", param_hint="--workers")
    if no_broker and brokers > 1:
        raise typer.BadParameter("--no-broker starts none", param_hint="--brokers")
    settings = prepare("up", join=False)
    log_level = settings.logging.level if _shows_log(settings, verbose) else "warning"
    logs.configure(log_level, settings.logging.format, component="up")
    if port is None:
        port = settings.of(LocalBroker).port
    if models_port is None:
        models_port = settings.of(Models).http_port if port else 0
    if gateway_port is None:
        gateway_port = added_address("gateway", settings)[1] if port else 0
    plan = Plan(
        settings=settings,
        data_dir=data_dir or settings.files.data_dir,
        port=None if no_broker else port,
        models_port=models_port,
        metrics_port=(settings.metrics.port or 0) if metrics_port is None else metrics_port,
        log_level=log_level,
        brokers=brokers,
        workers=workers,
        database=not (no_database or memory),
        models=not no_models,
        added=added_ports(None if no_gateway else gateway_port),
        environ={"SEARCH_DATABASE_MEMORY": "true"} if memory else {},
    )
    asyncio.run(_up(plan, began))
    output.stdout().print("stopped")


def _shows_log(settings: Settings, verbose: bool) -> bool:
    """Return whether to show the log of the components: on request, or as JSON for a collector."""
    return verbose or "SEARCH_LOG_LEVEL" in os.environ or settings.logging.format == "json"


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
                _show(await starting, began)
                await stopping.wait()
            except asyncio.CancelledError:
                if not stopping.is_set():
                    raise
            finally:
                output.stdout().print("stopping")
                await stack.stop()


def _show(running: RunningStack, began: float) -> None:
    _print_stack(running)
    output.stdout().print(
        f"[bold green]ready[/bold green] in {time.monotonic() - began:.1f} s. Ctrl-C stops it."
    )


def _print_stack(running: RunningStack) -> None:
    rows = [
        (part.name, str(part.pid), part.address, str(urlsplit(part.metrics).port or ""))
        for part in running.parts
    ]
    output.print_table(("component", "process", "address", "metrics port"), rows)
    output.print_pairs(
        [
            ("broker", str(Url(running.url))),
            ("networks", ", ".join(running.networks)),
            ("model", running.model),
        ]
    )


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
    if not asyncio.run(_is_replaced(directory, before)):
        output.fail(f"the database did not restart within {_RESTART_SECONDS:g} s")
        raise typer.Exit(FAILED)
    output.stdout().print("pruned")


def _database_pid(running: RunningStack | None) -> int:
    parts = running.parts if running else ()
    return next((part.pid for part in parts if part.name == "database"), 0)


async def _is_replaced(directory: Path, before: int) -> bool:
    try:
        async with asyncio.timeout(_RESTART_SECONDS):
            while _database_pid(read_running(directory)) in (0, before):  # noqa: ASYNC110 - a file
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        return False
    return True


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
