"""Access checks of an HTTP server: host, origin, content type, bearer token."""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from typing import Any

from ability_search.errors import SearchError
from kadi_client.addresses import is_loopback

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
"""An ASGI application."""

JSON = "application/json"

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST = re.compile(r"(?P<name>\[[\da-f:.]++\]|[\w.-]++)(?::\d*+)?", re.ASCII | re.IGNORECASE)
_OTHER_SITES = ("cross-site", "same-site")


class AccessDenied(SearchError):
    """A request that is refused before its body is read."""

    status = 403


class Unauthorized(AccessDenied):
    """The bearer token is missing or wrong."""

    code = "unauthorized"
    status = 401
    default_hint = "Send the header `Authorization: Bearer TOKEN`."


class ForbiddenOrigin(AccessDenied):
    """The request comes from a page of an origin that is not allowed."""

    code = "forbidden_origin"
    default_hint = "For the gateway, add the origin to the setting gateway_origins."


class Misdirected(AccessDenied):
    """The Host header is not allowed."""

    code = "misdirected"
    status = 421
    default_hint = "Use localhost; for the gateway, add the name to the setting gateway_hosts."


class UnsupportedMediaType(AccessDenied):
    """The Content-Type of the body is not JSON."""

    code = "unsupported_media_type"
    status = 415
    default_hint = "Send the header `Content-Type: application/json`."


class BrowserPolicy:
    """Protects a server from web pages that a browser on the same machine shows.

    If the server listens on loopback only, or ``hosts`` is given, other names in the Host header
    are refused; this prevents DNS rebinding. Requests from pages of other origins are refused, also
    where a browser sends no Origin header (an image, an event stream) but Sec-Fetch-Site.

    Args:
        host: Address that the server listens on.
        hosts: Additional allowed names.
        origins: Allowed origins.
    """

    def __init__(
        self, host: str, *, hosts: Collection[str] = (), origins: Collection[str] = ()
    ) -> None:
        own = _LOOPBACK if is_loopback(host) else frozenset()
        self._hosts = own | {name.lower() for name in hosts}
        self._origins = frozenset(origins)

    def check(self, headers: Mapping[str, str], *, is_page: bool = False) -> None:
        """Check the headers of a request; pages of any site may link to an ``is_page`` path.

        Raises:
            Misdirected: if the Host header is not allowed.
            ForbiddenOrigin: if the request comes from a page of another origin.
        """
        host = headers.get("host", "")
        match = _HOST.fullmatch(host)
        if self._hosts and (match["name"].strip("[]").lower() if match else "") not in self._hosts:
            raise Misdirected("this host name is not allowed")
        origin = headers.get("origin")
        if origin is not None:
            allowed = origin in self._origins or origin.lower().endswith(f"://{host.lower()}")
        else:
            allowed = headers.get("sec-fetch-site") not in _OTHER_SITES or (
                is_page and headers.get("sec-fetch-dest") == "document"
            )
        if not allowed:
            raise ForbiddenOrigin("this origin is not allowed")


def check_bearer(headers: Mapping[str, str], token: bytes) -> None:
    """Check the bearer token of a request.

    Raises:
        Unauthorized: if it is missing or wrong.
    """
    scheme, _, given = headers.get("authorization", "").partition(" ")
    same = hmac.compare_digest(given.strip().encode("latin-1"), token)
    if not same or scheme.lower() != "bearer":
        raise Unauthorized("the bearer token is missing or wrong")


def check_json(headers: Mapping[str, str]) -> None:
    """Check that the body of a request is JSON.

    Browsers send JSON to another origin only after a preflight request, so this check blocks pages
    of other origins.

    Raises:
        UnsupportedMediaType: if it is not.
    """
    if headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise UnsupportedMediaType(f"Content-Type must be {JSON}")


def guarded(app: App, host: str) -> App:
    """Return an application that refuses requests of other sites, and bodies that are not JSON.

    Refusals, also those that ``app`` raises, have the shape of errors of OpenAI's API.

    Args:
        app: The application.
        host: Address that the server listens on.
    """
    policy = BrowserPolicy(host)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            headers = headers_of(scope)
            policy.check(headers)
            if scope["method"] == "POST":
                check_json(headers)
            await app(scope, receive, send)
        except AccessDenied as exc:
            error = {"message": f"{exc}. {exc.hint}", "type": "invalid_request_error"}
            body = {"error": {**error, "param": None, "code": exc.code}}
            await send_text(send, json.dumps(body).encode(), JSON, exc.status)

    return answer


def headers_of(scope: Scope) -> dict[str, str]:
    """Return the headers of a request by lower-case name; the first of each name counts."""
    pairs = reversed(scope["headers"])
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in pairs}


async def send_text(send: Send, body: bytes, content_type: str, status: int = 200) -> None:
    """Send a whole response."""
    headers = [
        (b"content-type", content_type.encode()),
        (b"content-length", str(len(body)).encode()),
    ]
    if status == Unauthorized.status:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
