"""Bounds of one document: it cannot slow down or stop the others."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Iterator
from time import perf_counter, process_time

import pytest
from tests.ability_search.flows.conftest import Network, Start, document

from ability_search.components.component_run import SWITCH_SECONDS

_BEAT_S = 0.005
_HELD_S = 0.25
_SHARE = 0.1
"""The loop is held for some 50 ms at most. A busy machine prolongs that, and the work alike."""


async def longest_hold(network: Network, task: asyncio.Task[object]) -> tuple[float, float]:
    """Return the longest hold of the loop until the embedder is called, and the time until then.

    Both are in seconds.
    """
    longest = 0.0
    started = perf_counter()
    async with asyncio.timeout(60):
        while not (network.model.requests or task.done()):
            began = perf_counter()
            await asyncio.wait([task], timeout=_BEAT_S)
            longest = max(longest, perf_counter() - began - _BEAT_S)
    return longest, perf_counter() - started


@pytest.fixture
def young_heap() -> Iterator[None]:
    """Let the garbage collector pass over new objects only, and threads take turns, as in a worker.

    The objects of all earlier tests would otherwise be traversed, which holds the loop too.
    """
    gc.collect()
    gc.freeze()
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("young_heap")
@pytest.mark.parametrize(
    ("text", "further"),
    [
        pytest.param("<!--" * 12_000, {"language": "python"}, id="python"),
        pytest.param("<!--" * 2_000, {"language": "ruby"}, id="ruby"),
        pytest.param("<a<b" * 100_000, {"language": "cpp"}, id="cpp"),
        pytest.param('"' + '\\"' * 500_000, {"format": "json"}, id="unclosed string"),
        pytest.param('["' + '\\"' * 500_000, {}, id="unclosed string, format unknown"),
        pytest.param("[" * 1_000_000, {"format": "json"}, id="brackets"),
        pytest.param("a\n\n" * 100_000, {"format": "markdown"}, id="paragraphs"),
        pytest.param("> a\n" * 40_000, {"format": "markdown"}, id="quotes"),
        pytest.param("- a\n" * 20_000, {"format": "markdown"}, id="lists"),
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
    task = asyncio.create_task(network.client.invoke("search-index", given, timeout=60))
    try:
        held, taken = await longest_hold(network, task)
        assert held < max(_HELD_S, _SHARE * taken)
        assert network.model.requests
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.usefixtures("young_heap")
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
    task = asyncio.create_task(network.client.invoke("search-query", asked, timeout=60))
    longest = 0.0
    async with asyncio.timeout(60):
        while not task.done():
            began = process_time()
            await asyncio.wait([task], timeout=_BEAT_S)
            longest = max(longest, process_time() - began)
    assert (await task)["query"]
    assert longest < _HELD_S


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
