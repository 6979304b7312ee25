"""Chunk sizes, growth and the map of a collection, drawn with characters."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from string import ascii_lowercase
from typing import Annotated, Any

import typer

from ability_search.cli import output

_BAR = 40
_WIDTH, _HEIGHT = 72, 22
"""Characters of a bar, and of a map."""
_SHOWN = {"hour": 16, "day": 10, "week": 10, "month": 7, "year": 4}
"""Characters of an instant that name the period which begins there."""


class Part(StrEnum):
    """What `info` can include."""

    TOKENS = "tokens"
    GROWTH = "growth"
    MAP = "map"


IncludeOption = Annotated[
    list[Part] | None,
    typer.Option(
        help="Chunk sizes, what was indexed when, or a map of the chunks as well; may be repeated."
    ),
]


def print_overview(answer: Mapping[str, Any]) -> None:
    """Print what an answer of search-collection-info includes."""
    if sizes := answer.get("tokens"):
        title = "chunks of a sample" if sizes["sampled"] else "chunks"
        names = [f"{each['minTokens']:,}-{each['maxTokens']:,}" for each in sizes["bins"]]
        _print_bars("tokens", names, {title: [each["chunks"] for each in sizes["bins"]]})
    if growth := answer.get("growth"):
        periods, shown = growth["periods"], _SHOWN[growth["unit"]]
        names = [each["start"][:shown].replace("T", " ") for each in periods]
        counts = {what: [each[what] for each in periods] for what in ("sources", "chunks")}
        _print_bars(f"{growth['unit']} (UTC)", names, counts)
    if drawn := answer.get("map"):
        _print_map(drawn)


def _print_bars(head: str, names: Sequence[str], counts: Mapping[str, Sequence[int]]) -> None:
    """A table with a bar for each of the counts that are given last."""
    values = [*counts.values()][-1]
    most = max(values, default=0)
    bars = ["█" * -(-_BAR * value // most) for value in values]
    output.print_table((head, *counts, ""), list(zip(names, *counts.values(), bars, strict=True)))


def _print_map(drawn: Mapping[str, Any]) -> None:
    """A letter for each place where there are chunks, by the source most of them are from."""
    points = drawn["points"]
    x, y = (f"{100 * share:.0f} %" for share in drawn["explainedVariance"])
    out = output.stdout()
    out.print(f"{len(points):,} of {drawn['chunks']:,} chunks; {x} of the variance across, {y} up")
    if not points:
        return
    sources = Counter(point["source"] for point in points).most_common()
    letters = {
        source: letter for (source, _), letter in zip(sources, ascii_lowercase, strict=False)
    }
    for line in _grid(points, letters):
        out.print(line, markup=False)
    for source, count in sources[: len(letters)]:
        out.print(f"  {letters[source]}  {output.plain(source)} ({count:,})", soft_wrap=True)
    if others := len(sources) - len(letters):
        out.print(f"  *  {others:,} further sources")


def _grid(points: Sequence[Mapping[str, Any]], letters: Mapping[str, str]) -> Iterable[str]:
    across, up = (_placed([point[axis] for point in points]) for axis in ("x", "y"))
    cells: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    for point, column, row in zip(points, across, up, strict=True):
        place = round((1 - row) * (_HEIGHT - 1)), round(column * (_WIDTH - 1))
        cells[place][letters.get(point["source"], "*")] += 1
    for row in range(_HEIGHT):
        line = (cells.get((row, column)) for column in range(_WIDTH))
        yield "".join(cell.most_common(1)[0][0] if cell else " " for cell in line).rstrip()


def _placed(values: Sequence[float]) -> list[float]:
    """Values in [0, 1], from the least to the most; those that are all the same in the middle."""
    least, most = min(values), max(values)
    return [(value - least) / (most - least) if most > least else 0.5 for value in values]
