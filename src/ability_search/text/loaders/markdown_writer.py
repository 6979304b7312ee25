"""A writer of Markdown, which keeps the structure of formats that are not text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain, repeat

from ability_search.text.loaders.extracts import PAGE_END, Bounds, too_much_text

_BLOCK_MARK = re.compile(r"(?=#{1,6}(?:\s|$)|```|~~~|(?:---|===)\s*$)", re.MULTILINE)
_TICKS = re.compile(r"`{3,}")
_INDENT = "  "


def described(header: Sequence[str], cells: Sequence[str]) -> str:
    """Format a row as ``column: value; column: value``, without empty cells."""
    # The header may be much longer than the row, so it is not copied.
    return "; ".join(
        f"{name}: {cell}" if name else cell
        for name, cell in zip(chain(header, repeat("")), cells, strict=False)
        if cell
    )


def is_header(cells: Sequence[str]) -> bool:
    """Return whether a first row names columns: distinct names, none of them blank or a number."""
    distinct = {cell.casefold() for cell in cells}
    return len(distinct) == len(cells) > 0 and not any(map(_is_value, cells))


def flat(cell: object) -> str:
    """Return a cell as one line of text."""
    return "" if cell is None else " ".join(str(cell).split())


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

    def table(self, rows: Iterable[Sequence[object]]) -> None:
        """Add rows as list items, ``column: value; ...`` if the first row names the columns.

        The names of columns without values are the last item; so the text of a layout in one row
        is kept.
        """
        header: list[str] | None = None
        filled: set[int] = set()
        for row in rows:
            cells = [flat(cell) for cell in row]
            while cells and not cells[-1]:
                cells.pop()
            if not cells:
                continue
            # A title may precede the column names.
            if header is None and sum(map(bool, cells)) > 1:
                header = cells if is_header(cells) else []
                if header:
                    continue
            self.item(described(header or (), cells))
            filled.update(column for column, cell in enumerate(cells) if cell)
        blank = [name for column, name in enumerate(header or ()) if column not in filled]
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
