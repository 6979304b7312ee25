"""Failures over HTTP: problem documents (RFC 9457) with code, hint and `retryable`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

from ability_search.errors import SearchError

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


def problem(report: Mapping[str, Any], *, headers: Mapping[str, str] | None = None) -> Response:
    """Return the problem response for the report of a failure."""
    code = str(report.get("code") or SearchError.code)
    status = STATUSES.get(code, HTTPStatus.INTERNAL_SERVER_ERROR)
    body = {
        "type": f"{TYPE}{code}",
        "title": code.replace("_", " ").capitalize(),
        "status": status,
        "detail": report.get("error") or "",
        "code": code,
        "hint": report.get("hint") or "",
        "retryable": bool(report.get("retryable")),
    }
    tool = report.get("tool")
    further = {
        "tool": None if tool == GATEWAY else tool,
        "collection": report.get("collection"),
        "retryAfterMs": report.get("retryAfterMs"),
    }
    body |= {name: value for name, value in further.items() if value is not None}
    return Response(
        msgspec.json.encode(body),
        status_code=status,
        media_type=MEDIA_TYPE,
        headers={**_headers(report, status), **(headers or {})},
    )


def _headers(report: Mapping[str, Any], status: int) -> dict[str, str]:
    headers = {}
    after = report.get("retryAfterMs")
    if after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(after / 1000)))
    elif report.get("retryable") and status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = "1"
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return headers
