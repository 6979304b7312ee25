"""Any sequence of changes to a collection with duplicates: each text is found, and only once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ability_search.flows.conftest import Network, starting
from tests.ability_search.flows.stored import assert_consistent
from tests.examples import examples

SOURCES = tuple("abcde")
TEAMS = ("red", "blue")
TEXTS = (
    "the quick brown fox jumps over the lazy dog near the river bank at dawn every day",
    "seven old sailors repaired their wooden ship before autumn storms reached harbour",
    "glaciers carve deep valleys while granite cliffs slowly crumble under alpine frost",
)
WORDS = ("brown fox", "wooden ship", "granite cliffs")
"""A query for each text."""


@dataclass(frozen=True)
class Index:
    """Stores texts, given by their numbers, under sources, and says which team they are of."""

    documents: Sequence[tuple[str, int, str]]


@dataclass(frozen=True)
class Delete:
    """Deletes a source."""

    source: str


@dataclass(frozen=True)
class Reindex:
    """Rebuilds the collection."""


Change = Index | Delete | Reindex

changes = st.lists(
    st.builds(
        Index,
        st.lists(
            st.tuples(
                st.sampled_from(SOURCES), st.integers(0, len(TEXTS) - 1), st.sampled_from(TEAMS)
            ),
            min_size=1,
            max_size=4,
            unique_by=lambda document: document[0],
        ),
    )
    | st.builds(Delete, st.sampled_from(SOURCES))
    | st.just(Reindex()),
    min_size=2,
    max_size=8,
)


@dataclass
class Running:
    """A network, and a loop to ask it in."""

    runner: asyncio.Runner
    network: Network
    names: Iterator[int] = field(default_factory=count)


@pytest.fixture(
    scope="module",
    params=["memory", pytest.param("engine", marks=[pytest.mark.engine, pytest.mark.process])],
)
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    directory = None if request.param == "memory" else tmp_path_factory.mktemp("databases")
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        start = starting(directory, tmp_path_factory.mktemp("home"))
        yield Running(runner, runner.run(stack.enter_async_context(start())))
        runner.run(stack.aclose())


@pytest.mark.slow
@settings(max_examples=examples(12))
@pytest.mark.timeout(300)
@given(changes)
def test_each_text_is_found_once_whatever_was_changed(
    running: Running, changed: list[Change]
) -> None:
    running.runner.run(_changed(running.network, f"c{next(running.names)}", changed))


async def _changed(network: Network, name: str, changed: Sequence[Change]) -> None:
    stored: dict[str, tuple[int, str]] = {"z": (0, "red")}
    await _index(network, name, [("z", 0, "red")])
    for change in changed:
        match change:
            case Index(documents):
                await _index(network, name, documents)
                stored |= {source: (text, team) for source, text, team in documents}
            case Delete(source):
                await network.call("search-delete", collection=name, source=source)
                stored.pop(source, None)
            case Reindex():
                await network.call("search-reindex", collection=name)
        await _check(network, name, stored)
    await network.call("search-delete", collection=name)


async def _index(network: Network, name: str, documents: Sequence[tuple[str, int, str]]) -> None:
    await network.call(
        "search-index",
        collection=name,
        documents=[
            {"source": source, "title": "note", "content": TEXTS[text], "metadata": {"team": team}}
            for source, text, team in documents
        ],
        dedupThreshold=0.95,
    )


async def _check(network: Network, name: str, stored: dict[str, tuple[int, str]]) -> None:
    record = await assert_consistent(network, name)
    texts = {text for text, _ in stored.values()}
    assert (record.chunks, record.duplicates) == (len(stored), len(stored) - len(texts))
    for mode in ("semantic", "keyword", "hybrid"):
        await _expect(network, name, stored, mode, {})
        for team in TEAMS:
            own = {source: each for source, each in stored.items() if each[1] == team}
            await _expect(network, name, own, mode, {"filter": {"metadata.team": team}})
    for source, each in stored.items():
        await _expect(network, name, {source: each}, "hybrid", {"sources": [source]})


async def _expect(
    network: Network,
    name: str,
    allowed: dict[str, tuple[int, str]],
    mode: str,
    options: dict[str, object],
) -> None:
    """One source of each text is found, on pages that have no gap."""
    texts = {text for text, _ in allowed.values()}
    found: list[str] = []
    for offset in range(0, len(TEXTS), 2):
        answer = await network.call(
            "search-query",
            collection=name,
            query=" ".join(WORDS),
            mode=mode,
            limit=2,
            offset=offset,
            **options,
        )
        found += [hit["source"] for hit in answer["results"]]
        assert len(answer["results"]) == min(2, max(0, len(texts) - offset))
    assert Counter(allowed[source][0] for source in found) == Counter(texts)
