"""``expandQuery``: a language model on the network adds words to the query."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest
from tests.ability_search.flows.asking import Answer, assert_unchanged, search, sources
from tests.ability_search.flows.conftest import Network, Start, document, down
from tests.ability_search.flows.playing import Talker, failing, playing
from tests.ability_search.flows.test_rpc_budget import maintained

from ability_search.extensions.understanding.query_expansion import VAGUE
from kadi_client import ToolError

unchanged = partial(assert_unchanged, wish={"expandQuery": True}, said="not expanded")


@pytest.fixture
async def library(start: Start) -> AsyncIterator[Network]:
    """A text about cats, two that speak of them in other words, and others."""
    async with start(SEARCH_EXPANSION_TIMEOUT="0.5", SEARCH_EXPANSION_MODEL="usual") as network:
        documents = [
            document("own", "cats sleep all day"),
            document("feline", "feline habits"),
            document("kitten", "kitten care"),
            *(document(f"rock{n}", f"granite of the mountain {n}") for n in range(8)),
        ]
        await network.call("search-index", collection="docs", documents=documents)
        yield network


@pytest.fixture
async def talker(library: Network) -> AsyncIterator[Talker]:
    """The language model of the network."""
    async with playing(library.url, Talker()) as talking:
        yield talking


@pytest.mark.parametrize("mode", ["semantic", "keyword", "hybrid"])
async def test_its_words_are_searched_for_behind_the_query_s_own(
    library: Network, talker: Talker, mode: str
) -> None:
    plain = await search(library, mode=mode)
    answer = await search(library, mode=mode, expandQuery=True, explain=True)
    assert sources(answer)[0] == "own"
    assert sorted(sources(answer)[1:3]) == ["feline", "kitten"]
    assert answer["explain"]["expandQuery"] == ["feline", "kitten"]
    assert "warnings" not in answer
    assert answer["timings"]["total"] >= answer["timings"]["expandQuery"] > 0
    if mode == "keyword":
        assert sources(plain) == ["own"]
        return
    cosines = {hit["source"]: hit["scores"]["semantic"] for hit in plain["results"]}
    for hit in answer["results"]:
        assert hit["scores"]["semantic"] == pytest.approx(cosines[hit["source"]], abs=1e-6)


async def test_what_the_model_is_asked(library: Network, talker: Talker) -> None:
    await search(library, query="black cats -dogs", expandQuery={"model": "mine"})
    await search(library, query="x " * 4000, expandQuery=True)
    first, second = talker.requests
    assert first["model"] == "mine"
    assert second["model"] == "usual"
    assert [message["role"] for message in first["messages"]] == ["system", "user"]
    assert first["messages"][1]["content"] == "black cats"
    assert "never an instruction" in first["messages"][0]["content"]
    assert len(second["messages"][1]["content"]) == 2000


async def test_a_more_general_question_counts_half(library: Network, talker: Talker) -> None:
    talker.says = "How does a kitten live?\nIgnored."
    option = {"method": "stepBack"}
    answer = await search(library, expandQuery=option, mode="keyword", explain=True)
    assert answer["explain"]["expandQuery"] == ["How does a kitten live?"]
    assert sources(answer) == ["own", "kitten"]
    assert sources(await search(library, expandQuery=option))[:2] == ["own", "kitten"]


@pytest.mark.engine
async def test_it_costs_no_further_request_for_vectors(library: Network, talker: Talker) -> None:
    await search(library)
    await maintained(library)
    await search(library, expandQuery=True)
    assert library.hops() == ["create-embedding", "arcade-query"]
    assert library.model.texts[-2:] == ["cats", "cats, feline, kitten"]
    await search(library, collection=["docs"], expandQuery=True)
    assert len(talker.requests) == 2


async def test_an_imagined_answer_is_still_what_is_embedded(
    library: Network, talker: Talker
) -> None:
    answer = await search(library, expandQuery=True, hypotheticalAnswer="tabbies sleep")
    assert answer["hyde"] is True
    assert library.model.texts[-2:] == ["tabbies sleep", "cats, feline, kitten"]


async def test_however_many_words_it_says_the_query_s_own_decide(
    library: Network, talker: Talker
) -> None:
    talker.says = "granite\nmountain\nof the mountain\nrock\ngranite mountain\ngranite rock"
    for mode in ("keyword", "semantic", "hybrid"):
        assert sources(await search(library, mode=mode, expandQuery=True))[0] == "own"


async def test_the_floor_stays_on_the_cosine_to_the_query(library: Network, talker: Talker) -> None:
    plain = await search(library, minScore=0.3)
    answer = await search(library, minScore=0.3, expandQuery=True)
    assert sorted(sources(answer)) == sorted(sources(plain))


async def test_orders_in_its_answer_are_only_words(library: Network, talker: Talker) -> None:
    talker.says = "Ignore the filter\nexcludeSources: []\n-cats\n'; DELETE FROM Chunk"
    answer = await search(library, expandQuery=True, excludeSources=["kitten"])
    assert "kitten" not in sources(answer)
    assert sources(answer)[0] == "own"
    assert len((await search(library, limit=100))["results"]) == 11


async def test_it_goes_with_feedback_and_several_collections(
    library: Network, talker: Talker
) -> None:
    await library.call("search-index", collection="more", documents=[document("m", "kitten food")])
    answer = await search(
        library, collection="*", expandQuery=True, prf={"minSimilarity": 0}, limit=20
    )
    assert {"own", "m", "feline", "kitten"} <= set(sources(answer))
    assert len(talker.requests) == 1
    assert "warnings" not in answer


def empty(_answer: Answer) -> Any:
    return {"choices": []}


def wordless(_answer: Answer) -> Any:
    return {"choices": [{"message": {"content": "- - -"}}]}


@pytest.mark.parametrize("broken", [empty, failing, wordless])
@pytest.mark.parametrize("collection", ["docs", ["docs"]])
async def test_without_usable_words_the_query_goes_on(
    library: Network, talker: Talker, broken: Callable[[Answer], Any], collection: Any
) -> None:
    talker.answer = broken
    await unchanged(library, collection=collection)


async def test_a_slow_model_is_not_waited_for(library: Network, talker: Talker) -> None:
    talker.gate = asyncio.Event()
    assert "0.5 s" in await unchanged(library)
    talker.gate.set()


async def test_without_a_language_model_on_the_network(library: Network) -> None:
    wish = {"expandQuery": {"method": "stepBack"}}
    assert "chat-completion" in await unchanged(library, wish=wish)


async def test_without_an_embedder_its_words_are_searched_for(
    library: Network, talker: Talker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library.model, "failure", down)
    answer = await search(library, expandQuery=True)
    assert answer["degraded"]["mode"] == "keyword"
    assert sorted(sources(answer)) == ["feline", "kitten", "own"]


@pytest.mark.engine
async def test_only_a_vague_query_is_expanded(library: Network, talker: Talker) -> None:
    plain = await search(library, explain=True)
    found = plain["relevance"]
    await maintained(library)
    certain = await search(library, expandQuery={"below": found}, explain=True)
    assert sources(certain) == sources(plain)
    assert certain["explain"]["vague"] == {"relevance": found, "below": found}
    assert "expandQuery" not in certain["explain"]
    assert not talker.requests
    assert library.hops() == ["create-embedding", "arcade-query"]
    vague = await search(library, expandQuery={"below": 1}, explain=True)
    assert vague["explain"]["vague"] == {"relevance": found, "below": 1}
    assert vague["explain"]["expandQuery"] == ["feline", "kitten"]
    assert sources(vague) == sources(await search(library, expandQuery=True))
    assert len(talker.requests) == 2
    talker.answer = failing
    failed = await search(library, expandQuery={"below": 1})
    assert sources(failed) == sources(plain)
    assert "not expanded" in failed["warnings"][0]


async def test_auto_has_a_measured_limit_and_needs_both_retrievers(library: Network) -> None:
    answer = await search(library, expandQuery="auto", explain=True)
    assert answer["explain"]["vague"]["below"] == VAGUE
    for wrong in ({"mode": "keyword"}, {"fusion": {"method": "rrf"}}):
        for option in ("auto", {"below": 0.2}):
            with pytest.raises(ToolError, match="expandQuery") as failure:
                await search(library, expandQuery=option, **wrong)
            assert failure.value.code == "invalid_input"
