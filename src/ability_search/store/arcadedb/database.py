"""Execution of statements: schema on demand, retries, generations that are gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from tenacity import RetryCallState

from ability_search.errors import (
    DatabaseUnavailable,
    EarlierLayout,
    GenerationGone,
    StatementRefused,
)
from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.retry import growing, retry
from ability_search.store.arcadedb.core import Scripts, Statement
from ability_search.store.arcadedb.database_schema import BASE_TYPE, schema
from ability_search.store.arcadedb.refusals import PASSING
from kadi_client.errors import NoProvider, RemoteError

_ATTEMPTS = 12
_LOSSES = 3
"""Attempts of a write during which the database may end."""
_PAUSE = growing(0.05, longest=1)
"""Pauses after a conflict with another writer."""
_LONG_PAUSE = growing(0.1, longest=4)
"""Pauses while the database does not answer."""
_MISSING = ("missing_database", "missing_type")
"""Reasons of a refusal if nothing was stored yet."""


@dataclass(slots=True)
class Attempts:
    """Attempts at a write.

    One that was rolled back, because of another writer, is repeated. An idempotent one is repeated
    also if the database was lost or is missing, so it outlasts a restart. A database that ends
    during each attempt may end because of what is written, such as a document that exhausts its
    heap, and every attempt interrupts all other callers.
    """

    idempotent: bool = True
    lost: int = 0
    """Attempts that the database may have executed, without an answer."""

    def may_go_on(self, exc: BaseException) -> bool:
        """Return whether another attempt may succeed after an exception; called once for each."""
        if isinstance(exc, StatementRefused):
            return exc.reason in PASSING or exc.reason == "duplicate"
        cause = exc.__cause__
        self.lost += isinstance(cause, RemoteError) and not isinstance(cause, NoProvider)
        unavailable = isinstance(exc, DatabaseUnavailable) and exc.retryable
        return self.idempotent and unavailable and self.lost < _LOSSES


class ArcadeDatabase:
    """Base of the parts of the ArcadeDB store; arguments as for it."""

    def __init__(self, scripts: Scripts, *, meter: Meter = UNMETERED) -> None:
        self._scripts = scripts
        self._meter = meter

    async def fetch(self, statement: Statement, *generations: str) -> Any:
        """Read from generations; from none an empty map if nothing was stored yet.

        Raises:
            GenerationGone: if a generation does not exist.
            EarlierLayout: if types are missing because the earlier ability uses the database.
        """
        try:
            with generation_gone(*generations):
                return await self._scripts.read(*statement)
        except StatementRefused as exc:
            await self._check_new(exc)
            return {}

    async def write(self, statement: Statement, attempts: Attempts | None = None) -> Any:
        """Write, with retries; idempotent unless the ``attempts`` say otherwise."""

        def pause(state: RetryCallState) -> float:
            failure = state.outcome and state.outcome.exception()
            return (_PAUSE if isinstance(failure, StatementRefused) else _LONG_PAUSE)(state)

        return await retry(
            partial(self._scripts.write, *statement),
            when=(attempts or Attempts()).may_go_on,
            attempts=_ATTEMPTS,
            pause=pause,
            meter=self._meter,
        )

    async def write_first(self, statement: Statement, attempts: Attempts | None = None) -> Any:
        """Write, as :meth:`write`; create the schema before if it is missing.

        Raises:
            EarlierLayout: as for :meth:`fetch`.
        """
        try:
            return await self.write(statement, attempts)
        except StatementRefused as exc:
            await self._check_new(exc)
            await self.write(schema())
            return await self.write(statement, attempts)

    async def _check_new(self, refusal: StatementRefused) -> None:
        """Raise a refusal, unless its reason is that nothing was stored yet.

        Raises:
            EarlierLayout: if types are missing because the earlier ability uses the database.
        """
        if refusal.reason not in _MISSING:
            raise refusal
        try:
            rows = await self._scripts.read(*BASE_TYPE)
        except StatementRefused as exc:
            if exc.reason not in _MISSING:
                raise
            return
        if any(row.get("type") == "document" for row in rows):
            raise EarlierLayout


@contextmanager
def generation_gone(*generations: str) -> Iterator[None]:
    """Raise GenerationGone if a statement of the block finds no type of one of these."""
    try:
        yield
    except StatementRefused as exc:
        if exc.reason not in _MISSING or not generations:
            raise
        named = (each for each in generations if each.removeprefix("Chunk") in exc.detail)
        raise GenerationGone(next(named, generations[0])) from exc
