from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kadi_local.models import Upstream
from kadi_local.models.config import ModelsConfig
from kadi_local.models.errors import DeadlinePassed, ModelSetupError, UpstreamFailed
from kadi_local.models.remote import RemoteModel, embeddings_url, read_answer

KEY = "sk-very-secret"
Ask = Callable[..., Any]


class Upstreamed:
    """An upstream server that answers as told and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[dict[str, Any], str | None]] = []
        self.failures: list[Response] = []
        self.forever: asyncio.Event | None = None

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1/embeddings", self.embeddings, methods=["POST"])])

    async def embeddings(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append((body, request.headers.get("authorization")))
        if self.forever:
            await self.forever.wait()
        if self.failures:
            return self.failures.pop(0)
        data = [
            {"object": "embedding", "index": i, "embedding": [float(len(text)), 1.0]}
            for i, text in enumerate(body["input"])
        ]
        return JSONResponse({"data": data[::-1], "usage": {"prompt_tokens": 9}, "model": "x"})


@pytest.fixture
async def upstream(serve: Any) -> AsyncIterator[tuple[Upstreamed, Ask]]:
    server = Upstreamed()
    async with serve(server.app()) as url, httpx.AsyncClient() as client:

        async def ask(
            texts: list[str], *, timeout: float = 10, attempts: int = 4, **kw: Any
        ) -> Any:
            config = Upstream(url + "/", ("m",), api_key=KEY, attempts=attempts)
            return await RemoteModel("m", config, client).embed(texts, timeout=timeout, **kw)

        yield server, ask


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://h:1", "http://h:1/v1/embeddings"),
        ("http://h/", "http://h/v1/embeddings"),
        ("http://h/v1/", "http://h/v1/embeddings"),
        ("http://h/api/v1/embeddings/", "http://h/api/v1/embeddings"),
    ],
)
def test_the_endpoint_is_appended_unless_present(base: str, url: str) -> None:
    assert embeddings_url(base) == url


async def test_texts_pass_through_and_come_back_in_order(upstream: tuple[Upstreamed, Ask]) -> None:
    server, ask = upstream
    embedded = await ask(["a", "bbb", "cc"], dimensions=2)
    assert embedded.vectors[:, 0].tolist() == [1, 3, 2]
    assert embedded.vectors.dtype == np.float32
    assert embedded.tokens == 9
    body, authorization = server.asked[0]
    assert (body["model"], body["input"], body["dimensions"]) == ("m", ["a", "bbb", "cc"], 2)
    assert authorization == f"Bearer {KEY}"


async def test_a_key_of_the_call_is_used_instead(upstream: tuple[Upstreamed, Ask]) -> None:
    server, ask = upstream
    await ask(["a"], api_key="mine")
    assert server.asked[0][1] == "Bearer mine"


async def test_failures_that_may_pass_are_tried_again(upstream: tuple[Upstreamed, Ask]) -> None:
    server, ask = upstream
    server.failures = [
        Response(status_code=429, headers={"Retry-After": "0"}),
        Response(status_code=503, headers={"Retry-After": format_datetime(datetime.now(UTC))}),
        Response(status_code=500, headers={"Retry-After": "soon"}),
    ]
    assert (await ask(["a"])).vectors.shape == (1, 2)
    assert len(server.asked) == 4


async def test_attempts_end(upstream: tuple[Upstreamed, Ask]) -> None:
    server, ask = upstream
    server.failures = [Response(status_code=502, headers={"Retry-After": "0"}) for _ in range(5)]
    with pytest.raises(UpstreamFailed, match="answered 502"):
        await ask(["a"], attempts=2)
    assert len(server.asked) == 2


async def test_a_pause_beyond_the_deadline_is_not_begun(upstream: tuple[Upstreamed, Ask]) -> None:
    server, ask = upstream
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1))
    server.failures = [Response(status_code=429, headers={"Retry-After": later})]
    async with asyncio.timeout(5):
        with pytest.raises(UpstreamFailed, match="429") as caught:
            await ask(["a"], timeout=30)
    assert caught.value.retry_after == pytest.approx(3600, abs=60)
    assert len(server.asked) == 1


async def test_a_refusal_is_told_once_and_without_the_key(upstream: tuple[Upstreamed, Ask]) -> None:
    server, ask = upstream
    said = {"error": {"message": f"Incorrect API key provided: {KEY}."}}
    server.failures = [JSONResponse(said, status_code=401)]
    with pytest.raises(UpstreamFailed, match="401: Incorrect API key provided") as caught:
        await ask(["a"])
    assert KEY not in str(caught.value)
    assert len(server.asked) == 1


async def test_a_server_that_does_not_answer_is_left_at_the_deadline(
    upstream: tuple[Upstreamed, Ask],
) -> None:
    server, ask = upstream
    server.forever = asyncio.Event()
    with pytest.raises(DeadlinePassed):
        await ask(["a"], timeout=0.2)
    server.forever.set()


async def test_no_server_is_an_error_after_the_attempts() -> None:
    async with httpx.AsyncClient() as client:
        model = RemoteModel("m", Upstream("http://127.0.0.1:9", ("m",), attempts=2), client)
        with pytest.raises(UpstreamFailed, match="ConnectError"):
            await model.embed(["a"], timeout=10)


async def test_a_key_that_no_header_can_hold_stays_untold() -> None:
    key = "sk-\u2603\n"
    async with httpx.AsyncClient() as client:
        upstream = Upstream("http://127.0.0.1:9", ("m",), api_key=key, attempts=1)
        with pytest.raises(UpstreamFailed) as caught:
            await RemoteModel("m", upstream, client).embed(["a"], timeout=10)
    assert "sk-" not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_an_answer_over_the_limit_is_not_read_to_its_end(serve: Any) -> None:
    server = Upstreamed()
    async with serve(server.app()) as url, httpx.AsyncClient() as client:
        model = RemoteModel("m", Upstream(url, ("m",), max_response_bytes=20), client)
        with pytest.raises(UpstreamFailed, match="more than 20 bytes"):
            await model.embed(["a"], timeout=10)


def body(*rows: Any, **more: Any) -> bytes:
    return json.dumps({"data": list(rows), **more}).encode()


def test_base64_is_taken_too_and_indices_may_be_missing() -> None:
    packed = base64.b64encode(np.array([1.5, -2], "<f4").tobytes()).decode()
    embedded = read_answer(body({"embedding": packed}, {"embedding": [3, 4]}), 2)
    assert embedded.vectors.tolist() == [[1.5, -2], [3, 4]]
    assert embedded.tokens == 0


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"<html>", "not a list of embeddings"),
        (body({"embedding": [1, "x"]}), "not a list of embeddings"),
        (body({"embedding": [1.0], "index": 0}), "1 embeddings to 2 texts"),
        (body({"embedding": [1], "index": 1}, {"embedding": [1], "index": 1}), "to 2 texts"),
        (body({"embedding": [1]}, {"embedding": [1, 2]}), "unlike or no dimensions"),
        (body({"embedding": []}, {"embedding": []}), "unlike or no dimensions"),
        (body({"embedding": [1e39]}, {"embedding": [1]}), "not finite"),
        (b'{"data": [{"embedding": [NaN]}, {"embedding": [1]}]}', "not a list of embeddings"),
        (body({"embedding": "AAA"}, {"embedding": [1]}), "base64"),
        (body({"embedding": "AAAA"}, {"embedding": [1]}), "base64"),
    ],
)
def test_an_unusable_answer_is_refused(raw: bytes, said: str) -> None:
    with pytest.raises(UpstreamFailed, match=said):
        read_answer(raw, 2)


def test_settings_that_cannot_work_are_refused_and_keys_not_shown() -> None:
    with pytest.raises(ModelSetupError, match="base_url"):
        Upstream("localhost:11434", ("m",))
    with pytest.raises(ModelSetupError, match="name the models"):
        Upstream("http://localhost", ())
    assert KEY not in repr(ModelsConfig(upstreams=(Upstream("http://h", ("m",), api_key=KEY),)))
