"""Commits whose answer is lost: each is repeated, and has taken place once."""

from __future__ import annotations

import contextlib

import pytest
from tests.contract.test_stored_records import HERE, HOUR, done, keys, put, refused, stored, the

from ability_search.errors import DatabaseUnavailable
from ability_search.store.port import Store
from ability_search.store.values import Add, Delete, Records


async def test_record_is_created_once(store: Store) -> None:
    fields = {"kinds": ("a", "b"), "rate": 1.0, "none": None}
    committed = await done(store, put("a", fields=fields, revision=0, lease=HOUR))
    assert committed.record == await the(store, "a")
    await refused(store, 0, put("a", fields={"rate": 2.0}, revision=0, lease=HOUR))


async def test_record_is_taken_once(store: Store) -> None:
    await done(store, put("a", fields={"owner": "x"}, lease=-1))
    seen = await the(store, "a")
    taken = put("a", fields={"owner": "y"}, merge=True, revision=seen.revision, lease=HOUR)
    await done(store, taken)
    await refused(store, 0, put("a", fields={"owner": "z"}, revision=seen.revision, lease=HOUR))
    assert (await the(store, "a")).fields == {"owner": "y"}


async def test_state_is_changed_once(store: Store) -> None:
    await done(store, put("a", fields={"state": "running", "n": 1}))
    ended = {"state": "done", "n": 2}
    await done(store, put("a", fields=ended, where={"state": "running"}, lease=None))
    await refused(store, 0, put("a", fields={"state": "failed"}, where={"state": "running"}))
    assert (await the(store, "a")).fields == ended


async def test_record_is_moved_once(store: Store) -> None:
    await done(store, put("a", fields={"n": 1}))
    moved = Delete(Records("note", HERE, keys=[("a",)]), count=1)
    await done(store, moved, put("b", fields={"n": 1}, revision=0))
    await refused(store, 0, moved, put("c", fields={"n": 1}, revision=0))
    assert await keys(store) == [("b",)]


async def test_what_others_deleted_is_not_deleted_again(store: Store) -> None:
    deletion = Delete(Records("note", HERE), count=1)
    await done(store, put("a"))
    await done(store, deletion)
    await refused(store, 0, deletion)


async def test_numbers_are_not_added_twice(store: Store) -> None:
    """The caller decides, who alone knows whether an addition may be lost."""
    with contextlib.suppress(DatabaseUnavailable):
        await done(store, Add("note", HERE, (), {"n": 1}))
    (record,) = await stored(store)
    assert record.fields == {"n": 1}


@pytest.mark.parametrize("fields", [{"n": 1}, {"n": 2}])
async def test_replaced_record_has_the_new_fields(store: Store, fields: dict[str, int]) -> None:
    await done(store, put("a", fields={"n": 1}), put("b"))
    await done(store, put("a", fields=fields), Delete(Records("note", HERE, keys=[("b",)])))
    assert (await the(store, "a")).fields == fields
