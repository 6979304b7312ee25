"""The database port of the tools: statements in, JSON rows out.

Both backends give the same answer to the same statement, which is that of an ArcadeDB server: so
the database ability of the field answers, too. A row is a JSON object. A script that returns a map
or a scalar gives one row ``{"value": x}``; one that returns a list gives one row for each item,
which is the item itself if that is a map.

In a row,

* a record id is a string (``"#12:3"``), an embedded record or map an object, a list an array;
* a DATETIME is a string in UTC in the format of the database: ISO 8601 without an offset
  (``2026-01-02T03:04:05.678``) for databases created here; a DATE is ``2026-01-02``;
* a DECIMAL is a number with all its digits, a BINARY an array of signed bytes;
* a float that JSON cannot represent is ``"NaN"``, ``"PosInfinity"`` or ``"NegInfinity"``.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import msgspec

from kadi_client.backoff import Backoff
from kadi_client.messages import Raw, encode
from kadi_localnet.database.index_use import IndexUse, Use
from kadi_localnet.database.search_input import IndexSearch, Numbers

T = TypeVar("T")

MAX_ROWS = 20_000
"""Default maximum number of rows of an answer."""

MAX_BYTES = 32 << 20
"""Default maximum size of an answer, that of a message."""

DATETIME_FORMAT = "yyyy-MM-dd'T'HH:mm:ss"
"""Format of every database created here; the engine appends the fraction."""

RUN = "databaseRun"
"""Variable of a database, in its engine's memory only: a word of its own for each opening.

