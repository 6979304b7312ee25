"""Errors of the model manager, with HTTP status, type and code as in OpenAI's API.

::

    ModelsError
    ├── InvalidRequest      400 invalid_request_error   a field of the request is wrong
    ├── RequestTooLarge     413 invalid_request_error   the request exceeds a limit
    ├── Unauthorized        401 authentication_error    the bearer token is missing or wrong
    ├── ModelNotServed      404 invalid_request_error   the model is not served here
    ├── Overloaded          429 rate_limit_error        the queue is full
    ├── DeadlinePassed      504 timeout_error           not finished within the caller's timeout
    └── ModelSetupError     500 server_error            a model cannot be found, built or loaded
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar


class ModelsError(Exception):
    """Base class. ``status`` is the HTTP status; ``kind`` and ``code`` are as in OpenAI's API."""

    status: ClassVar[int] = 500
    kind: ClassVar[str] = "server_error"
    code: ClassVar[str] = "internal_error"

    def __init__(
        self, message: str, *, param: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.param = param
        """The invalid field of the request; ``None`` if the error is not about one field."""
        self.retry_after = retry_after
        """Seconds to wait before a retry; ``None`` if unknown."""

    def body(self) -> dict[str, Any]:
        """Return the error in the shape of OpenAI's API, where ``kind`` is called ``type``."""
        return {
            "error": {
                "message": str(self),
                "type": self.kind,
                "param": self.param,
                "code": self.code,
            }
        }


class InvalidRequest(ModelsError):
    """A field of the request is invalid; the message starts with its name."""

    status = 400
    kind = "invalid_request_error"
    code = "invalid_value"


class RequestTooLarge(ModelsError):
    """The request exceeds a limit; the message names the limit."""

    status = 413
    kind = "invalid_request_error"
    code = "request_too_large"


class Unauthorized(ModelsError):
    """The HTTP request has no valid bearer token."""

    status = 401
    kind = "authentication_error"
    code = "invalid_api_key"

    def __init__(self) -> None:
        super().__init__("send the token of this server as 'Authorization: Bearer ...'")


class ModelNotServed(ModelsError):
    """The requested model is not served here; it is never replaced by another one."""

    status = 404
    kind = "invalid_request_error"
    code = "model_not_found"

    def __init__(self, model: str, served: Sequence[str]) -> None:
        names = ", ".join(served) or "none"
        super().__init__(f"model: {model!r} is not served here; served: {names}", param="model")


class Overloaded(ModelsError):
    """The request would exceed the maximum number of queued texts."""

    status = 429
    kind = "rate_limit_error"
    code = "rate_limit_exceeded"


class DeadlinePassed(ModelsError):
    """The response was not ready before the timeout."""

    status = 504
    kind = "timeout_error"
    code = "timeout"

    def __init__(self, timeout: float) -> None:
        super().__init__(
            f"not finished within {timeout:.3g} s; send fewer texts or allow more time"
        )


class ModelSetupError(ModelsError):
    """A model cannot be found, built, loaded or downloaded; hint or message name a remedy."""

    code = "model_setup"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
