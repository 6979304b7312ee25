"""Text charts of a collection: chunk sizes, growth and the map."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from math import log
from string import ascii_lowercase
from typing import Annotated, Any

import typer

from ability_search.cli import output

_BAR = 32
_WIDTH, _HEIGHT = 72, 22
"""Length of a bar, and size of a map, in characters."""
_SHOWN = {"minute": 16, "hour": 16, "day": 10, "week": 10, "month": 7, "year": 4}
"""Length of the prefix of an instant that identifies a period, by unit."""


class Chart(StrEnum):
    """The values of `info --include`."""

    TOKENS = "tokens"
    GROWTH = "growth"
    MAP = "map"


ChartsOption = Annotated[
    list[Chart] | None,
    typer.Option(
        help="Also show chunk sizes, growth over time or a map of the chunks; repeatable."
    ),
]


def print_charts(answer: Mapping[str, Any]) -> None:
    """Print the charts that an answer of search-collection-info includes."""
    if sizes := answer.get("tokens"):
        title = "chunks of a sample" if sizes["sampled"] else "chunks"
        names = [_span(each["minTokens"], each["maxTokens"]) for each in sizes["bins"]]
        _print_bars("tokens", names, {title: [each["chunks"] for each in sizes["bins"]]})
    if growth := answer.get("growth"):
        periods, shown = growth["periods"], _SHOWN[growth["unit"]]
        names = [each["start"][:shown].replace("T", " ") for each in periods]
        counts = {what: [each[what] for each in periods] for what in ("sources", "chunks")}
        _print_bars(f"{growth['unit']} (UTC)", names, counts)
    if drawn := answer.get("map"):
        _print_map(drawn)


def _span(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,}-{most:,}"


def _print_bars(head: str, names: Sequence[str], counts: Mapping[str, Sequence[int]]) -> None:
    """Print a table with a bar for each value of the last column."""
    values = [*counts.values()][-1]
    most = max(values, default=0)
    bars = ["█" * -(-_BAR * value // most) for value in values]
    output.print_table((head, *counts, ""), list(zip(names, *counts.values(), bars, strict=True)))


def _print_map(drawn: Mapping[str, Any]) -> None:
    """Print the map: each cell shows the letter of the source that has most of its chunks."""
    points = drawn["points"]
    x, y = (f"{100 * share:.0f} %" for share in drawn["explainedVariance"])
    out = output.stdout()
    out.print(f"{len(points):,} of {drawn['chunks']:,} chunks; {x} of the variance across, {y} up")
    if not points:
        return
    groups = _groups([point["source"] for point in points])
    letters = dict(zip(dict(Counter(groups).most_common()), ascii_lowercase, strict=False))
    for line in _grid(points, [letters.get(group, "*") for group in groups]):
        out.print(line, markup=False)
    for group, letter in letters.items():
        out.print(f"  {letter}  {output.plain(group)} ({groups.count(group):,})", soft_wrap=True)
    if others := len(set(groups)) - len(letters):
        out.print(f"  *  {others:,} others")


def _groups(sources: Sequence[str]) -> list[str]:
    """Return the group of each source: itself, or its folder at the depth of highest entropy."""
    folders = [source.split("/")[:-1] for source in sources]
    ways = (
        ["/".join(each[:depth]) or "no folder" for each in folders]
        for depth in range(1, max(map(len, folders)) + 1)
    )
    return max([list(sources), *ways], key=_entropy)


def _entropy(groups: Sequence[str]) -> float:
    """Return the entropy of the letters of groups, in nats."""
    counts = [count for _, count in Counter(groups).most_common()]
    lettered = counts[: len(ascii_lowercase)]
    shares = [count / len(groups) for count in (*lettered, len(groups) - sum(lettered)) if count]
    return -sum(share * log(share) for share in shares)


def _grid(points: Sequence[Mapping[str, Any]], letters: Sequence[str]) -> Iterable[str]:
    across, up = (_placed([point[axis] for point in points]) for axis in ("x", "y"))
    cells: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    for letter, column, row in zip(letters, across, up, strict=True):
        place = round((1 - row) * (_HEIGHT - 1)), round(column * (_WIDTH - 1))
        cells[place][letter] += 1
    for row in range(_HEIGHT):
        line = (cells.get((row, column)) for column in range(_WIDTH))
        yield "".join(cell.most_common(1)[0][0] if cell else " " for cell in line).rstrip()


def _placed(values: Sequence[float]) -> list[float]:
    """Scale values to [0, 1] by their minimum and maximum; equal values become 0.5."""
    least, most = min(values), max(values)
    return [(value - least) / (most - least) if most > least else 0.5 for value in values]
