from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from kadi_client.addresses import is_loopback
from kadi_localnet.models import ModelSetupError
from kadi_localnet.models.errors import InvalidRequest, Overloaded
from kadi_localnet.models.http import application, serve

TOKEN = "the-token"
LIMIT = 10


class Echo:
    """Answers with what it was asked."""

    names = ("one", "two")
    rerankers = ("judge",)

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.hold: asyncio.Event | None = None
        self.begun = asyncio.Event()
        self.dropped = asyncio.Event()

    async def create_embedding(self, raw: Any, *, timeout: float | None = None) -> dict[str, Any]:
        self.begun.set()
        if self.error:
            raise self.error
        if self.hold:
            try:
                await self.hold.wait()
            finally:
                self.dropped.set()
        return {"echo": raw}

    async def rerank(self, raw: Any, *, timeout: float | None = None) -> dict[str, Any]:
        return {"reranked": (await self.create_embedding(raw, timeout=timeout))["echo"]}


@asynccontextmanager
async def opened(
    echo: Echo, *, token: str | None = None, max_bytes: int = 1000, timeout: float = LIMIT
) -> AsyncIterator[httpx.AsyncClient]:
    app = application(echo, token=token, max_bytes=max_bytes, timeout=timeout)
    async with (
        serve(app, "127.0.0.1", 0, token=token) as url,
        httpx.AsyncClient(base_url=url, timeout=LIMIT) as client,
    ):
        yield client


async def test_embeddings_reranking_models_and_health_are_served() -> None:
    async with opened(Echo()) as client:
        answer = await client.post("/v1/embeddings", json={"model": "one", "input": "x"})
        assert answer.json() == {"echo": {"model": "one", "input": "x"}}
        for path in ("/v1/rerank", "/rerank"):
            answer = await client.post(path, json={"query": "x"})
            assert answer.json() == {"reranked": {"query": "x"}}
        listing = (await client.get("/v1/models")).json()
        assert [row["id"] for row in listing["data"]] == ["one", "two", "judge"]
        assert {row["object"] for row in listing["data"]} == {"model"}
        assert (await client.get("/health")).json() == {"status": "ok"}


async def test_a_token_is_asked_for_everywhere_but_at_health() -> None:
    async with opened(Echo(), token=TOKEN) as client:
        for given in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
            refused = await client.get("/v1/models", headers=given)
            assert refused.status_code == 401
            assert refused.json()["error"]["code"] == "invalid_api_key"
            assert refused.headers["www-authenticate"] == "Bearer"
        right = {"Authorization": f"Bearer {TOKEN}"}
        assert (await client.get("/v1/models", headers=right)).status_code == 200
        for path in ("/v1/embeddings", "/v1/rerank"):
            assert (await client.post(path, json={})).status_code == 401
            assert (await client.post(path, json={}, headers=right)).status_code == 200
        assert (await client.get("/health")).status_code == 200


async def test_other_machines_are_let_in_with_a_token_only() -> None:
    app = application(Echo(), token=None, max_bytes=10, timeout=1)
    with pytest.raises(ModelSetupError, match="set a token"):
        async with serve(app, "0.0.0.0", 0, token=None):
            pass


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.2", False),
        ("example.org", False),
        ("", False),
    ],
)
def test_loopback_is_recognised(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


async def test_a_taken_port_is_a_clear_error() -> None:
    app = application(Echo(), token=None, max_bytes=10, timeout=1)
    async with serve(app, "127.0.0.1", 0, token=None) as url:
        port = int(url.rsplit(":", 1)[1])
        with pytest.raises(ModelSetupError, match=f"cannot listen on 127.0.0.1:{port}"):
            async with serve(app, "127.0.0.1", port, token=None):
                pass


async def test_a_body_over_the_limit_is_refused_however_it_is_sent() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b" " * 300

    async with opened(Echo()) as client:
        for content in (b" " * 1001, chunks()):
            refused = await client.post("/v1/embeddings", content=content)
            assert refused.status_code == 413
            assert "1000 bytes" in refused.json()["error"]["message"]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000])
async def test_a_body_that_is_not_json_is_said_to_be(content: bytes) -> None:
    async with opened(Echo(), max_bytes=10**6) as client:
        refused = await client.post("/v1/embeddings", content=content)
        assert refused.status_code == 400
        assert refused.json()["error"]["message"] == "body: not valid JSON"


async def test_errors_have_the_shape_that_clients_know() -> None:
    echo = Echo()
    async with opened(echo) as client:
        echo.error = Overloaded("busy", retry_after=2.0)
        busy = await client.post("/v1/embeddings", json={})
        assert (busy.status_code, busy.headers["retry-after"]) == (429, "2")
        assert busy.json()["error"]["type"] == "rate_limit_error"
        echo.error = InvalidRequest("input: missing", param="input")
        wrong = (await client.post("/v1/embeddings", json={})).json()
        assert wrong == {
            "error": {
                "message": "input: missing",
                "type": "invalid_request_error",
                "param": "input",
                "code": "invalid_value",
            }
        }
        nowhere = await client.get("/v2/else")
        assert (nowhere.status_code, nowhere.json()["error"]["code"]) == (404, "unknown_url")
        assert (await client.get("/v1/embeddings")).status_code == 405


async def test_a_surprise_is_told_by_its_incident_only(caplog: pytest.LogCaptureFixture) -> None:
    echo = Echo()
    echo.error = ZeroDivisionError("a secret detail")
    with caplog.at_level(logging.ERROR):
        async with opened(echo) as client:
            failed = await client.post("/v1/embeddings", json={})
    assert failed.status_code == 500
    assert "secret" not in failed.text
    incident = failed.json()["error"]["message"].rsplit(" ", 1)[1]
    assert incident in caplog.text


async def test_the_work_for_a_client_that_hung_up_is_dropped() -> None:
    echo = Echo()
    echo.hold = asyncio.Event()
    async with opened(echo) as client:
        posting = asyncio.create_task(client.post("/v1/embeddings", json={}))
        async with asyncio.timeout(LIMIT):
            await echo.begun.wait()
            posting.cancel()
            await echo.dropped.wait()
    assert not echo.hold.is_set()


async def test_a_body_that_does_not_come_is_waited_for_so_long_only() -> None:
    async with opened(Echo(), timeout=0.2) as client, asyncio.timeout(LIMIT):
        url = client.base_url
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        assert (await reader.readline()).startswith(b"HTTP/1.1 504 ")
        writer.close()
        await writer.wait_closed()
