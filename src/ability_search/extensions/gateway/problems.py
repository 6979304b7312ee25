"""Failures over HTTP: problem documents (RFC 9457) with code, hint and `retryable`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from pydantic import Field
from starlette.responses import Response

from ability_search.errors import SearchError
from ability_search.wire import Result

MEDIA_TYPE = "application/problem+json"
TYPE = "urn:ability-search:error:"

GATEWAY = "gateway"
"""The ``tool`` in the report of a failure that is the gateway's own."""

CLIENT_CLOSED_REQUEST = 499
"""Status for the log only: the client has disconnected."""

STATUSES: Mapping[str, int] = {
    "invalid_input": 400,
    "unauthorized": 401,
    "forbidden_path": 403,
    "forbidden_origin": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "model_mismatch": 409,
    "dimension_mismatch": 409,
    "cancelled": 409,
    "too_large": 413,
    "unsupported_media_type": 415,
    "misdirected": 421,
    "rate_limited": 429,
    "internal": 500,
    "not_installed": 501,
    "not_offered": 501,
    "busy": 503,
    "embedding_unavailable": 503,
    "database_unavailable": 503,
    "unavailable": 503,
    "timeout": 504,
}
"""Error code -> HTTP status; unknown codes become 500."""


class RateLimited(SearchError):
    """The address has exceeded the rate limit."""

    code = "rate_limited"
    retryable = True
    default_hint = "Call again after Retry-After seconds, or increase the setting gateway_rate."


class NotInstalled(SearchError):
    """A required extra is not installed."""

    code = "not_installed"


class Problem(Result):
    """A failure, as in RFC 9457."""

    type: str
    title: str
    status: int
    detail: str = Field(description="What went wrong.")
    code: str = Field(json_schema_extra={"enum": [*sorted(STATUSES)]})
    hint: str = Field(description="How to resolve it.")
    retryable: bool = Field(description="Whether a retry may succeed.")
    retry_after_ms: int | None = None
    tool: str | None = None
    collection: str | None = None


def problem(report: Mapping[str, Any], *, headers: Mapping[str, str] | None = None) -> Response:
    """Return the problem response for the report of a failure."""
    code = str(report.get("code") or SearchError.code)
    status = STATUSES.get(code, HTTPStatus.INTERNAL_SERVER_ERROR)
    after, tool, collection = (report.get(name) for name in ("retryAfterMs", "tool", "collection"))
    body = Problem(
        type=f"{TYPE}{code}",
        title=code.replace("_", " ").capitalize(),
        status=status,
        detail=str(report.get("error") or ""),
        code=code,
        hint=str(report.get("hint") or ""),
        retryable=bool(report.get("retryable")),
        retry_after_ms=round(after) if isinstance(after, int | float) else None,
        tool=None if tool in (None, GATEWAY) else str(tool),
        collection=None if collection is None else str(collection),
    )
    own = {}
    if body.retry_after_ms is not None:
        own["Retry-After"] = str(max(1, math.ceil(body.retry_after_ms / 1000)))
    elif body.retryable and status == HTTPStatus.SERVICE_UNAVAILABLE:
        own["Retry-After"] = "1"
    if status == HTTPStatus.UNAUTHORIZED:
        own["WWW-Authenticate"] = "Bearer"
    return Response(
        body.model_dump_json(by_alias=True, exclude_none=True),
        status_code=status,
        media_type=MEDIA_TYPE,
        headers={**own, **(headers or {})},
    )
