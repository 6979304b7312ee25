"""Small records: what a selection reads, and what a commit of several changes does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from ability_search.store.port import Store
from ability_search.store.values import (
    Add,
    Change,
    Committed,
    Count,
    Delete,
    Key,
    Page,
    Put,
    Read,
    Record,
    Records,
    Require,
    of_agent,
)

HERE = of_agent("ada")
NOTES = Records("note")
HOUR = 3_600_000
"""Milliseconds."""


def put(*key: str, kind: str = "note", scope: str = HERE, **options: Any) -> Put:
    return Put(kind, scope, key, options.pop("fields", {}), **options)


async def stored(store: Store, of: Records = NOTES, **options: Any) -> list[Record]:
    (page,) = await store.read([Read(of, **options)])
    assert isinstance(page, Page)
    return list(page.items)


async def keys(store: Store, of: Records = NOTES, **options: Any) -> list[Key]:
    return [record.key for record in await stored(store, of, **options)]


async def the(store: Store, *key: str, kind: str = "note") -> Record:
    (record,) = await stored(store, Records(kind, HERE, keys=[key]))
    return record


async def done(store: Store, *changes: Change) -> Committed:
    committed = await store.commit(changes)
    assert committed.done and committed.refused is None
    return committed


async def refused(store: Store, place: int, *changes: Change) -> Record | None:
    """Commit changes, one of which must be refused; return the record that refused it."""
    before = await stored(store)
    committed = await store.commit(changes)
    assert not committed.done
    assert committed.refused == place
    assert await stored(store) == before
    return committed.record


# Reading


async def test_a_new_store_has_no_records(store: Store) -> None:
    assert await stored(store) == []
    (counted, page) = await store.read([Count(Records("note")), Read(Records("note", HERE))])
    assert isinstance(page, Page) and page.items == [] and page.next is None


async def test_record_is_read_as_it_was_put(store: Store) -> None:
    fields = {
        "text": "é\n'$x`",
        "n": 3,
        "rate": 0.5,
        "yes": True,
        "list": [1, {"a": []}],
        "no": None,
    }
    committed = await done(store, put("a", "b", fields=fields, data=b"\x00\xff", lease=HOUR))
    record = await the(store, "a", "b")
    assert record.fields == fields
    assert (record.kind, record.scope, record.data) == ("note", HERE, b"\x00\xff")
    assert record.created_at == record.updated_at == committed.at > 0
    assert (record.revision, record.until, record.expired) == (1, committed.at + HOUR, False)
    assert committed.record == record


def odd_keys() -> Iterator[Key]:
    yield ()
    yield ("",)
    yield ("", "")
    yield ("\x1e", "\x1f")
    yield ("\x1e\x1f",)
    yield ("\x1es\x1ee",)
    yield ("a",)
    yield ("a", "b")
    yield ("a", "b", "ü:ö")
    yield ("ab",)


async def test_any_strings_are_keys(store: Store) -> None:
    await done(store, *(put(*key) for key in odd_keys()))
    assert sorted(await keys(store, Records("note", HERE))) == sorted(odd_keys())
    for key in odd_keys():
        assert await keys(store, Records("note", HERE, keys=[key])) == [key]


async def test_selections_restrict_kind_scope_key_fields_and_lease(store: Store) -> None:
    other = of_agent("bob")
    await done(
        store,
        put("a", "1", fields={"n": 1, "on": True}),
        put("a", "2", fields={"n": 2}, lease=HOUR),
        put("ab", "1", fields={"n": 1, "on": None}, lease=-1),
        put("a", "1", scope=other),
        put("a", "1", kind="other"),
    )
    here = [("a", "1"), ("a", "2"), ("ab", "1")]
    for of, found in {
        "scope": (Records("note", HERE), here),
        "every scope": (Records("note"), [*here, ("a", "1")]),
        "kind": (Records("other"), [("a", "1")]),
        "keys": (Records("note", HERE, keys=[("a", "2"), ("c",)]), [("a", "2")]),
        "no keys": (Records("note", HERE, keys=[]), []),
        "prefix": (Records("note", HERE, prefix=("a",)), here[:2]),
        "until": (Records("note", HERE, until=("a", "2")), here[:2]),
        "field": (Records("note", HERE, where={"n": 1}), [here[0], here[2]]),
        "missing": (Records("note", HERE, where={"on": None}), here[1:]),
        "expired": (Records("note", expired=True), [("ab", "1")]),
        "not expired": (Records("note", HERE, expired=False), here[:2]),
    }.values():
        assert await keys(store, of) == found
    pages = await store.read([Count(Records("note")), Read(Records("other", other))])
    assert [getattr(page, "groups", None) for page in pages] == [{None: (4,)}, None]


@pytest.mark.parametrize("scope", [HERE, None])
async def test_pages_go_on_behind_the_last_record(store: Store, scope: str | None) -> None:
    await done(store, *(put(key) for key in "dbac"), put("b", scope=of_agent("bob")))
    await done(store, put("a", scope=of_agent("aaa")))
    pages: list[Page] = []
    after: Any = None
    while not pages or after is not None:
        (page,) = await store.read([Read(Records("note", scope), limit=2, after=after)])
        assert isinstance(page, Page)
        pages.append(page)
        after = page.next
    found = [(record.scope, *record.key) for page in pages for record in page.items]
    mine = [(HERE, key) for key in "abcd"]
    others = [(of_agent("aaa"), "a")], [(of_agent("bob"), "b")]
    assert found == (mine if scope else [*others[0], *mine, *others[1]])
    assert [len(page.items) for page in pages] == ([2, 2] if scope else [2, 2, 2])


# Putting


async def test_replaced_record_keeps_its_creation_time_and_lease(store: Store) -> None:
    first = await done(store, put("a", fields={"x": 1, "y": 2}, data=b"1", lease=HOUR))
    await done(store, put("a", fields={"y": 3}))
    record = await the(store, "a")
    assert (record.fields, record.data, record.revision) == ({"y": 3}, None, 2)
    assert (record.created_at, record.until) == (first.at, first.at + HOUR)
    again = await done(store, put("a", fresh=True, lease=None))
    record = await the(store, "a")
    assert (record.created_at, record.until) == (again.at, None)


async def test_merged_record_keeps_what_is_not_named(store: Store) -> None:
    await done(store, put("a", fields={"x": 1, "y": {"z": 2}}, data=b"1"))
    await done(store, put("a", fields={"x": None, "w": [5]}, merge=True))
    record = await the(store, "a")
    assert record.fields == {"x": None, "y": {"z": 2}, "w": [5]}
    assert record.data == b"1"
    await done(store, put("b", fields={"x": 1}, merge=True, data=b"2"))
    assert (await the(store, "b")).fields == {"x": 1}


async def test_negative_lease_is_over_at_once(store: Store) -> None:
    await done(store, put("a", lease=-1))
    assert (await the(store, "a")).expired
    await done(store, put("a", lease=HOUR))
    assert not (await the(store, "a")).expired


async def test_new_record_is_refused_if_there_is_one(store: Store) -> None:
    await done(store, put("a", fields={"x": 1}, revision=0))
    assert await refused(store, 0, put("a", fields={"x": 2}, revision=0)) == await the(store, "a")


async def test_put_of_a_revision_is_refused_if_there_is_another(store: Store) -> None:
    assert await refused(store, 0, put("a", revision=1)) is None
    await done(store, put("a"))
    await done(store, put("a", revision=1, fields={"x": 2}))
    assert await refused(store, 0, put("a", revision=1, fields={"x": 3})) == await the(store, "a")


async def test_put_with_a_condition_needs_the_fields(store: Store) -> None:
    assert await refused(store, 0, put("a", where={})) is None
    await done(store, put("a", fields={"state": "on", "n": 1}))
    await done(store, put("a", where={"state": "on", "none": None}, fields={"n": 2}, merge=True))
    await refused(store, 0, put("a", where={"state": "off"}, fields={"n": 3}))
    await refused(store, 0, put("a", where={"state": None}, fields={"n": 3}))
    assert (await the(store, "a")).fields == {"state": "on", "n": 2}


async def test_a_thousand_records_are_put_at_once(store: Store) -> None:
    rows = [put(f"{place:04}", fields={"n": place}) for place in range(1000)]
    await done(store, *rows)
    assert await keys(store, Records("note", HERE)) == [row.key for row in rows]


def test_names_of_fields_are_identifiers() -> None:
    for name in ("", "a-b", "a b", "A", "1", "a`", "a.b"):
        with pytest.raises(ValueError):
            put("a", fields={name: 1})
        with pytest.raises(ValueError):
            Add("note", HERE, (), {name: 1})
        with pytest.raises(ValueError):
            Records("note", where={name: 1})


# Other changes


async def test_numbers_are_added_to(store: Store) -> None:
    add = Add("note", HERE, ("a",), {"n": 2, "m": -1}, {"at": 5})
    assert (await done(store, add)).record == await the(store, "a")
    await done(store, put("b", fields={"n": 1, "kept": True}))
    await done(store, add, Add("note", HERE, ("b",), {"n": 2, "m": -1}, {"at": 6}), add)
    assert (await the(store, "a")).fields == {"n": 6, "m": -3, "at": 5}
    assert (await the(store, "b")).fields == {"n": 3, "kept": True, "m": -1, "at": 6}


async def test_concurrent_sums_differ(store: Store) -> None:
    sums = await asyncio.gather(
        *(store.commit([Add("note", HERE, ("turns",), {"n": by})]) for by in (1, 2, 1, 3, 1, 2))
    )
    numbers = {each.record.fields["n"] for each in sums if each.record}
    assert len(numbers) == 6 and max(numbers) == 10


async def test_deleted_records_are_gone(store: Store) -> None:
    other = of_agent("bob")
    await done(store, *(put(key) for key in "abc"), put("a", scope=other), put("a", kind="job"))
    await done(store, put(kind="terms"))
    await done(store, Delete(Records("note", HERE, keys=[("a",), ("x",)])))
    assert await keys(store) == [("b",), ("c",), ("a",)]
    await done(store, Delete(Records(None, HERE)))
    for kind in ("job", "terms"):
        assert await stored(store, Records(kind)) == []
    assert [record.scope for record in await stored(store)] == [other]


async def test_delete_of_a_number_is_refused_for_another(store: Store) -> None:
    await done(store, put("a"), put("b"))
    await refused(store, 1, put("c"), Delete(Records("note", HERE), count=2))
    await refused(store, 0, Delete(Records("note", HERE, keys=[("c",)]), count=1))
    await done(store, Delete(Records("note", HERE), count=2))


async def test_too_many_records_are_refused(store: Store) -> None:
    few = Records("note", HERE, prefix=("s",))
    require = Require(few, at_most=2)
    await done(store, put("s", "a"), put("s", "b"), put("t", "c"), require)
    await refused(store, 1, put("s", "c"), require)
    await done(store, Delete(Records("note", HERE, keys=[("s", "a")])), put("s", "c"), require)
    await done(store, Require(few, at_least=2, at_most=2))
    await refused(store, 0, Require(few, at_least=3), put("a"))


async def test_records_are_selected_by_their_last_change(store: Store) -> None:
    time = (await done(store, put("a"), put("b"))).at
    assert await keys(store, Records("note", before=time + 1)) == [("a",), ("b",)]
    assert await keys(store, Records("note", before=time)) == []
    await done(store, Delete(Records("note", HERE, before=time)), put("c"))
    assert len(await keys(store)) == 3


async def test_records_are_read_in_the_order_of_their_changes(store: Store) -> None:
    for name in ("b", "c", "a", "b"):
        changed = await done(store, put(name, fields={"even": True}))
        while (await done(store, put("z"))).at == changed.at:
            pass  # the next change has a later time
    of = Records("note", where={"even": True})
    assert await keys(store, of, order="updated_at") == [("c",), ("a",), ("b",)]
    (page,) = await store.read([Read(of, limit=2, order="updated_at", descending=True)])
    assert isinstance(page, Page)
    assert [record.key for record in page.items] == [("b",), ("a",)]
    assert page.next is None
    assert await keys(store, of) == [("a",), ("b",), ("c",)]


async def test_refused_change_takes_back_those_before_it(store: Store) -> None:
    await done(store, put("a", fields={"n": 1}))
    changes: list[Change] = [
        put("a", fields={"n": 2}),
        Add("note", HERE, ("b",), {"n": 1}),
        Delete(Records("note", HERE, keys=[("a",)]), count=1),
        put("c", fields={"n": 1}, revision=7),
        put("d"),
    ]
    assert await refused(store, 3, *changes) is None


async def test_record_is_moved_to_another_key(store: Store) -> None:
    await done(store, put("a", fields={"n": 1}))
    old = Records("note", HERE, keys=[("a",)], where={"n": 1})
    await done(store, Delete(old, count=1), put("b", fields={"n": 1}, revision=0))
    await refused(store, 0, Delete(old, count=1), put("c", revision=0))
    assert await keys(store) == [("b",)]


async def test_one_of_several_takes_an_expired_record(store: Store) -> None:
    await done(store, put("a", lease=-1))
    seen = await the(store, "a")
    takers = [
        put("a", fields={"owner": owner}, revision=seen.revision, lease=HOUR) for owner in "xyz"
    ]
    taken = await asyncio.gather(*(store.commit([taker]) for taker in takers))
    assert sum(each.done for each in taken) == 1
    owner = "xyz"[[each.done for each in taken].index(True)]
    assert (await the(store, "a")).fields == {"owner": owner}
