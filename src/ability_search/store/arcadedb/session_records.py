"""Statements on the small records of the sessions of agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ability_search.errors import StatementRefused
from ability_search.retry import growing, retry
from ability_search.store.arcadedb.core import Statement
from ability_search.store.arcadedb.database import Database
from ability_search.store.records import SessionKind, SessionRecord, SessionSelection

_ATTEMPTS = 12
_COLUMNS = {
    "agent": "agent",
    "session": "session",
    "kind": "kind",
    "key": "key",
    "value": "value",
    "status": "status",
    "number": "number",
    "created_at": "createdAt",
    "updated_at": "updatedAt",
}
"""Fields of a record -> its columns."""
_ONE = "agent = :agent AND session = :session AND kind = :kind"


class SessionSql(Database):
    """Records of sessions, see :class:`ability_search.store.port.SessionStore`."""

    async def sessions(self, agent: str) -> list[tuple[str, int]]:
        rows = await self.rows(sessions(agent))
        return [(row["session"], row["last"]) for row in rows]

    async def session_records(self, selection: SessionSelection) -> list[SessionRecord]:
        return [
            SessionRecord(**{name: row.get(column) for name, column in _COLUMNS.items()})
            for row in await self.rows(session_records(selection))
        ]

    async def put_session_records(self, records: Sequence[SessionRecord], *, most: int) -> bool:
        return bool((await self._write(put_session_records(records, most=most)))["stored"])

    async def update_session_records(
        self, selection: SessionSelection, changes: Sequence[Mapping[str, Any]], *, now: int
    ) -> bool:
        answer = await self._write(update_session_records(selection, changes, now=now))
        return bool(answer["stored"])

    async def delete_session_records(self, selection: SessionSelection) -> None:
        await self._write(delete_session_records(selection))

    async def count_up(self, agent: str, session: str, counter: str, by: int, *, now: int) -> int:
        answer = await self._write(count_up(agent, session, counter, by, now=now))
        return int(answer["number"])

    async def _write(self, statement: Statement) -> Any:
        """Write; retry on conflicts with another worker, after which nothing was changed."""
        return await retry(
            partial(self.write, statement),
            when=_in_conflict,
            attempts=_ATTEMPTS,
            pause=growing(0.05, longest=1),
        )


def _in_conflict(exc: BaseException) -> bool:
    return isinstance(exc, StatementRefused) and exc.reason in ("conflict", "duplicate")


def sessions(agent: str) -> Statement:
    """Select the sessions of an agent in order: rows ``session`` and ``last``."""
    return Statement(
        "SELECT session, max(updatedAt) AS last FROM SessionRecord WHERE agent = :agent"
        " GROUP BY session ORDER BY session",
        {"agent": agent},
    )


def session_records(selection: SessionSelection) -> Statement:
    """Select records in order of session, kind and key."""
    condition, params = _selected(selection)
    return Statement(
        f"SELECT FROM SessionRecord WHERE {condition} ORDER BY session, kind, key", params
    )


def put_session_records(records: Sequence[SessionRecord], *, most: int) -> Statement:
    """Create or replace records of one session and kind, unless it would have too many.

    Returns one map: ``stored`` (0 or 1).
    """
    rows = [{column: getattr(each, name) for name, column in _COLUMNS.items()} for each in records]
    return Statement(
        f"""
        BEGIN;
        FOREACH ($row IN :rows) {{
            UPDATE SessionRecord SET value = $row.value, status = $row.status,
                number = $row.number, createdAt = ifnull(createdAt, $row.createdAt),
                updatedAt = $row.updatedAt UPSERT WHERE {_ONE} AND key = $row.key;
        }}
        LET c = SELECT count(*) AS n FROM SessionRecord WHERE {_ONE};
        IF ($c[0].n > :most) {{ ROLLBACK; RETURN {{'stored': 0}}; }}
        COMMIT;
        RETURN {{'stored': 1}};
        """,
        {**_key(records[0].agent, records[0].session, records[0].kind), "rows": rows, "most": most},
    )


def update_session_records(
    selection: SessionSelection, changes: Sequence[Mapping[str, Any]], *, now: int
) -> Statement:
    """Change columns of records, if all of them exist.

    Returns one map: ``stored`` (0 or 1).
    """
    keys = sorted({change["key"] for change in changes})
    return Statement(
        f"""
        BEGIN;
        FOREACH ($row IN :rows) {{
            UPDATE SessionRecord SET value = ifnull($row.value, value),
                status = ifnull($row.status, status), updatedAt = :now
                WHERE {_ONE} AND key = $row.key;
        }}
        LET c = SELECT count(*) AS n FROM SessionRecord WHERE {_ONE} AND key IN :keys;
        IF ($c[0].n < :wanted) {{ ROLLBACK; RETURN {{'stored': 0}}; }}
        COMMIT;
        RETURN {{'stored': 1}};
        """,
        {
            **_key(selection.agent, selection.session or "", selection.kinds[0]),
            "rows": [dict(change) for change in changes],
            "keys": keys,
            "wanted": len(keys),
            "now": now,
        },
    )


def delete_session_records(selection: SessionSelection) -> Statement:
    """Delete records."""
    condition, params = _selected(selection)
    return Statement(f"BEGIN; DELETE FROM SessionRecord WHERE {condition}; COMMIT;", params)


def count_up(agent: str, session: str, counter: str, by: int, *, now: int) -> Statement:
    """Add to a counter; returns one map: ``number``, its new value."""
    # The counter is read after it was changed, when no other transaction can change it.
    return Statement(
        f"""
        BEGIN;
        UPDATE SessionRecord SET number = ifnull(number, 0) + :step,
            createdAt = ifnull(createdAt, :now), updatedAt = :now
            UPSERT WHERE {_ONE} AND key = :key;
        LET c = SELECT number FROM SessionRecord WHERE {_ONE} AND key = :key;
        COMMIT;
        RETURN {{'number': $c[0].number}};
        """,
        {**_key(agent, session, "counter"), "key": counter, "step": by, "now": now},
    )


def _key(agent: str, session: str, kind: SessionKind) -> dict[str, Any]:
    return {"agent": agent, "session": session, "kind": kind}


def _selected(selection: SessionSelection) -> tuple[str, dict[str, Any]]:
    """Return the condition of a WHERE clause and its parameters."""
    conditions = {
        "agent = :agent": ("agent", selection.agent),
        "session = :session": ("session", selection.session),
        "kind IN :kinds": ("kinds", list(selection.kinds)),
        "key IN :keys": ("keys", None if selection.keys is None else list(selection.keys)),
        "updatedAt < :ceiling": ("ceiling", selection.before),
    }
    kept = {text: param for text, param in conditions.items() if param[1] is not None}
    return " AND ".join(kept), dict(kept.values())
