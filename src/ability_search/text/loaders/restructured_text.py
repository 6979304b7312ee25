"""reStructuredText: the text as it is, its bibliographic fields as metadata."""

from __future__ import annotations

import re

from ability_search.text.chunkers.restructured_sections import read_blocks
from ability_search.text.loaders.extracts import Bounds, Extracted, known
from ability_search.text.loaders.plain_text import decoded

_HEAD = 8192
_FIELD = re.compile(r":(\w[\w -]*):[ \t]+(\S.*)")


def read_restructured(_name: str, data: bytes, _bounds: Bounds) -> Extracted:
    """The text as it is, so that its lines are those of the file.

    The first section title is the title; a list of fields right behind it, or at the very
    beginning, is metadata (``:Date: 2026-03-01``).
    """
    text = decoded(data)
    blocks = read_blocks(text[:_HEAD])
    title = next((block.title for block in blocks if block.level), None)
    body = [block for block in blocks[:2] if not block.level][:1]
    fields = _fields(text[body[0].start : body[0].end]) if body else {}
    return Extracted(text, "rst", title=title, metadata=known(**fields))


def _fields(text: str) -> dict[str, str]:
    """The fields of a block that consists of nothing else."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _FIELD.fullmatch(line.rstrip())
        if match is None:
            return {}
        found[match[1].lower().replace(" ", "_")] = match[2]
    return found
