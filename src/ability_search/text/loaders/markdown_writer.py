"""Writing what was read from a file down as Markdown, so that its structure stays."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ability_search.text.loaders.extracts import PAGE_END, Bounds, too_much_text
from ability_search.text.loaders.table_rows import described, flat, is_header

_BLOCK_MARK = re.compile(r"(?=#{1,6}(?:\s|$)|```|~~~|(?:---|===)\s*$)", re.MULTILINE)
_TICKS = re.compile(r"`{3,}")
_INDENT = "  "


class Composer:
    """Puts blocks together to one text, within the bounds.

    Every method raises :class:`Unreadable` if the text becomes longer than allowed.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._parts: list[str] = []
        self._room = bounds.text
        self._in_list = False
        self.first_heading: str | None = None
        """Words of the first heading, once there is one."""

    @property
    def text(self) -> str:
        """Return the text put together so far."""
        return "".join(self._parts)

    def heading(self, level: int, title: str) -> None:
        """A heading, level 1 to 6; a blank one is left out."""
        if words := flat(title):
            self.first_heading = self.first_heading or words
            self._block(f"{'#' * min(max(level, 1), 6)} {words}")

    def paragraph(self, text: str) -> None:
        """Lines of prose; what Markdown would take for a heading or a fence is escaped."""
        lines = [line for line in (" ".join(line.split()) for line in text.splitlines()) if line]
        if lines:
            self._block(_BLOCK_MARK.sub(r"\\", "\n".join(lines)))

    def item(self, text: str, *, depth: int = 0, mark: str = "-") -> None:
        """An item of a list on one line; a blank one is left out."""
        if words := flat(text):
            self._block(f"{_INDENT * depth}{mark} {words}", item=True)

    def code(self, text: str, language: str = "") -> None:
        """A fence around what is kept sign by sign; a blank one is left out."""
        body = text.strip("\r\n").rstrip()
        if body:
            ticks = "`" * max(3, 1 + max(map(len, _TICKS.findall(body)), default=0))
            self._block(f"{ticks}{language}\n{body}\n{ticks}")

    def verbatim(self, markdown: str) -> None:
        """Markdown as it is."""
        if markdown.strip():
            self._block(markdown.strip("\r\n"))

    def table(self, rows: Iterable[Sequence[object]]) -> None:
        """Rows as items of a list, ``column: value; ...``, if the first one names the columns."""
        header: list[str] | None = None
        for row in rows:
            cells = [flat(cell) for cell in row]
            while cells and not cells[-1]:
                cells.pop()
            if not cells:
                continue
            # Titles may stand above the names of the columns.
            if header is None and sum(map(bool, cells)) > 1:
                header = cells if is_header(cells) else []
                if header:
                    continue
            self.item(described(header or (), cells))

    def end_page(self) -> None:
        """Mark the end of a page."""
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
