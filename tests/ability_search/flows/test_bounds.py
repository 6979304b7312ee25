"""Bounds of one document: it cannot slow down or stop the others."""

from __future__ import annotations

import asyncio
import gc
import sys
from asyncio.events import Handle
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from tests.ability_search.flows.conftest import Network, Start, document

_MOST_CALLS = 25_000
"""Maximum number of function calls in one turn of the event loop. They take some 3 ms; each of the
texts below needs ten times as many, or more, to be chunked or analyzed."""
_PATIENCE = 60.0
MANY = pytest.mark.process


class Turns:
    """The function calls in the turns of the event loop of this thread."""

    def __init__(self) -> None:
        self.most = 0
        """The largest number of calls in one turn."""
        self._calls = 0

    def count(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Count an event, as the function of :func:`sys.setprofile`."""
        if event in ("call", "c_call"):
            self._calls = 0 if frame.f_code is Handle._run.__code__ else self._calls + 1
            self.most = max(self.most, self._calls)


@contextmanager
def counted() -> Iterator[Turns]:
    """Count the calls in each turn of the loop during the block; not those of other threads."""
    turns, before = Turns(), sys.getprofile()
    sys.setprofile(turns.count)
    try:
        yield turns
    finally:
        sys.setprofile(before)


async def test_calls_are_counted_in_each_turn() -> None:
    async def work(calls: int) -> None:
        for _ in range(calls):
            len("")

    with counted() as turns:
        for _ in range(10):
            await asyncio.create_task(work(1_000))
        assert 1_000 <= turns.most < 2_000
        await asyncio.to_thread(lambda: [len("") for _ in range(100_000)])
        assert turns.most < 2_000
        await asyncio.create_task(work(100_000))
        assert turns.most >= 100_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "further"),
    [
        pytest.param("<!--" * 12_000, {"language": "python"}, id="python"),
        pytest.param("<!--" * 2_000, {"language": "ruby"}, id="ruby"),
        pytest.param("<a<b" * 100_000, {"language": "cpp"}, id="cpp", marks=MANY),
        pytest.param('"' + '\\"' * 500_000, {"format": "json"}, id="unclosed string", marks=MANY),
        pytest.param('["' + '\\"' * 500_000, {}, id="unclosed string, format unknown", marks=MANY),
        pytest.param("[" * 1_000_000, {"format": "json"}, id="brackets"),
        pytest.param("a\n\n" * 100_000, {"format": "markdown"}, id="paragraphs", marks=MANY),
        pytest.param("> a\n" * 40_000, {"format": "markdown"}, id="quotes", marks=MANY),
        pytest.param("- a\n" * 20_000, {"format": "markdown"}, id="lists", marks=MANY),
        pytest.param("x" * 1_000_000, {}, id="one word"),
        pytest.param("\n" * 1_000_000 + "a", {}, id="newlines"),
    ],
)
async def test_no_document_holds_the_loop(
    network: Network, text: str, further: dict[str, str]
) -> None:
    await network.call("search-index", collection="docs", documents=[document("a", "words")])
    network.model.requests = 0
    network.model.gate = asyncio.Event()
    given = {"collection": "docs", "documents": [document("b", text, **further)]}
    with counted() as turns:
        task = asyncio.create_task(network.client.invoke("search-index", given, timeout=_PATIENCE))
        try:
            async with asyncio.timeout(_PATIENCE):
                while not (network.model.requests or task.done()):
                    await asyncio.wait([task], timeout=0.005)
        finally:
            task.cancel()
            await asyncio.wait([task])
    assert network.model.requests
    assert turns.most < _MOST_CALLS


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [
        pytest.param(" ".join(f"w{number}" for number in range(18_000)), id="words"),
        pytest.param("before 2020-01-01 " * 7_000, id="dates"),
        pytest.param("名" * 43_000, id="one script"),
    ],
)
async def test_no_query_holds_the_loop(network: Network, query: str) -> None:
    documents = [document("a", "words"), document("b", "more words")]
    await network.call("search-index", collection="docs", documents=documents)
    asked = {"collection": "docs", "query": query, "queries": [query] * 3}

    async def embed(tool_input: dict[str, Any], call: Any) -> Any:
        """Answer without counting words, as that is done in this loop, too."""
        return await network.model.handle({**tool_input, "input": ["w"] * 4}, call)

    network.instead["create-embedding"] = embed
    with counted() as turns:
        answer = await network.client.invoke("search-query", asked, timeout=_PATIENCE)
    assert answer["query"]
    assert turns.most < _MOST_CALLS


@pytest.mark.slow
async def test_cancelled_queries_leave_nothing_to_the_garbage_collector(network: Network) -> None:
    documents = [document(f"d{n}", f"word{n % 7} and word{n % 13}") for n in range(300)]
    await network.call("search-index", collection="docs", documents=documents)
    asked = {"collection": "docs", "query": "word1", "queries": ["word2", "word3"], "limit": 200}
    await network.call("search-query", **asked)
    gc.collect()
    gc.disable()
    try:
        for turns in range(0, 160, 4):
            task = asyncio.create_task(network.client.invoke("search-query", asked))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            del task
        await network.call("search-query", **asked)  # after the cancelled ones
        assert gc.collect() < 1_000
    finally:
        gc.enable()


async def test_a_document_of_too_many_chunks_fails_and_the_others_do_not(start: Start) -> None:
    async with start(
        SEARCH_MAX_DOCUMENT_CHUNKS="5", SEARCH_CHUNK_SIZE="20", SEARCH_CHUNK_OVERLAP="5"
    ) as network:
        documents = [document("long", "some words. " * 200), document("short", "some words")]
        answer = await network.call("search-index", collection="docs", documents=documents)

    assert [failed["source"] for failed in answer["failed"]] == ["long"]
    assert answer["failed"][0]["code"] == "too_large"
    assert "max_document_chunks" in answer["failed"][0]["error"]
    assert answer["added"] == 1


async def test_metadata_of_one_chunk_is_bounded(start: Start) -> None:
    many = document("many", "w", metadata={"n": [1] * 20_000})
    long = document("long", "w", metadata={"n": ["x" * 300_000]})
    async with start() as network:
        documents = [many, long, document("short", "w")]
        answer = await network.call("search-index", collection="docs", documents=documents)

    failed = {each["source"]: (each["code"], each["error"]) for each in answer["failed"]}
    assert failed == {
        "many": ("invalid_input", "metadata: has more than 10000 values"),
        "long": ("invalid_input", "metadata: has more than 262144 bytes of text"),
    }
    assert answer["added"] == 1


async def test_metadata_that_every_chunk_would_repeat_is_bounded(start: Start) -> None:
    async with start(
        SEARCH_MAX_STORED_BYTES="1MiB", SEARCH_CHUNK_SIZE="20", SEARCH_CHUNK_OVERLAP="5"
    ) as network:
        text = "some words and more of them. " * 200
        note = {"note": "n" * 20_000}
        documents = [document("long", text, metadata=note), document("short", "w", metadata=note)]
        answer = await network.call("search-index", collection="docs", documents=documents)

    assert [failed["source"] for failed in answer["failed"]] == ["long"]
    assert answer["failed"][0]["code"] == "too_large"
    assert "max_stored_bytes" in answer["failed"][0]["error"]
    assert answer["added"] == 1
