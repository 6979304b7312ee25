"""Exclusions, in the query and beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from tests.ability_search.flows.asking import ask, ranking, sources
from tests.ability_search.flows.conftest import (
    Network,
    Start,
    document,
    down,
    word_vector,
)
from tests.ability_search.flows.oracle import Oracle

QUESTION = "caching of sessions besides redis"
TOPIC = "caching of sessions"
FILLER = " ".join(f"word{n}" for n in range(90))
"""Makes notes about as long as a new collection expects, so that nothing is weighed anew later."""
STORES = ("redis", "memcached", "varnish", "postgres", "files")


def notes() -> list[dict[str, Any]]:
    """The same is said of several stores; of the first one at length."""
    about = [
        document(store, f"caching of sessions in {store}. {store} {store} {FILLER}")
        for store in STORES
    ]
    return [*about, document("other", f"gardens and their seasons {FILLER}")]


@pytest.fixture
async def network(start: Start) -> AsyncIterator[Network]:
    async with start() as running:
        await running.call("search-index", collection="docs", documents=notes())
        yield running


def cosine(text: str, other: str) -> float:
    one, two = word_vector(text), word_vector(other)
    return float(one @ two / np.linalg.norm(one) / np.linalg.norm(two))


@pytest.mark.parametrize("mode", ["hybrid", "semantic", "keyword"])
async def test_what_is_excluded_comes_behind_what_else_is_on_the_topic(
    network: Network, mode: str
) -> None:
    answer = await ask(network, QUESTION, mode=mode)
    assert answer["understood"] == {"excluded": ["redis"]}
    assert set(sources(answer)[:4]) == set(STORES[1:])
    assert "redis" in sources(answer)  # pushed down, not hidden
    literal = await ask(network, QUESTION, mode=mode, understand=False)
    assert sources(literal)[0] == "redis"
    assert "understood" not in literal


@pytest.mark.parametrize("mode", ["hybrid", "semantic", "keyword"])
async def test_scores_fall_as_documented(network: Network, mode: str) -> None:
    oracle = await Oracle.of(network, "docs", notes())
    raw = oracle.bm25("redis")
    information = sum(oracle._query_weights("redis").values())
    answer = await ask(network, QUESTION, mode=mode, explain=True)
    texts = {note["source"]: f"{note['title']} {note['content']}" for note in notes()}
    for hit in answer["results"]:
        line, text = hit["explain"]["exclusion"], texts[hit["source"]]
        closer = oracle.nearness({"": cosine("redis", text)})[""]
        words = min(1.0, raw.get(hit["chunkId"], 0.0) / information)
        assert line["closer"] == pytest.approx(0 if mode == "keyword" else closer, abs=1e-4)
        assert line["words"] == pytest.approx(words, abs=1e-4)
        share = line["words"] if mode == "keyword" else (line["closer"] + line["words"]) / 2
        assert line["after"] == pytest.approx(line["before"] * (1 - 0.3 * share))
        assert hit["score"] == line["after"]
        assert "feedback" not in hit["explain"]
    lines = {hit["source"]: hit["explain"]["exclusion"] for hit in answer["results"]}
    assert lines["redis"]["words"] == 1
    if mode != "hybrid":
        topic = getattr(oracle, mode)(TOPIC)
        for source, line in lines.items():
            assert line["before"] == pytest.approx(topic[f"docs:{source}:0"], abs=1e-4)
    told = answer["explain"]["understood"]
    assert (told["topic"], told["excluded"], told["period"]) == (TOPIC, ["redis"], None)
    start = len(TOPIC) + 1
    assert told["spans"] == [{"kind": "exclusion", "start": start, "end": len(QUESTION)}]


async def test_several_phrases_are_embedded_with_the_query(network: Network) -> None:
    network.model.texts.clear()
    requests = network.model.requests
    answer = await ask(network, f"{QUESTION} or varnish", exclude=["postgres", "Redis"])
    assert network.model.texts == [TOPIC, "redis", "varnish", "postgres"]
    assert network.model.requests == requests + 1
    assert answer["understood"] == {"excluded": ["redis", "varnish", "postgres"]}
    assert set(sources(answer)[:2]) == {"memcached", "files"}


@pytest.mark.parametrize("mode", ["hybrid", "semantic", "keyword"])
async def test_the_caller_excludes_whatever_the_query_says(network: Network, mode: str) -> None:
    options: dict[str, Any] = {"mode": mode, "exclude": ["memcached"], "understand": False}
    answer = await ask(network, TOPIC, **options)
    assert answer["understood"] == {"excluded": ["memcached"]}
    assert set(sources(answer)[:4]) == set(STORES) - {"memcached"}


async def test_what_excludes_nothing_is_as_if_taken_literally(network: Network) -> None:
    for mode in ("hybrid", "semantic", "keyword"):
        for query in (TOPIC, 'caching "besides redis"', "how to cache without redis"):
            plain = await ask(network, query, mode=mode, exclude=[])
            assert ranking(plain) == ranking(await ask(network, query, mode=mode, understand=False))
            assert "understood" not in plain


async def test_an_imagined_answer_is_embedded_and_what_is_excluded_still_falls(
    network: Network,
) -> None:
    network.model.texts.clear()
    answer = await ask(network, QUESTION, hypotheticalAnswer="we cache sessions in redis")
    assert network.model.texts == ["we cache sessions in redis", "redis"]
    assert answer["hyde"] is True
    assert sources(answer).index("redis") >= 4


async def test_without_an_embedder_words_alone_tell(network: Network) -> None:
    network.model.failure = down
    answer = await ask(network, QUESTION, explain=True)
    assert answer["degraded"]["mode"] == "keyword"
    assert set(sources(answer)[:4]) == set(STORES[1:])
    assert {hit["explain"]["exclusion"]["closer"] for hit in answer["results"]} == {0}


async def test_filters_and_pages_hold(network: Network) -> None:
    hidden = await ask(network, QUESTION, excludeSources=["memcached"])
    assert "memcached" not in sources(hidden)
    whole = await ask(network, QUESTION)
    pages = [await ask(network, QUESTION, limit=2, offset=offset) for offset in (0, 2, 4)]
    assert [place for page in pages for place in ranking(page)] == ranking(whole)


async def test_a_floor_is_on_the_cosine_to_the_topic(network: Network) -> None:
    answer = await ask(network, QUESTION)
    cosines = {hit["source"]: hit["scores"]["semantic"] for hit in answer["results"]}
    floor = cosines["redis"] - 1e-6
    kept = await ask(network, QUESTION, minScore=floor)
    assert set(sources(kept)) == {source for source, own in cosines.items() if own >= floor}


async def test_several_collections_exclude_the_same(network: Network) -> None:
    await network.call("search-index", collection="more", documents=notes()[:2])
    answer = await network.call("search-query", collection=["docs", "more"], query=QUESTION)
    assert answer["understood"] == {"excluded": ["redis"]}
    assert set(sources(answer)[:4]) <= set(STORES)
    assert sources(answer).count("redis") == 2
    assert sources(answer)[0] != "redis"


async def test_times_and_exclusions_go_together(network: Network) -> None:
    answer = await ask(network, "caching of sessions in March 2021, excluding redis", explain=True)
    assert answer["understood"] == {
        "excluded": ["redis"],
        "from": "2021-03-01",
        "to": "2021-03-31",
    }
    assert {"temporal", "exclusion"} <= answer["results"][0]["explain"].keys()
    assert [each["kind"] for each in answer["explain"]["understood"]["spans"]] == [
        "time",
        "exclusion",
    ]


@pytest.mark.parametrize("phrases", [["a"] * 17, [" "], ["x" * 1025]])
async def test_phrases_are_bounded(network: Network, phrases: list[str]) -> None:
    answer = await network.refused("search-query", collection="docs", query=TOPIC, exclude=phrases)
    assert answer["code"] == "invalid_input"
    assert "exclude" in answer["error"]
