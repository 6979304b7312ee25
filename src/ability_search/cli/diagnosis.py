"""`doctor` and `top`: check the components, and show their live metrics."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import httpx
import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ability_search.cli import output
from ability_search.cli.app import FAILED, NOT_FOUND, app, command
from ability_search.cli.clients import choose_target, client_settings
from ability_search.cli.parameters import BrokerOption, DataDirOption, JsonOption
from ability_search.errors import ConfigurationError, InvalidInput
from ability_search.ops import logs
from ability_search.ops.figures import (
    CallFigures,
    ComponentFigures,
    Figures,
    Sampler,
    metrics_client,
)
from ability_search.ops.metrics.metric_table import PATH
from ability_search.stack.data_directory import read_running
from ability_search.stack.lifecycle import run_until_stopped

if TYPE_CHECKING:
    from ability_search.components.health_checks import Check

_MIB = 1024 * 1024
_CHECK_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red", "skip": "yellow"}
_COMPONENT_COLOURS = {"up": "green", "gone": "bold red", "refused": "yellow"}


@command(app, "doctor")
def doctor(
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the problems.")] = False,
    broker: BrokerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check every component and suggest remedies; exit code 1 if a check fails.

    The checks cover the installation, the settings, the clock, the disk, the
    broker, the tools on the network, a database query, an embedding and the
    worker. Each is printed as it ends, within about a minute; what depends on one
    that failed is skipped.

    Example:
        ability-search doctor
        ability-search doctor --quiet || echo "unhealthy"
    """
    from ability_search.components import health_checks

    logs.configure("error", "pretty", component="doctor")
    made = _Checks(quiet=quiet, shown=not as_json)
    made.add(*health_checks.check_installation())
    settings, checks = health_checks.check_settings()
    made.add(*checks)
    if settings is not None:
        made.add(*health_checks.check_machine(settings))
        try:
            target = choose_target(settings, broker)
        except ConfigurationError as exc:
            made.add(health_checks.Check("broker", "fail", str(exc), exc.hint or ""))
        else:
            asyncio.run(made.add_all(health_checks.check_network(settings, target)))
    if as_json:
        output.print_json([asdict(check) for check in made.checks])
    if any(check.state == "fail" for check in made.checks):
        raise typer.Exit(FAILED)


@dataclass(slots=True)
class _Checks:
    """The checks made so far, each printed when it is added if they are ``shown``."""

    quiet: bool
    shown: bool
    checks: list[Check] = field(default_factory=list)

    async def add_all(self, checks: AsyncIterator[Check]) -> None:
        async for check in checks:
            self.add(check)

    def add(self, *checks: Check) -> None:
        for check in checks:
            if self.shown and not (self.quiet and check.state == "ok"):
                self._show(check)
            self.checks.append(check)

    def _show(self, check: Check) -> None:
        """Print a check, and its remedy unless an earlier one has the same."""
        out, colour = output.stdout(), _CHECK_COLOURS[check.state]
        out.print(
            f"[{colour}]{check.state:<4}[/{colour}] {check.name:<10} {output.plain(check.text)}"
        )
        if check.remedy and all(check.remedy != earlier.remedy for earlier in self.checks):
            output.print_indented(out, output.plain(check.remedy), 16)


