"""Records of the sessions of agents: limits, partial changes, counters, selections."""

from __future__ import annotations

import asyncio
from typing import Any

from ability_search.store.port import Store
from ability_search.store.records import SessionKind, SessionRecord, SessionSelection


def record(key: str, value: str = "", *, at: int = 1, **fields: Any) -> SessionRecord:
    named: dict[str, Any] = {"agent": "ada", "session": "one", "kind": "scratch"} | fields
    return SessionRecord(key=key, value=value, created_at=at, updated_at=at, **named)


def chosen(*kinds: SessionKind, **fields: Any) -> SessionSelection:
    return SessionSelection("ada", kinds or ("scratch",), **fields)


async def test_records_are_replaced_and_keep_their_creation_time(store: Store) -> None:
    assert await store.session_records(chosen()) == []
    assert await store.put_session_records([record("b", "1"), record("a", "é\n'$x")], most=2)
    assert await store.put_session_records([record("b", "2", at=5)], most=2)
    found = await store.session_records(chosen())
    assert [(each.key, each.value) for each in found] == [("a", "é\n'$x"), ("b", "2")]
    assert [(each.created_at, each.updated_at) for each in found] == [(1, 1), (1, 5)]


async def test_too_many_records_change_nothing(store: Store) -> None:
    assert await store.put_session_records([record("a")], most=2)
    assert not await store.put_session_records([record("a", "new"), *map(record, "bc")], most=2)
    assert [(each.key, each.value) for each in await store.session_records(chosen())] == [("a", "")]
    assert await store.put_session_records([record("b", session="two")], most=1)


async def test_changes_are_partial_and_need_every_record(store: Store) -> None:
    tasks = [record(key, f"task {key}", kind="task", status="open") for key in "12"]
    assert await store.put_session_records(tasks, most=9)
    one = chosen("task", session="one")
    assert await store.update_session_records(one, [{"key": "1", "status": "done"}], now=7)
    changes = [{"key": "2", "value": "other"}, {"key": "3", "value": "none"}]
    assert not await store.update_session_records(one, changes, now=8)
    found = await store.session_records(one)
    assert [(each.value, each.status, each.updated_at) for each in found] == [
        ("task 1", "done", 7),
        ("task 2", "open", 1),
    ]


async def test_selections_restrict_session_kind_key_and_age(store: Store) -> None:
    await store.put_session_records([record("a"), record("b", at=9)], most=9)
    await store.put_session_records([record("a", session="two")], most=9)
    await store.put_session_records([record("a", kind="task")], most=9)
    await store.put_session_records([record("a", agent="bob")], most=9)

    async def names(selection: SessionSelection) -> list[str]:
        found = await store.session_records(selection)
        return [f"{each.session} {each.kind} {each.key}" for each in found]

    assert await names(chosen("scratch", "task", session="one")) == [
        "one scratch a",
        "one scratch b",
        "one task a",
    ]
    assert await names(chosen(before=9)) == ["one scratch a", "two scratch a"]
    await store.delete_session_records(chosen(session="one", keys=["a"]))
    assert await names(chosen()) == ["one scratch b", "two scratch a"]
    await store.delete_session_records(chosen(before=9))
    assert await names(chosen("scratch", "task")) == ["one scratch b", "one task a"]
    assert await store.sessions("ada") == [("one", 9)]
    assert await store.sessions("bob") == [("one", 1)]


async def test_concurrent_callers_get_different_numbers(store: Store) -> None:
    numbers = await asyncio.gather(
        *(store.count_up("ada", "one", "turns", by, now=1) for by in (1, 2, 1, 3, 1, 2))
    )
    assert len(set(numbers)) == 6 and max(numbers) == 10
    assert await store.count_up("ada", "one", "tasks", 1, now=1) == 1
    assert await store.count_up("ada", "two", "turns", 1, now=2) == 1
