"""RemoteReranker over transports of the test's making, real HTTP and a real broker."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ability_search.model_servers import (
    KEY,
    Answer,
    asking,
    http_api,
    manager,
    raising,
    telling,
)

from ability_search.config.loader import load_settings
from ability_search.errors import ConfigurationError, RerankerUnavailable
from ability_search.extensions.localstack.deployment import missing_secrets, require_secrets
from ability_search.providers.http_transport import OverHttp
from ability_search.providers.model_servers import ModelServers
from ability_search.providers.reranker import (
    RERANK,
    RemoteReranker,
    UnusableScores,
    read_scores,
    shares,
)
from ability_search.providers.transports import OverBroker, Transport
from kadi_client import Connection
from kadi_localnet.broker import serve_broker
from kadi_localnet.models.errors import InvalidRequest, ModelNotServed, Overloaded, RequestTooLarge

REQUEST = {"model": "m", "query": "q", "documents": ["one", "three"]}


def by_length(request: Mapping[str, Any]) -> dict[str, Any]:
    """Scores of a tenth a character, best first, as a server would answer."""
    results = [
        {"index": index, "relevance_score": len(text) / 10}
        for index, text in enumerate(request["documents"])
    ]
    return {"results": sorted(results, key=lambda row: -row["relevance_score"])}


class Server(Transport):
    """A transport that answers by a function, which may raise or wait."""

    def __init__(self, answer: Answer = by_length) -> None:
        self.requests: list[Mapping[str, Any]] = []
        self.timeouts: list[float] = []
        self.answer = answer

    async def __call__(self, request: Mapping[str, Any], *, timeout: float) -> Any:
        self.requests.append(request)
        self.timeouts.append(timeout)
        answer = self.answer(request)
        return await answer if asyncio.iscoroutine(answer) else answer


def reranker(transport: Transport, **options: Any) -> RemoteReranker:
    defaults: dict[str, Any] = {"model": None, "timeout": 5.0}
    defaults |= {"breaker_failures": 100, "breaker_reset": 30.0}
    return RemoteReranker(transport, **{**defaults, **options})


def lasting() -> RerankerUnavailable:
    error = RerankerUnavailable("for good")
    error.retryable = False
    return error


def test_the_error_has_no_wire_code_of_its_own() -> None:
    assert RerankerUnavailable.code == "internal"


async def test_scores_have_the_order_of_the_texts() -> None:
    server = Server()
    texts = ["xxx", "x", "xxxxx", "xx"]
    scores = await reranker(server).rerank("m", "what?", texts, timeout=5)
    assert scores == [0.3, 0.1, 0.5, 0.2]
    assert server.requests == [{"model": "m", "query": "what?", "documents": texts}]


async def test_whole_texts_are_sent() -> None:
    server = Server(lambda _: {"results": [{"index": 0, "relevance_score": 0.5}]})
    text = "a word and another " * 5000
    await reranker(server).rerank(None, "q", [text], timeout=5)
    assert server.requests[0]["documents"] == [text]


async def test_the_model_of_the_call_overrides_the_settings_and_none_is_omitted() -> None:
    server = Server()
    for model, default in (("mine", "usual"), (None, "usual"), (None, None)):
        await reranker(server, model=default).rerank(model, "q", ["a", "bb"], timeout=5)
    assert [request.get("model") for request in server.requests] == ["mine", "usual", None]
    assert "model" not in server.requests[-1]


async def test_no_texts_need_no_request() -> None:
    server = Server()
    assert await reranker(server).rerank("m", "q", [], timeout=5) == []
    assert server.requests == []


@pytest.mark.parametrize("score", [1.0, 0.0, -3.5])
async def test_equal_scores_for_different_texts_are_unusable(score: float) -> None:
    client = reranker(Server(lambda _: scored((0, score), (1, score), (2, score))))
    with pytest.raises(RerankerUnavailable, match="the same score for all texts") as raised:
        await client.rerank(None, "q", ["a", "bb", "ccc"], timeout=5)
    assert not raised.value.retryable


async def test_equal_texts_may_have_equal_scores() -> None:
    client = reranker(Server())
    assert await client.rerank(None, "q", ["a"], timeout=5) == [0.1]
    assert await client.rerank(None, "q", ["a", "a"], timeout=5) == [0.1, 0.1]


async def test_the_shorter_timeout_applies() -> None:
    async def hang(_request: Mapping[str, Any]) -> Any:
        await asyncio.Event().wait()

    server = Server(hang)
    for own, callers in ((0.05, 60.0), (60.0, 0.05)):
        async with asyncio.timeout(5):
            with pytest.raises(RerankerUnavailable, match=r"within 0\.05 s") as raised:
                await reranker(server, timeout=own).rerank(None, "q", ["a"], timeout=callers)
        assert raised.value.retryable
    assert server.timeouts == [0.05, 0.05]


async def test_a_failure_is_not_retried() -> None:
    server = Server(raising(RerankerUnavailable("for now", retry_after=0)))
    with pytest.raises(RerankerUnavailable, match="for now"):
        await reranker(server).rerank(None, "q", ["a"], timeout=5)
    assert len(server.requests) == 1


async def test_a_server_that_keeps_failing_is_skipped() -> None:
    server = Server(raising(RerankerUnavailable("for now")))
    client = reranker(server, breaker_failures=3)
    for _ in range(3):
        with pytest.raises(RerankerUnavailable, match="for now"):
            await client.rerank(None, "q", ["a"], timeout=5)
    with pytest.raises(RerankerUnavailable, match="in a row; next request in [23]") as raised:
        await client.rerank(None, "q", ["a"], timeout=5)
    assert raised.value.retry_after == pytest.approx(30, abs=5)
    assert len(server.requests) == 3


async def test_refusals_and_unusable_answers_do_not_open_the_breaker() -> None:
    server = Server()
    client = reranker(server, breaker_failures=2)
    useless: tuple[Answer, ...] = (raising(lasting()), lambda _: {"results": []})
    for answer in useless:
        server.answer = answer
        for _ in range(3):
            with pytest.raises(RerankerUnavailable):
                await client.rerank("unknown", "q", ["a"], timeout=5)
    server.answer = by_length
    assert await client.rerank(None, "q", ["a"], timeout=5) == [0.1]


def scored(*rows: tuple[Any, Any]) -> dict[str, Any]:
    return {"results": [{"index": index, "relevance_score": score} for index, score in rows]}


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        "text",
        {},
        {"results": None},
        {"results": [1, 2]},
        {"results": [{"index": 0}, {"index": 1}]},
        {"results": [{"relevance_score": 1}, {"relevance_score": 2}]},
        scored((0, 0.5)),
        scored((0, 0.5), (0, 0.6)),
        scored((0, 0.5), (2, 0.6)),
        scored((1, 0.5), (2, 0.6)),
        scored((0, 0.5), (1, 0.6), (2, 0.7)),
        scored((0, 0.5), ("1", 0.6)),
        scored((0, 0.5), (1, None)),
        scored((0, 0.5), (1, [0.6])),
        scored((0, 0.5), (1, "high")),
        scored((0, 0.5), (1, float("nan"))),
        scored((0, 0.5), (1, float("inf"))),
        scored((0, 0.5), (1, 10**400)),
    ],
    ids=repr,
)
def test_an_answer_that_does_not_score_every_text_is_refused(answer: Any) -> None:
    with pytest.raises(UnusableScores) as raised:
        read_scores(answer, expected=2)
    assert raised.value.retryable is False


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(finite, min_size=1))
def test_mapped_scores_are_between_0_and_1_in_the_same_order(scores: list[float]) -> None:
    mapped = shares(scores)
    assert all(0 <= share <= 1 for share in mapped)
    order = sorted(range(len(scores)), key=scores.__getitem__)
    assert [mapped[place] for place in order] == sorted(mapped)


@given(st.lists(st.floats(0, 1), min_size=1))
def test_scores_in_the_unit_interval_are_unchanged(scores: list[float]) -> None:
    assert shares(scores) == scores


def test_one_score_outside_the_unit_interval_means_logits() -> None:
    assert shares([0.0, -2.0]) == pytest.approx([0.5, 1 / (1 + math.exp(2))])
    assert shares([7.7, 0.5]) == pytest.approx([1 / (1 + math.exp(-7.7)), 1 / (1 + math.exp(-0.5))])
    assert shares([1.0000001, -0.0000001, 0.25]) == [1.0, 0.0, 0.25]


async def failure(transport: Transport, **changes: Any) -> RerankerUnavailable:
    with pytest.raises(RerankerUnavailable) as raised:
        await transport({**REQUEST, **changes}, timeout=5)
    assert KEY not in f"{raised.value} {raised.value.hint}"
    assert raised.value.hint
    return raised.value


async def test_http_and_broker_send_the_request_with_the_key() -> None:
    asked: list[Any] = []

    def answer(request: Mapping[str, Any]) -> Any:
        asked.append(request)
        return by_length(request)

    async with manager(RERANK, answer) as transport:
        assert await transport(REQUEST, timeout=5) == by_length(REQUEST)
    assert asked == [{**REQUEST, "api_key": KEY}]
    async with http_api(by_length) as api, asking(RERANK, api) as transport:
        assert await transport(REQUEST, timeout=5) == by_length(REQUEST)
    ((path, headers, body),) = api.seen
    assert (path, headers["authorization"], body) == ("/v1/rerank", f"Bearer {KEY}", REQUEST)


@pytest.mark.parametrize(
    ("status", "body", "retryable", "said"),
    [
        (429, b"", True, "(429) could not rerank"),
        (503, b"loading", True, "(503) could not rerank"),
        (401, KEY.encode(), False, "(401) refused the key"),
        (403, b"", False, "(403) refused the key"),
        (404, b"", False, "(404) refused the address"),
        (404, b"no model m", False, "(404) refused the model 'm': 'no model m'"),
        (400, b'{"message": "model m not found"}', False, "(400) refused the model 'm'"),
        (413, b"", False, "(413) refused the texts"),
        (422, b'{"detail": "too many"}', False, "(422) refused the texts"),
        (200, b"<html>", True, "did not return JSON"),
    ],
)
async def test_api_failures_are_classified(
    status: int, body: bytes, retryable: bool, said: str
) -> None:
    async with http_api(by_length) as api, asking(RERANK, api) as transport:
        api.prepare(status, body, retry_after="7")
        error = await failure(transport)
    assert error.retryable is retryable
    assert said in str(error)
    assert error.retry_after == (7 if status in (429, 503) else None)


async def test_unreachable_servers_are_unavailable() -> None:
    async with httpx.AsyncClient() as client:
        error = await failure(OverHttp(RERANK, client, "http://127.0.0.1:1", api_key=None))
    assert error.retryable
    assert "at 127.0.0.1:1 did not answer: ConnectError" in str(error)
    assert "URL" in error.hint
    async with serve_broker("127.0.0.1", 0) as broker, Connection(broker.url) as client:
        error = await failure(OverBroker(RERANK, client.invoke, api_key=None))
        assert error.retryable
        assert "serves a reranker" in error.hint
        await client.close()
        assert (await failure(OverBroker(RERANK, client.invoke, api_key=None))).retryable


@pytest.mark.parametrize(
    ("error", "retryable", "said"),
    [
        (ModelNotServed("m", ["other"]), False, "refused the model 'm'"),
        (RequestTooLarge("documents: 65 texts, at most 64 are taken"), False, "refused the texts"),
        (InvalidRequest("query: must not be empty"), False, "refused the texts"),
        (RuntimeError("Incorrect API key provided"), False, "refused the key"),
        (Overloaded("50 texts are queued"), True, "could not rerank"),
        (RuntimeError("the GPU caught fire"), True, "could not rerank"),
    ],
    ids=str,
)
async def test_model_manager_failures_are_classified(
    error: Exception, retryable: bool, said: str
) -> None:
    for answer in telling(error):
        async with manager(RERANK, answer) as transport:
            told = await failure(transport)
        assert told.retryable is retryable
        assert said in str(told)


async def test_texts_that_do_not_fit_into_a_message_are_refused() -> None:
    async with manager(RERANK, by_length) as broker:
        for documents in (["x" * 100_001], ["\ud800"]):
            assert not (await failure(broker, documents=documents)).retryable
    async with http_api(by_length) as api, asking(RERANK, api) as http:
        assert not (await failure(http, documents=["\ud800"])).retryable


def settings(**environ: str) -> Any:
    return load_settings(environ, Path("/"))


async def test_the_settings_choose_the_transport(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def invoke(
        tool: str,
        tool_input: Mapping[str, Any],
        *,
        timeout: float = 0,
        target_agent: str | None = None,
    ) -> dict[str, Any]:
        assert tool == "rerank"
        assert timeout == pytest.approx(1.5, abs=0.1)
        return by_length(tool_input)

    async def asked(environ: Mapping[str, str]) -> Sequence[float]:
        async with ModelServers(settings(**environ), invoke).reranker() as chosen:
            return await chosen.rerank(None, "secret words", ["aa", "b"], timeout=60)

    assert await asked({}) == [0.2, 0.1]
    async with http_api(by_length) as api:
        environ = {"SEARCH_RERANKER_TRANSPORT": "api", "SEARCH_RERANKER_API_URL": api.url}
        environ |= {"SEARCH_RERANKER_API_KEY": KEY, "SEARCH_RERANKER_MODEL": "usual"}
        assert await asked(environ) == [0.2, 0.1]
    _path, headers, body = api.seen[0]
    assert headers["authorization"] == f"Bearer {KEY}"
    assert body["model"] == "usual"
    assert KEY not in caplog.text
    assert "secret words" not in caplog.text
    assert KEY not in repr(settings(**environ))


async def test_an_api_needs_an_address() -> None:
    async def invoke(
        tool: str,
        tool_input: Mapping[str, Any],
        *,
        timeout: float = 0,
        target_agent: str | None = None,
    ) -> dict[str, Any]:
        raise AssertionError("the broker is not asked")

    incomplete = settings(SEARCH_RERANKER_TRANSPORT="api")
    assert missing_secrets(incomplete) == ("SEARCH_RERANKER_API_URL",)
    with pytest.raises(ConfigurationError, match="required because reranker_transport is api"):
        require_secrets(incomplete)
    with pytest.raises(ConfigurationError, match="SEARCH_RERANKER_API_URL is missing"):
        async with ModelServers(incomplete, invoke).reranker():
            pass
