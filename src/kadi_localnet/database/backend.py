"""What a database is to the tools: statements in, rows of JSON out.

Both backends give the same answer to the same statement. A row is a JSON object; a script that
returns a map gives that map as its one row, a list gives one row an item, a scalar gives
``{"value": x}``. Within a row:

* record ids are strings (``"#12:3"``), embedded records and maps are objects, lists are arrays;
* DATETIME is a string, UTC wall clock, in the format of the database. Databases created here use
  ISO 8601 (``2026-01-02T03:04:05.678``, no offset), others keep theirs; DATE is ``2026-01-02``;
* DECIMAL is a number with all its digits, BINARY an array of signed bytes;
* a float that JSON cannot write is one of the strings ``NaN``, ``PosInfinity``, ``NegInfinity``.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from kadi_client.messages import Raw

MAX_ROWS = 20_000
"""Default bound on the rows of one answer."""

DATETIME_FORMAT = "yyyy-MM-dd'T'HH:mm:ss"
"""Given to every database created here; the engine appends the fraction by itself."""

LANGUAGES = ("sql", "sqlscript")
"""The languages that need no permission of an operator."""

ATTEMPTS = 6
"""How often a statement that lost against a concurrent one is tried altogether."""

_NO_SPACE = "No space left on device"
_FIRST_DELAY = 0.01
_LONGEST_DELAY = 0.5


class DatabaseError(Exception):
    """A statement that failed; the text is meant for the caller."""


class Conflict(DatabaseError):
    """A statement that lost against a concurrent one and was rolled back as a whole."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement or script; ``params`` are named (a mapping) or positional (a sequence)."""

    text: str
    language: str = "sql"
    params: Mapping[str, Any] | Sequence[Any] | None = None

    @property
    def is_script(self) -> bool:
        """Return whether a RETURN decides the answer."""
        return self.language.lower() == "sqlscript"


@dataclass(frozen=True, slots=True)
class Rows:
    """An answer: ``json`` is an array of ``count`` objects, already encoded."""

    json: Raw
    count: int


class Counts:
    """What a backend was asked since its start, and how often it lost; conflicts by any thread."""

    def __init__(self) -> None:
        self.reads = 0
        self.writes = 0
        self.conflicts = 0
        self._lock = threading.Lock()

    def lost(self) -> None:
        """Count a statement or transaction that lost against a concurrent one."""
        with self._lock:
            self.conflicts += 1


class Backend(Protocol):
    """An ArcadeDB engine. Every method raises :class:`DatabaseError` if it cannot do its work.

    ``timeout`` is in seconds. Reaching it ends the wait and, where the engine can be reached, the
    work; a write is then rolled back unless it was already being committed.
    """

    counts: Counts
    """What it was asked."""
    concurrency: int
    """Calls that it works on at a time."""

    async def read(self, database: str, statement: Statement, *, timeout: float) -> Rows:
        """Run one statement that changes nothing."""

    async def write(
        self, database: str, statements: Sequence[Statement], *, timeout: float
    ) -> list[Rows]:
        """Run statements in one transaction: all of them take effect, or none."""

    async def databases(self, *, timeout: float) -> list[str]:
        """Names of the databases, sorted."""

    async def create(self, name: str, *, timeout: float) -> None:
        """Create a database; an existing one is an error."""

    async def close(self) -> None:
        """End running work, and close what is open. May be called again."""


class _Wrapped(msgspec.Struct, forbid_unknown_fields=True):
    value: Raw


_wrapped = msgspec.json.Decoder(_Wrapped)


def rows_of(joined: bytes, count: int, statement: Statement) -> Rows:
    """Build an answer from ``count`` encoded rows joined by commas.

    A script's ``RETURN {...}`` leaves the engine as one row ``{"value": {...}}``: that map becomes
    the row. One row of a single column named ``value`` that holds a map cannot be told from it.
    """
    if count == 1 and statement.is_script and joined.startswith(b'{"value":{'):
        with suppress(msgspec.ValidationError):
            joined = bytes(_wrapped.decode(joined).value)
    return Rows(Raw(b"[" + joined + b"]"), count)


def too_many_rows(limit: int, effect: str) -> DatabaseError:
    """The error for an answer of more than ``limit`` rows; ``effect`` says what was written."""
    return DatabaseError(
        f"the answer has more than {limit} rows{effect}: add a LIMIT and page by key,"
        " or raise the ability's row limit"
    )


def engine_error(kind: str, detail: str) -> DatabaseError:
    """Translate a failure of the engine, ``kind`` being the Java class without its package."""
    if kind == "QueryNotIdempotentException":
        return DatabaseError(
            "the statement is not a read: send it through arcade-command, arcade-query changes"
            " nothing"
        )
    if _NO_SPACE in detail:
        return DatabaseError("the disk is full: free some space, nothing was written")
    return DatabaseError(f"{kind}: {detail}" if detail else kind)


def retry_delays() -> Iterator[float]:
    """Seconds to wait before each further attempt: exponential with full jitter, bounded."""
    for attempt in range(ATTEMPTS - 1):
        yield random.uniform(0, min(_LONGEST_DELAY, _FIRST_DELAY * 2**attempt))
