"""The two transports, over a real HTTP server and a real broker."""

from __future__ import annotations

import asyncio
import email.utils
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
import pytest
from pydantic import SecretStr

from ability_search.errors import EmbeddingUnavailable, TextsRefused
from ability_search.remote import RemoteEmbedder, Transport, over_broker, over_http
from ability_search.remote.refusals import retry_after
from ability_search.remote.transports import embeddings_address
from kadi import Call, Connection, Tool
from kadi_local.broker import serve_broker
from kadi_local.models.errors import InvalidRequest, ModelNotServed, Overloaded, RequestTooLarge

KEY = "sk-very-secret"
REQUEST = {"model": "m", "input": ["some text"], "encoding_format": "base64"}


@dataclass
class Api:
    """An HTTP server that answers by a list of prepared answers, then with vectors."""

    url: str = ""
    answers: list[tuple[int, Mapping[str, str], bytes]] = field(default_factory=list)
    seen: list[tuple[Mapping[str, str], Any]] = field(default_factory=list)
    hang: asyncio.Event | None = None

    def prepare(self, status: int, body: Any = b"", **headers: str) -> None:
        encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers.append((status, named, encoded))

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").split("\r\n")
                headers = {
                    name.lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in lines[1:] if line)
                }
                body = json.loads(await reader.readexactly(int(headers["content-length"])))
                self.seen.append((headers, body))
                if self.hang is not None:
                    await self.hang.wait()
                status, further, content = self._answer(body)
                fields = {"content-length": str(len(content)), **further}
                text = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
                writer.write(f"HTTP/1.1 {status} X\r\n{text}\r\n".encode("latin-1") + content)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answer(self, body: Any) -> tuple[int, Mapping[str, str], bytes]:
        if self.answers:
            return self.answers.pop(0)
        return 200, {}, json.dumps(vectors_for(body)).encode()


def vectors_for(request: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "data": [
            {"index": n, "embedding": [float(len(text)), 2.0]}
            for n, text in enumerate(request["input"])
        ]
    }


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    prepared = Api()
    server = await asyncio.start_server(prepared.handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    prepared.url = f"http://127.0.0.1:{port}"
    try:
        yield prepared
    finally:
        server.close()
        if prepared.hang is not None:
            prepared.hang.set()


@pytest.fixture
async def http(api: Api) -> AsyncIterator[Transport]:
    async with httpx.AsyncClient() as client:
        yield over_http(client, api.url, api_key=SecretStr(KEY))


@asynccontextmanager
async def manager(answer: Callable[[dict[str, Any]], Any]) -> AsyncIterator[Transport]:
    """A model manager behind a broker whose tool answers, or raises, by ``answer``."""

    async def handle(tool_input: dict[str, Any], _call: Call) -> Any:
        return answer(tool_input)

    tool = Tool("create-embedding", "Embed.", {"type": "object"}, handle)
    async with (
        serve_broker("127.0.0.1", 0) as broker,
        Connection(broker.url, tools=[tool]),
        Connection(broker.url, max_message_bytes=100_000) as client,
    ):
        yield over_broker(client.invoke, api_key=SecretStr(KEY))


def raising(error: Exception) -> Callable[[dict[str, Any]], Any]:
    def answer(_request: dict[str, Any]) -> Any:
        raise error

    return answer


async def failure(transport: Transport, **changes: Any) -> EmbeddingUnavailable:
    with pytest.raises(EmbeddingUnavailable) as raised:
        await transport({**REQUEST, **changes}, timeout=5)
    assert KEY not in str(raised.value)
    assert KEY not in raised.value.hint
    return raised.value


async def test_http_sends_what_an_openai_server_takes(api: Api, http: Transport) -> None:
    assert await http(REQUEST, timeout=5) == vectors_for(REQUEST)
    ((headers, body),) = api.seen
    assert body == REQUEST
    assert headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://h", "http://h/v1/embeddings"),
        ("http://h/", "http://h/v1/embeddings"),
        ("http://h/openai/", "http://h/openai/v1/embeddings"),
        ("http://h/v1/embeddings", "http://h/v1/embeddings"),
    ],
)
def test_the_route_is_found_below_a_base(url: str, address: str) -> None:
    assert embeddings_address(url) == address


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
async def test_http_failures_that_pass(api: Api, http: Transport, status: int) -> None:
    api.prepare(status, b"try later", retry_after="7")
    error = await failure(http)
    assert error.retryable
    assert error.retry_after == 7
    assert str(status) in str(error)
    assert not isinstance(error, TextsRefused)


@pytest.mark.parametrize("status", [301, 401, 403, 405])
async def test_http_failures_that_stay(api: Api, http: Transport, status: int) -> None:
    api.prepare(status, {"error": {"message": f"bad key {KEY}"}})
    error = await failure(http)
    assert not error.retryable
    assert not isinstance(error, TextsRefused)
    assert "SEARCH_API_KEY" in error.hint


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_http_refusals_of_texts(api: Api, http: Transport, status: int) -> None:
    api.prepare(status, {"error": {"message": "maximum context length is 512 tokens"}})
    assert isinstance(await failure(http), TextsRefused)


@pytest.mark.parametrize(
    ("status", "message"),
    [(404, "not found"), (400, "The model `m` does not exist"), (400, "unknown model m")],
)
async def test_http_models_that_are_not_served(
    api: Api, http: Transport, status: int, message: str
) -> None:
    api.prepare(status, {"error": {"message": message}})
    error = await failure(http)
    assert not error.retryable
    assert not isinstance(error, TextsRefused)
    assert "'m' is not served" in str(error)


