"""Servers of models elsewhere, as a test plays them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

KEY = "sk-very-secret"


@dataclass
class Upstreamed:
    """A server that answers ``failures``, then by a function, and remembers what it was asked."""

    route: str
    answer: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    asked: list[tuple[dict[str, Any], str | None]] = field(default_factory=list)
    """Requests, each with its header Authorization."""
    failures: list[Response] = field(default_factory=list)
    forever: asyncio.Event | None = None
    """Answers wait for it."""

    def app(self) -> Starlette:
        return Starlette(routes=[Route(f"/v1/{self.route}", self.handle, methods=["POST"])])

    async def handle(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append((body, request.headers.get("authorization")))
        if self.forever:
            await self.forever.wait()
        return self.failures.pop(0) if self.failures else JSONResponse(self.answer(body))
