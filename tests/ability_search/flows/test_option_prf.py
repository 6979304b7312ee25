"""``prf``: the query searches again with what its first hits taught it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.ability_search.flows.asking import is_search, search, sources
from tests.ability_search.flows.conftest import Network, Start, document, down
from tests.ability_search.flows.test_rpc_budget import maintained

CATS = [
    ("tabby", "cats purr and cats have whiskers"),
    ("siamese", "cats purr, their whiskers long"),
    ("lion", "a lion has whiskers and can not purr"),
    ("tiger", "the tiger purrs; whiskers it has"),
]
OTHERS = [(f"rock{n}", f"granite of the mountain, granite in the river {n}") for n in range(30)]


@pytest.fixture
async def library(network: Network) -> Network:
    """Four texts of whiskers, two of them of cats, among thirty of granite."""
    documents = [document(source, text) for source, text in CATS + OTHERS]
    await network.call("search-index", collection="docs", documents=documents)
    return network


async def test_words_of_the_first_hits_are_found_without_being_asked_for(library: Network) -> None:
    plain = await search(library, mode="keyword")
    assert sorted(sources(plain)) == ["siamese", "tabby"]
    answer = await search(library, mode="keyword", prf=True, explain=True)
    assert sorted(sources(answer)[:2]) == ["siamese", "tabby"]
    assert sorted(sources(answer)[2:4]) == ["lion", "tiger"]
    learned = answer["explain"]["prf"]
    assert sorted(learned["chunks"]) == ["docs:siamese:0", "docs:tabby:0"]
    assert sum(learned["chunks"].values()) == pytest.approx(1)
    assert learned["terms"] >= 2
    for hit in answer["results"]:
        assert hit["explain"]["prf"] == {"cosine": None, "bm25": hit["scores"]["keyword"]}


@pytest.mark.parametrize("mode", ["semantic", "hybrid"])
async def test_what_is_like_the_first_hits_rises(library: Network, mode: str) -> None:
    plain = await search(library, mode=mode, prf=False)
    answer = await search(library, mode=mode, prf={"chunks": 2}, explain=True)
    assert sorted(answer["explain"]["prf"]["chunks"]) == ["docs:siamese:0", "docs:tabby:0"]
    assert set(sources(answer)[:4]) == {name for name, _ in CATS}
    before = {hit["source"]: hit for hit in plain["results"]}
    for hit in answer["results"]:
        own = before[hit["source"]]
        assert hit["scores"]["semantic"] == pytest.approx(own["scores"]["semantic"], abs=1e-6)
        line = hit["explain"]["prf"]
        if hit["source"] in ("lion", "tiger"):
            assert line["cosine"] > hit["scores"]["semantic"] + 0.05
            assert hit["score"] > own["score"]
    assert answer["timings"]["prf"] > 0


@pytest.mark.engine
@pytest.mark.parametrize("mode", ["semantic", "keyword", "hybrid"])
async def test_without_a_sure_hit_or_a_weight_nothing_changes(library: Network, mode: str) -> None:
    plain = await search(library, mode=mode, prf=False)
    await maintained(library)
    for prf in ({"minSimilarity": 1.0}, {"weight": 0}):
        answer = await search(library, mode=mode, prf=prf, explain=True)
        explained = answer["explain"].get("prf")
        assert explained == (None if "weight" in prf else {"chunks": {}, "terms": 0})
        # The hits that would teach are read only if they are similar enough.
        assert len([tool for tool in library.hops() if tool.startswith("arcade-")]) == 1
        assert [(hit["source"], hit["score"], hit["scores"]) for hit in answer["results"]] == [
            (hit["source"], hit["score"], hit["scores"]) for hit in plain["results"]
        ]


@pytest.mark.engine
@pytest.mark.parametrize(
    ("mode", "embed"), [("semantic", True), ("keyword", False), ("hybrid", True)]
)
async def test_it_costs_two_more_round_trips(library: Network, mode: str, embed: bool) -> None:
    await search(library, mode=mode)
    await maintained(library)
    await search(library, mode=mode, prf={"minSimilarity": 0})
    found = "arcade-query" if embed else "arcade-index-search"
    assert library.hops() == ["create-embedding"] * embed + [found, "arcade-query", found]


async def test_the_floor_stays_on_the_cosine_to_the_query(library: Network) -> None:
    plain = await search(library, prf=False, minScore=0.3)
    answer = await search(library, prf={"minSimilarity": 0}, minScore=0.3)
    assert 0 < len(sources(plain)) < 34
    assert sorted(sources(answer)) == sorted(sources(plain))


async def test_what_is_excluded_neither_teaches_nor_shows(library: Network) -> None:
    options: dict[str, Any] = {"excludeSources": ["tabby"], "mode": "keyword", "explain": True}
    answer = await search(library, prf={"minSimilarity": 0}, **options)
    assert list(answer["explain"]["prf"]["chunks"]) == ["docs:siamese:0"]
    assert "tabby" not in sources(answer)
    answer = await search(
        library, prf={"minSimilarity": 0}, filter={"source": {"$ne": "siamese"}}, **options
    )
    assert sources(answer) == []


async def test_pages_are_cut_from_one_list(library: Network) -> None:
    options = {"prf": {"minSimilarity": 0, "chunks": 2}}
    whole = await search(library, **options)
    pages = [await search(library, limit=5, offset=offset, **options) for offset in range(0, 40, 5)]
    assert [hit for page in pages for hit in page["results"]] == whole["results"]


async def test_of_several_collections_each_learns_by_itself(library: Network) -> None:
    documents = [document("x", "cats of marble"), document("y", "marble statues")]
    await library.call("search-index", collection="art", documents=documents)
    answer = await search(library, collection=["docs", "art"], mode="keyword", prf=True)
    assert sorted(sources(answer)[:3]) == ["siamese", "tabby", "x"]
    assert {"lion", "tiger", "y"} <= set(sources(answer)[3:])


async def test_without_an_embedder_words_teach_words(
    library: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library.model, "failure", down)
    answer = await search(library, prf=True)
    assert answer["degraded"]["mode"] == "keyword"
    assert {"lion", "tiger"} <= set(sources(answer))


@pytest.mark.engine
async def test_a_database_that_fails_the_second_search_leaves_the_first(library: Network) -> None:
    plain = await search(library, prf=False, limit=10)
    asked: list[str] = []

    def second_fails(tool: str, tool_input: Any) -> Any:
        if not is_search(tool, tool_input):
            return None
        asked.append(tool)
        return {"success": False, "error": "out of memory"} if len(asked) > 1 else None

    library.faults.append(second_fails)
    answer = await search(library, prf={"minSimilarity": 0}, limit=10)
    assert sources(answer) == sources(plain)
    (warning,) = answer["warnings"]
    assert warning.startswith("pseudo-relevance feedback was not applied")


async def test_it_goes_with_other_options(library: Network) -> None:
    for options in (
        {"fusion": {"method": "rrf"}},
        {"exclude": ["lion"]},
        {"highlights": True},
        {"timeRange": {"from": "2026-01-01"}},
        {"hypotheticalAnswer": "an animal that purrs"},
        {"prf": {"terms": 0}},
        {"prf": {"chunks": 20, "terms": 64, "weight": 1, "minSimilarity": -1}},
    ):
        answer = await search(library, **{"prf": {"minSimilarity": 0}} | options)
        assert len(answer["results"]) >= 4
        assert "warnings" not in answer


@pytest.fixture
async def empty(network: Network) -> AsyncIterator[Network]:
    await network.call("search-index", collection="docs", documents=[document("a", "x")])
    await network.call("search-delete", collection="docs", source="a")
    yield network


async def test_nothing_found_teaches_nothing(empty: Network) -> None:
    for mode in ("semantic", "keyword", "hybrid"):
        assert (await search(empty, mode=mode, prf=True))["results"] == []


async def test_texts_that_are_alike_get_no_high_scores_for_a_query_about_something_else(
    start: Start,
) -> None:
    documents = [
        document(f"note-{number}", f"the weekly report of the depot, number {number}")
        for number in range(40)
    ]
    async with start() as network:
        await network.call("search-index", collection="alike", documents=documents)
        answers = [
            await network.call(
                "search-query", collection="alike", query="volcano ashes", mode="hybrid", **options
            )
            for options in ({}, {"prf": False})
        ]
    learned, plain = ([hit["score"] for hit in answer["results"]] for answer in answers)
    assert learned[0] == pytest.approx(plain[0], abs=1e-6)
