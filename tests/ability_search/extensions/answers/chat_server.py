"""A server with OpenAI's chat completions that streams what a test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ability_search.extensions.cli.http_server import serve_http


def said(text: str) -> dict[str, Any]:
    """A whole completion."""
    return {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]}


@dataclass
class ChatServer:
    """What it says, word by word, and what it was asked."""

    home: Path
    url: str = ""
    says: str = "Backups run every night at 02:00 [1]."
    status: int = 200
    done: bool = True
    """Whether the stream ends as it should."""
    body: str | None = None
    """A whole answer, instead of a stream."""
    kind: str = "application/json"
    """The type of this answer."""
    hold: asyncio.Event | None = None
    """Waits for it after the last word."""
    held: asyncio.Event = field(default_factory=asyncio.Event)
    dropped: asyncio.Event = field(default_factory=asyncio.Event)
    """The caller went away meanwhile."""
    requests: list[dict[str, Any]] = field(default_factory=list)

    async def answer(self, request: Request) -> Response:
        self.requests.append(await request.json())
        if self.body is not None or self.status != 200:
            return Response(self.body, self.status, media_type=self.kind)
        return StreamingResponse(self._stream(), media_type="text/event-stream")

    async def _stream(self) -> AsyncIterator[str]:
        yield _chunk({"role": "assistant", "content": ""})
        for word in self.says.split(" "):
            yield _chunk({"content": f"{word} "})
        if self.hold is not None:
            self.held.set()
            try:
                await self.hold.wait()
            except asyncio.CancelledError:
                self.dropped.set()
                raise
        yield _chunk({}, finish_reason="stop")
        if self.done:
            yield "data: [DONE]\n\n"


def _chunk(delta: dict[str, Any], finish_reason: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    chunk = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "usual"}
    return f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\n"


@asynccontextmanager
async def chat_server(home: Path) -> AsyncIterator[ChatServer]:
    """The server on a free port."""
    server = ChatServer(home)
    app = Starlette(routes=[Route("/v1/chat/completions", server.answer, methods=["POST"])])
    async with serve_http(app, "127.0.0.1", 0, token=None, prefix="chat") as url:
        server.url = url
        yield server
        if server.hold is not None:
            server.hold.set()
