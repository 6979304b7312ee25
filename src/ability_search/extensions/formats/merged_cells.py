"""Merged cells of tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

MOST_REPEATED = 100
"""Maximum copies of a repeated cell; a spreadsheet repeats a blank one up to its last column."""

Range = tuple[int, int, int, int]
"""First column, first row, last column and last row of merged cells, from 1."""


def unmerged(
    rows: Iterable[list[object]], ranges: Sequence[Range], *, names: int | None = None
) -> Iterable[list[object]]:
    """Return the rows of a sheet with the value of merged cells in each of them.

    A row with a single value over all its columns keeps it once. Rows whose merged cells group
    the columns below them are joined with the next one to one row of names; only the first
    ``names`` rows, if given.
    """
    return _unmerged(rows, ranges, names) if ranges else rows


def _unmerged(
    rows: Iterable[list[object]], ranges: Sequence[Range], names: int | None
) -> Iterator[list[object]]:
    begins: dict[int, list[Range]] = defaultdict(list)
    for each in ranges:
        begins[each[1]].append(each)
    open_: list[tuple[Range, object]] = []
    groups: list[list[object]] = []
    heading = True
    for number, values in enumerate(rows, start=1):
        open_ = [each for each in open_ if each[0][3] >= number]
        open_ += [
            (each, values[each[0] - 1]) for each in begins.get(number, ()) if each[0] <= len(values)
        ]
        row = list(values)
        for (first, _, last, _), value in open_:
            last = min(last, first + MOST_REPEATED)
            row += [None] * (last - len(row))
            row[first - 1 : last] = [value] * (last - first + 1)
        said = {str(value) for value in row if value is not None}
        if len(said) <= 1:
            yield values
            continue
        if heading:
            groups.append(row)
            heading = number != names and any(each[0] < each[2] for each, _ in open_)
            if heading:
                continue
            row, groups = [_joined(names) for names in zip_longest(*groups)], []
        yield row
    yield from groups


def _joined(names: Iterable[object]) -> object:
    """Return different names of a column, from the top, as one."""
    found = [*dict.fromkeys(str(name) for name in names if name is not None)]
    return " ".join(found) or None


def spread(
    rows: Iterable[Iterable[tuple[str, int, int]]], *, names: int | None
) -> Iterable[list[object]]:
    """Return rows of cells as :func:`unmerged` does, given their text, columns and rows.

    A cell takes the next column that no cell from above takes.
    """
    texts: list[list[object]] = []
    ranges: list[Range] = []
    taken: dict[int, int] = {}
    for number, cells in enumerate(rows, start=1):
        row: list[object] = []
        for text, columns, height in cells:
            while taken.get(len(row) + 1, 0) >= number:
                row.append(None)
            first, last = len(row) + 1, len(row) + min(columns, MOST_REPEATED)
            row += [text or None, *[None] * (last - first)]
            # A hostile table would take one more column in each row.
            if (last > first or height > 1) and first <= MOST_REPEATED:
                ranges.append((first, number, last, number + height - 1))
                taken.update(dict.fromkeys(range(first, last + 1), number + height - 1))
        texts.append(row)
    return unmerged(texts, ranges, names=names)
