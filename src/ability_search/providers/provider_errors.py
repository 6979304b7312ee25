"""Classification of the errors of model servers, by error text or HTTP status."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import SecretStr

from kadi_client.errors import (
    CallTimeout,
    KadiError,
    NoProvider,
    NotConnected,
    ProviderLost,
    RemoteError,
)

Refusal = Literal["model", "texts", "key", "address", "absent", "passing", "lost", "failed"]
"""The reason of an error: the model name, the texts, the key, the path of the URL, that there is no
server (absent), a temporary failure (passing), the end of the server while it worked on the request
(lost), or any other failure, temporary or caused by the request (failed)."""
TEMPORARY: frozenset[Refusal] = frozenset({"absent", "passing", "lost", "failed"})

_UNKNOWN_MODEL = re.compile(
    r"model\b.{0,300}\b(not served|not found|unknown|does not exist|not supported)"
    r"|(unknown|invalid|unsupported|no such) model",
    re.I,
)
_REFUSED_TEXTS = re.compile(
    r"^(input|query|documents)\b|too (large|long)\b|context length|batch size|too many inputs"
    r"|exceeds the limit of \d+ bytes",
    re.I,
)
_REFUSED_KEY = re.compile(r"api.?key|authenticat|unauthori[sz]ed|forbidden", re.I)
_BUSY = frozenset({408, 425, 429, 503, 504, 529})
_BUSY_TEXT = re.compile(
    r"\b(busy|queued|overloaded|rate limit|too many (requests|calls)|not finished|time(d )?out"
    r"|unavailable|try again|no provider)\b",
    re.I,
)
_LOST_TEXT = re.compile(
    r"\b(disconnected|connection (was )?(closed|lost|reset)"
    r"|(provider|agent|session|process|worker)\b.{0,60}\b(left|died|ended|crashed|gone))\b",
    re.I,
)
_MODEL = re.compile(r"\bmodel\b", re.I)
WRONG_ADDRESS = "Check the path of the API's URL: /v1 and the route are added to it."
UNREACHED = "Check the API's URL, and that its server runs."
_MESSAGES = ("error", "message", "detail", "errors", "error_message", "fault")
"""Members with the message of an error, in the order in which they are read."""
_DETAILS = ("description", "reason", "faultstring", "text", "content", "title", "type")
"""Members with the message of an object that is an error."""
_MARKUP = re.compile(
    r"<(style|script)\b(?:[^<]++|<(?!/\1\b))*+(?:</\1[^<>]*+>)?|<[^<>]*+>", re.IGNORECASE
)
_REPEATED = 8
"""Minimum characters of a text of a request that is hidden where a server repeats it."""
_SAID = 300
"""Maximum characters of the words of a server in an error."""
_READ = 4096
_HIDDEN = re.compile(
    r"(?<=://)[^\s/@]+@|\b(?:sk|pk|rk|hf|gsk|xai|ghp)[-_][\w-]{8,}|(?<=bearer )\S+"
    r"|(?<![\w/.])/(?:home|root|usr|var|opt|tmp|app|srv|mnt|data|etc)/\S+|\b[A-Z]:\\\S+",
    re.I,
)
"""Credentials, and paths of the server's machine."""


@dataclass(frozen=True, slots=True)
class Objection:
    """A request that a model server did not fulfil.

    Attributes:
        refusal: The reason.
        api: Name of the HTTP API; ``None`` for the model manager of the network.
        status: HTTP status of the response.
        said: The words of the server, see :func:`words_of`.
        url: Address of the HTTP API.
        cause: The error of the network, if there was one.
    """

    refusal: Refusal
    api: str | None = None
    status: int | None = None
    said: str = ""
    url: str = ""
    cause: KadiError | None = None

    @property
    def who(self) -> str:
        """The name of the server, with its host and the HTTP status if there is one."""
        if self.api is None:
            return "the network's model manager"
        host = urlsplit(self.url).netloc.rpartition("@")[2]
        at = f" at {host}" if host else ""
        return f"{self.api}{at}" if self.status is None else f"{self.api}{at} ({self.status})"

    def quoted(self, problem: str) -> str:
        """Return a problem followed by the words of the server, if it said any."""
        return f"{problem}: {self.said!r}" if self.said else problem


