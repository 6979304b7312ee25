"""Servers of models as a test plays them: an HTTP API, and a model manager behind a broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from pydantic import SecretStr

from ability_search.config.model_settings import Embedding
from ability_search.providers.embedder import RemoteEmbedder
from ability_search.providers.http_transport import OverHttp
from ability_search.providers.transports import (
    OverBroker,
    Service,
    Transport,
)
from kadi_client import Call, Connection, Tool
from kadi_localnet.broker import serve_broker

KEY = "sk-very-secret"
Answer = Callable[[Mapping[str, Any]], Any]


@dataclass
class Api:
    """An HTTP server that answers by a list of prepared answers, then by a function."""

    answer: Answer
    url: str = ""
    answers: list[tuple[int, Mapping[str, str], bytes]] = field(default_factory=list)
    seen: list[tuple[str, Mapping[str, str], Any]] = field(default_factory=list)
    """Path, headers and body of each request."""
    hang: asyncio.Event | None = None

    def prepare(self, status: int, body: Any = b"", **headers: str) -> None:
        encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers.append((status, named, encoded))

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode("latin-1").split("\r\n")
                headers = {
                    name.lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in lines if line)
                }
                body = json.loads(await reader.readexactly(int(headers["content-length"])))
                self.seen.append((first.split()[1], headers, body))
                if self.hang is not None:
                    await self.hang.wait()
                status, further, content = self._answer(body)
                if not status:  # breaks the connection off
                    break
                fields = {"content-length": str(len(content)), **further}
                if "transfer-encoding" in fields:
                    del fields["content-length"]
                text = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
                writer.write(f"HTTP/1.1 {status} X\r\n{text}\r\n".encode("latin-1") + content)
                await writer.drain()
                if fields.get("connection") == "close":
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answer(self, body: Any) -> tuple[int, Mapping[str, str], bytes]:
        if self.answers:
            return self.answers.pop(0)
        return 200, {}, json.dumps(self.answer(body)).encode()


@asynccontextmanager
async def http_api(answer: Answer) -> AsyncIterator[Api]:
    """The API on a free port."""
    api = Api(answer)
    server = await asyncio.start_server(api.handle, "127.0.0.1", 0)
    api.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield api
    finally:
        server.close()
        if api.hang is not None:
            api.hang.set()


class ByFunction(Transport):
    """A transport whose requests are answered by a function."""

    def __init__(self, send: Callable[..., Awaitable[Any]]) -> None:
        self._send = send

    async def __call__(self, request: Mapping[str, Any], *, timeout: float) -> Any:
        return await self._send(request, timeout=timeout)


@asynccontextmanager
async def asking(service: Service, api: Api) -> AsyncIterator[Transport]:
    """The way to an API."""
    async with httpx.AsyncClient() as client:
        yield OverHttp(service, client, api.url, api_key=SecretStr(KEY))


@asynccontextmanager
async def manager(service: Service, answer: Answer) -> AsyncIterator[Transport]:
    """The way to a model manager behind a broker, whose tool answers, or raises, by ``answer``."""

    async def handle(tool_input: dict[str, Any], _call: Call) -> Any:
        return answer(tool_input)

    tool = Tool(service.tool, "Of models.", {"type": "object"}, handle)
    async with (
        serve_broker("127.0.0.1", 0) as broker,
        Connection(broker.url, tools=[tool]),
        Connection(broker.url, max_message_bytes=100_000) as client,
    ):
        yield OverBroker(service, client.invoke, api_key=SecretStr(KEY))


def embedder(transport: Transport, **options: Any) -> RemoteEmbedder:
    defaults: dict[str, Any] = {
        "batch_texts": 4,
        "batch_bytes": 1000,
        "concurrency": 2,
        "timeout": 5.0,
        "attempts": 3,
        "breaker_failures": 100,
        "breaker_reset": 30.0,
    }
    return RemoteEmbedder(transport, Embedding.model_construct(**{**defaults, **options}))


def raising(error: Exception) -> Answer:
    def answer(_request: Mapping[str, Any]) -> Any:
        raise error

    return answer


def telling(error: Exception) -> Iterator[Answer]:
    """The three ways in which tools tell an error: raised, in OpenAI's shape, as a text."""
    yield raising(error)
    yield lambda _request: {"error": {"message": str(error), "type": "x"}}
    yield lambda _request: {"success": False, "error": str(error)}
