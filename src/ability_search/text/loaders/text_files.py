"""Text files: plain text, code, JSON, Markdown, reStructuredText, tables of values and notebooks.

All but notebooks keep their text or at least its lines, so that line numbers are those of the file.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Mapping
from typing import Any

import chardet
from chardet.enums import EncodingEra

from ability_search.text.chunkers import markdown_blocks, restructured_sections
from ability_search.text.front_matter import FrontMatter, markdown_metadata, read_front_matter
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
_MOST_WRONG = 0.01
"""Share of wrong bytes up to which a text of no other encoding is read as UTF-8."""
_TYPOGRAPHY = "\xa0«»‘’“”–—…".encode("cp1252")
_FIRST_LETTER = 0xC0
"""Byte of the first accented letter of Windows-1252."""
_WRONG = re.compile(r"[\udc80-\udcff]++")
_CONTROL = re.compile(r"[\0-\x08\x0e-\x1a\x1c-\x1f\ufffe\uffff]")
_HEAD = 8192
"""Characters searched for a title and for fields."""
_FIELD = re.compile(r":(\w[\w -]*):[ \t]+(\S.*)")
_DELIMITERS = ",;\t|"
_DELIMITER_LINE = re.compile(r"sep=([^\w\s\"]|\t)\r?\n")
"""First line by which Excel knows the delimiter."""
_NOT_A_NOTEBOOK = "not a notebook, though its name says so"


def decoded(data: bytes) -> str:
    """Decode UTF-8, UTF-16 or UTF-32 with a byte order mark, or an encoding that is detected.

    Wrong bytes of UTF-8 become U+FFFD. If several stand alone, as the accented letters of Western
    languages do, they are read as Windows-1252, beside the words that are UTF-8.

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
        return _unmarked_utf16(data)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("utf-8-sig", "replace")
    wrong = text.count("\ufffd")
    if mixed := _mixed(data.decode("utf-8-sig", "surrogateescape")):
        return mixed
    # Other encodings hardly ever have the byte sequences of UTF-8 beyond ASCII.
    if 2 * wrong <= sum(not char.isascii() for char in text):
        return text
    guess = chardet.detect(
        data,
        encoding_era=EncodingEra.MODERN_WEB,  # the older ones win over them in short texts
        prefer_superset=True,
        max_bytes=len(data),
    )["encoding"]
    if guess is None and wrong > _MOST_WRONG * len(text):
        raise Unreadable("text in an encoding that could not be recognised")
    return text if guess is None else data.decode(guess, "replace")


def _mixed(escaped: str) -> str:
    """Return a text of UTF-8 and Windows-1252; empty if it is not such a text.

    Args:
        escaped: Its bytes as UTF-8, wrong ones as surrogates.
    """
    runs = _WRONG.findall(escaped)
    wrong = "".join(runs).encode("utf-8", "surrogateescape")
    likely = sum(byte >= _FIRST_LETTER or byte in _TYPOGRAPHY for byte in wrong)
    if len(runs) < 2 or len(wrong) >= 2 * len(runs) or 2 * likely < len(wrong):
        return ""
    western = {char for char in set(escaped) if not char.isascii() and _is_western(char)}
    if all(char.isascii() or char in western for char in escaped):
        return ""
    return escaped.translate(
        {
            ord(char): char.encode("utf-8", "surrogateescape").decode("cp1252", "replace")
            for char in western
        }
    )


def _is_western(char: str) -> bool:
    """Return whether the bytes of a character are rather characters of Windows-1252.

    An accented letter before a space or a quotation mark of Windows-1252 is by chance also UTF-8,
    of a rare character.
    """
    by_chance = not char.encode("utf-8", "surrogateescape")[1:].strip(_TYPOGRAPHY)
    return by_chance and not char.encode("cp1252", "ignore")


def _unmarked_utf16(data: bytes) -> str:
    texts = [data.decode(codec, "replace") for codec in ("utf-16-le", "utf-16-be")]
    latin, text = max((sum(char < "\u0100" for char in text), text) for text in texts)
    # In UTF-16, most zero bytes are the high bytes of ASCII characters, such as line breaks.
    if 2 * latin < data.count(0) or _CONTROL.search(text) or "\ufffd" in text:
        raise Unreadable("binary, not text")
    return text


def read_plain(name: str, data: bytes, _bounds: Bounds, *, format: str | None) -> Extracted:
    """Read text unchanged; chunking cuts it by ``format``, without one by its content."""
    language = language_of(name) if format == "code" else None
    return Extracted(decoded(data), format, language=language)


def read_markdown(_name: str, data: bytes, _bounds: Bounds) -> Extracted:
    """Read Markdown unchanged, with its front matter and its tags as metadata.

    The title is that of the front matter, else the first heading of level 1.
    """
    text = decoded(data)
    matter = read_front_matter(text)
    title = markdown_title(text, matter)
    return Extracted(text, "markdown", title=title, metadata=markdown_metadata(text, matter))


def markdown_title(text: str, matter: FrontMatter | None = None) -> str | None:
    """Return the title in the front matter of Markdown, else its first heading of level 1."""
    matter = matter or read_front_matter(text)
    if matter.title:
        return matter.title
    blocks, _ = markdown_blocks.read_blocks(text[matter.end :][:_HEAD])
    return next((block.title for block in blocks if block.level == 1 and block.title), None)


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
    delimiter = _delimiter(name, text)
    if named := _DELIMITER_LINE.match(text):
        delimiter = named[1]
        text = f"\n{text[named.end() :]}"
    try:
        lines = _rows(text, delimiter, bounds)
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
    end = 0
    for row in reader:
        start, end = end, reader.line_num
        if not row:
            continue
        cells = [flat(cell) for cell in row]
        lines += [""] * (start - len(lines))
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
    found = read_markdown(name, composer.text.encode("utf-8", "replace"), bounds)
    metadata = {**found.metadata, **known(language=language)}
    return Extracted(composer.text, "markdown", title=given or found.title, metadata=metadata)


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
