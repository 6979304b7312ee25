"""Front matter and inline tags of a Markdown text, as metadata."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time
from functools import lru_cache
from itertools import pairwise
from typing import Any

import yaml

from ability_search.errors import InvalidInput
from ability_search.extensions.formats.escapes import CODE, unescaped
from ability_search.filters.facets import facets_of
from ability_search.text.chunkers.strategies import has_markdown
from ability_search.text.formats import Bounds, Extracted
from ability_search.text.loaders import first_heading

_FRONT_MATTER = re.compile(
    r"\ufeff?(?P<fence>---|\+\+\+)[ \t]*(?:\r\n?|\n)"
    r"\s*+(?:#|[\w\"'][^:=\r\n]*[:=]).*?(?<=[\r\n])"
    r"(?:(?P=fence)|\.\.\.)[ \t]*(?=\r|\n|\Z)",
    re.DOTALL,
)
_LONGEST = 1 << 16
_DEEPEST = 8
_ENTRY = re.compile(
    r"(?P<key>[^\W\d](?:[\w -]{0,40}[\w-])?|\"[^\"]+\"|'[^']+')[ \t]*[:=](?:[ \t]+(?P<value>.*))?"
)
_ITEM = re.compile(r"[ \t]*-[ \t]*(.*\S)[ \t]*")
_NO_TEXT = re.compile(r"\[(?!.*\]\()|\{(?!\{)|[&!|>]|\*\w+$")
"""Beginning of YAML that is no text: lists but no links, mappings but no templates, aliases."""
_WIKI_LINKS = re.compile(r"\[\[[^\[\]]+\]\](?:[ \t]*,[ \t]*\[\[[^\[\]]+\]\])*")
_UNREADABLE = (yaml.YAMLError, ValueError, AttributeError, RecursionError)
_MOST_TAGS = 100
_NO_TAGS = re.compile(CODE, re.MULTILINE | re.DOTALL)
_TAG = re.compile(r"(?<!\S)#([^\W\d_][\w/-]*)")
_COLOUR = re.compile(r"(?=\D*\d)(?:[\da-f]{3,4}|[\da-f]{6}|[\da-f]{8})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The metadata above a text; empty if nothing is readable.

    Attributes:
        end: Offset at which the text begins.
        title: The ``title``, else the ``name``.
        description: The ``description``.
        metadata: All values but the ``title``, as JSON.
        malformed: Numbers of the lines, from 1, at which an entry is malformed.
    """

    end: int = 0
    title: str = ""
    description: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    malformed: tuple[int, ...] = ()


def read_markdown(_name: str, text: str, _bounds: Bounds) -> Extracted:
    """Read Markdown, with its front matter and its tags as metadata.

    The title is that of the front matter, else the first heading of level 1.
    """
    text = unescaped(text, format="markdown")
    metadata = markdown_metadata(text)
    return Extracted(text, "markdown", title=markdown_title(text), metadata=metadata)


def markdown_title(text: str) -> str | None:
    """Return the title in the front matter of Markdown, else its first heading of level 1."""
    matter = read_front_matter(text)
    return matter.title or first_heading(text[matter.end :])


def front_of(text: str) -> tuple[int, str]:
    """Return where the front matter of Markdown ends, and its description as a paragraph."""
    matter = read_front_matter(text)
    return matter.end, f"{matter.description}\n\n" if matter.description else ""


def begins_markdown(text: str) -> bool:
    """Return whether a text of unknown format is Markdown because of its front matter."""
    matter = _FRONT_MATTER.match(text)
    return matter is not None and has_markdown(text[matter.end() :])


def read_front_matter(text: str) -> FrontMatter:
    """Parse the front matter (YAML or TOML) at the beginning of a Markdown text.

    Dates and times become ISO 8601 strings. ``tags`` become a list. If the whole is malformed,
    each entry is read alone; a malformed one of YAML is read as strings if its lines allow that.
    Values that cannot be metadata are dropped.
    """
    match = _FRONT_MATTER.match(text)
    if match is None or match.end() > _LONGEST:
        return FrontMatter()
    return _parsed(match[0], match["fence"])


