"""Text as it is: encodings, plain text, source code, JSON."""

from __future__ import annotations

import codecs

from charset_normalizer import from_bytes

from ability_search.text.loaders.extracts import Bounds, Extracted, Unreadable
from ability_search.text.loaders.file_types import language_of

_SNIFFED = 8192


def decoded(data: bytes) -> str:
    """Text in UTF-8, with a byte order mark in UTF-16 or 32, or in what its bytes look like.

    Raises:
        Unreadable: if it is no text.
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


def read_text(_name: str, data: bytes, _bounds: Bounds) -> Extracted:
    """Plain text; the file's name is all the title it has."""
    return Extracted(decoded(data), "text")


def read_json(_name: str, data: bytes, _bounds: Bounds) -> Extracted:
    """JSON or JSON Lines as they are; chunking cuts them by their structure."""
    return Extracted(decoded(data), "json")


def read_code(name: str, data: bytes, _bounds: Bounds) -> Extracted:
    """Source code as it is; chunking cuts it by its symbols."""
    return Extracted(decoded(data), "code", language=language_of(name))


def read_unknown(_name: str, data: bytes, _bounds: Bounds) -> Extracted:
    """Text of a format that nothing tells; chunking looks at it."""
    return Extracted(decoded(data), None)
