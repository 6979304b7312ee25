"""Pages of any size are parts of one list, whatever the query, its options and the store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ability_search.flows.conftest import Network, document, starting
from tests.ability_search.flows.test_option_combinations import reread, talk
from tests.examples import examples

from kadi_client import Connection, Tool

pytestmark = pytest.mark.asyncio(loop_scope="module")

Answer = dict[str, Any]
WORDS = [f"{a}{b}k" for a in ("ba", "ke", "li", "mo", "nu", "ra") for b in ("so", "ti", "vu", "za")]
COLLECTIONS = {"tiny": 12, "alike": 90, "large": 260}
"""Numbers of documents."""
_MERGED = ("context", "merged")
"""What a hit shows of the hits that follow it."""


def texts(size: int, *, seed: object) -> list[Answer]:
    """Documents of one or several chunks, many of which are alike to the letter."""
    drawn = random.Random(f"{seed} {size}")
    rarity = [1 / (rank + 1) for rank in range(len(WORDS))]
    found: list[Answer] = []
    for n in range(size):
        content = "\n\n".join(
            " ".join(drawn.choices(WORDS, rarity, k=drawn.randint(1, 12)))
            for _ in range(drawn.choice([1, 1, 1, 4]))
        )
        if found and drawn.random() < 0.4:
            content = drawn.choice(found)["content"]
        if drawn.random() < 0.2:
            content += f" on {drawn.randint(1, 28)} March 202{drawn.randrange(6)}"
        links = [{"target": drawn.choice(found)["source"]}] if found and n % 5 == 0 else []
        metadata = {"year": 2020 + drawn.randrange(6), "half": n % 2, "tags": drawn.choice(WORDS)}
        source = f"{drawn.choice('abc')}/{drawn.randrange(10**6)}-{n}"
        title = drawn.choice(WORDS)
        found.append(document(source, content, links=links, metadata=metadata) | {"title": title})
        if n % 7 == 0:
            about = {"kind": "summary", "of": source, "metadata": metadata}
            found.append(document(f"{source}#summary", drawn.choice(WORDS), **about))
    return found


_weights = st.sampled_from([0.2, 0.5, 1.0])
OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "filter": st.sampled_from([{"metadata.half": 1}, {"metadata.year": {"$gte": 2023}}]),
    "sources": st.sampled_from([["a/**"], ["a/**", "b/*"]]),
    "minScore": st.sampled_from([0.05, 0.2, 0.4]),
    "minSignals": st.integers(1, 3),
    "maxPerSource": st.integers(1, 2),
    "diversity": st.sampled_from([0.3, 0.7]),
    "prf": st.just(True) | st.fixed_dictionaries({"chunks": st.integers(1, 20)}),
    "graph": st.fixed_dictionaries(
        {"hops": st.integers(1, 2), "minSimilarity": st.sampled_from([-1, 0.1])}
    ),
    "decay": st.fixed_dictionaries({"halfLifeDays": st.just(900), "weight": _weights}),
    "rerank": st.sampled_from(
        [
            {"metadata.year": {"weight": 0.5, "rules": {"sort": "desc"}}},
            {"metadata.tags": {"weight": 1, "rules": {"contains": "bas"}}},
        ]
    ),
    "reranker": st.fixed_dictionaries({"top": st.sampled_from([1, 10, 35, 120])}),
    "fullText": st.fixed_dictionaries(
        {"weight": _weights, "fields": st.just(["title", "metadata.tags"])}
    ),
    "fusion": st.sampled_from(
        [{"method": "rrf"}, {"method": "convex", "weights": {"semantic": 0, "keyword": 1}}]
    ),
    "expandQuery": st.just(True),
    "extended": st.sampled_from([["summary"], ["documents", "summary"]]),
    "expand": st.sampled_from(["neighbors", "section"]),
    "queries": st.lists(st.sampled_from(WORDS), min_size=1, max_size=2),
    "exclude": st.just(["baso"]),
    "timeRange": st.just({"from": "2022-03-01", "to": "2024-03-31"}),
    "temporal": st.just({"order": "newest"}),
    "boost": st.just({"centrality": 0.5}),
    "explain": st.just(True),
}


SELECTING = ("diversity", "expand", "graph", "maxPerSource", "reranker")
"""Options after which other hits are first, or fewer, which the later ones of them see."""


def requests(
    collections: Sequence[str], options: Sequence[str] = tuple(OPTIONS), *, least: int = 0
) -> st.SearchStrategy[Answer]:
    """Queries in all modes, of one collection or several, with some of the options."""
    several = st.lists(st.sampled_from(collections), min_size=2, max_size=3, unique=True)
    always = {
        "collection": st.sampled_from(collections) | several,
        "query": st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join),
        "mode": st.sampled_from(["semantic", "keyword", "hybrid"]),
        "asOf": st.just("2030-01-01"),
    }
    names = st.sampled_from(sorted(options))
    chosen = st.lists(names, unique=True, min_size=least, max_size=least + 4)
    return chosen.flatmap(
        lambda names: st.fixed_dictionaries(always | {name: OPTIONS[name] for name in names})
    )


def shown(answer: Answer) -> list[Answer]:
    """The hits without what they show of those that follow them."""
    return [
        {name: value for name, value in hit.items() if name not in _MERGED and name != "explain"}
        for hit in answer["results"]
    ]


async def paged(network: Network, request: Answer, sizes: Sequence[int]) -> list[Answer]:
    """The hits of pages of these sizes, one after another."""
    hits: list[Answer] = []
    offset = 0
    for size in sizes:
        hits += shown(await network.call("search-query", **request, limit=size, offset=offset))
        offset += size
    return hits


async def vector_search(network: Network, collection: str) -> str:
    """How the vectors of a collection are searched."""
    asked = {"collection": collection, "query": WORDS[0], "mode": "semantic", "explain": True}
    return str((await network.call("search-query", **asked))["explain"]["vectorSearch"])


class Library:
    """A network with collections."""

    def __init__(self, network: Network) -> None:
        self.network = network


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=["memory", pytest.param("engine", marks=[pytest.mark.engine, pytest.mark.process])],
)
async def library(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Library]:
    """Three collections, of which the engine scans two and searches the graph of the largest."""
    directory = tmp_path_factory.mktemp("databases") if request.param == "engine" else None
    start = starting(directory, tmp_path_factory.mktemp("home"))
    async with start(SEARCH_CANDIDATES="10", SEARCH_EF_SEARCH="20", SEARCH_SCAN_BELOW="200") as net:
        for name, size in COLLECTIONS.items():
            documents = texts(size, seed=name)
            await net.call("search-index", collection=name, documents=documents, maxTokens=20)
            await net.call("notes-analyze", collection=name)
        async with asyncio.timeout(60):
            while net.databases and await vector_search(net, "large") != "graph":
                pass  # Maintenance builds it beside the queries.
        tools = [
            Tool("rerank", "Read.", {"type": "object"}, reread),
            Tool("chat-completion", "Talk.", {"type": "object"}, talk),
        ]
        async with Connection(net.url, name="models", role="ability", tools=tools):
            yield Library(net)


@pytest.mark.slow
@settings(max_examples=examples(60), derandomize=True)
@given(
    request=requests(list(COLLECTIONS)) | requests(["alike", "large"], SELECTING, least=3),
    sizes=st.lists(st.integers(1, 60), min_size=2, max_size=5),
)
async def test_pages_are_parts_of_one_list(
    library: Library, request: Answer, sizes: list[int]
) -> None:
    network = library.network
    whole = shown(await network.call("search-query", **request, limit=sum(sizes)))
    names = [(hit.get("collection"), hit["chunkId"]) for hit in whole]
    assert len(set(names)) == len(names)
    assert await paged(network, request, sizes) == whole
    first = await network.call("search-query", **request, limit=10)
    assert shown(first)[: len(whole)] == whole[:10]


@pytest.mark.slow
@settings(max_examples=examples(15), derandomize=True)
@given(
    name=st.sampled_from(list(COLLECTIONS)),
    place=st.integers(0, 11),
    limits=st.lists(st.integers(1, 120), min_size=2, max_size=3),
    options=st.sampled_from([{}, {"filter": {"metadata.half": 1}}, {"minScore": 0.2}]),
)
async def test_similar_chunks_are_parts_of_one_list(
    library: Library, name: str, place: int, limits: list[int], options: Answer
) -> None:
    network = library.network
    listed = await network.call("search-query", collection=name, query=" ".join(WORDS), limit=12)
    chunk_id = listed["results"][place % len(listed["results"])]["chunkId"]
    lists = []
    for limit in sorted(limits):
        asked = {"collection": name, "chunkId": chunk_id, "limit": limit, **options}
        lists.append(shown(await network.call("search-similar", **asked)))
    for hits in lists:
        assert hits == lists[-1][: len(hits)]
    assert len(lists[-1]) == len({hit["chunkId"] for hit in lists[-1]})