def refusal_of_text(text: str) -> Refusal:
    """Return the reason of a model manager's error, which is given by its text only."""
    if _UNKNOWN_MODEL.search(text):
        return "model"
    if _REFUSED_TEXTS.search(text):
        return "texts"
    if _REFUSED_KEY.search(text):
        return "key"
    if _LOST_TEXT.search(text):
        return "lost"
    return "passing" if _BUSY_TEXT.search(text) else "failed"


def refusal_of_status(status: int, text: str) -> Refusal:
    """Return the reason of an HTTP error with ``status`` and the body ``text``."""
    if status in _BUSY:
        return "passing"
    if status >= 500:
        return "failed"
    if _UNKNOWN_MODEL.search(text[:2000]) or (status == 404 and _MODEL.search(text[:2000])):
        return "model"
    if status in (404, 405, 406, 410, 411, 415):
        return "address"
    if status == 400 and _REFUSED_KEY.search(text[:2000]):
        return "key"
    return "texts" if status in (400, 413, 422) else "key"


def message_in(value: Any, *, error: bool = True) -> str:
    """Return the message in an error of any common shape; empty if there is none.

    That is a text, the first three messages of a list, or the member of an object that is named
    ``error``, ``message`` or alike, at any depth. Validation errors are named by their place.

    Args:
        value: The error.
        error: Whether it is one; of another object only members that errors have are read.
    """
    if isinstance(value, str):
        return value.strip() if error else ""
    if isinstance(value, list | tuple):
        return "; ".join(filter(None, (message_in(each, error=error) for each in value[:3])))
    if not isinstance(value, Mapping):
        return ""
    if isinstance(value.get("msg"), str):
        place = value.get("loc")
        at = ".".join(map(str, place)) if isinstance(place, list | tuple) else ""
        return f"{at}: {value['msg']}" if at else str(value["msg"])
    names = _MESSAGES + _DETAILS if error else _MESSAGES
    return next(filter(None, (message_in(value.get(name)) for name in names)), "")


def words_of(text: str, request: Mapping[str, Any], key: SecretStr | None = None) -> str:
    """Return what a server said in an error, on one line of at most 300 characters.

    Of a JSON body it is the message, of HTML the text. The key, other credentials, paths of its
    machine, and texts of the request that it repeats are replaced by ``...``.

    Args:
        text: The error, or the body of the response.
        request: The request.
        key: Key that was sent with it.
    """
    found = text[:_READ]
    try:
        found = message_in(json.loads(text))[:_READ] or found if len(text) <= _READ else found
    except ValueError:
        if found.lstrip()[:1] == "<":
            found = _MARKUP.sub(" ", found)
    hidden = [key.get_secret_value()] if key else []
    hidden += [each for each in _texts(request) if len(each) >= _REPEATED]
    for each in hidden:
        found = found.replace(each, "...")
    line = " ".join("".join(c if c.isprintable() else " " for c in found).split())
    line = _HIDDEN.sub("...", line)
    return line if len(line) <= _SAID else f"{line[: _SAID - 3]}..."


def _texts(request: Mapping[str, Any]) -> list[str]:
    """Return the texts of a request."""
    values = [request.get(name) for name in ("input", "query", "documents")]
    values += [each.get("content") for each in request.get("messages") or ()]
    lists = (each if isinstance(each, list) else [each] for each in values)
    return [text for each in lists for text in each if isinstance(text, str)]


def texts_in(value: Any) -> Iterator[str]:
    """Yield the texts in a value at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from texts_in(part)
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        for part in value:
            yield from texts_in(part)


def no_answer(
    tool: str,
    exc: KadiError,
    request: Mapping[str, Any],
    *,
    who: str = "its provider",
    caller: str = "this worker",
) -> str:
    """Describe why a call of a tool on the network failed.

    The words of the provider are quoted as by :func:`words_of`.

    Args:
        tool: Name of the tool.
        exc: The failure of the call.
        request: Input of the call, whose texts are not repeated.
        who: Describes the agent that was called.
        caller: Describes the agent that called it.
    """
    words = words_of(str(exc), request)
    match exc:
        case NotConnected():
            why = f"the connection to the broker is lost: {words!r}"
        case CallTimeout():
            why = f"{who} gave no answer within {exc.timeout:.3g} s"
        case NoProvider():
            why = f"no agent on the networks of {caller} offers it: {words_of(str(exc), {})}"
        case ProviderLost():
            why = f"{who} disconnected before it answered"
        case RemoteError():
            why = f"{who} failed: {words!r}"
        case _:
            why = f"the broker refused the call: {words!r}"
    return f"{tool} did not answer: {why}"
