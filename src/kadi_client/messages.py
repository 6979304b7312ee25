"""JSON-RPC frames as KADI peers exchange them.

Decoding reads the envelope only: ``id``, ``params``, ``result`` and ``error`` stay raw JSON, so a
broker forwards what it never looks into without parsing or writing it again, and an id is echoed
byte for byte whatever its type.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from kadi_client.errors import INVALID_REQUEST, PARSE_ERROR, SERVER_ERROR, ProtocolError

Raw = msgspec.Raw
ABSENT = Raw()
"""What :class:`Frame` holds for a member the frame did not carry."""

NULL = Raw(b"null")

MAX_ERROR_CHARS = 8192

_HIGH = r"[dD][89aAbB][0-9a-fA-F]{2}"
_LOW = r"[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPES = re.compile(rf"\\u{_HIGH}\\u{_LOW}|(?P<half>\\u(?:{_HIGH}|{_LOW}))|\\.")
"""Escapes in JSON text; one that stands for half a surrogate pair is ``half``."""


class Frame(msgspec.Struct, omit_defaults=True):
    """One JSON-RPC message; raw members are ``ABSENT`` (empty) where the peer left them out."""

    jsonrpc: str | None = None
    id: Raw = ABSENT
    method: str | None = None
    params: Raw = ABSENT
    result: Raw = ABSENT
    error: Raw = ABSENT

    @property
    def has_id(self) -> bool:
        """Whether an id was sent; an explicit ``null`` counts as none."""
        raw = bytes(self.id)
        return raw not in (b"", b"null")

    @property
    def is_response(self) -> bool:
        """An answer to an earlier request.

        JavaScript leaves ``result`` out where a tool returns ``undefined``: it counts as ``null``.
        """
        answered = len(self.result) > 0 or len(self.error) > 0 or self.has_id
        return self.method is None and answered


_frames = msgspec.json.Decoder(Frame)
_encoder = msgspec.json.Encoder()
encode = _encoder.encode


def decode_frame(text: str | bytes) -> Frame:
    """Read one frame.

    Raises:
        ProtocolError: with code -32700 if it is not JSON, -32600 if it is not one JSON-RPC object.
    """
    try:
        frame = _decode_leniently(text)
    except msgspec.ValidationError as exc:
        raise ProtocolError(f"not a JSON-RPC object: {exc}", code=INVALID_REQUEST) from exc
    except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
        raise ProtocolError("frame is not valid JSON", code=PARSE_ERROR) from exc
    if frame.method is None and not frame.is_response:
        raise ProtocolError("neither a method nor a result nor an error", code=INVALID_REQUEST)
    return frame


def _decode_leniently(text: str | bytes) -> Frame:
    """Decode; halves of surrogate pairs, which JavaScript writes as escapes, become U+FFFD."""
    try:
        return _frames.decode(text)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeError):
        return _frames.decode(without_halves(text if isinstance(text, str) else text.decode()))


def without_halves(text: str) -> str:
    """JSON text in which escapes of halves of surrogate pairs are those of U+FFFD."""
    return _ESCAPES.sub(_without_half, text)


def _without_half(escape: re.Match[str]) -> str:
    return "\\ufffd" if escape["half"] else escape[0]


def decode(raw: Raw | bytes | str) -> Any:
    """Parse a raw member into plain Python values; an absent one is ``None``.

    Raises:
        ProtocolError: if it is not valid JSON.
    """
    if isinstance(raw, Raw) and not len(raw):
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
        raise ProtocolError("not valid JSON", code=PARSE_ERROR) from exc


def request(id_: int | str | Raw, method: str, params: Any) -> bytes:
    """Encode a request; ``params`` may hold :class:`Raw` members, which are copied as they are."""
    return encode({"jsonrpc": "2.0", "id": id_, "method": method, "params": params})


def notification(method: str, params: Any) -> bytes:
    """Encode a notification."""
    return encode({"jsonrpc": "2.0", "method": method, "params": params})


def response(id_: int | str | Raw, result: Any) -> bytes:
    """Encode a successful answer."""
    return encode({"jsonrpc": "2.0", "id": id_, "result": result})


def error_response(id_: int | str | Raw | None, message: str, *, code: int = SERVER_ERROR) -> bytes:
    """Encode a failure; ``id_`` is ``None`` where the request's own could not be read."""
    return encode({"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": message}})


def short_text(message: str) -> str:
    """Cut the text of an error to a length that is fit to be sent, and make it valid Unicode."""
    return message[:MAX_ERROR_CHARS].encode("utf-8", "replace").decode()


def error_text(error: Any) -> tuple[int, str]:
    """Read an error as any peer sends it: a string, ``{code, message}`` or anything else.

    Returns:
        The code (:data:`SERVER_ERROR` where none was sent) and a text.
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
