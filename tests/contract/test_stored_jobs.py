"""Jobs: leases, owners, progress and what they leave behind."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from tests.contract.stored_records import collection

from ability_search.collection import Collection
from ability_search.errors import SearchError
from ability_search.index.jobs import (
    JobProgress,
    Jobs,
    job_of,
    jobs_of,
    records_under_construction,
)
from ability_search.store.pages import read_all
from ability_search.store.port import Store
from ability_search.store.records import Job
from ability_search.store.stored_collections import (
    due_generations,
    read_collection,
    read_collections,
)
from ability_search.store.values import Read

HOUR = 3600.0
EXPIRED = -0.001
"""A lease that is over at once."""


def job(identifier: str = "1", kind: str = "reindex", **fields: Any) -> Job:
    record = f"notes@{identifier}" if kind == "reindex" else None
    return replace(Job(id=identifier, kind=kind, collection="notes", record=record), **fields)


async def begun(jobs: Jobs, store: Store, new: Job, *, last: Job | None = None) -> Collection:
    """Begin a job that builds a generation; return the record of that."""
    built = collection(str(new.record))
    await store.create_generation(built)
    assert await jobs.begin(new, built, last=last)
    return built


def worker(store: Store, lease: float = HOUR) -> Jobs:
    return Jobs(store, lease=lease)


async def stored(store: Store, kind: str = "reindex") -> Job:
    found = await worker(store).find("notes", kind)
    assert found is not None
    return found


async def listed(store: Store, collection: str) -> list[Job]:
    return list(map(job_of, await read_all(store, Read(jobs_of(collection)))))


async def test_begun_job_is_running(store: Store) -> None:
    one = worker(store)
    new = job(options={"model": "words", "n": [1, 2]}, stage="reading", total=5)
    built = await begun(one, store, new)
    found = await stored(store)
    assert (found.id, found.record, found.builds) == ("1", built.name, built.type)
    assert found.owner
    assert (found.state, found.expired, found.stage) == ("running", False, "reading")
    assert (found.done, found.total, found.lost, found.lost_at) == (0, 5, 0, -1)
    assert found.options == {"model": "words", "n": [1, 2]}
    assert found.started_at == found.updated_at > 0
    assert await read_collection(store, built.name) == built
    assert await records_under_construction(store) == {built.name}
    assert await one.orphaned("reindex") == []


async def test_jobs_of_a_collection_are_listed_by_kind(store: Store) -> None:
    one = worker(store)
    await begun(one, store, job())
    assert await one.begin(job("2", "index-file"))
    assert await one.begin(job("3", "index-file", collection="other"))
    assert [each.id for each in await listed(store, "notes")] == ["2", "1"]
    assert [each.id for each in await listed(store, "other")] == ["3"]
    assert await one.find("notes", "unknown") is None


async def test_job_without_a_generation_replaces_the_last_one(store: Store) -> None:
    one = worker(store)
    first = await one.begin(job("1", "index-file"))
    assert first is not None
    assert await one.end(first, "failed", error={"code": "internal"}, result={"n": 1})
    second = await worker(store).begin(job("2", "index-file"))
    assert second is not None
    (found,) = await listed(store, "notes")
    assert (found.id, found.owner, found.state) == ("2", second.owner, "running")
    assert (found.error, found.result) == (None, None)


@pytest.mark.parametrize("id_", ["1", "2"])
@pytest.mark.parametrize("seen", [True, False])
async def test_only_one_worker_builds_a_generation(store: Store, id_: str, seen: bool) -> None:
    await begun(worker(store), store, job())
    built = collection("notes@2")
    second = job(id_, record=built.name)
    last = await stored(store) if seen else None
    assert not await worker(store).begin(second, built, last=last)
    assert (await stored(store)).record == "notes@1"
    assert await read_collection(store, built.name) is None


@pytest.mark.parametrize("seen", [True, False])
async def test_new_job_discards_what_an_abandoned_one_was_building(
    store: Store, seen: bool
) -> None:
    old = await begun(worker(store, EXPIRED), store, job())
    last = await stored(store) if seen else None
    new = await begun(worker(store), store, job("2"), last=last)
    assert (await stored(store)).id == "2"
    assert await read_collections(store) == [new]
    assert await due_generations(store) == [old.type]


async def test_job_that_was_renewed_since_is_not_replaced(store: Store) -> None:
    one = worker(store, EXPIRED)
    await begun(one, store, job())
    last = await stored(store)
    assert last.expired
    one._lease = 3_600_000
    assert await one.renew(last, JobProgress(1, 2, "writing"))
    built = collection("notes@2")
    assert not await worker(store).begin(job("2", record=built.name), built, last=last)


async def test_job_with_an_expired_lease_is_orphaned(store: Store) -> None:
    one = worker(store, EXPIRED)
    await begun(one, store, job())
    (orphan,) = await one.orphaned("reindex")
    assert (orphan.id, orphan.expired) == ("1", True)
    assert orphan.owner
    assert await one.orphaned("index-file") == []
    assert (await stored(store)).expired
    assert await records_under_construction(store) == {"notes@1"}


async def test_orphaned_job_is_claimed_once(store: Store) -> None:
    one, two, three = worker(store, EXPIRED), worker(store), worker(store)
    built = await begun(one, store, job())
    orphan = await stored(store)
    claimed = await two.claim(orphan)
    assert claimed is not None and claimed.record is not None
    assert await three.claim(orphan) is None
    found = await stored(store)
    assert (found.owner, found.record, found.expired) == (claimed.owner, claimed.record, False)
    assert (found.lost, found.lost_at) == (1, 0)
    assert await read_collections(store) == [replace(built, name=claimed.record)]
    assert not await one.renew(orphan, JobProgress(1, 2, ""))
    assert await two.renew(claimed, JobProgress(1, 2, ""))


async def test_held_job_is_not_claimed(store: Store) -> None:
    await begun(worker(store), store, job())
    held = await stored(store)
    assert await worker(store).claim(held) is None
    assert await worker(store).claim(replace(held, expired=True, revision=0)) is None
    assert await stored(store) == held


async def test_renewed_job_records_its_progress(store: Store) -> None:
    one = worker(store, EXPIRED)
    await begun(one, store, job())
    own = await stored(store)
    one._lease = 3_600_000
    assert await one.renew(own, JobProgress(2, 9, "writing"))
    found = await stored(store)
    assert (found.done, found.total, found.stage, found.expired) == (2, 9, "writing", False)
    assert not await worker(store).renew(own, JobProgress(5, 9, ""))
    assert await stored(store) == found


async def test_released_job_has_no_owner(store: Store) -> None:
    one = worker(store)
    await begun(one, store, job())
    own = await stored(store)
    await one.release(own, JobProgress(2, 9, ""))
    found = await stored(store)
    assert (found.owner, found.state, found.expired) == (None, "running", True)
    assert not await one.renew(own, JobProgress(3, 9, ""))
    assert await worker(store).claim(found)


@pytest.mark.parametrize("state", ["done", "failed", "cancelled"])
async def test_ended_job_discards_what_it_was_building(store: Store, state: str) -> None:
    one = worker(store)
    built = await begun(one, store, job())
    own = await stored(store)
    fields = {"error": {"code": "internal", "message": "m", "hint": ""}, "done": 4}
    assert await one.end(own, state, **fields)
    found = await stored(store)
    assert (found.state, found.owner, found.record, found.expired) == (state, None, None, False)
    assert (found.error, found.done) == (fields["error"], 4)
    assert await read_collections(store) == []
    assert await due_generations(store) == [built.type]
    assert await records_under_construction(store) == set()
    assert not await one.fail(own, SearchError("late"))
    assert not await one.renew(own, JobProgress(5, 9, ""))
    assert state == "cancelled" or not await one.cancel(own)
    assert (await stored(store)).state == state


async def test_job_of_another_worker_is_cancelled_but_not_ended(store: Store) -> None:
    built = await begun(worker(store), store, job())
    own, two = await stored(store), worker(store)
    assert not await two.end(own, "failed")
    assert not await two.cancel(replace(own, id="2"))
    assert (await stored(store)).running
    assert await two.cancel(own)
    assert (await stored(store)).state == "cancelled"
    assert await due_generations(store) == [built.type]


async def test_job_that_was_taken_over_since_is_cancelled(store: Store) -> None:
    built = await begun(worker(store, EXPIRED), store, job())
    seen = await stored(store)
    assert await worker(store).claim(seen)
    assert await worker(store).cancel(seen)
    assert (await stored(store)).state == "cancelled"
    assert await read_collections(store) == []
    assert await due_generations(store) == [built.type]


async def test_a_call_that_ends_while_the_worker_closes_is_recorded_as_ended(store: Store) -> None:
    jobs = worker(store)
    with suppress(ValueError):
        async with jobs.recorded(job(kind="analysis")):
            await jobs.close()
            raise ValueError
    assert (await stored(store, "analysis")).state == "failed"
