"""Escapes of characters in JSON, YAML, TOML, ``.properties`` and Markdown, as their characters."""

from __future__ import annotations

import html
import json
import re
import unicodedata
from contextlib import suppress
from functools import partial
from pathlib import PurePath
from urllib.parse import urlsplit

import msgspec

from ability_search.text.chunkers import boundaries
from ability_search.text.formats import Bounds, Extracted, table
from ability_search.text.loaders.file_types import language_of

CODE = (
    r"^ {0,3}(?P<mark>```++|~~~++)[^\n]*+\n.*?(?:^ {0,3}(?P=mark)[`~]*[ \t]*$|\Z)"
    r"|(?<!`)(?P<ticks>`++)[^\n]*?(?P=ticks)|<!--.*?(?:-->|\Z)|^(?: {4}|\t)[^\n]*$"
)
"""Pattern of the code and comments of Markdown, for ``MULTILINE`` and ``DOTALL``."""
JSON_FORMATS = frozenset({"json", "jsonl", "ndjson", "geojson"})
_TEXTS = frozenset({"csv", "json", "markdown", "rst", "text"})
_CLOSING = {"[": "]", "{": "}"}
_READ_TWICE = 1 << 20
"""Characters; a text up to this length may have literals of :mod:`json` such as NaN."""
_LINE = re.compile(r"[^\n]+")
_ESCAPE = re.compile(
    r"\\u([dD][89abAB][\da-fA-F]{2})\\u([dD][c-fC-F][\da-fA-F]{2})"
    r"|\\(?:u([\da-fA-F]{4})|U([\da-fA-F]{8})|x([\da-fA-F]{2})|(.))",
    re.DOTALL,
)
_QUOTED = re.compile(
    r"(?<!\S)#[^\n]*+|(?<![^\s\[{,:=-])'[^'\n]*+'|(?<![^\s\[{,:=-])\"[^\"\\]*+(?:\\.[^\"\\]*+)*+\"",
    re.DOTALL,
)
"""Matches comments and strings of YAML and TOML; escapes are in double quotes only."""
_ENTITY = re.compile(
    rf"(?P<code>{CODE})|&(?:#\d{{1,7}}|#[xX][\da-fA-F]{{1,6}}|\w{{2,32}});", re.M | re.S
)
_BLANKS = frozenset("nrt")
_KEPT = frozenset({"Cc", "Cn", "Cs", "Zl", "Zp"})
"""Categories of characters that stay escaped: controls, line ends and lone surrogates."""


def read_plain(name: str, text: str, _bounds: Bounds, *, format: str | None) -> Extracted:
    """Read text, its escapes decoded; chunking cuts it by ``format``, else by its content."""
    language = language_of(name) if format == "code" else None
    text = unescaped(text, name=name, format=format, language=language)
    return Extracted(text, format, language=language)


read_code = partial(read_plain, format="code")
"""Reads source code, as :func:`read_plain` does."""


def named_format(source: str) -> tuple[str | None, str | None]:
    """Return the format and the language of a text by the suffix of its source, a path or URL.

    Without a suffix of text both are ``None``: the text may have been extracted from a PDF.
    """
    name = urlsplit(source).path if "://" in source else source
    suffix = PurePath(name).suffix.lower() if "." in name else ""
    if language := language_of(name):
        return "code", language
    format = table().by_suffix.get(suffix)
    return (format if format in _TEXTS else None), None


def unescaped(
    text: str, *, name: str = "", format: str | None = None, language: str | None = None
) -> str:
    """Return a text with the characters that it has escaped; its lines stay the same.

    In JSON, escaped line ends and tabs become spaces, because words follow them. Quotation marks,
    backslashes and controls stay escaped, so that the structure stays readable. In Markdown,
    letters outside code are read from their HTML entities. Source code stays unchanged.

    Args:
        text: Any text.
        name: Its file name or source.
        format: Its format; ``None`` if it is not known.
        language: Its programming language, if known.
    """
    format = (format or "").lower().lstrip(".")
    if format in ("markdown", "md", "mdx"):
        return _ENTITY.sub(_letter, text) if "&" in text else text
    if "\\" not in text:
        return text
    if {format, language} & {"yaml", "yml", "toml"}:
        return _QUOTED.sub(lambda match: _decoded(match[0], match[0][0] == '"'), text)
    is_json = format in JSON_FORMATS or not (format or language) and looks_like_json(text)
    is_properties = PurePath(name).suffix.lower() == ".properties"
    return _decoded(text, is_json or is_properties, blanks=is_json)


def _decoded(text: str, has_escapes: bool, *, blanks: bool = False) -> str:
    def character(match: re.Match[str]) -> str:
        high, low, *codes, other = match.groups()
        if high:
            char = chr(0x10000 + (int(high, 16) - 0xD800) * 0x400 + int(low, 16) - 0xDC00)
        elif code := next(filter(None, codes), ""):
            char = chr(min(int(code, 16), 0x10FFFF))
        else:
            return " " if blanks and other in _BLANKS else match[0]
        return match[0] if char in '"\\' or unicodedata.category(char) in _KEPT else char

    return _ESCAPE.sub(character, text) if has_escapes else text


def _letter(match: re.Match[str]) -> str:
    char = html.unescape(match[0]) if match["code"] is None else ""
    return char if len(char) == 1 and char.isalpha() else match[0]


def looks_like_json(text: str) -> bool:
    """Return whether the text is one or more JSON arrays or objects."""
    start, end = boundaries.trim(text, 0, len(text))
    if text[start : start + 1] not in _CLOSING or text[end - 1] not in _CLOSING.values():
        return False
    if _is_json(text):
        return True
    lines = (match[0] for match in _LINE.finditer(text))
    return all(_is_json(line) for line in lines if not line.isspace())


def _is_json(text: str) -> bool:
    with suppress(ValueError, RecursionError):
        # Unlike json, msgspec.Raw creates no Python objects.
        msgspec.json.decode(text, type=msgspec.Raw)
        return True
    with suppress(ValueError, RecursionError):
        if len(text) <= _READ_TWICE:
            json.loads(text)
            return True
    return False
