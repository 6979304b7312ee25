"""JSON-RPC frames as KADI peers exchange them.

Decoding reads only the envelope: ``id``, ``params``, ``result`` and ``error`` stay raw JSON. A
broker thus forwards payloads without parsing or encoding them again, and an id of any type is
echoed byte for byte.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from kadi_client.errors import INVALID_REQUEST, PARSE_ERROR, SERVER_ERROR, ProtocolError

Raw = msgspec.Raw
ABSENT = Raw()
"""The value of a :class:`Frame` member that is missing from the frame."""

NULL = Raw(b"null")

MAX_ERROR_CHARS = 8192

_HIGH = r"[dD][89aAbB][0-9a-fA-F]{2}"
_LOW = r"[dD][c-fC-F][0-9a-fA-F]{2}"
_SURROGATES = re.compile(
    rf"(?<!\\)(?P<before>(?:\\\\)*+)(?:\\u{_HIGH}\\u{_LOW}|(?P<half>\\u(?:{_HIGH}|{_LOW})))"
)
"""Escapes of surrogates in JSON text and the escaped backslashes before them; ``half`` matches an
unpaired one. Other escapes do not match: with a call for each, a message takes seconds."""

_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""Strings in JSON text; one that is not closed ends with the text, so that each is read once."""
_MOST_ESCAPES = 50_000


class Frame(msgspec.Struct, omit_defaults=True):
    """One JSON-RPC message; raw members that the peer left out are ``ABSENT`` (empty)."""

    jsonrpc: str | None = None
    id: Raw = ABSENT
    method: str | None = None
    params: Raw = ABSENT
    result: Raw = ABSENT
    error: Raw = ABSENT

    @property
    def has_id(self) -> bool:
        """True if an id was sent; an explicit ``null`` counts as none."""
        return present(self.id)

    @property
    def is_response(self) -> bool:
        """True if this is the response to an earlier request.

        JavaScript omits ``result`` if a tool returns ``undefined``; it then counts as ``null``.
        """
        answered = len(self.result) > 0 or len(self.error) > 0 or self.has_id
        return self.method is None and answered


def present(raw: Raw) -> bool:
    """Return True if a member was sent and is not ``null``."""
    return len(raw) > 0 and raw != NULL


_frames = msgspec.json.Decoder(Frame)
_encoder = msgspec.json.Encoder()
encode = _encoder.encode


def decode_frame(text: str | bytes) -> Frame:
    """Decode one frame.

    Raises:
        ProtocolError: with code -32700 if it is not JSON, -32600 if it is not one JSON-RPC object.
    """
    try:
        try:
            frame = _frames.decode(text)
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, UnicodeError):
            # Unpaired surrogates, which JavaScript writes as escapes, become U+FFFD.
            frame = _frames.decode(without_halves(text if isinstance(text, str) else text.decode()))
    except msgspec.ValidationError as exc:
        raise ProtocolError(f"not a JSON-RPC object: {exc}", code=INVALID_REQUEST) from exc
    except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
        raise ProtocolError("frame is not valid JSON", code=PARSE_ERROR) from exc
    if frame.method is None and not frame.is_response:
        raise ProtocolError("neither a method nor a result nor an error", code=INVALID_REQUEST)
    return frame


def without_halves(text: str) -> str:
    """Return JSON text with the escapes of unpaired surrogates replaced by U+FFFD.

    Only the first ``_MOST_ESCAPES`` escapes of surrogates are looked at.
    """

    def without_half(escape: re.Match[str]) -> str:
        return rf"{escape['before']}\ufffd" if escape["half"] else escape[0]

    return _SURROGATES.sub(without_half, text, count=_MOST_ESCAPES)


def decode(raw: Raw | bytes | str) -> Any:
    """Parse a raw member into plain Python values; an absent member is ``None``.

    Raises:
        ProtocolError: if it is not valid JSON.
    """
    if isinstance(raw, Raw) and not len(raw):
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
        raise ProtocolError("not valid JSON", code=PARSE_ERROR) from exc


def has_more_values(text: bytes | bytearray, most: int) -> bool:
    """Return True if JSON text has more than ``most`` objects and arrays.

    Ten times as many commas between values, and four times as many strings, count as more, too.
    Decoding takes memory and time for each of them, so a small text may take longer than a large
    one. For text that is not valid JSON the result means nothing.
    """
    if text.count(b'"') - text.count(b'\\"') > 8 * most:  # at least one for each string
        return True
    if _openers(text) <= most and text.count(b",") <= 10 * most:
        return False
    bare = _STRINGS.sub(b"", text)  # takes 5 ns a byte
    return _openers(bare) > most or bare.count(b",") > 10 * most


def _openers(text: bytes | bytearray) -> int:
    return text.count(b"{") + text.count(b"[")


def request(id_: int | str | Raw, method: str, params: Any) -> bytes:
    """Encode a request; ``params`` may hold :class:`Raw` members, which are copied as they are."""
    return encode({"jsonrpc": "2.0", "id": id_, "method": method, "params": params})


def notification(method: str, params: Any) -> bytes:
    """Encode a notification."""
    return encode({"jsonrpc": "2.0", "method": method, "params": params})


def response(id_: int | str | Raw, result: Any) -> bytes:
    """Encode a successful response."""
    return encode({"jsonrpc": "2.0", "id": id_, "result": result})


def error_response(id_: int | str | Raw | None, message: str, *, code: int = SERVER_ERROR) -> bytes:
    """Encode an error response; ``id_`` is ``None`` if the id of the request is unreadable."""
    return encode({"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": message}})


def short_text(message: str) -> str:
    """Truncate an error text to ``MAX_ERROR_CHARS`` characters and make it valid Unicode."""
    return message[:MAX_ERROR_CHARS].encode("utf-8", "replace").decode()


def error_text(error: Any) -> tuple[int, str]:
    """Read an error in any form that peers send: a string, ``{code, message}`` or another value.

    Returns:
        The code (:data:`SERVER_ERROR` if none was sent) and a text.
    """
    if isinstance(error, str):
        return SERVER_ERROR, error
    if isinstance(error, dict):
        code = error.get("code")
        message = error.get("message")
        return (
            code if isinstance(code, int) else SERVER_ERROR,
            message if isinstance(message, str) else encode(error).decode(),
        )
    return SERVER_ERROR, encode(error).decode()
