"""The database port of the tools: statements in, JSON rows out.

Both backends give the same answer to the same statement. A row is a JSON object. A script that
returns a map gives one row, a list one row for each item, a scalar ``{"value": x}``. In a row,

* a record id is a string (``"#12:3"``), an embedded record or map an object, a list an array;
* a DATETIME is a string in UTC in the format of the database: ISO 8601 without an offset
  (``2026-01-02T03:04:05.678``) for databases created here; a DATE is ``2026-01-02``;
* a DECIMAL is a number with all its digits, a BINARY an array of signed bytes;
* a float that JSON cannot represent is ``"NaN"``, ``"PosInfinity"`` or ``"NegInfinity"``.
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
"""Default maximum number of rows of an answer."""

MAX_BYTES = 32 << 20
"""Default maximum size of an answer, that of a message."""

DATETIME_FORMAT = "yyyy-MM-dd'T'HH:mm:ss"
"""Format of every database created here; the engine appends the fraction."""

LANGUAGES = ("sql", "sqlscript")
"""The languages of statements."""

ATTEMPTS = 6
"""Number of attempts at a statement that conflicts with others."""

_NO_SPACE = "No space left on device"
_FIRST_DELAY = 0.01
_LONGEST_DELAY = 0.5


class DatabaseError(Exception):
    """A failed statement; the text is meant for the caller."""


class Conflict(DatabaseError):
    """A statement that conflicted with another one and was rolled back completely."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement or script; ``params`` are named (a mapping) or positional (a sequence)."""

    text: str
    language: str = "sql"
    params: Mapping[str, Any] | Sequence[Any] | None = None

    @property
    def is_script(self) -> bool:
        """Return whether a RETURN determines the answer."""
        return self.language.lower() == "sqlscript"


@dataclass(frozen=True, slots=True)
class Rows:
    """An answer: ``json`` is an array of ``count`` objects, already encoded."""

    json: Raw
    count: int


class Counts:
    """Numbers of reads, writes and conflicts of a backend; threads may count conflicts."""

    def __init__(self) -> None:
        self.reads = 0
        self.writes = 0
        self.conflicts = 0
        self._lock = threading.Lock()

    def add_conflict(self) -> None:
        """Count a conflict."""
        with self._lock:
            self.conflicts += 1


class Backend(Protocol):
    """An ArcadeDB engine. Every method raises :class:`DatabaseError` on failure.

    ``timeout`` is in seconds. After it the call fails, and the work is stopped if possible; a write
    is rolled back unless its commit had begun.
    """

    counts: Counts
    """Numbers of its calls."""
    concurrency: int
    """Maximum number of calls that run at a time."""

    async def read(self, database: str, statement: Statement, *, timeout: float) -> Rows:
        """Run a read-only statement."""

    async def write(
        self, database: str, statements: Sequence[Statement], *, timeout: float
    ) -> list[Rows]:
        """Run statements in one transaction: all of them take effect, or none."""

    async def databases(self, *, timeout: float) -> list[str]:
        """Return the names of the databases, sorted."""

    async def create(self, name: str, *, timeout: float) -> None:
        """Create a database; an existing one is an error."""

    async def close(self) -> None:
        """Stop running calls and close the databases; may be called again."""


class _Wrapped(msgspec.Struct, forbid_unknown_fields=True):
    value: Raw


_wrapped = msgspec.json.Decoder(_Wrapped)


def rows_of(joined: bytes, count: int, statement: Statement) -> Rows:
    """Build an answer from ``count`` encoded rows joined by commas.

    For a script's ``RETURN {...}`` the engine gives one row ``{"value": {...}}``; the map becomes
    the row. A row whose only column is called ``value`` and holds a map looks the same.
    """
    if count == 1 and statement.is_script and joined.startswith(b'{"value":{'):
        with suppress(msgspec.ValidationError):
            joined = bytes(_wrapped.decode(joined).value)
    return Rows(Raw(b"[" + joined + b"]"), count)


def too_many_rows(limit: int, effect: str) -> DatabaseError:
    """Return the error for more than ``limit`` rows; ``effect`` says what was written."""
    return DatabaseError(
        f"the answer has more than {limit} rows{effect}: add a LIMIT and page by key,"
        " or raise the ability's row limit"
    )


def too_many_bytes(limit: int, effect: str) -> DatabaseError:
    """Return the error for an answer of more than ``limit`` bytes, as :func:`too_many_rows`."""
    return DatabaseError(
        f"the answer is too large: more than {limit} bytes{effect}: select fewer rows or columns,"
        " or raise the setting max_message_bytes"
    )


def engine_error(kind: str, detail: str) -> DatabaseError:
    """Translate a failure of the engine; ``kind`` is the Java class without its package."""
    if kind == "QueryNotIdempotentException":
        return DatabaseError("the statement is not read-only: use arcade-command")
    if kind == "StackOverflowError":
        return DatabaseError(
            "the statement is nested too deeply: split it, or pass lists of values as parameters"
        )
    if _NO_SPACE in detail:
        return DatabaseError("the disk is full, nothing was written: free some space")
    return DatabaseError(f"{kind}: {detail}" if detail else kind)


def retry_delays() -> Iterator[float]:
    """Yield the seconds to wait before each retry: bounded exponential backoff, full jitter."""
    for attempt in range(ATTEMPTS - 1):
        yield random.uniform(0, min(_LONGEST_DELAY, _FIRST_DELAY * 2**attempt))
