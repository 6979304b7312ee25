"""The two transports, over a real HTTP server and a real broker."""

from __future__ import annotations

import asyncio
import email.utils
import json
import logging
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import numpy as np
import pytest
from pydantic import SecretStr
from tests.ability_search.model_servers import (
    KEY,
    Api,
    asking,
    embedder,
    http_api,
    manager,
    raising,
    telling,
)

from ability_search.errors import EmbeddingUnavailable, TextsRefused
from ability_search.providers.embedder import EMBEDDINGS, RemoteEmbedder, RequestFailed
from ability_search.providers.http_transport import OverHttp
from ability_search.providers.transports import OverBroker, Transport
from kadi_client import Agent, Connection
from kadi_localnet.broker import serve_broker
from kadi_localnet.models.errors import InvalidRequest, ModelNotServed, Overloaded, RequestTooLarge

REQUEST = {"model": "m", "input": ["some text"], "encoding_format": "base64"}


def vectors_for(request: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "data": [
            {"index": n, "embedding": [float(len(text)), 2.0]}
            for n, text in enumerate(request["input"])
        ]
    }


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with http_api(vectors_for) as served:
        yield served


@pytest.fixture
async def http(api: Api) -> AsyncIterator[Transport]:
    async with asking(EMBEDDINGS, api) as transport:
        yield transport


async def failure(transport: Transport, **changes: Any) -> EmbeddingUnavailable:
    with pytest.raises(EmbeddingUnavailable) as raised:
        await transport({**REQUEST, **changes}, timeout=5)
    assert KEY not in str(raised.value)
    assert KEY not in raised.value.hint
    return raised.value


async def test_http_requests_have_the_openai_format(api: Api, http: Transport) -> None:
    assert await http(REQUEST, timeout=5) == vectors_for(REQUEST)
    ((path, headers, body),) = api.seen
    assert (path, body) == ("/v1/embeddings", REQUEST)
    assert headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "Unknown parameter: 'encoding_format'."}},
        {"detail": [{"loc": ["body", "encoding_format"], "msg": "extra fields not permitted"}]},
        {"error": "unknown variant `base64`, expected `float`"},
    ],
)
async def test_an_api_that_refuses_base64_is_asked_for_floats(
    api: Api, http: Transport, body: Any
) -> None:
    api.prepare(422, body)
    client = embedder(http, attempts=1, breaker_failures=1)
    for _ in range(2):
        assert (await client.embed("m", ["a"], timeout=5)).shape == (1, 2)
    assert ["encoding_format" in sent for _, _, sent in api.seen] == [True, False, False]


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
async def test_transient_http_failures_are_retryable(
    api: Api, http: Transport, status: int
) -> None:
    api.prepare(status, b"try later", retry_after="7")
    error = await failure(http)
    assert error.retryable
    assert error.retry_after == 7
    assert error.hint == "the embedding API asks to wait 7 s."
    assert str(status) in str(error)
    assert not isinstance(error, TextsRefused)


@pytest.mark.parametrize("status", [301, 401, 403])
async def test_permanent_http_failures_are_not_retryable(
    api: Api, http: Transport, status: int
) -> None:
    api.prepare(status, {"error": {"message": f"bad key {KEY}"}})
    error = await failure(http)
    assert not error.retryable
    assert not isinstance(error, TextsRefused)
    assert "SEARCH_API_KEY" in error.hint


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_http_refusals_of_texts_are_recognised(
    api: Api, http: Transport, status: int
) -> None:
    api.prepare(status, {"error": {"message": "maximum context length is 512 tokens"}})
    assert isinstance(await failure(http), TextsRefused)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (404, "model m was not found"),
        (400, "The model `m` does not exist"),
        (400, "unknown model m"),
        (400, "Invalid model name passed in model=m"),
    ],
)
async def test_unknown_models_over_http_are_recognised(
    api: Api, http: Transport, status: int, message: str
) -> None:
    api.prepare(status, {"error": {"message": message}})
    error = await failure(http)
    assert not error.retryable
    assert not isinstance(error, TextsRefused)
    assert "'m' is not served" in str(error)


@pytest.mark.parametrize("status", [404, 405])
async def test_a_wrong_path_over_http_is_not_an_unknown_model(
    api: Api, http: Transport, status: int
) -> None:
    api.prepare(status, b"404 page not found")
    error = await failure(http)
    assert not error.retryable
    assert "127.0.0.1" in str(error)
    assert "page not found" in str(error)
    assert "path" in error.hint


