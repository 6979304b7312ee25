"""Words that a killed database server has lost are found missing and brought back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.ability_search.flows.conftest import PATIENCE, Network, Start, document
from tests.ability_search.flows.stored import (
    assert_consistent,
    jobs_listed,
    record,
    rows,
    services_of,
)
from tests.ability_search.flows.test_jobs import ALONE, Gate

from ability_search.index.verification import SelfRepair
from ability_search.store.records import REINDEX, Job

pytestmark = pytest.mark.engine

TEXTS = {"a": "ant bee", "b": "cat dog", "c": "eel fox"}


async def fill(network: Network) -> None:
    documents = [document(source, text) for source, text in TEXTS.items()]
    await network.call("search-index", collection="docs", documents=documents)
    # The check of the worker itself, after its first answer of the database, is done.
    async with asyncio.timeout(PATIENCE):
        while "degraded" in await network.call("search-collection-info", collection="docs"):
            pass


async def forget_words(network: Network, source: str) -> None:
    """Take one chunk's postings out of the sparse index, and leave its record."""
    kind = (await record(network, "docs")).type
    database = network.engine._running_engine().open[network.settings.database.name].java
    (row,) = await rows(
        network, f"SELECT @rid AS rid, terms FROM `{kind}` WHERE source = :s", s=source
    )

    def forget() -> None:
        index = database.getSchema().getIndexByName(f"{kind}[terms,weights]")
        bucket, place = row["rid"].lstrip("#").split(":")
        rid = database.newRID(int(bucket), int(place))
        for part in index.getSubIndexes():
            for term in row["terms"]:
                part.getEngine().remove(term, rid)

    await asyncio.to_thread(forget)


async def reindexes(network: Network) -> list[Job]:
    """Return the reindex jobs; the indexing before them is a job, too, if it takes long."""
    return [job for job in await jobs_listed(network, "docs") if job.kind == REINDEX]


async def found(network: Network, word: str) -> list[str]:
    answer = await network.call("search-query", collection="docs", query=word, mode="keyword")
    return [hit["source"] for hit in answer["results"]]


@pytest.mark.slow
@pytest.mark.parametrize("lost", [["c"], ["a", "b", "c"]])
async def test_lost_words_are_brought_back_and_nothing_is_embedded(
    start: Start, tmp_path: Path, lost: list[str]
) -> None:
    async with start() as network:
        await fill(network)
        for source in lost:
            await forget_words(network, source)
        assert await found(network, TEXTS["c"]) == []
        before = (await record(network, "docs")).type
        embedded = len(network.model.texts)
        await services_of(network, tmp_path).self_repair.check()
        async with asyncio.timeout(PATIENCE):
            while (await record(network, "docs")).type == before:
                pass
        for source, text in TEXTS.items():
            assert await found(network, text) == [source]
        # The model is tried, and seen to be the same still.
        assert len(network.model.texts) <= embedded + 2
        await assert_consistent(network, "docs")


async def test_a_collection_that_is_whole_or_empty_is_left_alone(
    network: Network, tmp_path: Path
) -> None:
    await fill(network)
    await network.call("search-index", collection="empty", documents=[document("a", "ant")])
    await network.call("search-delete", collection="empty", source="a")
    before = await record(network, "docs")
    repair: SelfRepair = services_of(network, tmp_path).self_repair
    await repair.check()
    assert await reindexes(network) == []
    assert await record(network, "docs") == before


async def test_a_generation_is_built_anew_once(start: Start, tmp_path: Path) -> None:
    async with start(**ALONE) as network:
        await fill(network)
        await forget_words(network, "c")
        services = services_of(network, tmp_path)
        gate = Gate(network, "create-embedding", "eel")
        await services.self_repair.check()
        await gate.wait()
        (job,) = await reindexes(network)
        await services.reindexing.cancel("docs")
        await services.self_repair.check()
        (ended,) = await reindexes(network)
        assert (ended.id, ended.state) == (job.id, "cancelled")
        gate.opened.set()
        await services.reindexing.close()
