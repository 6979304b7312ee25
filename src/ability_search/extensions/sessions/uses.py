"""The use of chunks by agents, and their marks, as records of a collection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ability_search.store.port import Store
from ability_search.store.stored_collections import records_named
from ability_search.store.values import (
    Add,
    Page,
    Put,
    Read,
    Record,
    Records,
    Require,
    of_collection,
)

_USAGE: Final = "usage"
"""Kind of the records; their keys are an agent and a chunkId."""


@dataclass(frozen=True, slots=True)
class Use:
    """The number of times an agent was shown a chunk, and its mark."""

    agent: str
    collection: str
    chunk_id: str
    uses: int
    last_at: int
    """Epoch milliseconds."""
    useful: bool | None = None
    """Whether the agent marked it as useful or not; ``None`` without a mark."""


def uses_of(collection: str) -> Records:
    """Return the selection of all uses of a collection, in order of agent and chunkId."""
    return Records(_USAGE, of_collection(collection))


def use_of(record: Record) -> Use:
    """Return the use that a record holds."""
    agent, chunk_id = record.key
    return Use(agent, _collection(chunk_id), chunk_id, **record.fields)


def put_use(use: Use) -> Put:
    """Return the change that sets a count and a mark."""
    fields = {"uses": use.uses, "last_at": use.last_at, "useful": use.useful}
    return Put(_USAGE, of_collection(use.collection), (use.agent, use.chunk_id), fields)


def count_uses(
    agent: str, shown: Sequence[str], marks: Mapping[str, bool], *, now: int
) -> list[Add]:
    """Return the changes that count chunks as shown once more, and set marks.

    Args:
        agent: The agent.
        shown: The chunkIds.
        marks: Whether the agent found a chunk useful, by chunkId.
        now: Epoch milliseconds.
    """
    times = dict.fromkeys(marks, 0) | dict.fromkeys(shown, 1)
    return [
        Add(
            _USAGE,
            of_collection(_collection(chunk_id)),
            (agent, chunk_id),
            {"uses": by},
            {"last_at": now} | ({"useful": marks[chunk_id]} if chunk_id in marks else {}),
        )
        for chunk_id, by in sorted(times.items(), key=lambda item: item[0] in marks)
    ]


async def write_uses(store: Store, changes: Sequence[Add]) -> None:
    """Commit counts and marks; those of collections that are gone are left out.

    Raises:
        DatabaseUnavailable: as from :meth:`.Store.commit`; not idempotent.
    """
    left = {change.scope: change.key[1] for change in changes}
    while left:
        there = [
            Require(records_named(_collection(chunk_id)), at_least=1) for chunk_id in left.values()
        ]
        kept = [change for change in changes if change.scope in left]
        committed = await store.commit([*there, *kept])
        if committed.refused is None:
            return
        del left[list(left)[committed.refused]]


async def read_uses(store: Store, agent: str, chunk_ids: Sequence[str]) -> dict[str, Use]:
    """Return the use of chunks by an agent, by chunkId; those without use are left out."""
    keys: dict[str, list[tuple[str, str]]] = {}
    for chunk_id in chunk_ids:
        keys.setdefault(_collection(chunk_id), []).append((agent, chunk_id))
    asks = [Read(Records(_USAGE, of_collection(name), own)) for name, own in keys.items()]
    pages = await store.read(asks) if asks else []
    return {use.chunk_id: use for page in pages for use in _uses(page)}


def _uses(page: object) -> Iterator[Use]:
    assert isinstance(page, Page)
    return map(use_of, page.items)


def _collection(chunk_id: str) -> str:
    return chunk_id.partition(":")[0]
