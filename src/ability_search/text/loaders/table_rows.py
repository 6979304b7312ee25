"""Tables as lines that can be read alone: each value with the name of its column."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from ability_search.text.loaders.extracts import Bounds, Extracted, too_much_text
from ability_search.text.loaders.plain_text import decoded

_DELIMITERS = ",;\t|"


def read_csv(name: str, data: bytes, bounds: Bounds) -> Extracted:
    """Tables of values separated by commas, semicolons, tabs or bars.

    Each row becomes one line, ``name: Ada; born: 1815``, at the number of the line that it begins
    on in the file. Text that cannot be read as such a table stays as it is.
    """
    text = decoded(data)
    try:
        lines = _lines(text, _delimiter(name, text), bounds)
    except csv.Error:
        return Extracted(text, "csv")
    return Extracted("\n".join(lines), "csv")


def described(header: Sequence[str], cells: Sequence[str]) -> str:
    """One row as ``column: value; column: value``; empty cells are left out."""
    names = [*header, *[""] * (len(cells) - len(header))]
    return "; ".join(
        f"{name}: {cell}" if name else cell
        for name, cell in zip(names, cells, strict=False)
        if cell
    )


def is_header(cells: Sequence[str]) -> bool:
    """Return whether a first row names columns: different names, none of them blank or a number."""
    distinct = {cell.casefold() for cell in cells}
    return len(distinct) == len(cells) > 0 and not any(map(_is_value, cells))


def flat(cell: object) -> str:
    """A cell on one line."""
    return "" if cell is None else " ".join(str(cell).split())


def _is_value(cell: str) -> bool:
    return not cell or not any(map(str.isalpha, cell))


def _delimiter(name: str, text: str) -> str:
    """A tab by the file's name, else what occurs most in the first line."""
    if name.lower().endswith(".tsv"):
        return "\t"
    first = text.lstrip().split("\n", 1)[0]
    return max(_DELIMITERS, key=first.count)


def _lines(text: str, delimiter: str, bounds: Bounds) -> list[str]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    lines: list[str] = []
    header: list[str] | None = None
    room = bounds.text
    begin = 0
    for row in reader:
        cells = [flat(cell) for cell in row]
        lines += [""] * (begin - len(lines))
        begin = reader.line_num
        if header is None and any(cells):
            header = cells if is_header(cells) else []
            lines.append(", ".join(cells) if header else described((), cells))
        else:
            lines.append(described(header or (), cells))
        room -= len(lines[-1].encode()) + 1
        if room < 0:
            raise too_much_text(bounds)
    return lines