Clients see by it that a database was restarted. After a kill an index may lack entries.
"""

LANGUAGES = ("sql", "sqlscript")
"""The languages of statements. The engine has others, whose statements nothing here checks."""

MINIMUM_VERSION = (26, 10, 2)
"""Earlier engines have no registry of running queries, so a call cannot be stopped at its deadline.
Those before 26.10.1 also cannot filter a sparse vector search by rows."""

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
    """A statement or script; ``params`` are named (a mapping) or positional (a sequence).

    Where indexes are searched, it may have further columns of params that are lists of rows.
    """

    text: str
    language: str = "sql"
    params: Mapping[str, Any] | Sequence[Any] | None = None
    numbers: Mapping[str, Mapping[str, Numbers]] | None = None
    """By param and column."""

    @property
    def is_script(self) -> bool:
        """Return whether it may consist of several statements."""
        return self.language.lower() == "sqlscript"


@dataclass(frozen=True, slots=True)
class Rows:
    """An answer: ``json`` is an array of ``count`` objects, already encoded."""

    json: Raw
    count: int


@dataclass(slots=True)
class Counts:
    """Numbers of reads, writes and conflicts of a backend."""

    reads: int = 0
    writes: int = 0
    conflicts: int = 0


class Backend(ABC):
    """An ArcadeDB engine. Every method raises :class:`DatabaseError` on failure.

    ``timeout`` is in seconds. After it the call fails, and the work is stopped if possible.

    Attributes:
        counts: Numbers of its calls.
        concurrency: Maximum number of calls that run at a time.
    """

    late_read: ClassVar[str]
    """End of the error after a timeout: what is known of a read."""
    late_write: ClassVar[str]
    searches_indexes: ClassVar[bool] = False
    """Whether :meth:`search` is possible."""
    container: ClassVar[str]
    """Place of the engine: ``embedded`` in this process, or a ``server``."""

    def __init__(self, *, concurrency: int) -> None:
        self.counts = Counts()
        self.concurrency = concurrency
        self._indexes = IndexUse()

    async def check_engine(self) -> None:  # noqa: B027 - the embedded engine checks when it starts
        """Check that the engine is not too old, if that can be known at the start."""

    async def read(self, database: str, statement: Statement, *, timeout: float) -> Rows:
        """Run a read-only statement."""
        self.counts.reads += 1
        async with (
            self._within(timeout, self.late_read) as limit,
            self._indexes.of(database, [statement.text]) as use,
        ):
            return await self._repeated(limit, lambda: self._read(database, statement, use))

    async def search(self, asked: IndexSearch, *, timeout: float) -> Mapping[str, Any]:
        """Search indexes without SQL; the answer is that of :meth:`.IndexSearcher.answer`."""
        self.counts.reads += 1
        types = [each.type for each in asked.searches.values()]
        async with (
            self._within(timeout, self.late_read) as limit,
            self._indexes.of(asked.database, (), searched=types) as use,
        ):
            return await self._repeated(limit, lambda: self._search(asked, use))

    async def write(
        self, database: str, statements: Sequence[Statement], *, timeout: float
    ) -> list[Rows]:
        """Run statements in one transaction: all of them take effect, or none.

        The transaction is repeated after a conflict with another one.
        """
        self.counts.writes += len(statements)
        async with (
            self._within(timeout, self.late_write) as limit,
            self._indexes.of(database, [each.text for each in statements]) as use,
        ):
            return await self._repeated(limit, lambda: self._write(database, statements, use))

    async def databases(self, *, timeout: float) -> list[str]:
        """Return the names of the databases, sorted."""
        async with self._within(timeout, self.late_read) as limit:
            return sorted(await self._repeated(limit, self._names))

    async def size(self, database: str, *, timeout: float) -> int | None:
        """Return the bytes of the files of a database; ``None`` if the engine does not say it."""
        self.counts.reads += 1
        async with self._within(timeout, self.late_read) as limit:
            return await self._repeated(limit, lambda: self._size(database))

    async def create(self, name: str, *, timeout: float) -> None:
        """Create a database; an existing one is an error."""
        async with self._within(timeout, self.late_write) as limit:
            await self._repeated(limit, lambda: self._create(name))
            await self._repeated(limit, lambda: self._set_up(name))

    @abstractmethod
    async def close(self) -> None:
        """Stop running calls and close the databases; may be called again."""

    @abstractmethod
    async def _read(self, database: str, statement: Statement, use: Use) -> Rows: ...

    async def _search(self, asked: IndexSearch, use: Use) -> Mapping[str, Any]:
        raise NotImplementedError

    @abstractmethod
    async def _write(
        self, database: str, statements: Sequence[Statement], use: Use
    ) -> list[Rows]: ...

    @abstractmethod
    async def _names(self) -> Iterable[str]: ...

    @abstractmethod
    async def _size(self, database: str) -> int | None: ...

    @abstractmethod
    async def _create(self, name: str) -> None: ...

    @abstractmethod
    async def _set_up(self, name: str) -> None:
        """Set up a new database, unless :meth:`_create` has done so."""

    @asynccontextmanager
    async def _within(self, timeout: float, late: str) -> AsyncIterator[asyncio.Timeout]:
        try:
            async with asyncio.timeout(timeout) as limit:
                yield limit
        except TimeoutError as exc:
            raise DatabaseError(f"no answer within {timeout:g} s{late}") from exc

    async def _repeated(self, limit: asyncio.Timeout, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat an attempt after conflicts; ``limit`` is the deadline of the call."""
        backoff = Backoff(base=_FIRST_DELAY, cap=_LONGEST_DELAY)
        failures = 0
        while True:
            try:
                return await attempt()
            except Conflict as exc:
                self.counts.conflicts += 1
                failures += 1
                if failures == ATTEMPTS:
                    raise DatabaseError(
                        "conflicts with concurrent writes at every attempt, nothing was written:"
                        f" {exc}"
                    ) from exc
            await asyncio.sleep(backoff.delay(lived=0))


def encoded(value: Any) -> bytes:
    """Encode a value with the parameters of a statement as JSON.

    Raises:
        DatabaseError: if it cannot be represented in JSON.
    """
    try:
        return encode(value)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as exc:
        raise DatabaseError(f"params: not JSON: {exc}") from exc


def rows_of(joined: bytes, count: int) -> Rows:
    """Build an answer from ``count`` encoded rows joined by commas."""
    return Rows(Raw(b"[" + joined + b"]"), count)


def rows_in_order(answers: Sequence[Rows]) -> Rows:
    """Return the rows of several answers, one after the other, as one answer."""
    joined = b",".join(bytes(rows.json)[1:-1] for rows in answers if rows.count)
    return rows_of(joined, sum(rows.count for rows in answers))


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


def is_too_old(version: str, oldest: Sequence[int] = MINIMUM_VERSION) -> bool:
    """Return whether an engine is older than needed; ``version`` is what it says of itself."""
    digits = version.split()[0].split("-")[0].split(".")[:3] if version.strip() else []
    numbers = tuple(int(part) for part in digits if part.isdigit())
    return bool(numbers) and numbers < tuple(oldest)


def dotted(version: Sequence[int]) -> str:
    """Return a version as it is written."""
    return ".".join(map(str, version))
