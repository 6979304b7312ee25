"""Records as rows: their keys, selections and reads.

Those of collections and of term statistics have types of their own, since :mod:`.write` changes
them with the chunks; all others are rows of the type ``Record``.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ability_search.collection import Collection
from ability_search.store.stored_collections import collection_of
from ability_search.store.values import (
    MOST_RECORDS,
    Count,
    Counted,
    Key,
    Page,
    Read,
    Record,
    Records,
)

RecordAnswer = Callable[[Sequence[Mapping[str, Any]], int], Page | Counted]
"""Makes an answer of the rows of a query and the time."""
_TYPES = {"collection": "Collection", "terms": "Terms"}
"""Types of the kinds that have their own."""
SEPARATOR, _ESCAPE = "\x1f", "\x1e"
_AFTER_SEPARATOR = "\x20"


def encoded(key: Key) -> str:
    """Return a key as a string; keys keep their order, but for control characters in them."""
    return SEPARATOR.join(
        part.replace(_ESCAPE, f"{_ESCAPE}e").replace(SEPARATOR, f"{_ESCAPE}s") or f"{_ESCAPE}0"
        for part in key
    )


def _decoded(key: str) -> Key:
    parts = key.split(SEPARATOR) if key else ()
    return tuple(
        ""
        if part == f"{_ESCAPE}0"
        else part.replace(f"{_ESCAPE}s", SEPARATOR).replace(f"{_ESCAPE}e", _ESCAPE)
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


class Parameters(dict[str, Any]):
    """The parameters of a statement; the names of those that are bound begin with a prefix."""

    def __init__(self, prefix: str = "") -> None:
        super().__init__()
        self._prefix = prefix

    def bind(self, value: Any) -> str:
        """Return the SQL of a value."""
        name = f"{self._prefix}p{len(self)}"
        self[name] = value
        return f":{name}"


def record_query(ask: Read | Count, name: str) -> tuple[str, Mapping[str, Any], RecordAnswer]:
    """Return the query for a page of records, one row more than its limit, or for their number.

    With it come its parameters, whose names begin with ``name``, and what makes the answer of its
    rows and the time.
    """
    of = ask.of
    assert isinstance(of, Records)
    params = Parameters(name)
    condition = condition_of(of, params)
    if isinstance(ask, Count):
        text = f"SELECT count(*) AS n FROM {type_of(of.kind)} WHERE {condition}"
        return text, params, lambda rows, now: Counted({None: (_number(rows),)}, None, now)
    limit = ask.limit or MOST_RECORDS
    condition += _behind(of, ask.after, params)
    by_time = ask.order == "updated_at"
    order = f"updatedAt{' DESC' if ask.descending else ''}" if by_time else "scope, key"
    text = f"SELECT FROM {type_of(of.kind)} WHERE {condition} ORDER BY {order}"

    def page(rows: Sequence[Mapping[str, Any]], now: int) -> Page:
        items = [record_of(row, now) for row in rows[:limit]]
        last = items[-1] if len(rows) > limit and not by_time else None
        after = None if last is None else last.key
        if last is not None and of.scope is None:
            after = (last.scope, *last.key)
        return Page(items, after, None, now)

    return f"{text} LIMIT {limit + 1:d}", params, page


def _number(rows: Sequence[Mapping[str, Any]]) -> int:
    return int(rows[0]["n"]) if rows else 0


def type_of(kind: str | None) -> str:
    """Return the type of the records of a kind."""
    return _TYPES.get(kind or "", "Record")


def _behind(of: Records, after: str | Key | None, params: Parameters) -> str:
    if after is None:
        return ""
    if of.scope is not None:
        return f" AND key > {params.bind(encoded(tuple(after)))}"
    scope, key = params.bind(after[0]), params.bind(encoded(tuple(after[1:])))
    return f" AND scope >= {scope} AND (scope > {scope} OR key > {key})"


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
        conditions.append(f"key >= {params.bind(prefix + SEPARATOR)}")
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
