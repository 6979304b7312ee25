"""Jobs: leases, owners, progress and what they leave behind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.contract.stored_records import HOUR, collection

from ability_search.collection import Collection
from ability_search.store.port import Store
from ability_search.store.records import Job

EXPIRED = -1
"""A lease that is over at once."""


def job(identifier: str = "1", kind: str = "reindex", **fields: Any) -> Job:
    record = f"notes@{identifier}" if kind == "reindex" else None
    new = Job(id=identifier, kind=kind, collection="notes", owner="one", record=record)
    return replace(new, **fields)


async def begun(store: Store, new: Job, *, lease: int = HOUR) -> Collection:
    """Begin a job that builds a generation; return the record of that."""
    built = collection(str(new.record))
    await store.create_generation(built)
    assert await store.begin_job(new, lease=lease, built=built)
    return built


async def stored(store: Store, kind: str = "reindex") -> Job:
    found = await store.job("notes", kind)
    assert found is not None
    return found


async def test_begun_job_is_running(store: Store) -> None:
    built = await begun(
        store, job(options={"model": "words", "n": [1, 2]}, stage="reading", total=5)
    )
    found = await stored(store)
    assert (found.id, found.owner, found.record) == ("1", "one", built.name)
    assert (found.state, found.expired, found.stage) == ("running", False, "reading")
    assert (found.done, found.total, found.lost, found.lost_at) == (0, 5, 0, -1)
    assert found.options == {"model": "words", "n": [1, 2]}
    assert found.started_at == found.updated_at > 0
    assert await store.collection(built.name) == built
    assert await store.records_under_construction() == {built.name}
    assert await store.orphaned_jobs("reindex") == []


async def test_jobs_of_a_collection_are_listed_by_kind(store: Store) -> None:
    await begun(store, job())
    assert await store.begin_job(job("2", "index-file"), lease=HOUR, built=None)
    other = job("3", "index-file", collection="other")
    assert await store.begin_job(other, lease=HOUR, built=None)
    assert [each.id for each in await store.jobs("notes")] == ["2", "1"]
    assert [each.id for each in await store.jobs("other")] == ["3"]
    assert await store.job("notes", "unknown") is None


async def test_job_without_a_generation_replaces_the_last_one(store: Store) -> None:
    assert await store.begin_job(job("1", "index-file"), lease=HOUR, built=None)
    assert await store.begin_job(job("2", "index-file", owner="two"), lease=HOUR, built=None)
    (found,) = await store.jobs("notes")
    assert (found.id, found.owner) == ("2", "two")


@pytest.mark.parametrize("id_", ["1", "2"])
async def test_only_one_worker_builds_a_generation(store: Store, id_: str) -> None:
    await begun(store, job())
    built = collection("notes@2")
    second = job(id_, owner="two", record=built.name)
    assert not await store.begin_job(second, lease=HOUR, built=built)
    assert (await stored(store)).id == "1"
    assert await store.collection(built.name) is None


async def test_new_job_discards_what_an_abandoned_one_was_building(store: Store) -> None:
    old = await begun(store, job(), lease=EXPIRED)
    new = await begun(store, job("2", owner="two"))
    assert (await stored(store)).id == "2"
    assert await store.collections() == [new]
    assert await store.due_generations() == [old.type]


async def test_job_with_an_expired_lease_is_orphaned(store: Store) -> None:
    await begun(store, job(), lease=EXPIRED)
    (orphan,) = await store.orphaned_jobs("reindex")
    assert (orphan.id, orphan.expired, orphan.owner) == ("1", True, "one")
    assert await store.orphaned_jobs("index-file") == []
    assert (await stored(store)).expired
    assert await store.records_under_construction() == {"notes@1"}


async def test_orphaned_job_is_claimed_once(store: Store) -> None:
    built = await begun(store, job(), lease=EXPIRED)
    orphan = await stored(store)

    async def claim(owner: str, record: str) -> bool:
        return await store.claim_job(
            orphan, owner=owner, record=record, lease=HOUR, lost=1, lost_at=3
        )

    assert await claim("two", "notes@b")
    assert not await claim("three", "notes@c")
    found = await stored(store)
    assert (found.owner, found.record, found.expired) == ("two", "notes@b", False)
    assert (found.lost, found.lost_at) == (1, 3)
    assert await store.collections() == [replace(built, name="notes@b")]
    assert not await store.renew_job(orphan, owner="one", lease=HOUR, done=1, total=2, stage="")


async def test_held_job_is_not_claimed(store: Store) -> None:
    await begun(store, job())
    held = await stored(store)
    assert not await store.claim_job(
        held, owner="two", record="notes@b", lease=HOUR, lost=0, lost_at=0
    )
    assert await stored(store) == held


async def test_renewed_job_records_its_progress(store: Store) -> None:
    await begun(store, job(), lease=EXPIRED)
    own = await stored(store)
    assert await store.renew_job(own, owner="one", lease=HOUR, done=2, total=9, stage="writing")
    found = await stored(store)
    assert (found.done, found.total, found.stage, found.expired) == (2, 9, "writing", False)
    assert not await store.renew_job(own, owner="two", lease=HOUR, done=5, total=9, stage="")
    assert await stored(store) == found


async def test_negative_lease_releases_a_job(store: Store) -> None:
    await begun(store, job())
    own = await stored(store)
    assert await store.renew_job(own, owner="one", lease=EXPIRED, done=2, total=9, stage="")
    found = await stored(store)
    assert (found.owner, found.state, found.expired) == (None, "running", True)
    assert not await store.renew_job(own, owner="one", lease=HOUR, done=3, total=9, stage="")


@pytest.mark.parametrize("state", ["done", "failed", "cancelled"])
async def test_ended_job_discards_what_it_was_building(store: Store, state: str) -> None:
    built = await begun(store, job())
    own = await stored(store)
    fields = {"error": {"code": "internal", "message": "m", "hint": ""}, "done": 4}
    assert await store.end_job(own, owner="one", state=state, fields=fields)
    found = await stored(store)
    assert (found.state, found.owner, found.record, found.expired) == (state, None, None, False)
    assert (found.error, found.done) == (fields["error"], 4)
    assert await store.collections() == []
    assert await store.due_generations() == [built.type]
    assert await store.records_under_construction() == set()
    assert not await store.end_job(own, owner="one", state="failed", fields={})
    assert not await store.renew_job(own, owner="one", lease=HOUR, done=5, total=9, stage="")
    assert (await stored(store)).state == state


async def test_job_of_another_worker_is_ended_by_nobody_in_particular(store: Store) -> None:
    await begun(store, job())
    own = await stored(store)
    assert not await store.end_job(own, owner="two", state="failed", fields={})
    assert not await store.end_job(replace(own, id="2"), owner=None, state="failed", fields={})
    assert (await stored(store)).running
    assert await store.end_job(own, owner=None, state="cancelled", fields={})
    assert (await stored(store)).state == "cancelled"
