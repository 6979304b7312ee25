"""Rendering of the metrics that `top` shows."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ability_search.cli.output import plain
from ability_search.cli.picture import CallLine, PartLine, Picture

_MIB = 1024 * 1024
_STATES = {"up": "green", "gone": "bold red", "refused": "yellow"}


def draw(picture: Picture) -> RenderableType:
    """Render the figures for a terminal, components and tools first."""
    over = "" if picture.seconds is None else f" over {picture.seconds:,.0f} s"
    since = " since the start" if picture.from_start else ""
    moment = time.strftime("%H:%M:%S", time.localtime(picture.at))
    return Group(
        Text(f"{moment}  rates and latencies{since}{over}", style="bold"),
        _parts(picture.parts),
        _calls("tool", picture.tools),
        _further(picture),
        _calls("call to another component", picture.rpc),
        _calls("stage of a query", picture.stages, failures=False),
    )


def _parts(lines: Sequence[PartLine]) -> Table:
    table = _table("component", "state", "in flight", "waiting", "memory MiB", text=2)
    for line in lines:
        style = _STATES[line.state]
        gone = line.state != "up"
        table.add_row(
            plain(line.name),
            f"[{style}]{line.state}[/{style}]",
            *("" if gone else f"{n:,.0f}" for n in (line.in_flight, line.waiting)),
            "" if gone or not line.memory else f"{line.memory / _MIB:,.0f}",
        )
    return table


def _calls(title: str, lines: Sequence[CallLine], *, failures: bool = True) -> Table:
    counted = ("calls", "failed") if failures else ("times",)
    table = _table(title, *counted, "per s", "p50 ms", "p95 ms", text=1)
    for line in lines:
        failed = f"[red]{line.failed:,.0f}[/red]" if line.failed else "0"
        table.add_row(
            plain(line.name),
            f"{line.calls:,.0f}",
            *((failed,) if failures else ()),
            "" if line.per_second is None else f"{line.per_second:,.1f}",
            _milliseconds(line.p50),
            _milliseconds(line.p95),
        )
    return table


def _further(picture: Picture) -> Table:
    rate = picture.embedded_per_second
    heap, most = picture.database["heapUsed"], picture.database["heapMax"]
    opened = ", ".join(picture.breakers_open)
    table = Table.grid(padding=(0, 2))
    for name, value in (
        (
            "embedding",
            f"{rate or 0:,.1f} texts/s; {picture.embedded:,.0f} embedded,"
            f" {picture.reused:,.0f} reused; queued {_named(picture.queued_texts)}",
        ),
        ("chunks", f"{picture.chunks_indexed:,.0f} indexed, {picture.chunks_deleted:,.0f} deleted"),
        ("breakers", f"[bold red]open: {plain(opened)}[/bold red]" if opened else "closed"),
        ("degraded", _named(picture.degraded)),
        ("retries", _named(picture.retries)),
        (
            "database",
            f"heap {heap / _MIB:,.0f} of {most / _MIB:,.0f} MiB,"
            f" {picture.database['engineCalls']:,.0f} calls in the engine,"
            f" {picture.database['conflicts']:,.0f} conflicts",
        ),
        (
            "broker",
            f"{picture.broker['sessions']:,.0f} sessions,"
            f" {picture.broker['outboxBytes']:,.0f} bytes in outboxes,"
            f" {picture.broker['refused']:,.0f} requests refused",
        ),
        ("worker", f"{picture.jobs:,.0f} jobs, {picture.collections:,.0f} collections known"),
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
    return ", ".join(f"{plain(name)} {count:,.0f}" for name, count in counts.items()) or "none"
