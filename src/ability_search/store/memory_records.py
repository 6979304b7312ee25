"""Records of the memory store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from ability_search.store.values import (
    MOST_RECORDS,
    Add,
    Change,
    Committed,
    Count,
    Counted,
    Key,
    Page,
    Put,
    Read,
    Record,
    Records,
    Require,
    Scalar,
)

Identity = tuple[str, str, Key]
"""Kind, scope and key of a record."""
Table = dict[Identity, Record]


class _Refused(Exception):
    """A condition of a change does not hold.

    Args:
        record: The record that is stored.
    """

    def __init__(self, record: Record | None = None) -> None:
        super().__init__()
        self.record = record


def changed(table: Table, changes: Sequence[Change], now: int) -> tuple[Table, Committed]:
    """Return the table after all changes, or as it is if one is refused; and the outcome."""
    new = dict(table)
    record: Record | None = None
    for place, change in enumerate(changes):
        try:
            record = _changed(new, change, now)
        except _Refused as exc:
            return table, Committed(False, now, place, _copy(exc.record, now))
    return new, Committed(True, now, record=_copy(record, now))


def record_page(table: Table, ask: Read | Count, now: int) -> Page | Counted:
    """Return a page of records, or their number."""
    assert isinstance(ask.of, Records)
    found = _selected(table, ask.of, now)
    if isinstance(ask, Count):
        return Counted({None: (len(found),)}, None, now)
    by_time = ask.order == "updated_at"
    items = sorted(found, key=lambda record: _position(ask.of, record))
    if by_time:
        items.sort(key=lambda record: record.updated_at, reverse=ask.descending)
    if ask.after is not None:
        items = [record for record in items if _position(ask.of, record) > tuple(ask.after)]
    limit = ask.limit or MOST_RECORDS
    page = [deepcopy(_seen(record, now)) for record in items[:limit]]
    more = len(items) > limit and not by_time
    return Page(page, _position(ask.of, page[-1]) if more else None, None, now)


def _position(of: Any, record: Record) -> Key:
    return record.key if of.scope is not None else (record.scope, *record.key)


def _selected(table: Table, of: Records, now: int) -> list[Record]:
    keys = None if of.keys is None else set(of.keys)
    return [
        record
        for (kind, scope, key), record in table.items()
        if of.kind in (None, kind)
        and of.scope in (None, scope)
        and (keys is None or key in keys)
        and (not of.prefix or _begins(key, of.prefix))
        and (of.until is None or key <= of.until)
        and (of.expired is None or of.expired is _seen(record, now).expired)
        and (of.before is None or record.updated_at < of.before)
        and _has(record, of.where)
    ]


def _begins(key: Key, prefix: Key) -> bool:
    return len(key) > len(prefix) and key[: len(prefix)] == prefix


def _copy(record: Record | None, now: int) -> Record | None:
    return None if record is None else deepcopy(_seen(record, now))


def _seen(record: Record, now: int) -> Record:
    return replace(record, expired=record.until is not None and record.until <= now)


def _has(record: Record, fields: Mapping[str, Scalar | None]) -> bool:
    return all(record.fields.get(name) == value for name, value in fields.items())


def _changed(table: Table, change: Change, now: int) -> Record | None:
    """Change the table; return the record of the change.

    Raises:
        _Refused: if a condition does not hold.
    """
    if isinstance(change, Put):
        return _put(table, change, now)
    if isinstance(change, Add):
        old = table.get((change.kind, change.scope, change.key))
        counts = {} if old is None else old.fields
        sums = {name: counts.get(name, 0) + by for name, by in change.by.items()}
        fields = {**change.fields, **sums}
        return _put(table, Put(change.kind, change.scope, change.key, fields, merge=True), now)
    found = _selected(table, change.of, now)
    if isinstance(change, Require):
        most = len(found) if change.at_most is None else change.at_most
        if not change.at_least <= len(found) <= most:
            raise _Refused
        return None
    if change.count not in (None, len(found)):
        raise _Refused
    for record in found:
        del table[record.kind, record.scope, record.key]
    return None


def _put(table: Table, put: Put, now: int) -> Record:
    identity = (put.kind, put.scope, put.key)
    old = table.get(identity)
    if put.revision not in (None, 0 if old is None else old.revision):
        raise _Refused(old)
    if put.where is not None and (old is None or not _has(old, put.where)):
        raise _Refused(old)
    known = old or Record(*identity, {})
    until = known.until if put.lease == "keep" else None
    if isinstance(put.lease, int):
        until = now + put.lease
    table[identity] = replace(
        known,
        fields={**(known.fields if put.merge else {}), **deepcopy(dict(put.fields))},
        data=known.data if put.merge and put.data is None else put.data,
        revision=known.revision + 1,
        until=until,
        created_at=now if old is None or put.fresh else known.created_at,
        updated_at=now,
    )
    return table[identity]
