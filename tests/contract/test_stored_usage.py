"""The use of chunks by agents, as records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tests.contract.stored_records import filled

from ability_search.extensions.sessions.uses import (
    Use,
    count_uses,
    put_use,
    read_uses,
    use_of,
    uses_of,
    write_uses,
)
from ability_search.store.pages import read_all
from ability_search.store.port import Store
from ability_search.store.values import Delete, Read


async def count(
    store: Store,
    agent: str,
    shown: Sequence[str],
    now: int,
    marks: Mapping[str, bool] | None = None,
) -> None:
    await write_uses(store, count_uses(agent, shown, marks or {}, now=now))


async def put(store: Store, *uses: Use) -> None:
    assert (await store.commit(list(map(put_use, uses)))).done


async def listed(store: Store, collection: str) -> list[Use]:
    return list(map(use_of, await read_all(store, Read(uses_of(collection)))))


async def test_uses_are_counted_for_each_agent(store: Store) -> None:
    await filled(store)
    await filled(store, name="other")
    shown = ["notes:a:0", "other:b:0"]
    await count(store, "agent", shown, 5)
    await count(store, "agent", shown[:1], 9)
    await count(store, "someone", shown[:1], 7)
    assert await read_uses(store, "agent", ["notes:a:0", "other:b:0", "notes:c:0"]) == {
        "notes:a:0": Use("agent", "notes", "notes:a:0", 2, 9),
        "other:b:0": Use("agent", "other", "other:b:0", 1, 5),
    }
    assert await read_uses(store, "nobody", ["notes:a:0"]) == {}
    assert await read_uses(store, "agent", []) == {}
    assert await listed(store, "notes") == [
        Use("agent", "notes", "notes:a:0", 2, 9),
        Use("someone", "notes", "notes:a:0", 1, 7),
    ]


async def test_uses_of_a_collection_that_is_gone_are_not_counted(store: Store) -> None:
    await filled(store)
    await count(store, "agent", ["gone:a:0", "notes:a:0", "x"], 5, {"away:a:0": True})
    assert [await listed(store, name) for name in ("gone", "away", "x")] == [[], [], []]
    assert (await read_uses(store, "agent", ["gone:a:0", "notes:a:0"])).keys() == {"notes:a:0"}
    await count(store, "agent", ["gone:a:0"], 6)
    assert await listed(store, "gone") == []


async def test_last_mark_of_an_agent_is_kept(store: Store) -> None:
    await filled(store)
    marks = {"notes:a:0": True, "notes:b:0": False, "gone:a:0": True}
    await count(store, "agent", ["notes:a:0"], 5, marks)
    await count(store, "agent", ["notes:a:0"], 6)
    await count(store, "agent", [], 7, {"notes:b:0": True})
    expected = [
        Use("agent", "notes", "notes:a:0", 2, 6, useful=True),
        Use("agent", "notes", "notes:b:0", 0, 7, useful=True),
    ]
    assert await listed(store, "notes") == expected
    await put(store, *(replace(use, agent="copy") for use in expected))
    copied = await read_uses(store, "copy", list(marks))
    assert [use.useful for use in copied.values()] == [True, True]


async def test_uses_are_listed_by_agent_and_chunk_id(store: Store) -> None:
    uses = [Use("agent", "notes", f"notes:{name}:0", 1, 5) for name in "cab"]
    others = [
        Use("agent", "notes-2", "notes-2:a:0", 1, 5),
        Use("agent", "note", "note:a:0", 1, 5),
        Use("someone", "notes", "notes:a:0", 3, 5),
    ]
    await put(store, *uses, *others)
    found = [(use.agent, use.chunk_id) for use in await listed(store, "notes")]
    assert found == [("agent", f"notes:{name}:0") for name in "abc"] + [("someone", "notes:a:0")]


async def test_put_uses_replace_counts_and_deleted_ones_are_gone(store: Store) -> None:
    await put(store, Use("agent", "notes", "notes:a:0", 1, 5))
    await put(store, Use("agent", "notes", "notes:a:0", 7, 6), Use("agent", "x", "x:a:0", 1, 1))
    assert (await read_uses(store, "agent", ["notes:a:0"]))["notes:a:0"].uses == 7
    for _ in range(2):
        assert (await store.commit([Delete(uses_of("notes"))])).done
    assert await listed(store, "notes") == []
    assert (await read_uses(store, "agent", ["notes:a:0", "x:a:0"])).keys() == {"x:a:0"}
