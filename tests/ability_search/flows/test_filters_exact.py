"""Filtered search against a scan in Python: the same hits, whatever the filter leaves over."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.ability_search.flows.conftest import Network, starting
from tests.ability_search.flows.oracle import DEPTH, Oracle, assert_ranked, corpus
from tests.ability_search.flows.stored import record, rows
from tests.examples import examples

from ability_search.filters.parser import parse_filter, source_filter
from ability_search.filters.predicate import matches
from ability_search.filters.tree import combine

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

SIZE = 2000
BATCH = 500
MODES = ("semantic", "keyword", "hybrid")


class Library:
    """A collection ``docs`` of single-chunk documents, and what it holds.

    Attributes:
        oracle: of the collection.
        stored: by chunkId, what filters look at.
        batches: when each batch was stored, in epoch milliseconds.
    """

    def __init__(self, network: Network, oracle: Oracle, stored: dict[str, dict[str, Any]]) -> None:
        self.network = network
        self.oracle = oracle
        self.stored = stored
        self.batches = sorted({row["createdAt"] for row in stored.values()})

    async def check(self, query: str, mode: str, allowed: set[str], **options: Any) -> None:
        """The first ten are those that a scan of ``allowed`` gives.

        Not asked in hybrid mode where chance decides which of equal chunks are candidates.
        """
        oracle = replace(self.oracle, within=allowed, depth=DEPTH)
        if mode == "hybrid" and oracle.tied(query):
            return
        answer = await self.network.call(
            "search-query", collection="docs", query=query, mode=mode, **options
        )
        scores = {
            "semantic": oracle.semantic,
            "keyword": oracle.keyword,
            "hybrid": oracle.default,
        }[mode](query)
        assert_ranked(answer["results"], scores, count=10, tolerance=1e-5)
        found = {hit["chunkId"] for hit in answer["results"]}
        for twins in self.twins(allowed):
            missing = [id_ for id_ in twins if id_ not in found]
            assert not missing or not found & set(twins[twins.index(missing[0]) :])

    def twins(self, allowed: set[str]) -> list[list[str]]:
        """ChunkIds of texts that are alike to the letter, in their order."""
        alike: dict[tuple[str, str], list[str]] = {}
        for document in self.oracle.documents:
            if (id_ := self.oracle.id(document)) in allowed:
                alike.setdefault((document["title"], document["content"]), []).append(id_)
        return [sorted(group) for group in alike.values() if len(group) > 1]


def documents() -> list[dict[str, Any]]:
    """Halves, hundredths and thousandths of them share something."""
    chance = random.Random(11)
    found = corpus(SIZE, words=400)
    for n, document in enumerate(found):
        document["source"] = f"half{n % 2}/part{n % 100:02}/s{n:04}.md"
        document["metadata"] = {
            "half": n % 2,
            "hundredth": n % 100,
            "thousandth": n % 1000,
            "n": n,
            "x": chance.random(),
            "tags": chance.sample(["red", "green", "blue", "grey"], k=2),
            "owner": {"name": chance.choice(["ann", "bob", "cy"])},
        } | ({"rare": True} if n % 1000 == 7 else {})
    return found


@pytest_asyncio.fixture(
    params=[
        pytest.param("scan", marks=pytest.mark.process),
        "graph",
        pytest.param("changed", marks=pytest.mark.process),
    ],
    scope="module",
    loop_scope="module",
)
async def library(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Library]:
    """Its embeddings scanned, in the vector graph, or partly beside it as they changed later."""
    below = SIZE + 1 if request.param == "scan" else 10
    texts = documents()
    start = starting(tmp_path_factory.mktemp("databases"), tmp_path_factory.mktemp("home"))
    async with start(database="exact", SEARCH_SCAN_BELOW=str(below)) as network:
        for first in range(0, SIZE, BATCH):
            batch = texts[first : first + BATCH]
            await network.call("search-index", collection="docs", documents=batch)
        if request.param != "scan":
            await network.call("search-index", collection="docs", documents=texts[:1], force=True)
            await graph_is_built(network)
        if request.param == "changed":
            change(texts)
            await network.call("search-index", collection="docs", documents=texts[::40])
        answer = await network.call(
            "search-query", collection="docs", query="w", mode="semantic", explain=True
        )
        used = "scan" if request.param == "scan" else "graph"
        assert answer["explain"]["vectorSearch"] == used
        yield await described(network, texts)


def change(texts: list[dict[str, Any]]) -> None:
    """Give every fortieth document the text of its neighbour, and other metadata."""
    for n in range(0, SIZE, 40):
        texts[n]["content"] = f"{texts[n + 1]['content']} {texts[n]['title']}"
        texts[n]["metadata"] |= {"half": 1, "hundredth": 99}


async def graph_is_built(network: Network) -> None:
    async with asyncio.timeout(60):
        while not (await record(network, "docs")).graph:
            pass


async def described(network: Network, texts: list[dict[str, Any]]) -> Library:
    kind = (await record(network, "docs")).type
    created = await rows(network, f"SELECT chunkId, createdAt FROM `{kind}`")
    oracle = await Oracle.of(network, "docs", texts)
    at = {row["chunkId"]: row["createdAt"] for row in created}
    stored = {
        oracle.id(text): {
            "source": text["source"],
            "title": text["title"],
            "kind": "document",
            "createdAt": at[oracle.id(text)],
            "metadata": text["metadata"],
        }
        for text in texts
    }
    assert stored.keys() == at.keys()
    return Library(network, oracle, stored)


def instant(milliseconds: int) -> str:
    """In RFC 3339."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds")


