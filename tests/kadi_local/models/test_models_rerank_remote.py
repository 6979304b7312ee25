"""Rerankers of another server, over real HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kadi_local.models import Upstream
from kadi_local.models.errors import DeadlinePassed, UpstreamFailed
from kadi_local.models.remote_reranker import RemoteReranker, read_scores, rerank_url

KEY = "sk-very-secret"
Ask = Callable[..., Any]


class Upstreamed:
    """A rerank server that scores by length, best first, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[dict[str, Any], str | None]] = []
        self.failures: list[Response] = []
        self.forever: asyncio.Event | None = None

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1/rerank", self.rerank, methods=["POST"])])

    async def rerank(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append((body, request.headers.get("authorization")))
        if self.forever:
            await self.forever.wait()
        if self.failures:
            return self.failures.pop(0)
        results = [
            {"index": index, "relevance_score": len(text) / 10, "document": {"text": text}}
            for index, text in enumerate(body["documents"])
        ]
        results.sort(key=lambda result: -result["relevance_score"])
        return JSONResponse({"id": "1", "results": results, "usage": {"total_tokens": 9}})


@pytest.fixture
async def upstream(serve: Any) -> AsyncIterator[tuple[Upstreamed, Ask]]:
    server = Upstreamed()
    async with serve(server.app()) as url, httpx.AsyncClient() as client:

        async def ask(texts: list[str], *, timeout: float = 10, **kw: Any) -> Any:
            config = Upstream(url + "/", ("m",), api_key=KEY)
            return await RemoteReranker("m", config, client).rerank(
                "q", texts, timeout=timeout, **kw
            )

        yield server, ask


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://h:1", "http://h:1/v1/rerank"),
        ("http://h/", "http://h/v1/rerank"),
        ("http://h/v1/", "http://h/v1/rerank"),
        ("https://api.cohere.com/v2", "https://api.cohere.com/v2/rerank"),
        ("http://h/api/v3/rerank/", "http://h/api/v3/rerank"),
        ("http://h/rerank", "http://h/rerank"),
    ],
)
def test_the_endpoint_is_appended_unless_present(base: str, url: str) -> None:
    assert rerank_url(base) == url


async def test_texts_pass_through_and_scores_come_back_in_order(
    upstream: tuple[Upstreamed, Ask],
) -> None:
    server, ask = upstream
    reranked = await ask(["a", "bbb", "cc \ud83d"])
    assert reranked.scores == [0.1, 0.3, 0.4]
    assert reranked.tokens == 9
    body, authorization = server.asked[0]
    assert body == {"model": "m", "query": "q", "documents": ["a", "bbb", "cc \ufffd"]}
    assert authorization == f"Bearer {KEY}"


async def test_a_key_of_the_call_is_used_instead(upstream: tuple[Upstreamed, Ask]) -> None:
    server, ask = upstream
    await ask(["a"], api_key="mine")
    assert server.asked[0][1] == "Bearer mine"


async def test_failures_that_may_pass_are_tried_again(upstream: tuple[Upstreamed, Ask]) -> None:
    server, ask = upstream
    server.failures = [
        Response(status_code=status, headers={"Retry-After": "0"}) for status in (429, 503, 500)
    ]
    assert (await ask(["a"])).scores == [0.1]
    assert len(server.asked) == 4


@pytest.mark.parametrize(
    "said",
    [
        {"error": {"message": f"wrong key {KEY}"}},
        {"error": f"wrong key {KEY}"},
        {"message": f"wrong key {KEY}"},
        {"detail": f"wrong key {KEY}"},
    ],
)
async def test_a_refusal_is_told_once_and_without_the_key(
    upstream: tuple[Upstreamed, Ask], said: dict[str, Any]
) -> None:
    server, ask = upstream
    server.failures = [JSONResponse(said, status_code=401)]
    with pytest.raises(UpstreamFailed, match="answered 401: wrong key") as caught:
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


def answered(*results: Any, **more: Any) -> bytes:
    return json.dumps({"results": results, **more}).encode()


def scored(index: Any, score: Any) -> dict[str, Any]:
    return {"index": index, "relevance_score": score}


def test_logits_pass_as_they_are_and_what_is_not_needed_may_be_missing() -> None:
    reranked = read_scores(answered(scored(1, -11.5), scored(0, 7)), 2)
    assert list(reranked.scores) == [7.0, -11.5]
    assert reranked.tokens == 0
    assert read_scores(answered(scored(0, 1), usage={"prompt_tokens": 3}), 1).tokens == 0


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"<html>", "not a list of scores"),
        (b'{"results": null}', "not a list of scores"),
        (b'[{"index": 0, "score": 1}]', "not a list of scores"),
        (answered({"index": 0}, scored(1, 1)), "not a list of scores"),
        (answered(scored(0, "1"), scored(1, 1)), "not a list of scores"),
        (b'{"results": [{"index": 0, "relevance_score": NaN}]}', "not a list of scores"),
        (b'{"results": [{"index": 0, "relevance_score": 1e999}]}', "not a list of scores"),
        (answered(scored(0, 1)), "1 scores to 2 texts"),
        (answered(scored(0, 1), scored(0, 1)), "2 scores to 2 texts"),
        (answered(scored(0, 1), scored(2, 1)), "2 scores to 2 texts"),
        (answered(scored(0, 1), scored(1, 1), scored(2, 1)), "3 scores to 2 texts"),
    ],
)
def test_an_unusable_answer_is_refused(raw: bytes, said: str) -> None:
    with pytest.raises(UpstreamFailed, match=said):
        read_scores(raw, 2)
