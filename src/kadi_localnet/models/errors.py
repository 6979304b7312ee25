"""Failures of the model manager, with the status and the words an OpenAI client knows.

::

    ModelsError
    ├── InvalidRequest      400 invalid_request_error   a field of the request is wrong
    ├── RequestTooLarge     413 invalid_request_error   the request exceeds a limit
    ├── Unauthorized        401 authentication_error    the HTTP door asks for its token
    ├── ModelNotServed      404 invalid_request_error   no such model here
    ├── Overloaded          429 rate_limit_error        as much work is queued as is allowed
    ├── UpstreamFailed      502 upstream_error          the upstream server gave nothing usable
    ├── DeadlinePassed      504 timeout_error           not done within the caller's time
    └── ModelSetupError     500 server_error            a model cannot be found, built or loaded
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar


class ModelsError(Exception):
    """Base: ``status`` is the HTTP status, ``kind`` and ``code`` OpenAI's ``type`` and ``code``."""

    status: ClassVar[int] = 500
    kind: ClassVar[str] = "server_error"
    code: ClassVar[str] = "internal_error"

    def __init__(
        self, message: str, *, param: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.param = param
        """The field of the request that is to blame, if one is."""
        self.retry_after = retry_after
        """Seconds after which a retry makes sense, where that is known."""

    def body(self) -> dict[str, Any]:
        """The error as OpenAI's API words it."""
        return {
            "error": {
                "message": str(self),
                "type": self.kind,
                "param": self.param,
                "code": self.code,
            }
        }


class InvalidRequest(ModelsError):
    """A field of the request is wrong; the message starts with its name."""

    status = 400
    kind = "invalid_request_error"
    code = "invalid_value"


class RequestTooLarge(ModelsError):
    """The request exceeds a limit; the message names the limit."""

    status = 413
    kind = "invalid_request_error"
    code = "request_too_large"


class Unauthorized(ModelsError):
    """The HTTP request did not carry the bearer token."""

    status = 401
    kind = "authentication_error"
    code = "invalid_api_key"

    def __init__(self) -> None:
        super().__init__("send the token of this server as 'Authorization: Bearer ...'")


class ModelNotServed(ModelsError):
    """The requested model is not served here; another one is never used in its place."""

    status = 404
    kind = "invalid_request_error"
    code = "model_not_found"

    def __init__(self, model: str, served: Sequence[str]) -> None:
        names = ", ".join(served) or "none"
        super().__init__(f"model: {model!r} is not served here; served: {names}", param="model")
        self.model = model
        self.served = tuple(served)


class Overloaded(ModelsError):
    """As many texts are queued as the settings allow."""

    status = 429
    kind = "rate_limit_error"
    code = "rate_limit_exceeded"


class UpstreamFailed(ModelsError):
    """The upstream server failed, refused, or answered something unusable."""

    status = 502
    kind = "upstream_error"
    code = "upstream_failed"


class DeadlinePassed(ModelsError):
    """The answer was not ready in time."""

    status = 504
    kind = "timeout_error"
    code = "timeout"

    def __init__(self, timeout: float) -> None:
        super().__init__(f"not done within {timeout:.3g} s; send fewer texts or allow more time")


class ModelSetupError(ModelsError):
    """A model cannot be found, built, loaded or downloaded; the message says what to do."""

    code = "model_setup"
