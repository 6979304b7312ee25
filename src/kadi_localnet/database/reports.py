"""Reports on databases: their types, sizes and health, as agents of the field ask for them.

Names and shapes are those of the field's database ability (``arcade-db-info``, ``arcade-db-stats``,
``arcade-status`` and ``arcade-health``). Its reports also have paths of files, container names and
the address of the server. These concern no caller, so they are left out here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from kadi_client.messages import decode
from kadi_localnet.database.backend import Backend, DatabaseError, Statement

_TYPES = Statement("SELECT name, records FROM schema:types ORDER BY name")
_INDEXES = Statement("SELECT name FROM schema:indexes ORDER BY name")
_PING = Statement("SELECT 1 AS ping")
_UNITS = ("B", "KB", "MB", "GB")
_SHORTEST = 0.001
_UNKNOWN = "unknown"

Report = dict[str, Any]


class DatabaseReports:
    """Reports on the databases of a backend.

    Each method raises :class:`.DatabaseError` if there is no such database, or if it does not
    answer within ``timeout`` seconds.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def info(self, name: str, *, timeout: float) -> Report:
        """Return the types, indexes, records and size of a database.

        ``indexes`` counts the index of each bucket beside that of its type, as the engine does.
        """
        remaining = _countdown(timeout)
        types = await self._rows(name, _TYPES, timeout=remaining())
        indexes = await self._rows(name, _INDEXES, timeout=remaining())
        size = await self._backend.size(name, timeout=remaining())
        return {
            "name": name,
            "schema": {
                "types": len(types),
                "indexes": len(indexes),
                "details": {
                    "typeList": [row["name"] for row in types],
                    "indexList": [row["name"] for row in indexes],
                },
            },
            "statistics": _statistics(types),
            "files": {"exists": True, **_size(size)},
            "serverInfo": {"accessible": True},
        }

    async def statistics(self, name: str | None, *, timeout: float) -> Report:
        """Return the numbers of records and types, and the size, of one database or of all.

        With a ``name`` there are no totals. Of all databases, one that does not answer has its
        ``error`` in place of numbers.
        """
        remaining = _countdown(timeout)
        if name is not None:
            return {"databases": [await self._entry(name, remaining)]}
        entries = []
        for database in await self._backend.databases(timeout=remaining()):
            try:
                entries.append(await self._entry(database, remaining))
            except DatabaseError as exc:
                numbers = {"recordCount": _UNKNOWN, "typeCount": _UNKNOWN}
                entries.append({"name": database, **_size(None), **numbers, "error": str(exc)})
        total = sum(entry["size"] for entry in entries)
        return {
            "totalDatabases": len(entries),
            "databases": entries,
            "totalSize": total,
            "totalSizeFormatted": formatted(total),
        }

    async def status(self, *, timeout: float) -> Report:
        """Return that the engine runs, once it has answered; what a container has is empty."""
        await self._backend.databases(timeout=timeout)
        return {"running": True, "container": self._backend.container, "uptime": None, "ports": []}

    async def health(self, *, timeout: float) -> Report:
        """Return whether the engine answers, and whether the first database does.

        Without any database, the check ``database`` is false, and all is healthy.
        """
        remaining = _countdown(timeout)
        names = await self._backend.databases(timeout=remaining())
        report: Report = {"healthy": True, "checks": _checks(engine=True, database=bool(names))}
        if names:
            try:
                await self._backend.read(names[0], _PING, timeout=remaining())
            except DatabaseError as exc:
                return unhealthy(f"{names[0]}: {exc}", engine=True)
        return report

    async def _entry(self, name: str, remaining: Callable[[], float]) -> Report:
        types = await self._rows(name, _TYPES, timeout=remaining())
        size = await self._backend.size(name, timeout=remaining())
        return {"name": name, **_size(size), **_statistics(types)}

    async def _rows(
        self, name: str, statement: Statement, *, timeout: float
    ) -> list[Mapping[str, Any]]:
        rows = await self._backend.read(name, statement, timeout=timeout)
        decoded: list[Mapping[str, Any]] = decode(bytes(rows.json))
        return decoded


def unhealthy(error: str, *, engine: bool) -> Report:
    """Return the report on health if a check failed; ``engine`` is whether the engine answers."""
    return {"healthy": False, "error": error, "checks": _checks(engine=engine, database=False)}


def formatted(size: int) -> str:
    """Return a number of bytes as the field writes it: ``1.5 MB``, in units of 1024."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value /= 1024
        unit += 1
    digits = f"{value:.2f}".rstrip("0").rstrip(".")
    return f"{digits} {_UNITS[unit]}"


def _checks(*, engine: bool, database: bool) -> dict[str, bool]:
    return {"container": engine, "api": engine, "database": database}


def _statistics(types: list[Mapping[str, Any]]) -> Report:
    """Return the numbers of records and types; a record counts for its own type only."""
    return {"recordCount": sum(row.get("records") or 0 for row in types), "typeCount": len(types)}


def _size(size: int | None) -> Report:
    if size is None:
        return {"size": 0, "sizeFormatted": _UNKNOWN}
    return {"size": size, "sizeFormatted": formatted(size)}


def _countdown(timeout: float) -> Callable[[], float]:
    """Return the function of the seconds that are left of a timeout."""
    end = time.monotonic() + timeout
    return lambda: max(_SHORTEST, end - time.monotonic())
