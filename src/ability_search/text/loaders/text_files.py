"""Text files: plain text, code, JSON, Markdown, reStructuredText, tables of values and notebooks.

All but notebooks keep their text or at least its lines, so that line numbers are those of the file.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
import re
import tomllib
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from typing import Any

import yaml
from charset_normalizer import from_bytes

from ability_search.errors import InvalidInput
from ability_search.filters.facets import facets_of
from ability_search.text.chunkers import markdown_blocks, restructured_sections
from ability_search.text.loaders.extracts import (
    Bounds,
    Extracted,
    Unreadable,
    known,
    too_much_text,
)
from ability_search.text.loaders.file_types import language_of
from ability_search.text.loaders.markdown_writer import Composer, described, flat, is_header

_SNIFFED = 8192
"""Bytes searched for NUL."""
_HEAD = 8192
"""Characters searched for a title and for fields."""
_LONGEST_MATTER = 1 << 16
_DEEPEST = 8
_FIELD = re.compile(r":(\w[\w -]*):[ \t]+(\S.*)")
_DELIMITERS = ",;\t|"
_NOT_A_NOTEBOOK = "not a notebook, though its name says so"


def decoded(data: bytes) -> str:
    """Decode UTF-8, UTF-16 or UTF-32 with a byte order mark, or an encoding that is detected.

    Raises:
        Unreadable: if the bytes are not text.
    """
    try:
        if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
            return data.decode("utf-32")
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return data.decode("utf-16")
    except UnicodeDecodeError as exc:
        raise Unreadable("not in the encoding that its byte order mark names") from exc
    if b"\0" in data[:_SNIFFED]:
        raise Unreadable("binary, not text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        guess = from_bytes(data).best()
    if guess is None:
        raise Unreadable("text in an encoding that could not be recognised")
    return str(guess)


def read_plain(name: str, data: bytes, _bounds: Bounds, *, format: str | None) -> Extracted:
    """Read text unchanged; chunking cuts it by ``format``, without one by its content."""
    language = language_of(name) if format == "code" else None
    return Extracted(decoded(data), format, language=language)


def read_markdown(_name: str, data: bytes, _bounds: Bounds) -> Extracted:
    """Read Markdown unchanged, with its front matter (YAML or TOML) as metadata.

    The title is the ``title`` of the front matter, else the first heading of level 1. Front matter
    that cannot be parsed is text only.
    """
    text = decoded(data)
    metadata = _front_matter(text)
    title = metadata.pop("title", None)
    given = str(title).strip() if isinstance(title, str | int | float) else ""
    return Extracted(text, "markdown", title=given or _first_heading(text), metadata=metadata)


def _first_heading(text: str) -> str | None:
    blocks, _ = markdown_blocks.read_blocks(text[:_HEAD])
    return next((block.title for block in blocks if block.level == 1 and block.title), None)


def _front_matter(text: str) -> dict[str, Any]:
    """Parse the front matter of a Markdown text into JSON values.

    Dates and times become ISO 8601 strings; other values that JSON does not know are dropped.
    Empty without front matter, if it cannot be parsed, or if it exceeds the limits of metadata.
    """
    matter = markdown_blocks.FRONT_MATTER.match(text)
    if matter is None or matter.end() > _LONGEST_MATTER:
        return {}
    lines = matter[0].splitlines()[1:-1]
    try:
        values = _MATTER_PARSERS[matter["fence"]]("\n".join(lines))
        if not isinstance(values, Mapping):
            return {}
        plain = {key: value for key, value in _plain(values, _DEEPEST).items() if value is not None}
        facets_of(plain)
    except (yaml.YAMLError, InvalidInput, ValueError, RecursionError):
        return {}
    return plain


class _Loader(yaml.SafeLoader):
    """YAML without aliases, which could expand a few lines to gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Read one node."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not read")
        return super().compose_node(parent, index)


def _yaml(text: str) -> Any:
    return yaml.load(text, _Loader)


_MATTER_PARSERS: dict[str, Callable[[str], Any]] = {"---": _yaml, "+++": tomllib.loads}