@command(app, "top")
def top(
    url: Annotated[
        list[str] | None,
        typer.Option(
            "--url",
            help="Address of metrics, instead of those of the running stack; repeatable.",
            show_default=False,
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit.")] = False,
    as_json: JsonOption = False,
    interval: Annotated[
        float,
        typer.Option("--interval", metavar="SECONDS", min=0.1, help="Time between two updates."),
    ] = 1.0,
    data_dir: DataDirOption = None,
) -> None:
    """Show live metrics of the components: calls, latencies, failures, queues, memory.

    Rates and latencies cover the last ten seconds; the first update covers the time
    since the start. A component that does not answer is shown as gone until it
    returns. Stop with Ctrl-C. Without a terminal, `top` prints once and exits; with
    --json it prints one object per line. Exit code 3 means that no stack is running
    or, when printing once, that all components are gone.

    Example:
        ability-search top
        ability-search top --once --json
        ability-search top --url http://127.0.0.1:9401 --url http://127.0.0.1:9402
    """
    settings = client_settings()
    token = settings.metrics.token
    directory = data_dir or settings.files.data_dir
    stack = StackAddresses([_address(each) for each in url or ()], directory)
    if not stack.addresses():
        output.fail(
            f"no stack is running in {directory}",
            "Start one with `ability-search up`, or set the address of metrics with --url.",
        )
        raise typer.Exit(NOT_FOUND)
    client = metrics_client(token.get_secret_value() if token else None)
    sampler = Sampler(stack.addresses)
    terminal = output.stdout().is_terminal
    if once or not (as_json or terminal):
        figures = asyncio.run(_once(client, sampler))
        if as_json:
            output.print_json(figures.as_json())
        else:
            output.stdout().print(_draw(figures))
        if all(part.state == "gone" for part in figures.parts):
            raise typer.Exit(NOT_FOUND)
    else:
        asyncio.run(run_until_stopped(_follow(client, sampler, interval, as_json)))


@dataclass(slots=True)
class StackAddresses:
    """The addresses of metrics: given ones, or those of the stack in a data directory."""

    urls: Sequence[str]
    directory: Path
    _last: Mapping[str, str] = field(default_factory=dict)

    def addresses(self) -> Mapping[str, str]:
        """Return address -> component name; the last known ones if the stack is gone."""
        if self.urls:
            return dict.fromkeys(self.urls, "")
        running = read_running(self.directory)
        if running is not None:
            self._last = {part.metrics: part.name for part in running.parts if part.metrics}
        return self._last


def _address(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput("--url", "expected an address like http://127.0.0.1:9401")
    return url if parts.path.strip("/") else f"{url.rstrip('/')}{PATH}"


async def _once(client: httpx.AsyncClient, sampler: Sampler) -> Figures:
    async with client:
        return await sampler.read(client)


async def _follow(
    client: httpx.AsyncClient, sampler: Sampler, interval: float, as_json: bool
) -> None:
    screen = Live(console=output.stdout(), screen=True, auto_refresh=False)
    async with client:
        with nullcontext() if as_json else screen:
            while True:
                figures = await sampler.read(client)
                if as_json:
                    typer.echo(json.dumps(figures.as_json()))
                else:
                    screen.update(_draw(figures), refresh=True)
                await asyncio.sleep(interval)


def _draw(figures: Figures) -> RenderableType:
    """Render the figures for a terminal, components and tools first."""
    over = "" if figures.seconds is None else f" over {figures.seconds:,.0f} s"
    since = " since the start" if figures.from_start else ""
    moment = time.strftime("%H:%M:%S", time.localtime(figures.at))
    return Group(
        Text(f"{moment}  rates and latencies{since}{over}", style="bold"),
        _component_table(figures.parts),
        _call_table("tool", figures.tools),
        _further_table(figures),
        _call_table("call to another component", figures.rpc),
        _call_table("stage of a query", figures.stages, failures=False),
    )


def _component_table(lines: Sequence[ComponentFigures]) -> Table:
    table = _table("component", "state", "in flight", "waiting", "memory MiB", text=2)
    for line in lines:
        style = _COMPONENT_COLOURS[line.state]
        gone = line.state != "up"
        table.add_row(
            output.plain(line.name),
            f"[{style}]{line.state}[/{style}]",
            *("" if gone else f"{n:,.0f}" for n in (line.in_flight, line.waiting)),
            "" if gone or not line.memory else f"{line.memory / _MIB:,.0f}",
        )
    return table


def _call_table(title: str, lines: Sequence[CallFigures], *, failures: bool = True) -> Table:
    counted = ("calls", "failed") if failures else ("times",)
    table = _table(title, *counted, "per s", "p50 ms", "p95 ms", text=1)
    for line in lines:
        failed = f"[red]{line.failed:,.0f}[/red]" if line.failed else "0"
        table.add_row(
            output.plain(line.name),
            f"{line.calls:,.0f}",
            *((failed,) if failures else ()),
            "" if line.per_second is None else f"{line.per_second:,.1f}",
            _milliseconds(line.p50),
            _milliseconds(line.p95),
        )
    return table


def _further_table(figures: Figures) -> Table:
    rate = figures.embedding.per_second
    heap, most = figures.database["heapUsed"], figures.database["heapMax"]
    opened = ", ".join(figures.breakers_open)
    table = Table.grid(padding=(0, 2))
    for name, value in (
        (
            "embedding",
            f"{rate or 0:,.1f} texts/s; {figures.embedding.embedded:,.0f} embedded,"
            f" {figures.embedding.reused:,.0f} reused; queued {_named(figures.queued_texts)}",
        ),
        ("chunks", f"{figures.chunks.indexed:,.0f} indexed, {figures.chunks.deleted:,.0f} deleted"),
        ("breakers", f"[bold red]open: {output.plain(opened)}[/bold red]" if opened else "closed"),
        ("degraded", _named(figures.degraded)),
        ("retries", _named(figures.retries)),
        (
            "database",
            f"heap {heap / _MIB:,.0f} of {most / _MIB:,.0f} MiB,"
            f" {figures.database['engineCalls']:,.0f} calls in the engine,"
            f" {figures.database['conflicts']:,.0f} conflicts",
        ),
        (
            "broker",
            f"{figures.broker['sessions']:,.0f} sessions,"
            f" {figures.broker['outboxBytes']:,.0f} bytes in outboxes,"
            f" {figures.broker['refused']:,.0f} requests refused",
        ),
        ("worker", f"{figures.jobs:,.0f} jobs, {figures.collections:,.0f} collections known"),
    ):
        table.add_row(f"[bold]{name}[/bold]", value)
    return table


def _table(*columns: str, text: int) -> Table:
    """Return a table whose first ``text`` columns hold text and the others numbers."""
    table = Table(header_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, column in enumerate(columns):
        table.add_column(
            column, justify="left" if place < text else "right", min_width=28 if not place else 8
        )
    return table


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:,.1f}"


def _named(counts: Mapping[str, float]) -> str:
    return (
        ", ".join(f"{output.plain(name)} {count:,.0f}" for name, count in counts.items()) or "none"
    )