@lru_cache(maxsize=8)
def _parsed(front: str, fence: str) -> FrontMatter:
    """Parse the lines of a front matter; its title, metadata and warnings are asked for apart."""
    body = "\n".join(front.splitlines()[1:-1])
    malformed: list[int] = []
    try:
        values = _PARSERS[fence](body)
    except _UNREADABLE:
        values = _entries(body, fence, malformed)
    if not isinstance(values, Mapping):
        return FrontMatter()
    metadata = dict(_storable(values))
    if not metadata or not _is_storable(metadata):
        return FrontMatter()
    if tags := _tag_list(metadata.get("tags")):
        metadata["tags"] = tags
    title = _line(metadata.pop("title", None))
    return FrontMatter(
        len(front),
        title or _line(metadata.get("name")),
        _line(metadata.get("description")),
        metadata,
        tuple(malformed),
    )


def front_matter_warnings(source: str, text: str) -> list[str]:
    """Return a warning that names the malformed lines of the front matter of a Markdown text."""
    lines = ", ".join(map(str, read_front_matter(text).malformed))
    return [f"{source}: malformed front matter at line {lines}; quote its values"] if lines else []


def markdown_metadata(text: str) -> dict[str, Any]:
    """Return the metadata of a Markdown text: its front matter, with ``#tags`` of the text added.

    Tags in code, and numbers and colours with a number sign, are left out.
    """
    matter = read_front_matter(text)
    inline = _TAG.findall(_NO_TAGS.sub(" ", text[matter.end :])) if "#" in text else []
    if tags := [tag.rstrip("/-") for tag in inline if not _COLOUR.fullmatch(tag)]:
        own = matter.metadata.get("tags")
        given = own if isinstance(own, list) else [] if own is None else [own]
        return {**matter.metadata, "tags": list(dict.fromkeys([*given, *tags[:_MOST_TAGS]]))}
    return dict(matter.metadata)


def _entries(body: str, fence: str, malformed: list[int]) -> dict[str, Any]:
    """Read each top-level entry alone; add the numbers of malformed lines to ``malformed``."""
    lines = body.split("\n")
    starts = [at for at, line in enumerate(lines) if _ENTRY.match(line)]
    values: dict[str, Any] = {}
    for start, end in pairwise([*starts, len(lines)]):
        entry = lines[start:end]
        try:
            values.update(_PARSERS[fence]("\n".join(entry)))
        except (*_UNREADABLE, TypeError):
            malformed.append(start + 2)
            head = _ENTRY.match(entry[0])
            value = _as_text(entry) if fence == "---" else None
            if head and value:
                values[head["key"].strip("\"'")] = value
    return values


def _as_text(entry: list[str]) -> str | list[str] | None:
    """Return the value of a malformed entry as a text or a list; ``None`` if it is neither."""
    head = _ENTRY.match(entry[0])
    value = (head["value"] or "").strip() if head else ""
    rest = [line for line in entry[1:] if line.strip() and not line.lstrip().startswith("#")]
    if not value:
        items = [found[1] for line in rest if (found := _ITEM.fullmatch(line))]
        return items if len(items) == len(rest) else None
    value = " ".join([value, *map(str.strip, rest)])
    if _WIKI_LINKS.fullmatch(value):
        return [f"[[{name.strip()}]]" for name in re.findall(r"\[\[([^\[\]]*+)\]\]", value)]
    return None if _NO_TEXT.match(value) else value


def _line(value: Any) -> str:
    return " ".join(str(value).split()) if isinstance(value, str | int | float) else ""


def _tag_list(value: Any) -> list[Any]:
    """Return tags as a list without number signs; a text is split at commas, else at spaces."""
    if isinstance(value, str):
        value = value.split("," if "," in value else None)
    if not isinstance(value, list):
        return []
    tags = (tag.strip().removeprefix("#") if isinstance(tag, str) else tag for tag in value)
    return [tag for tag in tags if tag not in ("", None)]


class _Loader(yaml.SafeLoader):
    """YAML without aliases, which could expand a few lines to gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Read one node."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not read")
        return super().compose_node(parent, index)


_PARSERS: dict[str, Callable[[str], Any]] = {
    "---": lambda text: yaml.load(text, _Loader),
    "+++": tomllib.loads,
}


def _storable(values: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values that can be metadata."""
    for key, value in values.items():
        plain = _plain(value, _DEEPEST)
        if plain is not None and _is_storable({str(key): plain}):
            yield str(key), plain


def _is_storable(metadata: Mapping[str, Any]) -> bool:
    try:
        facets_of(metadata)
    except InvalidInput:
        return False
    return True


def _plain(value: Any, depth: int) -> Any:
    """Convert a value to JSON types; ``None`` for what JSON does not know, or nests too deep."""
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if depth <= 0:
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(inner, depth - 1) for key, inner in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(inner, depth - 1) for inner in value]
    return None
