"""Markdown: the text as it is, its front matter as metadata."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from typing import Any

import yaml

from ability_search.errors import InvalidInput
from ability_search.filters.facets import facets_of
from ability_search.text.chunkers.markdown_blocks import FRONT_MATTER, read_blocks
from ability_search.text.loaders.extracts import Bounds, Extracted
from ability_search.text.loaders.plain_text import decoded

_HEAD = 8192
_LONGEST_MATTER = 1 << 16
_DEEPEST = 8


def read_markdown(_name: str, data: bytes, _bounds: Bounds) -> Extracted:
    """Markdown as it is, so that its lines are those of the file.

    What the front matter (YAML or TOML) says is metadata too; its ``title``, else the first
    heading of the first level, is the title. Front matter that cannot be read is text only.
    """
    text = decoded(data)
    metadata = front_matter(text)
    title = metadata.pop("title", None)
    told = str(title).strip() if isinstance(title, str | int | float) else ""
    return Extracted(text, "markdown", title=told or _first_heading(text), metadata=metadata)


def front_matter(text: str) -> dict[str, Any]:
    """Parse the front matter of a Markdown text into JSON values.

    Dates and times are written as ISO 8601; what JSON does not know is left out. Empty if there is
    none, if it cannot be read, or if it is more than documents may have as metadata.
    """
    matter = FRONT_MATTER.match(text)
    if matter is None or matter.end() > _LONGEST_MATTER:
        return {}
    lines = matter[0].splitlines()[1:-1]
    try:
        said = _READERS[matter["fence"]]("\n".join(lines))
        if not isinstance(said, Mapping):
            return {}
        plain = {name: value for name, value in _plain(said, _DEEPEST).items() if value is not None}
        facets_of(plain)
    except (yaml.YAMLError, InvalidInput, ValueError, RecursionError):
        return {}
    return plain


class _Loader(yaml.SafeLoader):
    """YAML without aliases, by which a few lines could become gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Read one node."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not read")
        return super().compose_node(parent, index)


def _yaml(text: str) -> Any:
    return yaml.load(text, _Loader)


_READERS: dict[str, Callable[[str], Any]] = {"---": _yaml, "+++": tomllib.loads}


def _plain(value: Any, depth: int) -> Any:
    """The value as JSON knows it; ``None`` for what it does not know."""
    if depth < 0:
        raise ValueError("nested too deep")
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): _plain(inner, depth - 1) for key, inner in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(inner, depth - 1) for inner in value]
    return None


def _first_heading(text: str) -> str | None:
    blocks, _ = read_blocks(text[:_HEAD])
    return next((block.title for block in blocks if block.level == 1 and block.title), None)
