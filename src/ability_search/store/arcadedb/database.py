"""Execution of statements: schema on demand, retries, generations that are gone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from tenacity import wait_fixed

from ability_search.errors import EarlierLayout, GenerationGone, StatementRefused
from ability_search.retry import retry
from ability_search.store.arcadedb.core import Scripts, Statement
from ability_search.store.arcadedb.schema import base_type, schema

T = TypeVar("T")

_ATTEMPTS = 8
_PAUSE = 0.1
"""Seconds between attempts."""
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
        """Read rows; none if nothing was stored yet.

        Raises:
            EarlierLayout: if types are missing because the earlier ability uses the database.
        """
        try:
            return list(await self._scripts.read(*statement))
        except StatementRefused as exc:
            await check_new(self._scripts, exc)
            return []

    async def generation_read(self, generation: str, statement: Statement) -> Any:
        """Run a read of a generation.

        Raises:
            GenerationGone: if the generation does not exist.
        """
        with _generation(generation):
            return await self._scripts.read(*statement)

    async def write(self, statement: Statement) -> Any:
        """Write; create the schema first if it is missing, and retry on conflicts.

        Raises:
            EarlierLayout: if types are missing because the earlier ability uses the database.
        """
        run = partial(self._scripts.write, *statement)
        try:
            return await insist(run, "conflict")
        except StatementRefused as exc:
            await check_new(self._scripts, exc)
            await self._create_schema()
            return await insist(run, "conflict")

    async def generation_write(self, generation: str, statement: Statement) -> Any:
        """Write to a generation; retry on conflicts.

        Raises:
            GenerationGone: if the generation does not exist.
        """
        with _generation(generation):
            return await insist(partial(self._scripts.write, *statement), "conflict")

    async def _create_schema(self) -> None:
        # Another worker may be creating it at the same time.
        await insist(partial(self._scripts.write, *schema()), "duplicate", "conflict")


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


@contextmanager
def _generation(generation: str) -> Iterator[None]:
    """Raise GenerationGone if a statement of the block finds no type."""
    try:
        yield
    except StatementRefused as exc:
        if exc.reason in MISSING:
            raise GenerationGone(generation) from exc
        raise