def _plain(value: Any, depth: int) -> Any:
    """Convert a value to JSON types; ``None`` for types that JSON does not know."""
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


def read_restructured(_name: str, data: bytes, _bounds: Bounds) -> Extracted:
    """Read reStructuredText unchanged, with its bibliographic fields as metadata.

    The title is the first section title. A field list directly below it, or at the very beginning,
    is the metadata (``:Date: 2026-03-01``).
    """
    text = decoded(data)
    blocks = restructured_sections.read_blocks(text[:_HEAD])
    title = next((block.title for block in blocks if block.level), None)
    body = [block for block in blocks[:2] if not block.level][:1]
    fields = _fields(text[body[0].start : body[0].end]) if body else {}
    return Extracted(text, "rst", title=title, metadata=known(**fields))


def _fields(text: str) -> dict[str, str]:
    """Return the fields of a field list; empty if the block has anything else."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _FIELD.fullmatch(line.rstrip())
        if match is None:
            return {}
        found[match[1].lower().replace(" ", "_")] = match[2]
    return found


def read_csv(name: str, data: bytes, bounds: Bounds) -> Extracted:
    """Read a table of values separated by commas, semicolons, tabs or vertical bars.

    Each row becomes one line, ``name: Ada; born: 1815``, with the line number of its beginning in
    the file. Text that is not such a table stays unchanged.
    """
    text = decoded(data)
    try:
        lines = _rows(text, _delimiter(name, text), bounds)
    except csv.Error:
        return Extracted(text, "csv")
    return Extracted("\n".join(lines), "csv")


def _delimiter(name: str, text: str) -> str:
    """Return a tab for ``.tsv`` files, else the most frequent delimiter of the first line."""
    if name.lower().endswith(".tsv"):
        return "\t"
    first = text.lstrip().split("\n", 1)[0]
    return max(_DELIMITERS, key=first.count)


def _rows(text: str, delimiter: str, bounds: Bounds) -> list[str]:
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


def read_notebook(name: str, data: bytes, bounds: Bounds) -> Extracted:
    """Read a Jupyter notebook as Markdown, with code cells as fences in its language.

    Outputs are dropped: they follow from the code, and can be of any size and type.

    Raises:
        Unreadable: if it is not a notebook.
    """
    try:
        notebook = json.loads(decoded(data))
    except (ValueError, RecursionError) as exc:
        raise Unreadable(_NOT_A_NOTEBOOK) from exc
    composer = Composer(bounds)
    about = _mapping(_mapping(notebook).get("metadata"))
    spec, info = _mapping(about.get("kernelspec")), _mapping(about.get("language_info"))
    language = str(info.get("name") or spec.get("language") or "python")
    for cell in _cells(notebook):
        source = _source(cell.get("source", cell.get("input")))
        kind = cell.get("cell_type")
        if kind == "code":
            composer.code(source, language)
        elif kind in ("markdown", "heading"):
            composer.verbatim(f"# {source}" if kind == "heading" else source)
        else:
            composer.paragraph(source)
    given = str(about.get("title") or "")
    title = given or read_markdown(name, composer.text.encode("utf-8", "replace"), bounds).title
    metadata = {**_front_matter(composer.text), **known(language=language)}
    metadata.pop("title", None)
    return Extracted(composer.text, "markdown", title=title, metadata=metadata)


def _cells(notebook: Any) -> list[Mapping[str, Any]]:
    """Return the cells of a notebook, also in version 3 of the format."""
    sheets = _mapping(notebook).get("worksheets")
    pages = [notebook, *sheets] if isinstance(sheets, list) else [notebook]
    lists = [found for page in pages if isinstance(found := _mapping(page).get("cells"), list)]
    if not lists:
        raise Unreadable(_NOT_A_NOTEBOOK)
    return [_mapping(cell) for cells in lists for cell in cells]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _source(lines: Any) -> str:
    parts = lines if isinstance(lines, list) else [lines]
    return "".join(part for part in parts if isinstance(part, str))
