"""Texts at which a server fails, and servers that accept few texts, over both transports."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ability_search.model_servers import ByFunction, asking, embedder, http_api, manager
from tests.examples import examples
from tests.interop.relay import relaying

from ability_search.errors import EmbeddingUnavailable, TextsRefused
from ability_search.providers.embedder import EMBEDDINGS, RemoteEmbedder
from ability_search.providers.provider_errors import Objection, refusal_of_status
from ability_search.providers.transports import OverBroker, Transport
from kadi_client import Call, Connection, Tool
from kadi_client.errors import RemoteError
from kadi_localnet.broker import serve_broker

Request = Mapping[str, Any]
Answer = dict[str, Any]
Fault = Callable[[Answer], Any]
WORDS = "json: unsupported value: NaN"


def vector_of(text: str) -> list[float]:
    return [float(len(text)), float(sum(map(ord, text)) % 997), 1.0]


def http_error(status: int) -> Fault:
    def fault(_answer: Answer) -> Any:
        objection = Objection(refusal_of_status(status, WORDS), "the API", status, said=WORDS)
        raise EMBEDDINGS.failure(objection, {"model": "m"})

    return fault


def nothing(_answer: Answer) -> Any:
    return None


def null_rows(answer: Answer) -> Any:
    return {"data": [{**row, "embedding": None} for row in answer["data"]]}


def not_a_number(answer: Answer) -> Any:
    return {"data": [{**row, "embedding": [math.nan] * 3} for row in answer["data"]]}


def zeros(answer: Answer) -> Any:
    return {"data": [{**row, "embedding": [0.0] * 3} for row in answer["data"]]}


def too_few(answer: Answer) -> Any:
    return {"data": answer["data"][1:]}


FAULTS = [*map(http_error, (400, 413, 422, 500, 502)), nothing, null_rows, not_a_number, zeros]
FAULTS.append(too_few)


@dataclass
class Server(Transport):
    """A transport to a server that fails at requests with one of ``bad`` or more than ``most``."""

    fault: Fault
    bad: frozenset[str] = frozenset()
    most: int = 10**9
    refusal: Fault = field(default_factory=lambda: http_error(413))
    sizes: list[int] = field(default_factory=list)

    async def __call__(self, request: Request, *, timeout: float) -> Any:
        texts = request["input"]
        self.sizes.append(len(texts))
        answer = {
            "data": [{"index": n, "embedding": vector_of(text)} for n, text in enumerate(texts)]
        }
        if len(texts) > self.most:
            return self.refusal(answer)
        return answer if self.bad.isdisjoint(texts) else self.fault(answer)


def client_of(server: Transport, batch: int = 64, **options: Any) -> RemoteEmbedder:
    return embedder(server, batch_texts=batch, batch_bytes=10**6, attempts=None, **options)


def assert_rows(refused: TextsRefused, texts: list[str], bad: frozenset[str]) -> None:
    """Every text has its vector, except the bad ones."""
    for text, row in zip(texts, refused.rows, strict=True):
        if isinstance(row, TextsRefused):
            assert text in bad
        else:
            vector = np.array(vector_of(text))
            np.testing.assert_allclose(row, vector / np.linalg.norm(vector), rtol=1e-5)
            assert text not in bad


@settings(max_examples=examples(40))
@given(
    st.sampled_from(FAULTS), st.integers(1, 150), st.sets(st.integers(0, 149)), st.integers(1, 80)
)
async def test_only_the_texts_at_which_the_server_fails_are_lost(
    fault: Fault, count: int, places: set[int], most: int
) -> None:
    texts = [f"text number {n}" for n in range(count)]
    bad = frozenset(texts[n] for n in places if n < count)
    server = Server(fault, bad, most)
    client = client_of(server, breaker_failures=2)
    if not bad:
        assert (await client.embed("m", texts, timeout=20)).shape == (count, 3)
        return
    with pytest.raises(TextsRefused) as raised:
        await client.embed("m", texts, timeout=20)
    assert_rows(raised.value, texts, bad)
    assert not client.breaker.any_open, "queries are not held back"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("place", [0, 31, 63])
async def test_a_refused_text_costs_few_requests(fault: Fault, place: int) -> None:
    texts = [f"text number {n}" for n in range(64)]
    server = Server(fault, frozenset({texts[place]}))
    with pytest.raises(TextsRefused) as raised:
        await client_of(server).embed("m", texts, timeout=20)
    assert_rows(raised.value, texts, server.bad)
    assert len(server.sizes) <= 24
    server.sizes.clear()
    with pytest.raises(TextsRefused):
        await client_of(server).embed("m", [texts[place]], timeout=20)
    assert len(server.sizes) <= 6, "three attempts, and the text that is known to work"


@pytest.mark.parametrize("limit", [1, 2, 31, 32, 50, 63])
@pytest.mark.parametrize("refusal", [*map(http_error, (400, 413, 422)), nothing, too_few])
async def test_the_number_of_texts_that_a_server_accepts_is_learned(
    limit: int, refusal: Fault
) -> None:
    server = Server(nothing, most=limit, refusal=refusal)
    client = client_of(server)
    texts = [f"text number {n}" for n in range(200)]
    assert (await client.embed("m", texts, timeout=20)).shape == (200, 3)
    server.sizes.clear()
    assert (await client.embed("m", texts, timeout=20)).shape == (200, 3)
    assert limit / 2 <= max(server.sizes) <= limit, "no request is refused any more"
    server.sizes.clear()
    server.most = 64
    await client.embed("another", texts, timeout=20)
    assert max(server.sizes) == 64, "other models keep theirs"


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_server_that_fails_at_every_text_refuses_none(fault: Fault) -> None:
    server = Server(fault, most=0, refusal=fault)
    with pytest.raises(EmbeddingUnavailable) as raised:
        await client_of(server).embed("m", ["a", "b"], timeout=0.3)
    assert not isinstance(raised.value, TextsRefused)


async def test_a_failure_that_passes_loses_no_text() -> None:
    server = Server(http_error(500), frozenset({"text"}), most=0, refusal=http_error(500))

    @ByFunction
    async def transport(request: Request, *, timeout: float) -> Any:
        if len(server.sizes) == 6:
            server.most, server.bad = 64, frozenset()
        return await server(request, timeout=timeout)

    assert (await client_of(transport).embed("m", ["a"] * 8, timeout=20)).shape == (8, 3)


@asynccontextmanager
async def served(over: str, bad: str) -> AsyncIterator[Transport]:
    """The way to a real server that fails at a text, and accepts 32 texts as TEI does."""

    def answer(request: Request) -> Any:
        texts = request["input"]
        if bad in texts:
            raise RemoteError(WORDS)
        if len(texts) > 32:
            raise RemoteError(f"batch size {len(texts)} > maximum allowed batch size 32")
        return {"data": [{"index": n, "embedding": vector_of(t)} for n, t in enumerate(texts)]}

    if over == "broker":
        async with manager(EMBEDDINGS, answer) as transport:
            yield transport
        return
    async with http_api(answer) as api, asking(EMBEDDINGS, api) as transport:

        @ByFunction
        async def checked(request: Request, *, timeout: float) -> Any:
            try:
                api.answer(request)
            except RemoteError as exc:
                status = 500 if str(exc) == WORDS else 413
                api.prepare(status, {"error": str(exc)})
            return await transport(request, timeout=timeout)

        yield checked


@pytest.mark.parametrize("over", ["http", "broker"])
async def test_real_servers_lose_one_text_and_say_why(over: str) -> None:
    texts = [f"text number {n}" for n in range(100)]
    async with served(over, texts[70]) as transport:
        with pytest.raises(TextsRefused, match="unsupported value") as raised:
            await client_of(transport, concurrency=1).embed("m", texts, timeout=30)
    assert_rows(raised.value, texts, frozenset({texts[70]}))


# Texts at which the server ends or hangs


@dataclass
class Mortal(Transport):
    """A transport to a server that ends at some texts, and is away for some requests then."""

    deadly: frozenset[str]
    away: int = 2
    most: int = 10**9
    """Number of texts beyond which it ends, as one without memory for more does."""
    ended: int = 0
    sizes: list[int] = field(default_factory=list)
    _left: int = 0

    async def __call__(self, request: Request, *, timeout: float) -> Any:
        texts = request["input"]
        if self._left:
            self._left -= 1
            raise EmbeddingUnavailable("no provider", retry_after=0.0)
        self.sizes.append(len(texts))
        if len(texts) > self.most or not self.deadly.isdisjoint(texts):
            self.ended, self._left = self.ended + 1, self.away
            raise EMBEDDINGS.failure(Objection("lost", said="it disconnected"), request)
        return {"data": [{"index": n, "embedding": vector_of(t)} for n, t in enumerate(texts)]}


@settings(max_examples=examples(30))
@given(st.integers(1, 150), st.sets(st.integers(0, 149), max_size=3), st.integers(0, 4))
async def test_only_the_texts_at_which_the_server_ends_are_lost(
    count: int, places: set[int], away: int
) -> None:
    texts = [f"text number {n}" for n in range(count)]
    server = Mortal(frozenset(texts[n] for n in places if n < count), away)
    client = client_of(server, breaker_failures=50)
    for _ in range(2):
        before = server.ended
        if not server.deadly:
            assert (await client.embed("m", texts, timeout=20)).shape == (count, 3)
            continue
        with pytest.raises(TextsRefused, match="disconnected") as raised:
            await client.embed("m", texts, timeout=20)
        assert_rows(raised.value, texts, server.deadly)
        assert server.ended - before <= (10 * len(server.deadly) if not before else 0)
    assert not client.breaker.any_open


async def test_a_server_that_ends_once_loses_no_text() -> None:
    server = Mortal(frozenset({"text number 3"}))

    @ByFunction
    async def transport(request: Request, *, timeout: float) -> Any:
        if server.ended:
            server.deadly = frozenset()
        return await server(request, timeout=timeout)

    texts = [f"text number {n}" for n in range(64)]
    assert (await client_of(transport).embed("m", texts, timeout=20)).shape == (64, 3)
    assert 32 not in server.sizes, "it is repeated whole"


@pytest.mark.parametrize("limit", [1, 2, 7, 32, 63])
async def test_the_number_of_texts_at_which_a_server_ends_is_learned(limit: int) -> None:
    server = Mortal(frozenset(), most=limit)
    client = client_of(server, breaker_failures=50)
    texts = [f"text number {n}" for n in range(200)]
    assert (await client.embed("m", texts, timeout=20)).shape == (200, 3)
    assert server.ended <= 20, "requests of the same call respect it, too"
    server.sizes.clear()
    server.deadly = frozenset({texts[90]})
    with pytest.raises(TextsRefused) as raised:
        await client.embed("m", texts, timeout=20)
    assert_rows(raised.value, texts, server.deadly)
    assert limit / 2 <= max(server.sizes) <= limit, "it ends at that text only"


async def test_texts_of_other_calls_are_not_lost_with_the_one_at_which_the_server_ends() -> None:
    server = Mortal(frozenset({"deadly"}))
    client = client_of(server, breaker_failures=50)
    mine = [f"mine {n}" for n in range(40)]
    answers = await asyncio.gather(
        client.embed("m", [*mine, "deadly"], timeout=20),
        *(client.embed("m", [f"{n} {text}" for text in mine], timeout=20) for n in range(4)),
        return_exceptions=True,
    )
    assert isinstance(answers[0], TextsRefused)
    assert_rows(answers[0], [*mine, "deadly"], server.deadly)
    for answer in answers[1:]:
        assert isinstance(answer, np.ndarray)
        assert answer.shape == (40, 3)


async def test_a_server_that_ends_at_every_text_refuses_none() -> None:
    server = Mortal(frozenset({"a", "b", "text"}), away=0)
    with pytest.raises(EmbeddingUnavailable) as raised:
        await client_of(server).embed("m", ["a", "b"], timeout=0.5)
    assert not isinstance(raised.value, TextsRefused)


@pytest.mark.slow
async def test_a_text_at_which_the_model_hangs_is_refused() -> None:
    @ByFunction
    async def transport(request: Request, *, timeout: float) -> Any:
        if "endless" in request["input"]:
            await asyncio.Event().wait()
        texts = request["input"]
        return {"data": [{"index": n, "embedding": vector_of(t)} for n, t in enumerate(texts)]}

    texts = [f"text number {n}" for n in range(63)]
    texts.insert(40, "endless")
    with pytest.raises(TextsRefused, match="did not answer within") as raised:
        await client_of(transport, timeout=0.5).embed("m", texts, timeout=0.75)
    assert_rows(raised.value, texts, frozenset({"endless"}))


@settings(max_examples=examples(30))
@given(st.integers(2, 90), st.integers(0, 89), st.integers(1, 5))
async def test_a_vector_of_other_dimensions_loses_its_text_only(
    count: int, place: int, size: int
) -> None:
    texts = [f"text number {n}" for n in range(count)]
    odd = texts[place % count]

    @ByFunction
    async def transport(request: Request, *, timeout: float) -> Any:
        rows = [[1.0] * size if t == odd else vector_of(t) for t in request["input"]]
        return {"data": [{"index": n, "embedding": row} for n, row in enumerate(rows)]}

    client = client_of(transport)
    if size == 3:
        assert (await client.embed("m", texts, timeout=20)).shape == (count, 3)
        return
    for _ in range(2):
        with pytest.raises(TextsRefused, match="differ in dimensions") as raised:
            await client.embed("m", texts, timeout=20)
        refused = [isinstance(row, TextsRefused) for row in raised.value.rows]
        assert refused == [text == odd for text in texts]


def answer_of(request: Request) -> Answer:
    texts = request["input"]
    return {"data": [{"index": n, "embedding": vector_of(t)} for n, t in enumerate(texts)]}


@asynccontextmanager
async def mortal(how: str, deadly: str) -> AsyncIterator[Transport]:
    """The way to a real server whose connection ends at a text."""
    if how == "broker":
        async with serve_broker("127.0.0.1", 0) as broker, relaying(broker.url) as relay:

            async def handle(tool_input: dict[str, Any], _call: Call) -> Any:
                if deadly in tool_input["input"]:
                    relay.cut()
                    await asyncio.Event().wait()
                return answer_of(tool_input)

            tool = Tool(EMBEDDINGS.tool, "Of models.", {"type": "object"}, handle)
            async with Connection(relay.url, tools=[tool]), Connection(broker.url) as client:
                yield OverBroker(EMBEDDINGS, client.invoke, api_key=None)
        return
    async with http_api(answer_of) as api, asking(EMBEDDINGS, api) as transport:

        @ByFunction
        async def checked(request: Request, *, timeout: float) -> Any:
            if deadly in request["input"]:
                body = json.dumps(answer_of(request)).encode()
                if how == "body cut":
                    api.prepare(200, body[:40], content_length=str(len(body)), connection="close")
                elif how == "no gzip":
                    api.prepare(200, body, content_encoding="gzip")
                elif how == "chunk cut":
                    chunk = b"%x\r\n" % len(body) + body[:40]
                    api.prepare(200, chunk, transfer_encoding="chunked", connection="close")
                else:
                    api.prepare(0)
            return await transport(request, timeout=timeout)

        yield checked


@pytest.mark.slow
@pytest.mark.parametrize("how", ["broker", "reset", "body cut", "chunk cut", "no gzip"])
async def test_real_servers_that_end_at_a_text_lose_it_only(how: str) -> None:
    texts = [f"text number {n}" for n in range(70)]
    async with mortal(how, texts[40]) as transport:
        client = client_of(transport, concurrency=2)
        with pytest.raises(TextsRefused, match="each time that it was asked") as raised:
            await client.embed("m", texts, timeout=30)
    assert_rows(raised.value, texts, frozenset({texts[40]}))
