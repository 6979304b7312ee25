"""A writer of Markdown, which keeps the structure of formats that are not text."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, repeat, zip_longest

from ability_search.extensions.formats.foreign_files import PAGE_END
from ability_search.text.formats import Bounds, too_much_text

_BLOCK_MARK = re.compile(r"(?=#{1,6}(?:\s|$)|```|~~~|(?:---|===)\s*$)", re.MULTILINE)
_TICKS = re.compile(r"`{3,}")
_LABEL = re.compile(r"(?:19|20)\d\d(?:[-/.](?:0?[1-9]|1[0-2])(?:[-/.]\d{1,2})?)?")
"""A year, month or day."""
FIRST_ROWS = 20
"""Rows by which the names of columns are recognised."""
_INDENT = "  "


def described(header: Sequence[str], cells: Sequence[str]) -> str:
    """Format a row as ``column: value; column: value``, without empty cells."""
    # The header may be much longer than the row, so it is not copied.
    return "; ".join(
        f"{name}: {cell}" if name else cell
        for name, cell in zip(chain(header, repeat("")), cells, strict=False)
        if cell
    )


def column_names(rows: Sequence[Sequence[str]]) -> tuple[int, list[str], bool]:
    """Return the number of titles above a table, its column names, and whether it has labels.

    Names are distinct texts that are no values below, or years and dates above other values; the
    first may be blank.
    Two columns are keys with values, without names, if the second mixes numbers and texts.

    Args:
        rows: The first rows, without blank ones.
    """
    widths = [_width(row) for row in rows]
    width = max(widths, key=widths.count, default=0)
    titles = 0
    for row, filled in zip(rows, widths, strict=True):
        is_comment = row[0].startswith("#") and filled != width
        if filled > 1 and filled + 1 >= width and not is_comment:
            break
        titles += 1
    if titles == len(rows):
        return titles, [], False
    names, body = rows[titles], rows[titles + 1 :]
    pairs = _are_pairs(names, body)
    return titles, [*names] if _are_names(names, body) and not pairs else [], pairs


def _width(row: Sequence[str]) -> int:
    return max((place for place, cell in enumerate(row, start=1) if cell), default=0)


def _are_names(cells: Sequence[str], body: Sequence[Sequence[str]]) -> bool:
    if len({cell.casefold() for cell in cells}) < len(cells):
        return False
    if not cells[0] and not (body and len(cells) > 1):
        return False
    for column, cell in enumerate(cells):
        below = [row[column] for row in body if row[column:] and row[column] and row != cells]
        if cell in below and cell:
            return False
        is_label = _LABEL.fullmatch(cell) and not all(map(_LABEL.fullmatch, below))
        if _is_value(cell) and not (is_label and column) and (cell or column):
            return False
    return True


def _are_pairs(first: Sequence[str], body: Sequence[Sequence[str]]) -> bool:
    rows = [first, *body]
    if any(len(row) != 2 for row in rows) or len({row[0] for row in rows}) < len(rows):
        return False
    if all(row[0].endswith(":") for row in rows):
        return True
    kinds = {_is_value(row[1]) for row in body if row[1]}
    return len(kinds) > 1 and not any(_is_value(row[0]) for row in rows)


def labelled(cells: Sequence[str]) -> str:
    """Format a row without column names as ``label: value; value``, if the first cell is text."""
    label, rest = cells[0].rstrip(": "), described((), cells[1:])
    return f"{label}: {rest}" if label and rest else described((), cells)


def flat(cell: object) -> str:
    """Return a cell as one line of text."""
    return "" if cell is None else " ".join(str(cell).split())


def _trimmed(row: Sequence[object]) -> list[str]:
    cells = [flat(cell) for cell in row]
    return cells[: _width(cells)]


def _is_value(cell: str) -> bool:
    return not cell or not any(map(str.isalpha, cell))


class Composer:
    """A Markdown text under construction, block by block, within the bounds.

    Every method raises :class:`Unreadable` if the text becomes longer than allowed.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._parts: list[str] = []
        self._room = bounds.text
        self._in_list = False
        self.first_heading: str | None = None
        """The first heading so far."""

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._parts)

    def heading(self, level: int, title: str) -> None:
        """Add a heading of level 1 to 6 unless it is blank."""
        if words := flat(title):
            self.first_heading = self.first_heading or words
            self._block(f"{'#' * min(max(level, 1), 6)} {words}")

    def paragraph(self, text: str) -> None:
        """Add lines of prose; escape those that would be a heading or a fence in Markdown."""
        lines = [line for line in (" ".join(line.split()) for line in text.splitlines()) if line]
        if lines:
            self._block(_BLOCK_MARK.sub(r"\\", "\n".join(lines)))

    def item(self, text: str, *, depth: int = 0, mark: str = "-") -> None:
        """Add a list item on one line unless it is blank."""
        if words := flat(text):
            self._block(f"{_INDENT * depth}{mark} {words}", item=True)

    def code(self, text: str, language: str = "") -> None:
        """Add text as a fence, character by character, unless it is blank."""
        body = text.strip("\r\n").rstrip()
        if body:
            ticks = "`" * max(3, 1 + max(map(len, _TICKS.findall(body)), default=0))
            self._block(f"{ticks}{language}\n{body}\n{ticks}")

    def verbatim(self, markdown: str) -> None:
        """Add Markdown unchanged."""
        if markdown.strip():
            self._block(markdown.strip("\r\n"))

    def table(self, rows: Iterable[Sequence[object]], *, headed: bool | None = None) -> None:
        """Add rows as list items, ``column: value; ...`` if the columns have names.

        The names of columns without values are the last item; so the text of a layout in one row
        is kept.

        Args:
            rows: The rows; titles may precede the names.
            headed: Whether the first row of several cells has the names; if it has not, the first
                cell of each row is its label. ``None`` to recognise it.
        """
        filled: set[int] = set()
        cells = filter(None, map(_trimmed, rows))
        first = [*islice(cells, FIRST_ROWS)]
        titles, header, labels = column_names(first)
        if headed is not None:
            titles = next((n for n, row in enumerate(first) if sum(map(bool, row)) > 1), len(first))
            header = first[titles] if headed and titles < len(first) else []
            labels = not headed
        for row in first[:titles]:
            self.item(described((), row))
        for row in chain(first[titles + bool(header) :], cells):
            self.item(labelled(row) if labels else described(header, row))
            filled.update(column for column, cell in enumerate(row) if cell)
        blank = [name for column, name in enumerate(header) if column not in filled]
        self.item(described((), blank))

    def end_page(self) -> None:
        """Add the end of a page."""
        self._in_list = False
        self._add(PAGE_END)

    def _block(self, text: str, *, item: bool = False) -> None:
        if self._parts and self._parts[-1] != PAGE_END:
            self._add("\n" if item and self._in_list else "\n\n")
        self._in_list = item
        self._add(text)

    def _add(self, text: str) -> None:
        self._room -= len(text.encode("utf-8", "replace"))
        if self._room < 0:
            raise too_much_text(self._bounds)
        self._parts.append(text)


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
