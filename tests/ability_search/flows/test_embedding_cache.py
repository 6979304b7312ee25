"""Vectors that are stored already are used again: the model is asked for nothing twice."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from tests.ability_search.flows.conftest import DIMENSIONS, Network, Start, document, down
from tests.ability_search.flows.stored import (
    assert_consistent,
    chunks,
    kind_chunks,
    record,
)

from ability_search.store.pages import read_all
from ability_search.store.values import Chunks, Columns, Read
from kadi_client import RemoteError

NO_GRACE = {"SEARCH_DATABASE_GRACE_PERIOD": "0"}


def prose(topic: str, sentences: int = 12) -> str:
    return "\n\n".join(
        f"The {topic} number {n} lives in house {n * 7}, on the {n}th hill."
        for n in range(sentences)
    )


async def index(
    network: Network, collection: str, *documents: dict[str, Any], **options: Any
) -> Any:
    network.model.texts.clear()
    answer = await network.call(
        "search-index", collection=collection, documents=list(documents), **options
    )
    assert not answer["failed"]
    return answer


async def test_a_changed_document_embeds_only_what_changed(network: Network) -> None:
    text = prose("cat")
    first = await index(network, "docs", document("a", text), maxTokens=24)
    assert first["reused"] == 0
    assert first["chunks"] > 8
    changed = text.replace("house 35,", "a boat,")
    again = await index(network, "docs", document("a", changed), maxTokens=24)
    assert (again["updated"], again["reused"]) == (1, first["chunks"] - 1)
    assert len(network.model.texts) == 1
    assert "a boat," in network.model.texts[0]
    network.model.failure = down
    about = await index(network, "docs", document("a", changed, metadata={"n": 1}), maxTokens=24)
    assert (about["updated"], about["reused"]) == (1, about["chunks"])
    await assert_consistent(network, "docs")


async def test_another_collection_asks_for_one_text_to_see_that_the_model_is_the_same(
    network: Network,
) -> None:
    documents = [document(f"d{n}", prose(f"cat{n}", 3)) for n in range(20)]
    first = await index(network, "docs", *documents)
    stored = {row["source"]: row["embedding"] for row in await chunks(network, "docs")}
    again = await index(network, "copy", *documents)
    assert again["reused"] == first["chunks"] == 20
    assert len(network.model.texts) == 1
    for row in await chunks(network, "copy"):
        assert row["embedding"] == pytest.approx(stored[row["source"]], abs=1e-6)
    more = await index(network, "copy", document("e", prose("cat7", 3), title="d7"))
    assert (more["reused"], network.model.texts) == (1, [])


async def test_a_new_generation_embeds_only_texts_that_are_cut_otherwise(start: Start) -> None:
    async with start(**NO_GRACE) as network:
        documents = [document(f"d{n}", prose(f"cat{n}")) for n in range(8)]
        short = [document(f"s{n}", f"Short text {n}.") for n in range(8)]
        await index(network, "docs", *documents, *short, maxTokens=24)
        before = await record(network, "docs")
        network.model.texts.clear()
        answer = await network.call("search-reindex", collection="docs")
        assert (answer["chunks"], answer["reused"]) == (before.chunks, before.chunks)
        # The model is asked for its dimensions, and whether stored vectors still are its own.
        assert len(network.model.texts) == 2
        network.model.texts.clear()
        answer = await network.call("search-reindex", collection="docs", maxTokens=48)
        assert answer["reused"] == 8
        assert len(network.model.texts) == answer["chunks"] - 8 + 2
        await assert_consistent(network, "docs")


async def test_aspects_and_duplicates_hold_vectors_for_others_too(network: Network) -> None:
    about = document("a#s", "It is about cats.", kind="summary", of="a", title="")
    await index(network, "docs", document("a", "Cats.", title=""), about)
    same = await index(network, "docs", document("b", "Cats.", title=""), dedupThreshold=0.9)
    assert (same["deduplicated"], same["reused"], network.model.texts) == (1, 1, [])
    await network.call("search-delete", collection="docs", source="a")
    found = await index(network, "docs", document("c", "Cats.", title=""))
    assert (found["reused"], network.model.texts) == (1, [])
    await index(network, "docs", about)
    assert network.model.texts == ["It is about cats."]
    found = await index(network, "docs", document("d", "It is about cats.", title=""))
    assert (found["reused"], network.model.texts) == (1, [])
    assert len(await kind_chunks(network, "docs")) == 1


async def test_force_and_another_model_take_nothing_that_is_stored(network: Network) -> None:
    network.model.models = {"other": DIMENSIONS}
    await index(network, "docs", document("a", "Some words."))
    again = await index(network, "docs", document("a", "Some words."), force=True)
    assert (again["updated"], again["reused"], len(network.model.texts)) == (1, 0, 1)
    other = await index(network, "others", document("a", "Some words."), model="other")
    assert (other["reused"], len(network.model.texts)) == (0, 1)


async def test_it_can_be_switched_off(start: Start) -> None:
    async with start(SEARCH_EMBEDDING_REUSE="false") as network:
        await index(network, "docs", document("a", "Some words.", title=""))
        again = await index(network, "docs", document("b", "Some words.", title=""))
        assert (again["reused"], len(network.model.texts)) == (0, 1)


@pytest.mark.parametrize("dimensions", [DIMENSIONS, DIMENSIONS // 2])
async def test_a_model_that_changed_under_its_name_gets_no_vectors_from_before(
    network: Network, dimensions: int
) -> None:
    documents = [document(f"d{n}", f"Text number {n} of them.") for n in range(5)]
    await index(network, "docs", *documents)
    network.model.dimensions = dimensions
    network.model.rewrite = turned
    again = await index(network, "copy", *documents[:3])
    assert (again["reused"], again["dimensions"]) == (0, dimensions)
    again = await index(network, "copy", *documents[3:])
    assert again["reused"] == 0
    assert {len(vector) for _, vector in await vectors(network, "copy")} == {dimensions}


@pytest.mark.slow
async def test_a_new_generation_has_the_vectors_of_a_changed_model_throughout(
    start: Start,
) -> None:
    async with start(**NO_GRACE) as network:
        documents = [document(f"d{n:03}", f"Text number {n} of them.") for n in range(150)]
        await index(network, "docs", *documents)
        known = dict(await vectors(network, "docs"))
        network.model.rewrite = turned
        answer = await network.call("search-reindex", collection="docs")
        assert answer["reused"] == 0
        for source, vector in await vectors(network, "docs"):
            assert vector == pytest.approx(list(reversed(known[source])), abs=1e-5)


def turned(answer: dict[str, Any]) -> dict[str, Any]:
    """The vectors of another model: each the other way round."""
    data = [
        {
            **item,
            "embedding": b64encode(
                np.frombuffer(b64decode(item["embedding"]), "<f4")[::-1].tobytes()
            ).decode(),
        }
        for item in answer["data"]
    ]
    return {**answer, "data": data}


async def vectors(network: Network, name: str) -> list[tuple[str, list[float]]]:
    return [(row["source"], row["embedding"]) for row in await chunks(network, name)]


@pytest.mark.engine
async def test_a_look_up_that_fails_is_no_failed_document(network: Network) -> None:
    await index(network, "docs", document("a", "Some words.", title=""))

    def refuse(tool: str, given: Mapping[str, Any]) -> None:
        if tool == "arcade-query" and "vectorKey IN" in given["query"]:
            raise RemoteError("out of order")

    network.faults.append(refuse)
    again = await index(network, "docs", document("b", "Some words.", title=""))
    assert (again["added"], again["reused"], len(network.model.texts)) == (1, 0, 1)


@pytest.mark.engine
async def test_of_a_text_that_many_chunks_have_one_vector_comes(network: Network) -> None:
    same = [document(f"s{n}", "The very same words.", title="") for n in range(40)]
    await index(network, "docs", *same)
    (key,) = {row["vectorKey"] for row in await chunks(network, "docs")}
    collection = await record(network, "docs")
    ask = Read(Chunks(vector_keys=[key, "none"]), collection, Columns(("vector_key",)))
    assert await read_all(network.store, ask) == [{"vector_key": key}]
