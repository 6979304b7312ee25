"""Terminal output: tables or JSON on stdout, everything else on stderr."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

_DIRECTIONS = (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Bidirectional controls, which reorder what a terminal shows after them."""
_CONTROLS = dict.fromkeys(
    (*range(32), *range(127, 160), 0x2028, 0x2029, *_DIRECTIONS), "\N{REPLACEMENT CHARACTER}"
)
_UNITS = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
_CONTROLS |= {ord("\t"): " ", ord("\r"): ""}
_CONTROLS_OF_LINES = _CONTROLS | {ord("\n"): "\n"}


def stdout() -> Console:
    """Return a console for the current standard output."""
    return _console(stderr=False)


def stderr() -> Console:
    """Return a console for the current standard error."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    """Return a console that ends the lines of a terminal between words, and no others."""
    console = Console(stderr=stderr, emoji=False, highlight=False)
    console.soft_wrap = not console.file.isatty()
    return console


def print_indented(out: Console, text: str, indent: int) -> None:
    """Print markup with spaces before each line, also where a terminal begins a new one."""
    if out.soft_wrap:
        out.print(f"{'':{indent}}{text}")
    else:
        out.print(Padding(text, (0, 0, 0, indent), expand=False))


def plain(text: object, *, lines: bool = False) -> str:
    """Return untrusted text on one line, without control characters and with markup escaped.

    With ``lines`` its line breaks are kept.
    """
    return escape(_printable(text, _CONTROLS_OF_LINES if lines else _CONTROLS))


def _printable(text: object, controls: Mapping[int, str] = _CONTROLS) -> str:
    return str(text).encode("utf-8", "backslashreplace").decode().translate(controls)


def print_json(value: Any) -> None:
    """Print a JSON document, in ASCII so that it does not depend on the locale."""
    typer.echo(json.dumps(value, indent=2))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, words: Container[str] | None = None
) -> None:
    """Print a table, one line for each row; columns of numbers are right-aligned.

    If a terminal is too narrow, each row is printed as pairs instead. No cell is ever broken.

    Args:
        columns: Names of the columns; a name may have two lines.
        rows: Values of the columns.
        words: Columns of text; the others are numbers. Default: by the types of the values.
    """
    found = [tuple(row) for row in rows]
    titles = [column.split("\n") for column in columns]
    most = max(map(len, titles), default=1)
    # Shorter names are on the last line.
    heads = [*zip(*([*[""] * (most - len(lines)), *lines] for lines in titles), strict=True)]
    cells = [*heads, *([_cell(value) for value in row] for row in found)]
    numbers = [
        bool(found) and all(isinstance(row[place], int | float) for row in found)
        if words is None
        else column not in words
        for place, column in enumerate(columns)
    ]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    out = stdout()
    if out.is_terminal and sum(widths) + 2 * len(widths) - 2 > out.width:
        names = [column.replace("\n", "") for column in columns]
        for row in found:
            print_pairs(zip(names, row, strict=True))
            out.print()
        return
    for place, line_cells in enumerate(cells):
        padded = []
        for cell, width, number in zip(line_cells, widths, numbers, strict=True):
            room = " " * (width - cell_len(cell))
            padded.append(room + cell if number else cell + room)
        line = "  ".join(padded).rstrip()
        out.print(line, markup=False, style="bold" if place < len(heads) else None)


def print_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one pair per line; ``None`` values are omitted."""
    shown = [(name, value) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    out = stdout()
    for name, value in shown:
        out.print(f"[bold]{plain(name):<{width}}[/bold]  {escape(_cell(value))}")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun; the plural of the noun must end in s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(count: int) -> str:
    """Format a number of bytes in the largest unit that gives at least 1."""
    for unit, length in _UNITS:
        if count >= length:
            return f"{count / length:,.1f} {unit}"
    return counted(count, "byte")


def moment(text: str) -> str:
    """Shorten an RFC 3339 instant to minutes, for tables."""
    return text[:16].replace("T", " ")


def say(text: str) -> None:
    """Print a message to stderr."""
    stderr().print(plain(text, lines=True))


def warn(text: str) -> None:
    """Print a warning to stderr."""
    stderr().print(f"[yellow]warning:[/yellow] {plain(text, lines=True)}")


def fail(text: str, hint: str = "") -> None:
    """Print an error and its hint to stderr."""
    console = stderr()
    console.print(f"[bold red]error:[/bold red] {plain(text, lines=True)}")
    if hint:
        console.print(f"[bold]hint:[/bold] {plain(hint, lines=True)}")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return _printable(value)