@pytest.mark.parametrize("status", [400, 401, 402, 404, 413, 422, 429, 500, 503])
@pytest.mark.parametrize("shape", ["openai", "text", "error", "detail", "list"])
async def test_an_error_says_what_the_server_said(
    api: Api, http: Transport, status: int, shape: str
) -> None:
    words = "You exceeded your current quota; input_type is required"
    hidden = (KEY, "sk-abcdefghijkl", "https://me:pw@host/x", "/root/srv.py", "some text")
    said = f"{words}\n\x1b[31m{' '.join(hidden)} {'x' * 999}"
    bodies: dict[str, Any] = {
        "openai": {"error": {"message": said, "type": "x"}},
        "text": said.encode(),
        "error": {"error": said},
        "detail": {"detail": said},
        "list": {"detail": [{"msg": said, "loc": ["body"]}]},
    }
    api.prepare(status, bodies[shape])
    error = await failure(http)
    text = f"{error} {error.hint}"
    assert words in text
    assert len(text) < 600
    assert text.isprintable()
    assert not any(each in text for each in hidden)


async def test_http_answers_must_be_json(api: Api, http: Transport) -> None:
    api.prepare(200, b"<html>")
    assert (await failure(http)).retryable


async def test_unreachable_http_servers_are_unavailable(api: Api) -> None:
    async with httpx.AsyncClient() as client:
        error = await failure(OverHttp(EMBEDDINGS, client, "http://127.0.0.1:1", api_key=None))
    assert error.retryable


async def test_hanging_http_servers_time_out(api: Api, http: Transport) -> None:
    api.hang = asyncio.Event()
    with pytest.raises(EmbeddingUnavailable) as raised:
        await http(REQUEST, timeout=0.05)
    assert raised.value.retryable


async def test_unpaired_surrogates_are_refused(http: Transport) -> None:
    async with manager(EMBEDDINGS, vectors_for) as broker:
        for transport in (http, broker):
            refused = await failure(transport, input=["\ud800"])
            assert isinstance(refused, TextsRefused)
            assert "a text is not valid Unicode: it contains an unpaired surrogate" in str(refused)


async def test_the_broker_forwards_the_request_with_the_key() -> None:
    seen: list[Mapping[str, Any]] = []

    def answer(request: Mapping[str, Any]) -> Any:
        seen.append(request)
        return vectors_for(request)

    async with manager(EMBEDDINGS, answer) as transport:
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
        (RuntimeError("the GPU caught fire"), RequestFailed, True),
    ],
    ids=str,
)
async def test_model_manager_failures_are_classified(
    error: Exception, kind: type[EmbeddingUnavailable], retryable: bool
) -> None:
    for answer in telling(error):
        async with manager(EMBEDDINGS, answer) as transport:
            told = await failure(transport)
        assert type(told) is kind
        assert told.retryable is retryable


async def test_texts_too_large_for_a_message_are_refused() -> None:
    async with manager(EMBEDDINGS, vectors_for) as transport:
        error = await failure(transport, input=["x" * 100_001])
    assert isinstance(error, TextsRefused)


async def test_without_a_model_manager_embedding_is_unavailable() -> None:
    async with serve_broker("127.0.0.1", 0) as broker, Connection(broker.url) as client:
        error = await failure(OverBroker(EMBEDDINGS, client.invoke, api_key=None))
    assert error.retryable


def client_of(transport: Transport) -> RemoteEmbedder:
    return embedder(transport, batch_texts=2, attempts=4)


async def test_both_transports_give_the_same_vectors(http: Transport) -> None:
    texts = ["a", "bb", "ccc", "dddd", "eeeee"]
    async with manager(EMBEDDINGS, vectors_for) as broker:
        by_broker = await client_of(broker).embed("m", texts, timeout=5)
    by_http = await client_of(http).embed("m", texts, timeout=5)
    np.testing.assert_array_equal(by_broker, by_http)
    assert by_http.shape == (5, 2)


async def test_a_recovered_server_is_used_again(api: Api, http: Transport) -> None:
    api.prepare(429, retry_after="0")
    api.prepare(500, retry_after=email.utils.formatdate(time.time() - 5, usegmt=True))
    assert (await client_of(http).embed("m", ["a"], timeout=5)).shape == (1, 2)
    assert len(api.seen) == 3


