"""Jobs over the wire: begun, told, gone on with, ended; by one worker at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.flows.conftest import PATIENCE, Network, Start, document, down
from tests.ability_search.flows.stored import (
    assert_consistent,
    chunks,
    command,
    expire_leases,
    on,
    record,
    second_worker,
    services_of,
    under_construction,
)
from tests.ability_search.flows.test_reindexing import (
    fill,
    handler_of,
    only_the_live_generation_is_left,
    prose,
)

from ability_search.errors import Busy, Cancelled
from ability_search.index.index_fields import IndexFields
from ability_search.tools import handlers
from kadi_client import Connection, Event
from kadi_client.errors import KadiError, ToolError

ALONE = {
    "SEARCH_DATABASE_GRACE_PERIOD": "0",
    "SEARCH_JOB_LEASE": "600",
    "SEARCH_EMBEDDING_REUSE": "false",
}
"""No worker looks for jobs while a test runs."""
EAGER = ALONE | {"SEARCH_JOB_LEASE": "1"}
SMALL_STEPS = {
    "SEARCH_DATABASE_WRITE_GROUP_CHUNKS": "4",
    "SEARCH_EMBEDDING_BATCH_TEXTS": "4",
    "SEARCH_EMBEDDING_CONCURRENCY": "1",
    "SEARCH_EMBEDDING_ATTEMPTS": "1",
}


class Gate:
    """Holds calls of a tool back from the moment that a condition is met."""

    def __init__(self, network: Network, tool: str, part: str, after: int = 0) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()
        real = handler_of(network, tool)
        left = after

        async def hold(given: dict[str, Any], call: Any) -> Any:
            nonlocal left
            if part in str(given) and not self.opened.is_set():
                left -= 1
                if left < 0:
                    self.reached.set()
                    await self.opened.wait()
            return await real(given, call)

        network.instead[tool] = hold

    async def wait(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self.reached.wait()


async def the_job(network: Network, kind: str = "reindex") -> Any:
    info = await network.call("search-collection-info", collection="docs")
    return next(job for job in info["jobs"] if job["kind"] == kind)


async def job_in(network: Network, *states: str) -> Any:
    async with asyncio.timeout(PATIENCE):
        while (job := await the_job(network))["state"] not in states:
            pass
    return job


async def until_completed(heard: AsyncIterator[Event], job: str) -> AsyncIterator[Event]:
    async for event in heard:
        if event.data["jobId"] == job:
            yield event
            if event.channel == "search.index.completed":
                return


async def rebuilt_as_asked(network: Network, sources: int) -> None:
    after = await assert_consistent(network, "docs")
    assert (after.chunk_size, after.sources) == (24, sources)
    await only_the_live_generation_is_left(network)


async def test_in_the_background_it_is_begun_told_and_completed(start: Start) -> None:
    async with start(**ALONE) as network:
        await fill(network)
        gate = Gate(network, "create-embedding", "cat3")
        async with network.client.subscribe("search.index.*") as heard:
            begun = await network.call(
                "search-reindex", collection="docs", maxTokens=24, background=True, jobId="mine"
            )
            assert (begun["state"], begun["jobId"]) == ("running", "mine")
            await gate.wait()
            job = await the_job(network)
            assert (job["jobId"], job["state"], job["total"]) == ("mine", "running", 8)
            busy = await network.refused("search-reindex", collection="docs", maxTokens=32)
            assert (busy["code"], busy["retryable"]) == ("busy", True)
            assert "mine" in busy["error"]
            assert "cancel" in busy["hint"]
            gate.opened.set()
            job = await job_in(network, "done", "failed")
            assert job["state"] == "done", job
            assert job["result"]["documents"] == job["done"] == 8
            async with asyncio.timeout(PATIENCE):
                told = [event.channel async for event in until_completed(heard, "mine")]
            assert set(told) == {"search.index.progress", "search.index.completed"}
        await rebuilt_as_asked(network, 8)


async def test_cancelled_by_another_worker_it_stops_and_leaves_nothing(
    start: Start, tmp_path: Path
) -> None:
    async with start(**ALONE) as network, second_worker(network, tmp_path) as second:
        await fill(network)
        before, stored = await record(network, "docs"), await chunks(network, "docs")
        gate = Gate(network, "create-embedding", "cat3")
        begun = await on(
            network, network.worker, "search-reindex", collection="docs", background=True
        )
        await gate.wait()
        ended = await on(network, second, "search-reindex", collection="docs", cancel=True)
        assert (ended["jobId"], ended["state"]) == (begun["jobId"], "cancelled")
        assert (await the_job(network))["state"] == "cancelled"
        gate.opened.set()
        await only_the_live_generation_is_left(network)
        assert await record(network, "docs") == before
        assert await chunks(network, "docs") == stored
        none = await network.refused("search-reindex", collection="docs", cancel=True)
        assert none["code"] == "not_found"


@pytest.mark.parametrize("tool", ["search-delete", "search-reindex"])
async def test_a_collection_that_is_deleted_takes_its_job_along(start: Start, tool: str) -> None:
    async with start(**ALONE) as network:
        documents = await fill(network)
        gate = Gate(network, "create-embedding", "cat3")
        waiting = asyncio.create_task(network.refused("search-reindex", collection="docs"))
        await gate.wait()
        clear = {"clear": True} if tool == "search-reindex" else {}
        assert (await network.call(tool, collection="docs", **clear))["deleted"]
        gate.opened.set()
        assert (await waiting)["code"] == "cancelled"
        again = await network.call("search-index", collection="docs", documents=documents)
        assert again["added"] == 8
        await only_the_live_generation_is_left(network)


async def test_a_caller_who_is_lost_does_not_end_it(start: Start) -> None:
    async with start(**ALONE) as network:
        await fill(network)
        gate = Gate(network, "create-embedding", "cat3")
        async with Connection(network.url, name="lost") as caller:
            call = {"collection": "docs", "maxTokens": 24}
            running = asyncio.create_task(caller.invoke("search-reindex", call, timeout=PATIENCE))
            await gate.wait()
        with pytest.raises(KadiError):
            await running
        gate.opened.set()
        assert (await job_in(network, "done", "failed", "cancelled"))["state"] == "done"
        await rebuilt_as_asked(network, 8)


@pytest.mark.slow
async def test_what_a_killed_worker_has_built_is_not_built_again(
    start: Start, tmp_path: Path
) -> None:
    async with start(**ALONE, **SMALL_STEPS) as network:
        await fill(network, 20)
        gate = Gate(network, "create-embedding", "cat13")
        killed = services_of(network, tmp_path)
        run = await killed.reindexing.start("docs", IndexFields(max_tokens=24))
        await gate.wait()
        async with asyncio.timeout(PATIENCE):
            while not (await under_construction(network))[0].sources:
                pass
        run.ended.cancel()
        await asyncio.wait({run.ended})
        gate.opened.set()
        before = len(network.model.texts)
        assert (await the_job(network))["state"] == "running"
        await expire_leases(network)
        assert (await the_job(network))["state"] == "interrupted"
        # Read late: a write that was under way when the worker was killed may still commit.
        (built,) = await under_construction(network)
        assert 0 < built.sources < 20
        await network.call("search-reindex", collection="docs", maxTokens=24)
        after = await record(network, "docs")
        assert len(network.model.texts) - before == after.chunks - built.chunks
        await rebuilt_as_asked(network, 20)


async def test_a_job_that_its_workers_are_lost_on_is_given_up(start: Start, tmp_path: Path) -> None:
    async with start(**ALONE) as network:
        await fill(network)
        gate = Gate(network, "create-embedding", "cat3")
        run = await services_of(network, tmp_path).reindexing.start("docs", IndexFields())
        for lost in range(1, 6):
            await gate.wait()
            run.ended.cancel()
            await asyncio.wait({run.ended})
            await expire_leases(network)
            assert (await the_job(network))["state"] == "interrupted"
            await services_of(network, tmp_path).reindexing.resume()
            noted = await services_of(network, tmp_path).jobs.find("docs", "reindex")
            assert noted is not None
            assert (noted.lost, noted.state) == (lost, "running" if lost < 5 else "failed")
            gate.reached.clear()
        job = await the_job(network)
        assert "5 workers in a row were lost" in job["error"]["message"]
        gate.opened.set()
        await network.call("search-reindex", collection="docs", maxTokens=24)
        await rebuilt_as_asked(network, 8)


async def test_other_options_begin_anew_where_nobody_works_on_the_old_ones(
    start: Start, tmp_path: Path
) -> None:
    async with start(**ALONE) as network:
        await fill(network)
        gate = Gate(network, "create-embedding", "cat3")
        run = await services_of(network, tmp_path).reindexing.start("docs", IndexFields())
        await gate.wait()
        run.ended.cancel()
        await asyncio.wait({run.ended})
        gate.opened.set()
        await expire_leases(network)
        answer = await network.call("search-reindex", collection="docs", maxTokens=24)
        assert answer["jobId"] != run.job.id
        await rebuilt_as_asked(network, 8)


async def test_of_two_workers_one_goes_on(start: Start, tmp_path: Path) -> None:
    async with start(**ALONE) as network:
        await fill(network)
        gate = Gate(network, "create-embedding", "cat3")
        run = await services_of(network, tmp_path).reindexing.start(
            "docs", IndexFields(max_tokens=24)
        )
        await gate.wait()
        run.ended.cancel()
        await asyncio.wait({run.ended})
        await expire_leases(network)
        workers = [services_of(network, tmp_path) for _ in range(4)]
        await asyncio.gather(*(worker.reindexing.resume() for worker in workers))
        owners = [run for worker in workers for run in worker.reindexing.runs]
        assert len(owners) == 1
        gate.opened.set()
        job = await owners[0].finished()
        assert (job.id, job.state) == (run.job.id, "done")
        await rebuilt_as_asked(network, 8)


@pytest.mark.slow
@pytest.mark.engine
async def test_a_worker_that_comes_back_after_another_took_over_changes_nothing(
    start: Start, tmp_path: Path
) -> None:
    """It holds an old version of a source, which the one that took over knows the new one of."""
    async with start(**ALONE) as network:
        await fill(network)
        embedding = Gate(network, "create-embedding", "cat3")
        zombie = services_of(network, tmp_path)
        old = await zombie.reindexing.start("docs", IndexFields(max_tokens=24))
        await embedding.wait()
        # Only what was asked for until now is held back.
        network.instead["create-embedding"] = network.model.handle
        await network.call("search-index", collection="docs", documents=[document("d3", "new")])
        await expire_leases(network)
        verifying = Gate(network, "arcade-query", "vectorMagnitude")
        other = services_of(network, tmp_path)
        await other.reindexing.resume()
        (run,) = other.reindexing.runs
        await verifying.wait()
        before = await under_construction(network)
        embedding.opened.set()
        with pytest.raises(Busy):
            async with asyncio.timeout(PATIENCE):
                await old.finished()
        assert await under_construction(network) == before
        verifying.opened.set()
        async with asyncio.timeout(PATIENCE):
            await run.finished()
        await rebuilt_as_asked(network, 8)
        texts = {row["source"]: row["content"] for row in await chunks(network, "docs")}
        assert texts["d3"] == "new"


async def test_a_worker_that_is_stopped_hands_its_job_over(start: Start, tmp_path: Path) -> None:
    async with start(**EAGER) as network:
        await fill(network)
        gate = Gate(network, "create-embedding", "cat3")
        async with second_worker(network, tmp_path) as second:
            waiting = asyncio.create_task(
                on(network, second, "search-reindex", collection="docs", maxTokens=24)
            )
            await gate.wait()
        with pytest.raises(ToolError) as failure:
            await waiting
        assert failure.value.code == "busy"
        gate.opened.set()
        assert (await job_in(network, "done", "failed", "cancelled"))["state"] == "done"
        await rebuilt_as_asked(network, 8)


async def test_a_model_that_is_away_is_waited_for(start: Start) -> None:
    async with start(**ALONE, **SMALL_STEPS) as network:
        await fill(network)
        gate = Gate(network, "create-embedding", "cat3")
        await network.call("search-reindex", collection="docs", maxTokens=24, background=True)
        await gate.wait()
        network.model.failure = down
        gate.opened.set()
        async with asyncio.timeout(PATIENCE):
            while "waiting" not in (await the_job(network))["stage"]:
                pass
        network.model.failure = None
        assert (await job_in(network, "done", "failed"))["state"] == "done"
        await rebuilt_as_asked(network, 8)


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("UPDATE `{type}` SET embedding = [{twos}] WHERE chunkIndex = 1", "vectors of 8 chunks"),
        ("DELETE FROM `{type}` WHERE chunkIndex = 1", "chunks are stored"),
        ("DELETE FROM `{sources}` WHERE source = 'd3'", "7 of 8 sources are stored"),
    ],
    ids=["vectors", "chunks", "sources"],
)
async def test_what_does_not_hold_what_it_was_given_is_not_taken(
    start: Start, change: str, told: str
) -> None:
    async with start(**ALONE) as network:
        await fill(network)
        before, stored = await record(network, "docs"), await chunks(network, "docs")
        verifying = Gate(network, "arcade-query", "sum(chunks) AS s0")
        waiting = asyncio.create_task(
            network.refused("search-reindex", collection="docs", maxTokens=24)
        )
        await verifying.wait()
        (built,) = await under_construction(network)
        names = {"type": built.type, "sources": built.type.replace("Chunk", "Source", 1)}
        await command(network, change.format(**names, twos=", ".join(["2.0"] * 64)))
        verifying.opened.set()
        answer = await waiting
        assert (answer["code"], answer["retryable"]) == ("database_unavailable", False)
        assert told in answer["error"]
        job = await the_job(network)
        assert (job["state"], job["error"]["message"]) == ("failed", answer["error"])
        assert await record(network, "docs") == before
        assert await chunks(network, "docs") == stored
        await only_the_live_generation_is_left(network)


async def test_a_tree_of_files_is_a_job_too(network: Network, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.md").write_text(prose("cat"))
    await network.call("search-index-file", collection="docs", path="d", jobId="tree")
    job = await the_job(network, "index-file")
    assert (job["jobId"], job["state"], job["done"], job["total"]) == ("tree", "done", 1, 1)
    counts = {"added": 1, "updated": 0, "unchanged": 0, "failed": 0, "chunks": 1}
    assert job["result"] == counts
    assert "history" not in job
    (tmp_path / "d" / "b.tar.gz").write_bytes(b"\x1f\x8b\x08\0")
    (tmp_path / "d" / "c.md").write_text(" ")
    await network.call("search-index-file", collection="docs", path="d", jobId="again")
    job = await the_job(network, "index-file")
    assert (job["jobId"], job["state"], job["done"], job["total"]) == ("again", "done", 3, 3)
    await network.refused("search-index-file", collection="docs", path="nowhere")
    job = await the_job(network, "index-file")
    assert (job["state"], job["error"]["code"]) == ("failed", "invalid_input")
    past = [(run["jobId"], run["state"], run["result"]["unchanged"]) for run in job["history"]]
    assert past == [("again", "done", 1), ("tree", "done", 0)]


async def test_a_long_search_index_is_a_job_with_a_history(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "SHORT_RUN", 0.01)
    await network.call("search-index", collection="docs", documents=[document("zero", "Nets.")])
    for name in ("one", "two"):
        gate = network.model.gate = asyncio.Event()
        given = {"collection": "docs", "documents": [document(name, prose(name))], "jobId": name}
        call = asyncio.create_task(network.call("search-index", **given))
        async with asyncio.timeout(PATIENCE):
            running: list[str] = []
            while running != [name]:
                info = await network.call("search-collection-info", collection="docs")
                running = [each["jobId"] for each in info["jobs"] if each["state"] == "running"]
        gate.set()
        await call
        ended = await the_job(network, "index")
        assert (ended["jobId"], ended["state"], ended["done"]) == (name, "done", 1)
        assert ended["result"]["added"] == 1
    past = [(run["jobId"], run["state"]) for run in ended["history"]]
    assert past[0] == ("one", "done")


async def test_a_short_search_index_leaves_no_record(network: Network) -> None:
    await network.call("search-index", collection="docs", documents=[document("a", prose("cat"))])
    assert (await network.call("search-collection-info", collection="docs"))["jobs"] == []


async def test_a_cancelled_job_is_told_to_who_waits(start: Start, tmp_path: Path) -> None:
    async with start(**ALONE) as network:
        await fill(network)
        gate = Gate(network, "create-embedding", "cat3")
        services = services_of(network, tmp_path)
        run = await services.reindexing.start("docs", IndexFields())
        await gate.wait()
        await run.cancel()
        with pytest.raises(Cancelled):
            await run.finished()
        gate.opened.set()
        again = await network.call("search-reindex", collection="docs", maxTokens=24)
        assert again["state"] == "done"
