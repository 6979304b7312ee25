from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from ability_search.extensions.cli.http_access import guarded
from ability_search.extensions.cli.http_server import serve_http
from kadi_localnet.models.errors import InvalidRequest, Overloaded
from kadi_localnet.models.http import application

HOST = "127.0.0.1"
JSON = {"content-type": "application/json"}
TOKEN = "the-token"
LIMIT = 10


class Echo:
    """Answers with what it was asked."""

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
    answers = {
        "/v1/embeddings": echo.create_embedding,
        "/v1/rerank": echo.rerank,
        "/rerank": echo.rerank,
    }
    names = ("one", "two", "judge")
    app = application(answers, names, token=token, max_bytes=max_bytes, timeout=timeout)
    async with (
        serve_http(guarded(app, HOST), HOST, 0, token=token, prefix="model_http") as url,
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


async def test_token_is_required_everywhere_but_for_health() -> None:
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


async def test_body_over_the_limit_is_refused_with_and_without_length() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b" " * 300

    async with opened(Echo()) as client:
        for content in (b" " * 1001, chunks()):
            refused = await client.post("/v1/embeddings", content=content, headers=JSON)
            assert refused.status_code == 413
            assert "1000 bytes" in refused.json()["error"]["message"]


async def test_body_of_too_many_values_is_refused_unread() -> None:
    async with opened(Echo(), max_bytes=10**6) as client:
        content = b'{"input":[%b{}]}' % (b"{}," * 10_000)
        refused = await client.post("/v1/embeddings", content=content, headers=JSON)
        assert refused.status_code == 413
        assert "objects and arrays" in refused.json()["error"]["message"]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 10_000])
async def test_body_that_is_not_json_is_refused(content: bytes) -> None:
    async with opened(Echo(), max_bytes=10**6) as client:
        refused = await client.post("/v1/embeddings", content=content, headers=JSON)
        assert refused.status_code == 400
        assert refused.json()["error"]["message"] == "body: not valid JSON"


async def test_errors_have_the_shape_of_openai_errors() -> None:
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


async def test_unexpected_error_shows_only_its_incident_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    echo = Echo()
    echo.error = ZeroDivisionError("a secret detail")
    with caplog.at_level(logging.ERROR):
        async with opened(echo) as client:
            failed = await client.post("/v1/embeddings", json={})
    assert failed.status_code == 500
    assert "secret" not in failed.text
    incident = failed.json()["error"]["message"].rsplit(" ", 1)[1]
    assert incident in caplog.text


async def test_disconnecting_cancels_the_request() -> None:
    echo = Echo()
    echo.hold = asyncio.Event()
    async with opened(echo) as client:
        posting = asyncio.create_task(client.post("/v1/embeddings", json={}))
        async with asyncio.timeout(LIMIT):
            await echo.begun.wait()
            posting.cancel()
            await echo.dropped.wait()
    assert not echo.hold.is_set()


async def test_unfinished_body_times_out() -> None:
    async with opened(Echo(), timeout=0.2) as client, asyncio.timeout(LIMIT):
        url = client.base_url
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(
            b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\n"
            b"Content-Length: 9\r\n\r\n{"
        )
        assert (await reader.readline()).startswith(b"HTTP/1.1 504 ")
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"host": "attacker.example"}, 421, "misdirected"),
        ({"origin": "https://attacker.example"}, 403, "forbidden_origin"),
        ({"sec-fetch-site": "cross-site"}, 403, "forbidden_origin"),
        ({"content-type": "text/plain"}, 415, "unsupported_media_type"),
        ({"content-type": "application/x-www-form-urlencoded"}, 415, "unsupported_media_type"),
    ],
)
async def test_a_request_of_another_site_is_refused(
    headers: dict[str, str], status: int, code: str
) -> None:
    echo = Echo()
    async with opened(echo) as client:
        refused = await client.post("/v1/embeddings", content=b"{}", headers={**JSON, **headers})
        assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)
    assert not echo.begun.is_set()
