"""search-reindex over the wire: a new generation beside the live one."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.flows.conftest import (
    DIMENSIONS,
    MODEL,
    PATIENCE,
    Network,
    Start,
    document,
    down,
    word_vector,
)
from tests.ability_search.flows.stored import (
    assert_consistent,
    bound_answers,
    chunks,
    collections,
    command,
    logged,
    record,
    services_of,
    types,
)

from ability_search.index import preparation
from ability_search.index.index_fields import IndexFields
from ability_search.store.arcadedb.core import source_type
from ability_search.tools.calls import Services
from kadi_client import RemoteError
from kadi_client.tools import Handler
from kadi_localnet.database.tools import database_tools

NO_GRACE = {
    "SEARCH_DATABASE_GRACE_PERIOD": "0",
    "SEARCH_EMBEDDING_ATTEMPTS": "1",
    "SEARCH_JOB_PATIENCE": "0",
}


def prose(topic: str, sentences: int = 30) -> str:
    return " ".join(f"The {topic} number {n} lives in house {n * 7}." for n in range(sentences))


async def fill(network: Network, count: int = 8, **options: Any) -> list[dict[str, Any]]:
    documents = [document(f"d{n}", prose(f"cat{n}")) | {"metadata": {"n": n}} for n in range(count)]
    await network.call("search-index", collection="docs", documents=documents, **options)
    return documents


async def only_the_live_generation_is_left(network: Network) -> None:
    collection = await record(network, "docs")
    async with asyncio.timeout(PATIENCE):
        while await types(network) != {collection.type, source_type(collection.type)}:
            pass
        # What is noted of a generation goes after its types, in a transaction of its own.
        while await logged(network) - {collection.type}:
            pass
    assert await collections(network) == ["docs"]


async def test_smaller_chunks_are_cut_from_what_is_stored(start: Start) -> None:
    async with start(**NO_GRACE) as network:
        documents = await fill(network)
        before = await record(network, "docs")
        stored = {row["source"]: row["createdAt"] for row in await chunks(network, "docs")}
        answer = await network.call("search-reindex", collection="docs", maxTokens=24)
        assert all(
            row["createdAt"] == stored[row["source"]] for row in await chunks(network, "docs")
        )
        assert (answer["deleted"], answer["documents"]) == (before.chunks, 8)
        after = await assert_consistent(network, "docs")
        assert after.generation == before.generation + 1
        assert after.chunk_size == 24
        assert after.chunks > before.chunks
        assert after.tokens_max is not None
        assert after.tokens_max <= 24
        assert after.created_at == before.created_at
        again = await network.call("search-index", collection="docs", documents=documents)
        assert again["unchanged"] == 8
        await only_the_live_generation_is_left(network)


async def test_another_model_with_other_dimensions_takes_over(start: Start) -> None:
    async with start(**NO_GRACE) as network:
        network.model.models = {MODEL: 64, "words-32": 32}
        await fill(network)
        await network.call("search-reindex", collection="docs", model="words-32")
        after = await assert_consistent(network, "docs")
        assert (after.model, after.dimensions) == ("words-32", 32)
        found = await network.call("search-query", collection="docs", query="cat3", mode="semantic")
        assert found["model"] == "words-32"
        assert found["count"] == 8
        refused = await network.refused(
            "search-query", collection="docs", query="cat3", model=MODEL
        )
        assert refused["code"] == "model_mismatch"


async def test_another_strategy_keeps_every_text(start: Start) -> None:
    async with start(**NO_GRACE) as network:
        documents = await fill(network, maxTokens=32, chunkStrategy="sliding-window")
        await network.call("search-reindex", collection="docs", chunkStrategy="paragraph")
        after = await assert_consistent(network, "docs")
        assert (after.chunk_strategy, after.chunk_size) == ("paragraph", 32)
        stored = await chunks(network, "docs")
        for given in documents:
            own = [row for row in stored if row["source"] == given["source"]]
            own.sort(key=lambda row: row["chunkIndex"])
            assert "".join(row["lead"] + row["content"] for row in own) == given["content"]
            assert {row["metadata"]["n"] for row in own} == {given["metadata"]["n"]}


async def test_another_language_analyzes_anew(start: Start, tmp_path: Path) -> None:
    async with start(**NO_GRACE) as network:
        await network.call(
            "search-index", collection="docs", documents=[document("a", "Die Häuser am Fluss")]
        )
        services = services_of(network, tmp_path)
        await rebuilt(services, language="german")
        assert (await assert_consistent(network, "docs")).language == "german"
        kept = await network.call(
            "search-index", collection="docs", documents=[document("b", "Hausboote")]
        )
        assert kept["added"] == 1
        assert (await record(network, "docs")).language == "german"
        found = await network.call("search-query", collection="docs", query="Haus", mode="keyword")
        assert [hit["source"] for hit in found["results"]] == ["a"]


async def rebuilt(services: Services, **options: Any) -> None:
    """Rebuild a collection with services in this process."""
    run = await services.reindexing.start("docs", IndexFields(**options))
    await run.finished()
    await services.generations.drop_due()


@pytest.mark.slow
async def test_queries_are_answered_while_a_generation_is_built(start: Start) -> None:
    async with start(**NO_GRACE) as network:
        await fill(network, 40)
        building = asyncio.create_task(
            network.call("search-reindex", collection="docs", maxTokens=16)
        )
        answered = 0
        async with asyncio.timeout(PATIENCE):
            while not building.done():
                found = await network.call("search-query", collection="docs", query="cat7 house")
                assert found["count"] == 10
                answered += 1
            await building
        assert answered > 3
        found = await network.call("search-query", collection="docs", query="cat7 house")
        assert found["results"][0]["source"] == "d7"
        await only_the_live_generation_is_left(network)


async def test_what_is_written_meanwhile_is_caught_up_with(start: Start) -> None:
    async with start(**NO_GRACE, SEARCH_EMBEDDING_BATCH_TEXTS="8") as network:
        await fill(network, 12)
        embed = network.model.handle
        reached, resume = asyncio.Event(), asyncio.Event()

        async def hold_once(given: dict[str, Any], call: Any) -> Any:
            if not reached.is_set():
                reached.set()
                async with asyncio.timeout(PATIENCE):
                    await resume.wait()
            return await embed(given, call)

        network.instead["create-embedding"] = hold_once
        building = asyncio.create_task(
            network.call("search-reindex", collection="docs", maxTokens=24)
        )
        async with asyncio.timeout(PATIENCE):
            await reached.wait()
        await network.call("search-delete", collection="docs", source="d3")
        await network.call(
            "search-index",
            collection="docs",
            documents=[document("d5", "changed meanwhile"), document("new", "added meanwhile")],
        )
        resume.set()
        async with asyncio.timeout(PATIENCE):
            await building
        after = await assert_consistent(network, "docs")
        assert after.chunk_size == 24
        sources = {row["source"]: row["content"] for row in await chunks(network, "docs")}
        assert set(sources) == {f"d{n}" for n in range(12) if n != 3} | {"new"}
        assert sources["d5"] == "changed meanwhile"
        await only_the_live_generation_is_left(network)


async def test_a_failure_half_way_leaves_the_live_generation_and_nothing_else(
    start: Start,
) -> None:
    async with start(
        **NO_GRACE, SEARCH_EMBEDDING_BATCH_TEXTS="4", SEARCH_EMBEDDING_CONCURRENCY="1"
    ) as network:
        await fill(network, 20)
        before, stored = await record(network, "docs"), await chunks(network, "docs")
        first = network.model.requests

        def give_out(request: dict[str, Any]) -> None:
            if network.model.requests > first + 4:
                down(request)

        network.model.failure = give_out
        refusal = await network.refused("search-reindex", collection="docs", maxTokens=24)
        assert refusal["code"] == "embedding_unavailable"
        assert await record(network, "docs") == before
        assert await chunks(network, "docs") == stored
        await only_the_live_generation_is_left(network)


async def test_a_cancelled_rebuild_leaves_nothing_behind(start: Start) -> None:
    async with start(**NO_GRACE) as network:
        await fill(network)
        before = await record(network, "docs")
        reached, released = asyncio.Event(), asyncio.Event()

        async def hang(_given: dict[str, Any], _call: Any) -> Any:
            reached.set()
            await released.wait()

        network.instead["create-embedding"] = hang
        building = asyncio.create_task(
            network.client.invoke("search-reindex", {"collection": "docs"}, timeout=PATIENCE)
        )
        async with asyncio.timeout(PATIENCE):
            await reached.wait()
        building.cancel()
        await only_the_live_generation_is_left(network)
        assert await record(network, "docs") == before
        released.set()


@pytest.mark.engine
async def test_a_source_replaced_between_its_record_and_its_chunks_is_built_as_it_is_now(
    start: Start,
) -> None:
    async with start(**NO_GRACE) as network:
        await fill(network, 3)
        query = handler_of(network, "arcade-query")
        replaced = False

        async def replace_first(given: dict[str, Any], call: Any) -> Any:
            nonlocal replaced
            if "content AS" in given["query"] and not replaced:
                replaced = True
                await network.call("search-delete", collection="docs", source="d0")
            return await query(given, call)

        network.instead["arcade-query"] = replace_first
        answer = await network.call("search-reindex", collection="docs", maxTokens=24)
        assert answer["documents"] == 2
        await assert_consistent(network, "docs")
        assert {row["source"] for row in await chunks(network, "docs")} == {"d1", "d2"}


def handler_of(network: Network, name: str) -> Handler:
    """What answers a tool of the database or of the model."""
    stored = [] if network.databases is None else database_tools(network.databases)
    offered = [*stored, network.model.tool]
    return next(tool.handler for tool in offered if tool.name == name)


async def test_a_cleared_collection_is_empty_and_keeps_its_settings(start: Start) -> None:
    settings = {
        "language": "german",
        "kinds": ["title"],
        "context": 1,
        "chunkStrategy": "paragraph",
    }
    kept = ("model", "dimensions", "language", "kinds", "context", "createdAt")
    async with start(**NO_GRACE) as network:
        documents = [document(f"d{n}", f"# Eins\n\ncat{n} dog") for n in range(8)]
        await network.call("search-index", collection="docs", documents=documents, **settings)
        before = await record(network, "docs")
        info = await network.call("search-collection-info", collection="docs")
        for chunks_before in (before.chunks, 0):
            answer = await network.call("search-reindex", collection="docs", clear=True)
            assert (answer["collection"], answer["deleted"]) == ("docs", chunks_before)
            (listed,) = (await network.call("search-collections"))["collections"]
            assert (listed["name"], listed["chunks"], listed["sources"]) == ("docs", 0, 0)
            found = await network.call("search-query", collection="docs", query="cat1")
            assert found["results"] == []
            empty = await network.call("search-collection-info", collection="docs")
            assert [empty[name] for name in kept] == [info[name] for name in kept]
            await only_the_live_generation_is_left(network)
        again = await network.call("search-index", collection="docs", documents=documents)
        assert again["added"] == 8
        after = await record(network, "docs")
        assert (after.chunks, after.kind_chunks) == (before.chunks, before.kind_chunks)
        assert after.chunk_strategy == "paragraph"
        for other in ({"model": "other"}, {"maxTokens": 64}, {"background": True}):
            wanted = {"collection": "docs", "clear": True, **other}
            refusal = await network.refused("search-reindex", **wanted)
            assert (refusal["code"], "clear" in refusal["error"]) == ("invalid_input", True)
        assert await record(network, "docs") == after
        await network.call("search-delete", collection="docs")
        gone = await network.refused("search-reindex", collection="docs", clear=True)
        assert gone["code"] == "not_found"


async def test_an_empty_collection_is_rebuilt_as_it_was_asked(start: Start) -> None:
    async with start(**NO_GRACE) as network:
        await fill(network, 1)
        await network.call("search-delete", collection="docs", source="d0")
        answer = await network.call("search-reindex", collection="docs", maxTokens=24)
        assert (answer["documents"], answer["chunks"]) == (0, 0)
        await only_the_live_generation_is_left(network)
        kept = await network.call(
            "search-index", collection="docs", documents=[document("a", "words")]
        )
        assert kept["added"] == 1


async def test_an_unknown_collection_is_not_found_with_the_nearest_names(network: Network) -> None:
    await fill(network, 1)
    refusal = await network.refused("search-reindex", collection="dcos")
    assert refusal["code"] == "not_found"
    assert "docs" in refusal["hint"]


async def test_what_is_not_in_a_collection_has_a_hint_of_its_own(network: Network) -> None:
    await fill(network, 1)
    job = await network.refused("search-reindex", collection="docs", cancel=True)
    assert "search-collection-info" in job["hint"]
    chunk = await network.refused("search-similar", collection="docs", chunkId="docs:x:0")
    assert "chunkId of a search-query hit" in chunk["hint"]
    assert (job["code"], chunk["code"]) == ("not_found", "not_found")


@pytest.mark.slow
@pytest.mark.engine
async def test_the_old_generation_stays_for_its_grace_period_and_any_worker_drops_it(
    start: Start, tmp_path: Path
) -> None:
    async with start(SEARCH_DATABASE_GRACE_PERIOD="3600", SEARCH_JOB_LEASE="1") as network:
        await fill(network, 2)
        before = await record(network, "docs")
        services = services_of(network, tmp_path)
        await rebuilt(services, max_tokens=24)
        await services.generations.close()
        assert before.type in await types(network)
        await command(network, "UPDATE Record SET until = 0 WHERE kind = 'retired'")
        await only_the_live_generation_is_left(network)


async def test_a_worker_that_has_not_heard_of_another_model_does_not_mix_the_two(
    start: Start, tmp_path: Path
) -> None:
    async with start(**NO_GRACE) as network:
        network.model.models = {"other-64": 64}
        await fill(network, 3)
        await network.call("search-query", collection="docs", query="cat1 house", mode="semantic")
        services = services_of(network, tmp_path)
        await rebuilt(services, model="other-64")
        asked: list[str] = []
        network.model.failure = lambda request: asked.append(request["model"])
        found = await network.call(
            "search-query", collection="docs", query="cat1 house", mode="semantic"
        )
        assert found["model"] == "other-64"
        assert asked[-1] == "other-64"


async def test_a_worker_that_has_not_heard_of_a_rebuild_cuts_texts_the_new_way(
    start: Start, tmp_path: Path
) -> None:
    async with start(**NO_GRACE) as network:
        documents = await fill(network, 4)
        services = services_of(network, tmp_path)
        await rebuilt(services, max_tokens=24)
        again = await network.call("search-index", collection="docs", documents=documents)
        assert again["unchanged"] == 4
        await rebuilt(services, max_tokens=32)
        forced = await network.call(
            "search-index", collection="docs", documents=documents, force=True
        )
        assert forced["updated"] == 4
        after = await assert_consistent(network, "docs")
        assert after.tokens_max is not None
        assert 24 < after.tokens_max <= 32


@pytest.mark.slow
@pytest.mark.engine
async def test_metadata_beyond_its_limit_is_rebuilt_or_its_source_named(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start(**NO_GRACE) as network:
        documents = [
            document(f"d{n}", prose(f"cat{n}", 1)) | {"metadata": {"long": f"{n}" + "x" * 300_000}}
            for n in range(6)
        ]
        with monkeypatch.context() as unbounded:
            unbounded.setattr(preparation, "check_size", lambda _: None)
            await network.call("search-index", collection="docs", documents=documents)
        bound_answers(network, 700_000)
        rebuilt = await network.call("search-reindex", collection="docs", maxTokens=24)
        assert rebuilt["documents"] == 6
        bound_answers(network, 200_000)
        refused = await network.refused("search-reindex", collection="docs", maxTokens=32)
        assert refused["code"] == "too_large"
        assert refused["error"].startswith("source 'd0': the database's answer does not fit")
        assert "max_message_bytes" in refused["hint"]
        del network.instead["arcade-query"]
        again = await network.call("search-index", collection="docs", documents=documents)
        assert again["unchanged"] == 6


def poisoned(answer: str) -> Handler:
    """Return a model that fails at every text with the word "poison", in one of several ways."""

    def vector(text: str) -> Any:
        if "poison" not in text:
            return [float(each) for each in word_vector(text)]
        return {"null": None, "nan": [math.nan] * DIMENSIONS, "short": [1.0]}[answer]

    async def handle(given: dict[str, Any], _call: Any) -> Any:
        if answer == "error" and any("poison" in text for text in given["input"]):
            raise RemoteError("json: unsupported value: NaN")
        data = [{"index": n, "embedding": vector(text)} for n, text in enumerate(given["input"])]
        return {"data": data, "model": given["model"]}

    return handle


@pytest.mark.parametrize("answer", ["error", "null", "nan", "short"])
@pytest.mark.parametrize("options", [{"maxTokens": 24}, {"model": "other"}])
async def test_a_text_that_the_model_refuses_is_kept_and_named(
    start: Start, answer: str, options: dict[str, Any]
) -> None:
    async with start(**NO_GRACE) as network:
        await fill(network)
        bad = document("bad", prose("dog", 4) + " Here is poison, and a unicorn.")
        alone = document("poison", "poison")
        await network.call("search-index", collection="docs", documents=[bad, alone])
        before = {(row["source"]) for row in await chunks(network, "docs")}
        network.instead["create-embedding"] = poisoned(answer)
        rebuilt = await network.call("search-reindex", collection="docs", **options)
        kept = {item["source"]: item["error"] for item in rebuilt["failed"]}
        # The chunk of the other source is not cut anew, so its vector is reused.
        assert kept.keys() == ({"bad", "poison"} if "model" in options else {"bad"})
        assert all(error.startswith("kept, but chunk ") for error in kept.values())
        assert {row["source"] for row in await chunks(network, "docs")} == before
        await assert_consistent(network, "docs")
        found = await network.call("search-query", collection="docs", query="unicorn", limit=1)
        assert found["results"][0]["source"] == "bad"
        meant = {"query": "dog number", "mode": "semantic", "limit": 1}
        found = await network.call("search-query", collection="docs", **meant)
        assert found["results"][0]["source"] == "bad", "the vector of what the model accepts"

        # The partial vectors are not taken for those of their texts: the next rebuild asks again.
        network.instead.clear()
        again = await network.call("search-reindex", collection="docs")
        assert "failed" not in again
        exact = {"query": "poison poison", "mode": "semantic", "limit": 1}
        found = await network.call("search-query", collection="docs", **exact)
        assert found["results"][0]["source"] == "poison"


async def test_a_collection_whose_name_the_model_refuses_is_rebuilt(start: Start) -> None:
    async with start(**NO_GRACE) as network:
        await network.call("search-index", collection="poison", documents=[document("a", "Cats.")])
        network.instead["create-embedding"] = poisoned("error")
        rebuilt = await network.call("search-reindex", collection="poison", model="other")
        assert (rebuilt["documents"], rebuilt.get("failed")) == (1, None)
