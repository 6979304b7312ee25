"""Records as rows: their keys, and selections of them.

Those of collections and of term statistics have types of their own, since :mod:`.write` changes
them with the chunks; all others are rows of the type ``Record``.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ability_search.collection import Collection
from ability_search.store.arcadedb.core import Parameters
from ability_search.store.stored_collections import collection_of
from ability_search.store.values import Key, Record, Records

_TYPES = {"collection": "Collection", "terms": "Terms"}
"""Types of the kinds that have their own."""
_SEPARATOR, _ESCAPE = "\x1f", "\x1e"
_AFTER_SEPARATOR = "\x20"


def encoded(key: Key) -> str:
    """Return a key as a string; keys keep their order, but for control characters in them."""
    return _SEPARATOR.join(
        part.replace(_ESCAPE, f"{_ESCAPE}e").replace(_SEPARATOR, f"{_ESCAPE}s") or f"{_ESCAPE}0"
        for part in key
    )


def _decoded(key: str) -> Key:
    parts = key.split(_SEPARATOR) if key else ()
    return tuple(
        part.removeprefix(f"{_ESCAPE}0")
        .replace(f"{_ESCAPE}s", _SEPARATOR)
        .replace(f"{_ESCAPE}e", _ESCAPE)
        for part in parts
    )


def record_of(row: Mapping[str, Any], now: int = 0) -> Record:
    """Convert a row, read at the time ``now``."""
    until, data = row.get("until"), row.get("data")
    return Record(
        kind=row["kind"],
        scope=row["scope"],
        key=_decoded(row["key"]),
        fields=row.get("fields") or {},
        data=None if data is None else base64.b64decode(data),
        revision=row["revision"],
        until=until,
        expired=until is not None and until <= now,
        created_at=row["createdAt"],
        updated_at=row["updatedAt"],
    )


def collection_in(rows: Sequence[Mapping[str, Any]]) -> Collection | None:
    """Return the collection in the row of its record, if there is one."""
    return collection_of(record_of(rows[0])) if rows else None


def type_of(kind: str | None) -> str:
    """Return the type of the records of a kind."""
    return _TYPES.get(kind or "", "Record")


def condition_of(of: Records, params: Parameters) -> str:
    """Return the condition of a selection."""
    conditions = [
        f"{name} = {params.bind(value)}"
        for name, value in (("kind", of.kind), ("scope", of.scope))
        if value is not None
    ]
    if of.keys is not None:
        conditions.append(f"key IN {params.bind([encoded(key) for key in of.keys])}")
    if of.prefix:
        prefix = encoded(of.prefix)
        conditions.append(f"key >= {params.bind(prefix + _SEPARATOR)}")
        conditions.append(f"key < {params.bind(prefix + _AFTER_SEPARATOR)}")
    if of.until is not None:
        conditions.append(f"key <= {params.bind(encoded(of.until))}")
    if of.before is not None:
        conditions.append(f"updatedAt < {params.bind(of.before)}")
    if of.expired is not None:
        over = "until IS NOT NULL AND until <= `date.currentTimestamp`()"
        conditions.append(over if of.expired else f"NOT ({over})")
    return " AND ".join([*conditions, *equal_to(of.where, params)])


def equal_to(fields: Mapping[str, Any], params: Parameters) -> Iterable[str]:
    """Yield the conditions that fields have these values."""
    for name, value in fields.items():
        yield f"fields.{name} IS NULL" if value is None else f"fields.{name} = {params.bind(value)}"
