"""RemoteEmbedder over transports of the test's making."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ability_search.model_servers import ByFunction, embedder
from tests.virtual_time import elapsed, later, without_waiting

from ability_search.bounded_batches import batches, text_bytes
from ability_search.errors import EmbeddingUnavailable, TextsRefused
from ability_search.providers.embedder import BreakerOpen, UnusableAnswer, unit_vectors
from ability_search.providers.transports import Transport

Request = Mapping[str, Any]


def vector_of(text: str) -> list[float]:
    return [float(len(text)), 1.0, 0.0]


def answer_to(request: Request) -> dict[str, Any]:
    return {
        "data": [
            {"index": n, "embedding": vector_of(text)} for n, text in enumerate(request["input"])
        ]
    }


class Server(Transport):
    """A transport; ``before`` runs before each answer and may raise or wait."""

    def __init__(self, before: Callable[[Request], Awaitable[None]] | None = None) -> None:
        self.requests: list[Request] = []
        self.timeouts: list[float] = []
        self.running = 0
        self.most_running = 0
        self._before = before

    async def __call__(self, request: Request, *, timeout: float) -> Any:
        self.requests.append(request)
        self.timeouts.append(timeout)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            if self._before is not None:
                await self._before(request)
            return answer_to(request)
        finally:
            self.running -= 1


def failing(times: int, error: Callable[[], Exception]) -> Callable[[Request], Awaitable[None]]:
    left = times

    async def before(_request: Request) -> None:
        nonlocal left
        if left > 0:
            left -= 1
            raise error()

    return before


def passing_failure() -> EmbeddingUnavailable:
    return EmbeddingUnavailable("for now", retry_after=0.0)


def lasting_failure() -> EmbeddingUnavailable:
    error = EmbeddingUnavailable("for good")
    error.retryable = False
    return error


async def test_vectors_have_unit_length_and_the_order_of_the_texts() -> None:
    texts = ["x" * n for n in range(1, 31)]
    vectors = await embedder(Server()).embed("m", texts, timeout=5)
    expected = np.array([vector_of(text) for text in texts], dtype=np.float32)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected, rtol=1e-6)


async def test_no_texts_need_no_request() -> None:
    server = Server()
    assert (await embedder(server).embed("m", [], timeout=5)).shape == (0, 0)
    assert server.requests == []


async def test_batches_are_limited_in_texts_and_bytes() -> None:
    server = Server()
    texts = ["ä" * 100] * 9 + ["x"] * 9 + ["y" * 5000]
    await embedder(server, batch_texts=4, batch_bytes=600).embed("m", texts, timeout=5)
    assert [text for request in server.requests for text in request["input"]] == texts
    for request in server.requests:
        assert len(request["input"]) <= 4
        size = sum(len(text.encode()) for text in request["input"])
        assert size <= 600 or len(request["input"]) == 1
        assert request["model"] == "m"
        assert request["encoding_format"] == "base64"


@given(
    st.lists(st.text(alphabet="aä漢", max_size=20), max_size=60),
    st.integers(1, 10),
    st.integers(1, 60),
)
def test_batches_are_filled_in_order(texts: list[str], most: int, most_bytes: int) -> None:
    runs = list(batches(texts, text_bytes, most=most, most_bytes=most_bytes))
    assert [text for run in runs for text in run] == texts
    for place, run in enumerate(runs):
        size = sum(len(text.encode()) for text in run)
        assert 1 <= len(run) <= most
        assert size <= most_bytes or len(run) == 1
        if place + 1 < len(runs):
            assert len(run) == most or size + len(runs[place + 1][0].encode()) > most_bytes


async def test_concurrent_requests_of_a_call_are_limited() -> None:
    meeting = asyncio.Barrier(3)

    async def meet(_request: Request) -> None:
        async with asyncio.timeout(5):
            await meeting.wait()

    server = Server(meet)
    await embedder(server, concurrency=3, batch_texts=1).embed("m", ["a"] * 9, timeout=5)
    assert server.most_running == 3


async def test_a_query_does_not_wait_for_indexing_calls() -> None:
    held = asyncio.Event()

    async def hold(request: Request) -> None:
        if request["input"] != ["query"]:
            await held.wait()

    client = embedder(Server(hold), concurrency=1)
    indexing = asyncio.create_task(client.embed("m", ["document"] * 8, timeout=5))
    async with asyncio.timeout(5):
        assert (await client.embed("m", ["query"], timeout=5)).shape == (1, 3)
        assert not indexing.done()
        held.set()
        await indexing


async def test_transient_failures_are_retried() -> None:
    server = Server(failing(2, passing_failure))
    await embedder(server, attempts=3).embed("m", ["a"], timeout=5)
    assert len(server.requests) == 3


async def test_attempts_are_limited() -> None:
    server = Server(failing(99, passing_failure))
    with pytest.raises(EmbeddingUnavailable, match="for now"):
        await embedder(server, attempts=3).embed("m", ["a"], timeout=5)
    assert len(server.requests) == 3


async def test_an_outage_that_ends_before_the_deadline_is_survived() -> None:
    """With the breaker open, and with calls that begin during the outage."""
    server = Server(failing(6, passing_failure))
    client = embedder(server, attempts=None, breaker_failures=2, breaker_reset=0.05)
    async with asyncio.timeout(20):
        parts = await asyncio.gather(*(client.embed("m", ["a"] * 8, timeout=20) for _ in range(2)))
    assert [part.shape for part in parts] == [(8, 3)] * 2
    assert len(server.requests) == 6 + 4


async def test_permanent_failures_are_not_retried() -> None:
    server = Server(failing(99, lasting_failure))
    with pytest.raises(EmbeddingUnavailable, match="for good"):
        await embedder(server).embed("m", ["a"], timeout=5)
    assert len(server.requests) == 1


async def test_a_retry_after_the_deadline_is_not_awaited() -> None:
    server = Server(failing(99, lambda: EmbeddingUnavailable("later", retry_after=3600)))
    async with asyncio.timeout(1):
        with pytest.raises(EmbeddingUnavailable, match="later") as raised:
            await embedder(server).embed("m", ["a"], timeout=5)
    assert raised.value.retry_after == 3600
    assert len(server.requests) == 1


@without_waiting
async def test_retry_after_is_respected() -> None:
    server = Server(failing(1, lambda: EmbeddingUnavailable("later", retry_after=0.05)))
    await embedder(server).embed("m", ["a"], timeout=5)
    assert elapsed() == pytest.approx(0.05)


@without_waiting
async def test_the_deadline_holds_even_if_every_request_hangs() -> None:
    async def hang(_request: Request) -> None:
        await asyncio.Event().wait()

    server = Server(hang)
    client = embedder(server, timeout=0.02, attempts=1000, batch_texts=1, concurrency=1)
    with pytest.raises(EmbeddingUnavailable, match="did not answer"):
        await client.embed("m", ["a"] * 50, timeout=0.2)
    assert elapsed() <= 0.2
    assert server.running == 0
    assert max(server.timeouts) <= 0.02


@without_waiting
async def test_a_slow_model_is_asked_for_fewer_texts_at_once() -> None:
    seconds = 0.05

    async def slow(request: Request) -> None:
        await later(seconds * len(request["input"]))

    server = Server(slow)
    client = embedder(server, timeout=1.0, batch_texts=32)
    texts = ["x" * n for n in range(1, 33)]
    vectors = await client.embed("m", texts, timeout=2.0)
    assert elapsed() > 2.0, "each answer extends the deadline"
    expected = unit_vectors(answer_to({"input": texts}), expected=32)
    np.testing.assert_array_equal(vectors, expected)
    sizes = [len(request["input"]) for request in server.requests]
    assert sizes[:2] == [32, 4]
    assert sizes.count(32) == 1, "it is not repeated whole"

    seconds = 0.0
    server.requests.clear()
    await client.embed("m", texts * 3, timeout=2.0)
    sizes = [len(request["input"]) for request in server.requests]
    assert sizes[0] < 32
    assert sizes[-1] == 32, "the model is fast again"


async def test_a_cancelled_call_leaves_nothing_running() -> None:
    started = asyncio.Event()

    async def hang(_request: Request) -> None:
        started.set()
        await asyncio.Event().wait()

    server = Server(hang)
    call = asyncio.create_task(
        embedder(server, batch_texts=1, concurrency=4).embed("m", ["a"] * 9, timeout=60)
    )
    await started.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert server.running == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_failed_batch_cancels_the_others() -> None:
    async def before(request: Request) -> None:
        if request["input"] == ["bad"]:
            raise lasting_failure()
        await asyncio.Event().wait()

    server = Server(before)
    client = embedder(server, batch_texts=1, concurrency=3)
    async with asyncio.timeout(2):
        with pytest.raises(EmbeddingUnavailable, match="for good"):
            await client.embed("m", ["a", "b", "bad"], timeout=60)
    assert server.running == 0


async def test_batches_with_different_dimensions_are_refused() -> None:
    @ByFunction
    async def transport(request: Request, *, timeout: float) -> Any:
        length = len(request["input"][0])
        return {"data": [{"index": 0, "embedding": [1.0] * length}]}

    client = embedder(transport, batch_texts=1)
    with pytest.raises(EmbeddingUnavailable, match="differ in dimensions"):
        await client.embed("m", ["aa", "aaa"], timeout=5)


async def test_a_server_that_keeps_failing_is_skipped() -> None:
    server = Server(failing(99, passing_failure))
    client = embedder(server, attempts=1, breaker_failures=3)
    for _ in range(3):
        with pytest.raises(EmbeddingUnavailable, match="for now"):
            await client.embed("m", ["a"], timeout=5)
    with pytest.raises(BreakerOpen) as raised:
        await client.embed("m", ["a"], timeout=5)
    assert raised.value.retry_after is not None
    assert raised.value.retryable
    assert len(server.requests) == 3


async def test_a_model_that_keeps_failing_does_not_affect_another_one() -> None:
    async def before(request: Request) -> None:
        if request["model"] == "broken":
            raise passing_failure()

    server = Server(before)
    client = embedder(server, attempts=1, breaker_failures=3)
    for _ in range(3):
        with pytest.raises(EmbeddingUnavailable, match="for now"):
            await client.embed("broken", ["a"], timeout=5)
    with pytest.raises(BreakerOpen):
        await client.embed("broken", ["a"], timeout=5)
    assert client.breaker.any_open
    assert (await client.embed("m", ["a"], timeout=5)).shape == (1, 3)
    assert [request["model"] for request in server.requests] == ["broken"] * 3 + ["m"]


@pytest.mark.parametrize("error", [lasting_failure, lambda: TextsRefused("too long")])
async def test_a_refused_model_or_text_does_not_open_the_breaker(
    error: Callable[[], Exception],
) -> None:
    client = embedder(Server(failing(99, error)), breaker_failures=2)
    for _ in range(10):
        with pytest.raises(EmbeddingUnavailable):
            await client.embed("unknown", ["a"], timeout=5)
    assert not client.breaker.any_open


def encoded(values: Sequence[float]) -> str:
    return base64.b64encode(np.array(values, dtype="<f4").tobytes()).decode()


def test_base64_and_number_lists_give_the_same_vectors() -> None:
    rows = [[3.0, 4.0], [0.0, -2.0]]
    numbers = {"data": [{"index": n, "embedding": row} for n, row in enumerate(rows)]}
    packed = {"data": [{"index": n, "embedding": encoded(row)} for n, row in enumerate(rows)]}
    expected = [[0.6, 0.8], [0.0, -1.0]]
    for answer in (numbers, packed, {"data": packed["data"][::-1]}):
        np.testing.assert_allclose(unit_vectors(answer, expected=2), expected, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-30, 1e30, 3e38])
def test_very_small_and_large_vectors_are_normalized(scale: float) -> None:
    answer = {"data": [{"index": 0, "embedding": encoded([scale, scale])}]}
    np.testing.assert_allclose(unit_vectors(answer, expected=1), [[0.5**0.5] * 2], rtol=1e-6)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        "text",
        {},
        {"data": None},
        {"data": [1]},
        {"data": [{"index": 0}]},
        {"data": [{"embedding": [1.0]}]},
        {"data": [{"index": "0", "embedding": [1.0]}]},
        {"data": [{"index": 1, "embedding": [1.0]}]},
        {"data": [{"index": 0, "embedding": []}]},
        {"data": [{"index": 0, "embedding": ""}]},
        {"data": [{"index": 0, "embedding": "!"}]},
        {"data": [{"index": 0, "embedding": base64.b64encode(b"12345").decode()}]},
        {"data": [{"index": 0, "embedding": [[1.0]]}]},
        {"data": [{"index": 0, "embedding": {"a": 1}}]},
        {"data": [{"index": 0, "embedding": ["x"]}]},
        {"data": [{"index": 0, "embedding": 1.0}]},
        {"data": [{"index": 0, "embedding": [10**400]}]},
        {"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0]}]},
    ],
    ids=repr,
)
def test_malformed_answers_are_not_retried(answer: Any) -> None:
    with pytest.raises(EmbeddingUnavailable) as raised:
        unit_vectors(answer, expected=1)
    assert raised.value.retryable is False


def test_vectors_of_different_lengths_are_refused() -> None:
    rows = [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}]
    with pytest.raises(EmbeddingUnavailable):
        unit_vectors({"data": rows}, expected=2)


@pytest.mark.parametrize("row", [[0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0]])
def test_a_zero_or_infinite_vector_is_unusable(row: list[float]) -> None:
    with pytest.raises(UnusableAnswer):
        unit_vectors({"data": [{"index": 0, "embedding": encoded(row)}]}, expected=1)