def queries(library: Library, count: int) -> list[str]:
    chance = random.Random(3)
    texts = [chance.choice(library.oracle.documents)["content"].split() for _ in range(count)]
    return [" ".join(text[: chance.randint(1, 4)]) for text in texts]


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("condition", "share"),
    [
        ({"metadata.half": 1}, 0.5),
        ({"metadata.hundredth": 42}, 0.01),
        ({"metadata.thousandth": 7}, 0.001),
    ],
)
async def test_any_share_of_a_collection(
    library: Library, mode: str, condition: dict[str, Any], share: float
) -> None:
    fits = parse_filter(condition)
    allowed = {id_ for id_, row in library.stored.items() if matches(fits, row)}
    assert len(allowed) == pytest.approx(share * SIZE, rel=0.1)
    for query in queries(library, 5):
        await library.check(query, mode, allowed, filter=condition)


numbers = st.integers(0, SIZE - 1)
widths = st.sampled_from([2, 20, 200, 1000, 1900])
leaves = st.one_of(
    st.builds(lambda n: {"metadata.half": n}, st.integers(0, 1)),
    st.builds(lambda n: {"metadata.hundredth": n}, st.integers(0, 99)),
    st.builds(lambda n: {"metadata.thousandth": {"$ne": n}}, st.integers(0, 999)),
    st.builds(lambda n, width: {"metadata.n": {"$gte": n, "$lt": n + width}}, numbers, widths),
    st.builds(lambda x: {"metadata.x": {"$lte": x}}, st.sampled_from([0.001, 0.01, 0.5, 0.9])),
    st.builds(lambda ns: {"metadata.n": {"$in": ns}}, st.lists(numbers, max_size=40)),
    st.builds(lambda ns: {"metadata.hundredth": {"$nin": ns}}, st.lists(numbers, max_size=9)),
    st.builds(lambda tag: {"metadata.tags": tag}, st.sampled_from(["red", "green", "none"])),
    st.builds(lambda name: {"metadata.owner.name": name}, st.sampled_from(["ann", "bob"])),
    st.builds(lambda there: {"metadata.rare": {"$exists": there}}, st.booleans()),
    st.builds(lambda n: {"source": {"$like": f"%part{n:02}/%"}}, st.integers(0, 99)),
    # The number of a batch, until it is known when that was stored.
    st.builds(
        lambda operator, batch: {"createdAt": {operator: batch}},
        st.sampled_from(["$lt", "$gte", "$eq"]),
        st.integers(0, SIZE // BATCH - 1),
    ),
)
filters = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda part: {"$not": part}, inner),
        st.builds(lambda parts: {"$or": parts}, st.lists(inner, min_size=2, max_size=3)),
        st.builds(lambda parts: {"$and": parts}, st.lists(inner, min_size=2, max_size=3)),
    ),
    max_leaves=4,
)
globs = st.lists(
    st.one_of(
        st.sampled_from(["half0/**", "half1/part*5/*", "**/s19??.md", "half[01]/part7?/s*.md"]),
        st.builds(lambda n: f"half{n % 2}/part{n % 100:02}/s{n:04}.md", numbers),
    ),
    min_size=1,
    max_size=3,
)


def dated(condition: Any, library: Library) -> Any:
    """The filter, its numbers of batches replaced by the instants when they were stored."""
    if isinstance(condition, list):
        return [dated(part, library) for part in condition]
    if not isinstance(condition, dict):
        return condition
    return {
        key: {operator: instant(library.batches[batch]) for operator, batch in value.items()}
        if key == "createdAt"
        else dated(value, library)
        for key, value in condition.items()
    }


# Without shrinking, which would take minutes: an example is three searches and three scans.
@pytest.mark.slow
@settings(max_examples=examples(20), derandomize=True, phases=[Phase.generate])
@given(
    condition=filters,
    sources=st.sampled_from([None, None, ["half0/**"], ["half1/part*5/*", "**/s19??.md"]]),
    excluded=st.just([]) | globs,
    seed=st.integers(0, SIZE - 1),
    words=st.integers(1, 4),
)
async def test_any_filter(
    library: Library,
    condition: dict[str, Any],
    sources: list[str] | None,
    excluded: list[str],
    seed: int,
    words: int,
) -> None:
    condition = dated(condition, library)
    fits = combine(parse_filter(condition), source_filter(sources, excluded))
    allowed = {id_ for id_, row in library.stored.items() if matches(fits, row)}
    options = {"filter": condition, "excludeSources": excluded}
    if sources is not None:
        options["sources"] = sources
    query = " ".join(library.oracle.documents[seed]["content"].split()[:words])
    for mode in MODES:
        await library.check(query, mode, allowed, **options)
