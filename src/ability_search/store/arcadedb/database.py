"""Execution of statements: schema on demand, retries, generations that are gone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from tenacity import wait_fixed

from ability_search.errors import (
    DatabaseUnavailable,
    EarlierLayout,
    GenerationGone,
    StatementRefused,
)
from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.retry import growing, retry
from ability_search.store.arcadedb.core import Scripts, Statement
from ability_search.store.arcadedb.schema import base_type, schema
from kadi_client.errors import NoProvider, RemoteError

T = TypeVar("T")

_ATTEMPTS = 8
_PAUSE = 0.1
"""Seconds between attempts."""
_LOSSES = 3
"""Attempts of a write during which the database may end."""
_LONG_PAUSE = growing(0.25, longest=8)
MISSING = ("missing_database", "missing_type")
"""Reasons of a refusal if nothing was stored yet."""


class Database:
    """Base of the parts of the ArcadeDB store.

    Args:
        scripts: Runs scripts over the ``arcade-*`` tools.
    """

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def rows(self, statement: Statement) -> list[Any]:
        """Read rows; none if nothing was stored yet, see :meth:`map`."""
        return list(await self.map(statement))

    async def map(self, statement: Statement) -> Any:
        """Read a map; an empty one if nothing was stored yet.

        Raises:
            EarlierLayout: if types are missing because the earlier ability uses the database.
        """
        try:
            return await self._scripts.read(*statement)
        except StatementRefused as exc:
            await check_new(self._scripts, exc)
            return {}

    async def generation_read(self, generation: str, statement: Statement, *others: str) -> Any:
        """Run a read of a generation, or of several.

        Raises:
            GenerationGone: if a generation does not exist.
        """
        with _generation(generation, *others):
            return await self._scripts.read(*statement)

    async def write(self, statement: Statement, *, idempotent: bool = False) -> Any:
        """Write; create the schema first if it is missing, and retry on conflicts.

        An ``idempotent`` statement outlasts a restart of the database, see :func:`outlast`.

        Raises:
            EarlierLayout: if types are missing because the earlier ability uses the database.
        """
        insisting: Callable[..., Awaitable[Any]] = outlast if idempotent else insist
        return await self.with_schema(
            partial(insisting, partial(self._scripts.write, *statement), "conflict")
        )

    async def with_schema(self, run: Callable[[], Awaitable[T]]) -> T:
        """Run a write; create the schema first if it is missing.

        Raises:
            EarlierLayout: if types are missing because the earlier ability uses the database.
        """
        try:
            return await run()
        except StatementRefused as exc:
            await check_new(self._scripts, exc)
            await self._create_schema()
            return await run()

    async def generation_write(self, generation: str, statement: Statement) -> Any:
        """Write to a generation; retry on conflicts.

        Raises:
            GenerationGone: if the generation does not exist.
        """
        with _generation(generation):
            return await insist(partial(self._scripts.write, *statement), "conflict")

    async def _create_schema(self) -> None:
        # Another worker may be creating it at the same time.
        await outlast(partial(self._scripts.write, *schema()), "duplicate", "conflict")


async def check_new(scripts: Scripts, refusal: StatementRefused) -> None:
    """Check that a statement was refused because nothing was stored yet.

    Raises:
        StatementRefused: the refusal itself, if it has another reason.
        EarlierLayout: if types are missing because the earlier ability uses the database.
        DatabaseUnavailable: if the database does not answer.
    """
    if refusal.reason not in MISSING:
        raise refusal
    try:
        rows = await scripts.read(*base_type())
    except StatementRefused as exc:
        if exc.reason not in MISSING:
            raise
        return
    if any(row.get("type") == "document" for row in rows):
        raise EarlierLayout


async def insist(run: Callable[[], Awaitable[T]], *passing: str) -> T:
    """Run a statement; retry if it is refused for one of these reasons."""

    def refused(exc: BaseException) -> bool:
        return isinstance(exc, StatementRefused) and exc.reason in passing

    return await retry(run, when=refused, attempts=_ATTEMPTS, pause=wait_fixed(_PAUSE))


@dataclass(slots=True)
class Attempts:
    """Attempts at a write that the database may have executed without an answer."""

    lost: int = 0


async def outlast(
    run: Callable[[], Awaitable[T]],
    *passing: str,
    meter: Meter = UNMETERED,
    attempts: Attempts | None = None,
) -> T:
    """Run an idempotent write, with retries that outlast a restart of the database.

    It is retried as by :func:`insist`, and if the database was lost or is missing. A database that
    ends during each attempt may end because of what is written, such as a document that exhausts
    its heap, and every attempt interrupts all other callers.
    """
    counted = attempts or Attempts()

    def passes(exc: BaseException) -> bool:
        if isinstance(exc, StatementRefused):
            return exc.reason in passing
        cause = exc.__cause__
        counted.lost += isinstance(cause, RemoteError) and not isinstance(cause, NoProvider)
        return counted.lost < _LOSSES and isinstance(exc, DatabaseUnavailable)

    return await retry(run, when=passes, attempts=_ATTEMPTS, pause=_LONG_PAUSE, meter=meter)


@contextmanager
def _generation(*generations: str) -> Iterator[None]:
    """Raise GenerationGone if a statement of the block finds no type."""
    try:
        yield
    except StatementRefused as exc:
        if exc.reason not in MISSING:
            raise
        named = (each for each in generations if each.removeprefix("Chunk") in exc.detail)
        raise GenerationGone(next(named, generations[0])) from exc
