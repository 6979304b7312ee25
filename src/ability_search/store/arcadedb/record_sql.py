"""Records: small documents that are read by kind, scope and key, and committed together.

Those of collections and of term statistics have types of their own, since :mod:`.write` changes
them with the chunks; all others are rows of the type ``Record``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

from ability_search.collection import Collection
from ability_search.errors import StatementRefused, TooLarge
from ability_search.retry import growing, retry
from ability_search.store.arcadedb.core import CLOCK, Statement
from ability_search.store.arcadedb.database import Attempts, Database, outlast
from ability_search.store.arcadedb.schema import RECORD_TYPES
from ability_search.store.records import Read as AtRecord
from ability_search.store.stored_collections import collection_of
from ability_search.store.values import (
    MOST_RECORDS,
    Add,
    Change,
    Committed,
    Count,
    Counted,
    Delete,
    Key,
    Page,
    Put,
    Read,
    Record,
    Records,
    Require,
)

T = TypeVar("T")

_TYPES = {"collection": "Collection", "terms": "Terms"}
"""Types of the kinds that have their own."""
_SEPARATOR, _ESCAPE = "\x1f", "\x1e"
_AFTER_SEPARATOR = "\x20"
_ATTEMPTS = 12
"""Attempts of a commit that is in conflict with others."""


class RecordSql(Database):
    """Records, see :class:`ability_search.store.port.RecordStore`."""

    async def read(self, asks: Sequence[Read | Count]) -> list[Page | Counted]:
        limits = [_limit(ask) for ask in asks]
        while True:
            try:
                answer = await self.map(records_together(asks, limits))
                break
            except TooLarge:
                if max(limits) == 1:
                    raise
                limits = [max(1, limit // 2) for limit in limits]
        now = answer["clock"][0]["ms"] if answer else 0
        return [
            _page(ask, answer.get(f"r{place}", ()), limit, now)
            for place, (ask, limit) in enumerate(zip(asks, limits, strict=True))
        ]

    async def commit(self, changes: Sequence[Change]) -> Committed:
        """Commit; repeat on conflicts, and unless something is added if the answer is lost."""
        attempts = Attempts()
        run: Callable[[], Any] = partial(
            retry,
            partial(self._scripts.write, *committed(changes)),
            when=_in_conflict,
            attempts=_ATTEMPTS,
            pause=growing(0.05, longest=1),
        )
        if not any(isinstance(change, Add) for change in changes):
            run = partial(outlast, run, attempts=attempts)
        answer = await self.with_schema(run)
        rows = answer["record"]
        record = record_of(rows[0], answer["at"]) if rows else None
        refused = answer["refused"]
        if refused is not None and attempts.lost and await self._holds(changes):
            return Committed(True, answer["at"], record=record)
        return Committed(refused is None, answer["at"], refused, record)

    async def _holds(self, changes: Sequence[Change]) -> bool:
        """Return whether an attempt without an answer has made these changes."""
        kept = [change for change in changes if isinstance(change, Put | Delete)]
        pages = await self.read([Read(_concerned(change), limit=1) for change in kept])
        return all(
            _is_made(change, page.items)
            for change, page in zip(kept, pages, strict=True)
            if isinstance(page, Page)
        )


def _in_conflict(exc: BaseException) -> bool:
    # In both cases the transaction was rolled back.
    return isinstance(exc, StatementRefused) and exc.reason in ("conflict", "duplicate")


def _concerned(change: Put | Delete) -> Records:
    if isinstance(change, Delete):
        return change.of
    return Records(change.kind, change.scope, keys=[change.key])


def _is_made(change: Put | Delete, stored: Sequence[Record]) -> bool:
    if isinstance(change, Delete) or not stored:
        return isinstance(change, Delete) and not stored
    fields = json.loads(json.dumps(dict(change.fields)))
    return all(stored[0].fields.get(name) == value for name, value in fields.items())


# Reads


def encoded(key: Key) -> str:
    """Return a key as a string; keys keep their order, but for control characters in them."""
    return _SEPARATOR.join(
        part.replace(_ESCAPE, f"{_ESCAPE}e").replace(_SEPARATOR, f"{_ESCAPE}s") or f"{_ESCAPE}0"
        for part in key
    )


def _decoded(key: str) -> Key:
    parts = key.split(_SEPARATOR) if key else ()
    return tuple(
        ""
        if part == f"{_ESCAPE}0"
        else part.replace(f"{_ESCAPE}s", _SEPARATOR).replace(f"{_ESCAPE}e", _ESCAPE)
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


def read_of(answer: Mapping[str, Any], value: T) -> AtRecord[T]:
    """Return a value with the record among the rows ``collection`` of the same answer."""
    return AtRecord(collection_in(answer["collection"]), value)


def _limit(ask: Read | Count) -> int:
    return MOST_RECORDS if isinstance(ask, Count) else ask.limit or MOST_RECORDS


def _page(ask: Read | Count, rows: Any, limit: int, now: int) -> Page | Counted:
    if isinstance(ask, Count):
        return Counted({None: (rows[0]["n"] if rows else 0,)}, None, now)
    items = [record_of(row, now) for row in rows[:limit]]
    last = items[-1] if len(rows) > limit else None
    after = None if last is None else last.key
    if last is not None and _records_of(ask).scope is None:
        after = (last.scope, *last.key)
    return Page(items, after, None, now)


def _records_of(ask: Read | Count) -> Records:
    assert isinstance(ask.of, Records)
    return ask.of


class _Parameters(dict[str, Any]):
    """The parameters of a statement."""

    def bind(self, value: Any) -> str:
        """Return the SQL of a value."""
        name = f"p{len(self)}"
        self[name] = value
        return f":{name}"


def records_together(asks: Sequence[Read | Count], limits: Sequence[int]) -> Statement:
    """Select several pages of records, one row more than each limit, or their numbers.

    Returns one map: ``r0``, ``r1``, ... (rows), and ``clock`` (one row ``ms``).
    """
    params = _Parameters()
    queries = ["$clock = (SELECT `date.currentTimestamp`() AS ms)"]
    for place, (ask, limit) in enumerate(zip(asks, limits, strict=True)):
        of = _records_of(ask)
        condition = _condition(of, params)
        what, order = "count(*) AS n", ""
        if isinstance(ask, Read):
            what, order = "", f" ORDER BY scope, key LIMIT {limit + 1:d}"
            condition += _behind(of, ask.after, params)
        queries.append(
            f"$r{place} = (SELECT {what} FROM {_type(of.kind)} WHERE {condition}{order})"
        )
    names = ["$clock AS clock", *(f"$r{place} AS r{place}" for place in range(len(asks)))]
    return Statement(f"SELECT {', '.join(names)} LET {', '.join(queries)}", params)


def _type(kind: str | None) -> str:
    return _TYPES.get(kind or "", "Record")


def _behind(of: Records, after: str | Key | None, params: _Parameters) -> str:
    if after is None:
        return ""
    if of.scope is not None:
        return f" AND key > {params.bind(encoded(tuple(after)))}"
    scope, key = params.bind(after[0]), params.bind(encoded(tuple(after[1:])))
    return f" AND scope >= {scope} AND (scope > {scope} OR key > {key})"


def _condition(of: Records, params: _Parameters) -> str:
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
    return " AND ".join([*conditions, *_equal(of.where, params)])


def _equal(fields: Mapping[str, Any], params: _Parameters) -> Iterable[str]:
    for name, value in fields.items():
        yield f"fields.{name} IS NULL" if value is None else f"fields.{name} = {params.bind(value)}"


# Commits


def committed(changes: Sequence[Change]) -> Statement:
    """Make changes in one transaction, in order.

    Returns one map: ``refused`` (the place of the change that was refused, after which nothing was
    written, or null), ``at`` (the time), and ``record`` (the row of the refused change, or of the
    last one, or none).
    """
    params = _Parameters()
    steps: list[str] = []
    places = ((_run(change, place), place) for place, change in enumerate(changes))
    for run, numbered in groupby(places, key=lambda pair: pair[0]):
        first, *more = [place for _, place in numbered]
        steps.append(_step(run, changes[first : first + 1 + len(more)], first, params))
    last, record = changes[-1], "[]"
    if isinstance(last, Put | Add):
        steps.append(f"LET last = SELECT FROM {_type(last.kind)} WHERE {_identity(last, params)};")
        record = "$last"
    return Statement(
        f"BEGIN; {CLOCK} {' '.join(steps)} COMMIT;"
        f" RETURN {{'refused': null, 'at': $clock[0].ms, 'record': {record}}};",
        params,
    )


def _run(change: Change, place: int) -> tuple[Any, ...]:
    """Return what is equal for successive changes that one loop can make."""
    if isinstance(change, Add):
        return Add, change.kind, tuple(change.by), tuple(change.fields)
    if isinstance(change, Put) and not change.conditional:
        names = tuple(change.fields) if change.merge else None
        kept = change.merge and change.data is None
        return Put, change.kind, names, kept, change.fresh, change.lease
    return (place,)


def _step(run: tuple[Any, ...], changes: Sequence[Any], place: int, params: _Parameters) -> str:
    change: Change = changes[0]
    if isinstance(change, Delete):
        condition = _condition(change.of, params)
        if change.count is None:
            types = RECORD_TYPES if change.of.kind is None else (_type(change.of.kind),)
            return " ".join(f"DELETE FROM {name} WHERE {condition};" for name in types)
        return (
            f"LET u{place} = DELETE FROM {_type(change.of.kind)} WHERE {condition};"
            f" IF ($u{place}[0].count <> {change.count:d}) {_refusal(place)}"
        )
    if isinstance(change, Require):
        return (
            f"LET u{place} = SELECT count(*) AS n FROM {_type(change.of.kind)}"
            f" WHERE {_condition(change.of, params)};"
            f" IF ({_unlike(change, f'$u{place}[0].n')}) {_refusal(place)}"
        )
    if isinstance(change, Put) and change.conditional:
        return _conditional(change, place, params)
    rows = params.bind([_row(each) for each in changes])
    written = _assigned(change, params, "$row.{}".format)
    kind = params.bind(change.kind)
    return (
        f"FOREACH ($row IN {rows}) {{ UPDATE {_type(change.kind)} SET {written}"
        f" UPSERT WHERE kind = {kind} AND scope = $row.scope AND key = $row.key; }}"
    )


def _unlike(require: Require, number: str) -> str:
    more = "" if require.at_most is None else f" OR {number} > {require.at_most:d}"
    return f"{number} < {require.at_least:d}{more}"


def _conditional(put: Put, place: int, params: _Parameters) -> str:
    table, where = _type(put.kind), _identity(put, params)
    row = _row(put)

    def value(name: str) -> str:
        top, _, field = name.partition(".")
        return params.bind(row[top][field] if field else row[top])

    refusal = _refusal(place, f"SELECT FROM {table} WHERE {where}")
    written = _assigned(put, params, value)
    if put.revision == 0:
        return (
            f"LET u{place} = SELECT FROM {table} WHERE {where};"
            f" IF ($u{place}.size() > 0) {refusal} UPDATE {table} SET {written}"
            f" UPSERT WHERE {where};"
        )
    conditions = [where, *_equal(put.where or {}, params)]
    if put.revision is not None:
        conditions.append(f"revision = {put.revision:d}")
    return (
        f"LET u{place} = UPDATE {table} SET {written} WHERE {' AND '.join(conditions)};"
        f" IF ($u{place}[0].count = 0) {refusal}"
    )


def _refusal(place: int, stored: str | None = None) -> str:
    read = "" if stored is None else f" LET stored = {stored};"
    record = "[]" if stored is None else "$stored"
    return (
        f"{{ ROLLBACK;{read}"
        f" RETURN {{'refused': {place:d}, 'at': $clock[0].ms, 'record': {record}}}; }}"
    )


def _identity(change: Put | Add, params: _Parameters) -> str:
    values = {"kind": change.kind, "scope": change.scope, "key": encoded(change.key)}
    return " AND ".join(f"{name} = {params.bind(value)}" for name, value in values.items())


def _row(change: Put | Add) -> dict[str, Any]:
    row = {"scope": change.scope, "key": encoded(change.key), "fields": dict(change.fields)}
    if isinstance(change, Add):
        return row | {"added": dict(change.by)}
    data = change.data
    return row | {"data": None if data is None else base64.b64encode(data).decode("ascii")}


def _assigned(change: Put | Add, params: _Parameters, value: Callable[[str], str]) -> str:
    """Return the assignments of an UPDATE; ``value`` returns the SQL of a part of the row."""
    now = "$clock[0].ms"
    written = ["revision = ifnull(revision, 0) + 1", f"updatedAt = {now}"]
    if isinstance(change, Put) and change.fresh:
        written.append(f"createdAt = {now}")
    else:
        written.append(f"createdAt = ifnull(createdAt, {now})")
    if isinstance(change, Put) and not change.merge:
        written.append(f"fields = {value('fields')}")
    else:
        written.append("fields = ifnull(fields, {})")
        written += [f"fields.{name} = {value(f'fields.{name}')}" for name in change.fields]
    if isinstance(change, Add):
        written += [
            f"fields.{name} = ifnull(fields.{name}, 0) + {value(f'added.{name}')}"
            for name in change.by
        ]
        return ", ".join(written)
    if change.data is not None or not change.merge:
        written.append(f"data = {value('data')}")
    if change.lease is None:
        written.append("until = null")
    elif isinstance(change.lease, int):
        written.append(f"until = {now} + {params.bind(change.lease)}")
    return ", ".join(written)
