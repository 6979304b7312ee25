"""What people and programs see: tables or JSON on stdout, everything else on stderr."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

_CONTROLS = dict.fromkeys((*range(32), *range(127, 160)), "\N{REPLACEMENT CHARACTER}")
_UNITS = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
_CONTROLS |= {ord("\t"): " ", ord("\n"): "\n", ord("\r"): ""}


def stdout() -> Console:
    """A console on standard output as it is now."""
    return Console(highlight=False)


def stderr() -> Console:
    """A console on standard error as it is now."""
    return Console(stderr=True, highlight=False)


def plain(text: object) -> str:
    """Text of somebody else, without what would control the terminal or be read as markup."""
    printable = str(text).encode("utf-8", "backslashreplace").decode()
    return escape(printable.translate(_CONTROLS))


def print_json(value: Any) -> None:
    """One JSON document for a program, in ASCII, so that no locale can spoil it."""
    typer.echo(json.dumps(value, indent=2))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table for people; columns of numbers are aligned to the right."""
    table = Table(header_style="bold")
    materialised = [tuple(row) for row in rows]
    for place, column in enumerate(columns):
        numbers = all(isinstance(row[place], int | float) for row in materialised)
        table.add_column(
            column, justify="right" if numbers and materialised else "left", overflow="fold"
        )
    for row in materialised:
        table.add_row(*(_cell(value) for value in row))
    stdout().print(table)


def print_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """Names and values, one pair a line; values that are ``None`` are left out."""
    shown = [(name, value) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    out = stdout()
    for name, value in shown:
        out.print(f"[bold]{plain(name):<{width}}[/bold]  {_cell(value)}", soft_wrap=True)


def counted(number: int, noun: str) -> str:
    """A number with what it counts; the plural of the noun ends in s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(count: int) -> str:
    """A number of bytes, in the unit that leaves it at least 1."""
    for unit, length in _UNITS:
        if count >= length:
            return f"{count / length:,.1f} {unit}"
    return counted(count, "byte")


def moment(text: str) -> str:
    """An RFC 3339 instant to the minute, as short as a table likes it."""
    return text[:16].replace("T", " ")


def warn(text: str) -> None:
    """A warning on stderr."""
    stderr().print(f"[yellow]warning:[/yellow] {plain(text)}", soft_wrap=True)


def fail(text: str, hint: str = "") -> None:
    """An error on stderr, with what can be done about it."""
    console = stderr()
    console.print(f"[bold red]error:[/bold red] {plain(text)}", soft_wrap=True)
    if hint:
        console.print(f"[bold]hint:[/bold] {plain(hint)}", soft_wrap=True)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return plain(value)
