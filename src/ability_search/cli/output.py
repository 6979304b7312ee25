"""What people and programs see: tables or JSON on stdout, everything else on stderr."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

_CONTROLS = {code: "\N{REPLACEMENT CHARACTER}" for code in (*range(32), *range(127, 160))}
_CONTROLS.update({ord("\t"): " ", ord("\n"): "\n", ord("\r"): None})


def stdout() -> Console:
    """A console on standard output as it is now."""
    return Console(highlight=False)


def stderr() -> Console:
    """A console on standard error as it is now."""
    return Console(stderr=True, highlight=False)


def plain(text: object) -> str:
    """Text of somebody else, without what would control the terminal or be read as markup."""
    return escape(str(text).translate(_CONTROLS))


def print_json(value: Any) -> None:
    """One JSON document for a program, in ASCII, so that no locale can spoil it."""
    typer.echo(json.dumps(value, indent=2))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table for people; columns of numbers are aligned to the right."""
    table = Table(title=title or None, title_justify="left", header_style="bold")
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
    table = Table.grid(padding=(0, 2))
    for name, value in pairs:
        if value is not None:
            table.add_row(f"[bold]{plain(name)}[/bold]", _cell(value))
    stdout().print(table)


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