async def test_no_log_contains_the_key(
    api: Api, http: Transport, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    api.prepare(401, {"error": {"message": f"bad key {KEY}"}})
    with pytest.raises(EmbeddingUnavailable) as raised:
        await client_of(http).embed("m", ["a text"], timeout=5)
    assert await client_of(http).embed("m", ["a text"], timeout=5) is not None
    async with manager(EMBEDDINGS, raising(RuntimeError("no"))) as broker:
        with pytest.raises(EmbeddingUnavailable):
            await client_of(broker).embed("m", ["a text"], timeout=0.5)
    ours = [each for each in caplog.records if each.name.startswith("ability_search")]
    assert KEY not in "".join(map(logging.Formatter().format, ours))
    assert KEY not in repr(raised.value)


async def test_a_key_goes_to_the_agent_that_offered_the_tool_first_and_to_no_other() -> None:
    asked: list[tuple[str | None, bool]] = []
    offering = {"first"}

    async def invoke(
        tool: str,
        tool_input: Mapping[str, Any],
        *,
        timeout: float = 0,
        target_agent: str | None = None,
    ) -> Any:
        asked.append((target_agent, tool_input.get("api_key") == "key"))
        return {"embeddings": []}

    async def agents(_tool: str) -> list[Agent]:
        return [Agent(id_) for id_ in sorted(offering)]

    key = SecretStr("key")
    transport = OverBroker(EMBEDDINGS, invoke, api_key=key, agents=agents)
    await transport({}, timeout=1)
    offering.add("squatter")
    await transport({}, timeout=1)
    assert asked == [("first", True), ("first", True)]

    late = OverBroker(EMBEDDINGS, invoke, api_key=key, agents=agents)
    with pytest.raises(EmbeddingUnavailable, match="several agents offer create-embedding"):
        await late({}, timeout=1)
    without = OverBroker(EMBEDDINGS, invoke, api_key=None, agents=agents)
    await without({}, timeout=1)
    assert asked[2:] == [(None, False)]

    offering.clear()
    early = OverBroker(EMBEDDINGS, invoke, api_key=key, agents=agents)
    with pytest.raises(EmbeddingUnavailable, match="no agent on the networks of this worker"):
        await early({}, timeout=1)
    offering.add("")  # a broker that does not say which agents offer the tool
    await early({}, timeout=1)
    assert asked[3:] == [(None, False)]


WORDS = "You exceeded your current quota"


def shaped(words: str) -> list[Any]:
    """Errors in the shapes of several servers, libraries and agents."""
    return [
        {"error": words},
        {"error": {"message": words, "type": "insufficient_quota"}},
        {"error": {"code": 400, "error": {"message": words}}},
        {"error": True, "message": words},
        {"errors": [{"message": words}]},
        {"errors": [words]},
        {"detail": words},
        {"detail": [{"loc": ["body", "input"], "msg": words, "type": "value_error"}]},
        {"title": "Bad Request", "status": 400, "detail": words},
        [{"error": {"code": 400, "message": words}}],
        {"message": words},
        {"message": {"error": words}},
        {"error_message": words},
        {"fault": {"faultstring": words}},
        {"success": False, "message": words},
        {"success": False, "error": {"message": words}},
        {"content": [{"type": "text", "text": words}], "isError": True},
    ]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(shaped(""))))
@pytest.mark.parametrize("status", [200, 400, 422, 429, 500])
async def test_errors_of_any_shape_are_quoted_over_http(
    api: Api, http: Transport, number: int, status: int
) -> None:
    body = shaped(WORDS)[number]
    if status == 200 and isinstance(body, list):
        pytest.skip("not an object, so not the answer of a server that failed")
    for media in ("application/json", "text/plain", "text/html"):
        api.prepare(status, body, content_type=media)
        error = await failure(http)
        assert repr(WORDS) in str(error) or f": {WORDS}'" in str(error)
        assert "127.0.0.1" in str(error)


@pytest.mark.parametrize(
    "page",
    [
        f"<!DOCTYPE html><html><head><style>h1 {{}}</style></head><body><h1>{WORDS}</h1></body>",
        f"<html><title>502</title><script>alert('<b>')</script><pre>{WORDS}</pre></html>",
    ],
)
@pytest.mark.parametrize("status", [200, 400, 404, 502])
async def test_a_page_is_quoted_without_its_markup(
    api: Api, http: Transport, status: int, page: str
) -> None:
    api.prepare(status, page.encode(), content_type="text/html")
    error = await failure(http)
    assert WORDS in str(error)
    assert "<" not in str(error)
    assert "alert" not in str(error)


@pytest.mark.parametrize("number", range(len(shaped(""))))
async def test_errors_of_any_shape_are_quoted_over_the_broker(number: int) -> None:
    body = shaped(WORDS)[number]
    if isinstance(body, list):
        pytest.skip("not an object, so not the answer of an agent that failed")
    async with manager(EMBEDDINGS, lambda _: body) as transport:
        assert WORDS in str(await failure(transport))


async def test_results_in_the_form_of_mcp_are_read() -> None:
    result = vectors_for(REQUEST)
    for answer in (
        {"content": [{"type": "text", "text": json.dumps(result)}]},
        {"content": [{"type": "text", "text": "ok"}], "structuredContent": result},
    ):
        async with manager(EMBEDDINGS, lambda _, answer=answer: answer) as mcp:  # type: ignore[misc]
            assert await mcp(REQUEST, timeout=5) == result
    text = {"content": [{"type": "text", "text": WORDS}]}
    async with manager(EMBEDDINGS, lambda _: text) as mcp:
        assert WORDS in str(await failure(mcp))


async def test_a_key_that_is_refused_with_400_is_named(api: Api, http: Transport) -> None:
    api.prepare(400, [{"error": {"message": "API key not valid. Please pass a valid API key."}}])
    error = await failure(http)
    assert not isinstance(error, TextsRefused)
    assert "SEARCH_API_KEY" in error.hint
