"""Errors of the KADI client.

::

    KadiError
    ├── ProtocolError           a frame that breaks the protocol
    │   └── FrameTooLarge       a message over the agreed limit, refused before it is sent
    ├── AuthenticationError     the broker did not accept the identity
    ├── NotConnected            no session at the moment, or it was lost during the call
    ├── CallTimeout             no answer before the deadline
    ├── RemoteError             the other side answered with an error
    │   ├── NoProvider          no agent in a shared network serves the tool; nothing ran
    │   └── ProviderLost        the agent disconnected before it answered; the call may have run
    ├── ToolError               the tool answered that it failed
    ├── DecryptionError         a sealed box made for another identity, or damaged
    └── SecretsError            the secrets of a deployment were not received
        ├── SecretsTimeout      no deployer answered before the deadline
        ├── SecretsRejected     the deployer refused
        ├── SecretsUnreadable   its answer cannot be decrypted or understood
        └── SecretsMissing      its answer lacks a required secret
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
SERVER_ERROR = -32000


class KadiError(Exception):
    """Base class of the errors of this package."""


class ProtocolError(KadiError):
    """A frame that breaks the protocol; ``code`` is its JSON-RPC error code."""

    def __init__(self, message: str, *, code: int = INVALID_REQUEST) -> None:
        super().__init__(message)
        self.code = code


class FrameTooLarge(ProtocolError):
    """A message of ``size`` bytes where at most ``limit`` are allowed."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"message of {size} bytes exceeds the limit of {limit} bytes")
        self.size = size
        self.limit = limit


class AuthenticationError(KadiError):
    """The broker refused the identity."""


class NotConnected(KadiError):
    """There is no session with the broker, or it was lost during the call.

    In the latter case the tool may have run.
    """


class CallTimeout(KadiError):
    """No answer to ``tool`` within ``timeout`` seconds."""

    def __init__(self, tool: str, timeout: float) -> None:
        super().__init__(tool, timeout)
        self.tool = tool
        self.timeout = timeout

    def __str__(self) -> str:
        return f"no answer from {self.tool!r} within {self.timeout:g} s"


class RemoteError(KadiError):
    """The broker or the provider answered with an error.

    ``code`` is the JSON-RPC code where one was sent, else :data:`SERVER_ERROR`.
    """

    def __init__(self, message: str, *, code: int = SERVER_ERROR) -> None:
        super().__init__(message)
        self.code = code


class NoProvider(RemoteError):
    """No agent in a shared network serves the tool; nothing ran."""


class ProviderLost(RemoteError):
    """The agent that served the call disconnected before it answered; the call may have run."""


class ToolError(KadiError):
    """The tool answered, and its answer says that it failed: ``{success: false, error, ...}``.

    Example:
        try:
            await broker.invoke("search-query", {"collection": "recipes", "query": "bread"})
        except ToolError as error:
            print(error.code, error, error.hint)

    Not a :class:`RemoteError`, where there is no answer at all. ``str()`` gives the tool's own
    words. Only ``answer`` is certain; every other field is read leniently, as many abilities send
    ``error`` and nothing else.

    Attributes:
        tool: Name of the tool that was called.
        answer: The whole answer.
        code: The tool's code for the failure; empty if it sent none.
        hint: What the caller can do about it, as text; empty if it sent none.
        retryable: Whether the same call may succeed later; false if it did not say so.
        retry_after: Seconds to wait before trying again; ``None`` if it did not say so.
    """

    def __init__(self, tool: str, answer: Mapping[str, Any]) -> None:
        super().__init__(tool, answer)
        self.tool = tool
        self.answer = dict(answer)
        self.code = _text(answer.get("code"))
        self.hint = _text(answer.get("hint"))
        self.retryable = answer.get("retryable") is True
        self.retry_after = _seconds(answer.get("retryAfterMs"))

    def __str__(self) -> str:
        error = self.answer.get("error")
        if isinstance(error, Mapping):  # OpenAI's shape: {error: {message, type, ...}}
            error = error.get("message")
        return _text(error) or f"{self.tool} failed and gave no reason"


class DecryptionError(KadiError):
    """The sealed box was made for another identity, or is damaged."""


class SecretsError(KadiError):
    """The secrets of a deployment were not received; no text of these errors holds a value."""


class SecretsTimeout(SecretsError):
    """No deployer answered within ``timeout`` seconds."""

    def __init__(self, timeout: float) -> None:
        super().__init__(timeout)
        self.timeout = timeout

    def __str__(self) -> str:
        return f"no deployer answered within {self.timeout:g} s"


class SecretsRejected(SecretsError):
    """The deployer refused; ``reason`` is what it said, ``None`` if it said nothing."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the deployer refused: {self.reason or 'it gave no reason'}"


class SecretsUnreadable(SecretsError):
    """The deployer's answer cannot be decrypted or is malformed."""


class SecretsMissing(SecretsError):
    """The deployer's answer lacks the required secrets ``names``."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(*names)
        self.names = tuple(names)

    def __str__(self) -> str:
        return f"the deployer did not send {', '.join(self.names)}"


def _text(value: Any) -> str:
    """Return a text or a number as text, and anything else as an empty one."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number or isinstance(value, str) else ""


def _seconds(milliseconds: Any) -> float | None:
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float):
        return None
    return max(0.0, milliseconds / 1e3)
