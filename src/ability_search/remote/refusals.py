"""How servers of models say no: in words, or by an HTTP status."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from ability_search.errors import SearchError
from kadi_client.errors import CallTimeout, KadiError, NotConnected, RemoteError

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
_BUSY = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a server did not do as asked.

    Attributes:
        refusal: What it objects to.
        api: What the HTTP API is called; ``None`` for the model manager of the network.
        status: That the API answered with.
        cause: Why the request could not even be sent.
    """

    refusal: Refusal
    api: str | None = None
    status: int | None = None
    cause: Exception | None = None

    @property
    def who(self) -> str:
        """The server, and the status it answered with."""
        if self.api is None:
            return "the network's model manager"
        return self.api if self.status is None else f"{self.api} ({self.status})"


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
    objection: Objection,
    request: Mapping[str, Any],
    *,
    what: str,
    hints: Mapping[str, str],
) -> E:
    """The error that tells of an objection; what is not passing need not be tried again.

    Args:
        kind: of error.
        objection: Of the server.
        request: What it was asked; ``model`` is named if it objects to that.
        what: It could not do.
        hints: By what it objects to.
    """
    refusal = objection.refusal
    if refusal == "passing":
        return kind(f"{objection.who} could not {what}")
    named = refusal == "model" and "model" in request
    object_ = f"model {request['model']!r}" if named else refusal
    error = kind(f"{objection.who} refused the {object_}", hint=hints[refusal])
    error.retryable = False
    return error


def error_text(error: Any) -> str:
    """The words of a returned error: a text, or OpenAI's object with a ``message``."""
    return str(error.get("message", "")) if isinstance(error, Mapping) else str(error)


def no_answer(tool: str, exc: KadiError) -> str:
    """Why a call of a tool on the network had no answer, in none of the other side's words."""
    match exc:
        case NotConnected():
            why = "the connection to the broker is lost"
        case CallTimeout():
            why = f"{exc.timeout:.3g} s are over"
        case RemoteError():
            why = "who offers it is away, or failed"
        case _:
            why = "the broker refused the call"
    return f"{tool} did not answer: {why}"
