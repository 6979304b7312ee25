"""How servers of models say no: in words, or by an HTTP status."""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from ability_search.errors import SearchError

E = TypeVar("E", bound=SearchError)

Refusal = Literal["model", "texts", "key", "passing"]
"""What a server objects to: the model's name, the very texts, the key; or nothing that stays."""

_UNKNOWN_MODEL = re.compile(
    r"model\b.{0,300}\b(not served|not found|unknown|does not exist)|unknown model", re.I
)
_REFUSED_TEXTS = re.compile(
    r"^(input|query|documents)\b|too (large|long)\b|context length"
    r"|exceeds the limit of \d+ bytes",
    re.I,
)
_REFUSED_KEY = re.compile(r"api.?key|authenticat|unauthori[sz]ed|forbidden", re.I)
_LONGEST_PAUSE = 24 * 3600.0
_BUSY = frozenset({408, 425, 429})


def refusal_of_text(text: str) -> Refusal:
    """What a model manager objects to, which tells it in words only."""
    if _UNKNOWN_MODEL.search(text):
        return "model"
    if _REFUSED_TEXTS.search(text):
        return "texts"
    return "key" if _REFUSED_KEY.search(text) else "passing"


def refusal_of_status(status: int, text: str) -> Refusal:
    """What a server objects to that answered ``status`` with the body ``text``."""
    if status in _BUSY or status >= 500:
        return "passing"
    if status == 404 or _UNKNOWN_MODEL.search(text[:2000]):
        return "model"
    return "texts" if status in (400, 413, 422) else "key"


def refused(
    kind: type[E],
    refusal: Refusal,
    request: Mapping[str, Any],
    *,
    who: str,
    what: str,
    hints: Mapping[str, str],
) -> E:
    """The error that tells of a refusal; what is not passing need not be tried again.

    Args:
        kind: of error.
        refusal: What the server objects to.
        request: What it was asked; ``model`` is named if it objects to that.
        who: The server.
        what: It could not do.
        hints: By what it objects to.
    """
    if refusal == "passing":
        return kind(f"{who} could not {what}")
    named = refusal == "model" and "model" in request
    object_ = f"model {request['model']!r}" if named else refusal
    error = kind(f"{who} refused the {object_}", hint=hints[refusal])
    error.retryable = False
    return error


def error_text(error: Any) -> str:
    """The words of a returned error: a text, or OpenAI's object with a ``message``."""
    return str(error.get("message", "")) if isinstance(error, Mapping) else str(error)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a Retry-After header asks for, whether as a number or as a date (RFC 9110).

    At most a day, at least 0; ``None`` without the header, or if it is neither.
    """
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return min(float(value), _LONGEST_PAUSE)
    try:
        left = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
    except (ValueError, OverflowError):
        return None
    return min(max(0.0, left), _LONGEST_PAUSE)
