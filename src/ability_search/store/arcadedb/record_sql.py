"""Commits of changes to records in one transaction."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from ability_search.store.arcadedb.core import Parameters, Statement
from ability_search.store.arcadedb.database import Attempts
from ability_search.store.arcadedb.database_schema import RECORD_TYPES
from ability_search.store.arcadedb.read import ReadSql
from ability_search.store.arcadedb.rows import condition_of, encoded, equal_to, record_of, type_of
from ability_search.store.values import (
    Add,
    Change,
    Committed,
    Delete,
    Page,
    Put,
    Read,
    Record,
    Records,
    Require,
)

_CLOCK = "LET clock = SELECT `date.currentTimestamp`() AS ms;"
"""Sets ``$clock[0].ms`` to the time of the database."""
_IDENTITY = "kind = $row.kind AND scope = $row.scope AND key = $row.key"


class RecordSql(ReadSql):
    """Commits, see :meth:`.Store.commit`."""

    async def commit(self, changes: Sequence[Change]) -> Committed:
        attempts = Attempts(idempotent=not any(isinstance(change, Add) for change in changes))
        answer = await self.write_first(_committed(changes), attempts)
        rows, at, refused = answer["record"], answer["at"], answer["refused"]
        if refused is not None and attempts.lost and await self._holds(changes):
            refused = None
        record = record_of(rows[0], at) if rows else None
        return Committed(refused is None, at, refused, record)

    async def _holds(self, changes: Sequence[Change]) -> bool:
        """Return whether an attempt without an answer has made these changes."""
        kept = [change for change in changes if isinstance(change, Put | Delete)]
        concerned = (
            each.of if isinstance(each, Delete) else Records(each.kind, each.scope, keys=[each.key])
            for each in kept
        )
        pages = await self.read([Read(of, limit=1) for of in concerned])
        for change, page in zip(kept, pages, strict=True):
            stored: Sequence[Record] = page.items if isinstance(page, Page) else ()
            if isinstance(change, Delete) or not stored:
                if stored or isinstance(change, Put):
                    return False
                continue
            fields = json.loads(json.dumps(dict(change.fields)))
            if any(stored[0].fields.get(name) != value for name, value in fields.items()):
                return False
        return True


def _committed(changes: Sequence[Change]) -> Statement:
    """Make changes in one transaction, in order.

    Returns one map: ``refused`` (the place of the change that was refused, after which nothing was
    written, or null), ``at`` (the time), and ``record`` (the row of the refused change, or of the
    last one, or none).
    """
    params = Parameters()
    steps: list[str] = []
    for _, run in groupby(enumerate(changes), key=lambda numbered: _run(*numbered)):
        places, alike = zip(*run, strict=True)
        steps.append(_step(alike, places[0], params))
    last, record = changes[-1], "[]"
    if isinstance(last, Put | Add):
        of = Records(last.kind, last.scope, keys=[last.key])
        steps.append(
            f"LET last = SELECT FROM {type_of(last.kind)} WHERE {condition_of(of, params)};"
        )
        record = "$last"
    return Statement(
        f"BEGIN; {_CLOCK} {' '.join(steps)} COMMIT;"
        f" RETURN {{'refused': null, 'at': $clock[0].ms, 'record': {record}}};",
        params,
    )


def _run(place: int, change: Change) -> tuple[Any, ...]:
    """Return what is equal for successive changes that one loop can make."""
    if isinstance(change, Add):
        return Add, change.kind, tuple(change.by), tuple(change.fields)
    if isinstance(change, Put) and not change.conditional:
        names = tuple(change.fields) if change.merge else None
        kept = change.merge and change.data is None
        return Put, change.kind, names, kept, change.fresh, change.lease
    return (place,)


def _step(changes: Sequence[Any], place: int, params: Parameters) -> str:
    change: Change = changes[0]
    if isinstance(change, Delete):
        condition = condition_of(change.of, params)
        if change.count is None:
            types = RECORD_TYPES if change.of.kind is None else (type_of(change.of.kind),)
            return " ".join(f"DELETE FROM {name} WHERE {condition};" for name in types)
        return (
            f"LET u{place} = DELETE FROM {type_of(change.of.kind)} WHERE {condition};"
            f" IF ($u{place}[0].count <> {change.count:d}) {_refusal(place)}"
        )
    if isinstance(change, Require):
        number = f"$u{place}[0].n"
        more = "" if change.at_most is None else f" OR {number} > {change.at_most:d}"
        return (
            f"LET u{place} = SELECT count(*) AS n FROM {type_of(change.of.kind)}"
            f" WHERE {condition_of(change.of, params)};"
            f" IF ({number} < {change.at_least:d}{more}) {_refusal(place)}"
        )
    if isinstance(change, Put) and change.conditional:
        return _conditional(change, place, params)
    rows = params.bind([_row(each) for each in changes])
    return (
        f"FOREACH ($row IN {rows}) {{ UPDATE {type_of(change.kind)}"
        f" SET {_assigned(change, params)} UPSERT WHERE {_IDENTITY}; }}"
    )


def _conditional(put: Put, place: int, params: Parameters) -> str:
    table, row = type_of(put.kind), f"LET row = {params.bind(_row(put))};"
    refusal = _refusal(place, f"SELECT FROM {table} WHERE {_IDENTITY}")
    written = _assigned(put, params)
    if put.revision == 0:
        return (
            f"{row} LET u{place} = SELECT FROM {table} WHERE {_IDENTITY};"
            f" IF ($u{place}.size() > 0) {refusal} UPDATE {table} SET {written}"
            f" UPSERT WHERE {_IDENTITY};"
        )
    conditions = [_IDENTITY, *equal_to(put.where or {}, params)]
    if put.revision is not None:
        conditions.append(f"revision = {put.revision:d}")
    return (
        f"{row} LET u{place} = UPDATE {table} SET {written} WHERE {' AND '.join(conditions)};"
        f" IF ($u{place}[0].count = 0) {refusal}"
    )


def _refusal(place: int, stored: str = "[]") -> str:
    refused = f"{{'refused': {place:d}, 'at': $clock[0].ms, 'record': $stored}}"
    return f"{{ ROLLBACK; LET stored = {stored}; RETURN {refused}; }}"


def _row(change: Put | Add) -> dict[str, Any]:
    row: dict[str, Any] = {"kind": change.kind, "scope": change.scope, "key": encoded(change.key)}
    row["fields"] = dict(change.fields)
    if isinstance(change, Add):
        return row | {"added": dict(change.by)}
    data = change.data
    return row | {"data": None if data is None else base64.b64encode(data).decode("ascii")}


def _assigned(change: Put | Add, params: Parameters) -> str:
    """Return the assignments of an UPDATE from ``$row``."""
    now = "$clock[0].ms"
    written = ["revision = ifnull(revision, 0) + 1", f"updatedAt = {now}"]
    if isinstance(change, Put) and change.fresh:
        written.append(f"createdAt = {now}")
    else:
        written.append(f"createdAt = ifnull(createdAt, {now})")
    if isinstance(change, Put) and not change.merge:
        written.append("fields = $row.fields")
    else:
        written.append("fields = ifnull(fields, {})")
        written += [f"fields.{name} = $row.fields.{name}" for name in change.fields]
    if isinstance(change, Add):
        written += [
            f"fields.{name} = ifnull(fields.{name}, 0) + $row.added.{name}" for name in change.by
        ]
        return ", ".join(written)
    if change.data is not None or not change.merge:
        written.append("data = $row.data")
    if change.lease is None:
        written.append("until = null")
    elif isinstance(change.lease, int):
        written.append(f"until = {now} + {params.bind(change.lease)}")
    return ", ".join(written)
