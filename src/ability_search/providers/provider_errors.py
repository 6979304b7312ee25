"""Classification of the errors of model servers, by error text or HTTP status."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from ability_search.errors import SearchError
from kadi_client.errors import CallTimeout, KadiError, NotConnected, RemoteError

E = TypeVar("E", bound=SearchError)

Refusal = Literal["model", "texts", "key", "passing"]
"""The reason of an error: the model name, the texts, the key, or a temporary failure (passing)."""

_UNKNOWN_MODEL = re.compile(
    r"model\b.{0,300}\b(not served|not found|unknown|does not exist)|(unknown|invalid) model", re.I
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
    """A request that a model server did not fulfil.

    Attributes:
        refusal: The reason.
        api: Name of the HTTP API; ``None`` for the model manager of the network.
        status: HTTP status of the response.
        cause: The exception if the request could not be sent.
    """

    refusal: Refusal
    api: str | None = None
    status: int | None = None
    cause: Exception | None = None

    @property
    def who(self) -> str:
        """The name of the server, with the HTTP status if there is one."""
        if self.api is None:
            return "the network's model manager"
        return self.api if self.status is None else f"{self.api} ({self.status})"


def refusal_of_text(text: str) -> Refusal:
    """Return the reason of a model manager's error, which is given by its text only."""
    if _UNKNOWN_MODEL.search(text):
        return "model"
    if _REFUSED_TEXTS.search(text):
        return "texts"
    return "key" if _REFUSED_KEY.search(text) else "passing"


def refusal_of_status(status: int, text: str) -> Refusal:
    """Return the reason of an HTTP error with ``status`` and the body ``text``."""
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
    """Return the error for an objection; it is retryable only if the reason is temporary.

    Args:
        kind: Class of the error.
        objection: The objection.
        request: The request; its ``model`` is named if that is the reason.
        what: The verb for the request, as in "could not rerank".
        hints: Hints by reason.
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
    """Return the text of a returned error: a string, or OpenAI's object with a ``message``."""
    return str(error.get("message", "")) if isinstance(error, Mapping) else str(error)


def no_answer(tool: str, exc: KadiError) -> str:
    """Describe why a call of a tool on the network failed, without quoting the remote text."""
    match exc:
        case NotConnected():
            why = "the connection to the broker is lost"
        case CallTimeout():
            why = f"no answer within {exc.timeout:.3g} s"
        case RemoteError():
            why = "its provider is not available or failed"
        case _:
            why = "the broker refused the call"
    return f"{tool} did not answer: {why}"