async def test_http_answers_that_are_no_json(api: Api, http: Transport) -> None:
    api.prepare(200, b"<html>")
    assert (await failure(http)).retryable


async def test_http_servers_that_are_not_there(api: Api) -> None:
    async with httpx.AsyncClient() as client:
        error = await failure(over_http(client, "http://127.0.0.1:1", api_key=None))
    assert error.retryable


async def test_http_servers_that_hang(api: Api, http: Transport) -> None:
    api.hang = asyncio.Event()
    with pytest.raises(EmbeddingUnavailable) as raised:
        await http(REQUEST, timeout=0.05)
    assert raised.value.retryable


async def test_texts_that_are_not_unicode(http: Transport) -> None:
    assert isinstance(await failure(http, input=["\ud800"]), TextsRefused)
    async with manager(vectors_for) as broker:
        assert isinstance(await failure(broker, input=["\ud800"]), TextsRefused)


def header(value: str) -> float | None:
    return retry_after({"retry-after": value})


def test_retry_after_as_seconds_or_as_a_date() -> None:
    assert header("0") == 0
    assert header(" 120 ") == 120
    soon = header(email.utils.formatdate(time.time() + 100, usegmt=True))
    assert soon is not None
    assert 98 <= soon <= 100
    assert header(email.utils.formatdate(0, usegmt=True)) == 0
    assert retry_after({}) is None


@pytest.mark.parametrize("value", ["", "soon", "-1", "1.5", "²", "٣"])
def test_retry_after_that_is_neither(value: str) -> None:
    assert header(value) is None


@pytest.mark.parametrize("value", ["9" * 400, "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_retry_after_that_is_absurd(value: str) -> None:
    assert header(value) == 24 * 3600


async def test_the_broker_brings_the_request_with_the_key() -> None:
    seen: list[dict[str, Any]] = []

    def answer(request: dict[str, Any]) -> Any:
        seen.append(request)
        return vectors_for(request)

    async with manager(answer) as transport:
        assert await transport(REQUEST, timeout=5) == vectors_for(REQUEST)
    assert seen == [{**REQUEST, "api_key": KEY}]


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        (ModelNotServed("m", ["other"]), EmbeddingUnavailable, False),
        (RequestTooLarge("input: 65 texts, at most 64 are taken"), TextsRefused, False),
        (RequestTooLarge("input.3: 999 bytes, at most 100 are taken"), TextsRefused, False),
        (InvalidRequest("input.0: must not be empty"), TextsRefused, False),
        (RuntimeError("maximum context length is 512 tokens"), TextsRefused, False),
        (RuntimeError("Incorrect API key provided"), EmbeddingUnavailable, False),
        (Overloaded("too many texts are queued"), EmbeddingUnavailable, True),
        (RuntimeError("the GPU caught fire"), EmbeddingUnavailable, True),
    ],
    ids=str,
)
async def test_failures_of_a_model_manager(
    error: Exception, kind: type[EmbeddingUnavailable], retryable: bool
) -> None:
    def returned(_request: dict[str, Any]) -> Any:
        return {"error": {"message": str(error), "type": "x"}}

    def plain(_request: dict[str, Any]) -> Any:
        return {"success": False, "error": str(error)}

    for answer in (raising(error), returned, plain):
        async with manager(answer) as transport:
            told = await failure(transport)
        assert type(told) is kind
        assert told.retryable is retryable


async def test_texts_too_large_for_a_message() -> None:
    async with manager(vectors_for) as transport:
        error = await failure(transport, input=["x" * 100_001])
    assert isinstance(error, TextsRefused)


async def test_a_network_without_a_model_manager() -> None:
    async with serve_broker("127.0.0.1", 0) as broker, Connection(broker.url) as client:
        error = await failure(over_broker(client.invoke, api_key=None))
    assert error.retryable


def client_of(transport: Transport) -> RemoteEmbedder:
    return RemoteEmbedder(
        transport,
        batch_texts=2,
        batch_bytes=1000,
        concurrency=2,
        timeout=5,
        attempts=4,
        breaker_failures=10,
        breaker_reset=30,
    )


async def test_both_ways_give_the_same_vectors(http: Transport) -> None:
    texts = ["a", "bb", "ccc", "dddd", "eeeee"]
    async with manager(vectors_for) as broker:
        by_broker = await client_of(broker).embed("m", texts, timeout=5)
    by_http = await client_of(http).embed("m", texts, timeout=5)
    np.testing.assert_array_equal(by_broker, by_http)
    assert by_http.shape == (5, 2)


async def test_a_server_that_recovers_is_asked_again(api: Api, http: Transport) -> None:
    api.prepare(429, retry_after="0")
    api.prepare(500, retry_after=email.utils.formatdate(time.time() - 5, usegmt=True))
    assert (await client_of(http).embed("m", ["a"], timeout=5)).shape == (1, 2)
    assert len(api.seen) == 3


async def test_the_key_is_in_no_log(
    api: Api, http: Transport, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    api.prepare(401, {"error": {"message": f"bad key {KEY}"}})
    with pytest.raises(EmbeddingUnavailable) as raised:
        await client_of(http).embed("m", ["a text"], timeout=5)
    assert await client_of(http).embed("m", ["a text"], timeout=5) is not None
    async with manager(raising(RuntimeError("no"))) as broker:
        with pytest.raises(EmbeddingUnavailable):
            await client_of(broker).embed("m", ["a text"], timeout=0.5)
    ours = [each for each in caplog.records if each.name.startswith("ability_search")]
    assert KEY not in "".join(map(logging.Formatter().format, ours))
    assert KEY not in repr(raised.value)
