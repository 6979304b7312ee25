"""The tools of a database ability. A failure is a returned value, never an error response."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import AliasChoices, BaseModel, Field, ValidationError

from kadi_client.context import incident
from kadi_client.slots import FairSlots, Full
from kadi_client.tools import Call, Tool, validation_text
from kadi_localnet.database.backend import (
    LANGUAGES,
    Backend,
    DatabaseError,
    Rows,
    Statement,
    rows_in_order,
)
from kadi_localnet.database.reports import DatabaseReports, unhealthy
from kadi_localnet.database.search_input import IndexSearch, Name, Numbers, Text

T = TypeVar("T")

TIMEOUT = 30.0
"""Seconds for a call whose caller set no limit."""

LONGEST = 120.0
"""Seconds for a call, whatever its caller asks for."""

MAX_WAITING = 512
"""Maximum number of calls that wait for a thread; one agent may have half of them."""

_MARGIN = 0.02
"""Seconds reserved for sending the answer."""

_SHORTEST = 0.001

_QUERY = "Run a read-only statement or script on a database and return its rows."
_COMMAND = "Run a statement or script that writes, in a transaction, and return its rows."
_BATCH = (
    "Run several commands in one transaction: all of them take effect, or none. `results` has the"
    " rows of all commands, in order."
)
_SEARCH = "Search vector and sparse indexes together and return what they find with its scores."
_LIST = "Names of the databases."
_CREATE = "Create a database."
_INFO = "Types, indexes, number of records and size of a database."
_STATS = "Number of records and types and size of a database, or of all."
_STATUS = "Whether the database engine runs."
_HEALTH = "Check that the database engine and a database answer."

_WHY_SQL = (
    "statements of others are not checked for access to files and addresses (LOAD CSV of Cypher);"
    " use MATCH of SQL for patterns in a graph"
)
_BY_EITHER_NAME = AliasChoices("database", "name")
"""Names of the field for a database; callers that create one know it as ``name``."""

log = logging.getLogger(__name__)

Params = dict[str, Any] | list[Any] | None


class _Options(BaseModel):
    """Language and parameters of a statement."""

    language: str = Field("sql", min_length=1, description="sql or sqlscript, no other.")
    params: Params = Field(
        None, description="Named (:name) as an object, or positional (?) as an array."
    )

    def statement(self, text: str) -> Statement:
        """Return ``text`` as a statement.

        Raises:
            DatabaseError: if the language is not allowed.
        """
        language = self.language.lower()
        if language not in LANGUAGES:
            raise DatabaseError(
                f"language {self.language!r} is not allowed, only {' and '.join(LANGUAGES)}: "
                + _WHY_SQL
            )
        return Statement(text, language, self.params)


class QueryInput(_Options):
    """A read."""

    database: Name
    query: Text


class BatchCommand(_Options):
    """One command of a batch."""

    command: Text


class CommandInput(BatchCommand):
    """A write or schema change."""

    database: Name


class NumbersInput(CommandInput):
    """A write with blocks of numbers."""

    numbers: dict[str, dict[str, Numbers]] | None = Field(
        None, description="Further columns of params that are arrays of objects, by param."
    )

    def statement(self, text: str) -> Statement:
        """Return ``text`` as a statement.

        Raises:
            DatabaseError: if the language is not allowed, or the rows are others than the params'.
        """
        params = self.params if isinstance(self.params, dict) else {}
        for name, columns in (self.numbers or {}).items():
            given = params.get(name)
            rows = [type(each) for each in given] if isinstance(given, list) else []
            if {*rows} != {dict} or any(len(rows) != len(of.lengths) for of in columns.values()):
                raise DatabaseError(f"numbers.{name}: needs a length for each object of that param")
        return replace(super().statement(text), numbers=self.numbers)


class BatchInput(BaseModel):
    """Commands of one transaction."""

    database: Name
    commands: list[Text | BatchCommand] = Field(min_length=1)


class NoInput(BaseModel):
    """No input."""


class InfoInput(BaseModel):
    """The database to report on."""

    database: Name = Field(validation_alias=_BY_EITHER_NAME)


class StatsInput(BaseModel):
    """The database to report on, or all."""

    database: Name | None = Field(
        None, validation_alias=_BY_EITHER_NAME, description="All databases if not given."
    )


class CreateInput(BaseModel):
    """The name of a new database."""

    name: Name


def database_tools(
    backend: Backend,
    *,
    timeout: float = TIMEOUT,
    longest: float = LONGEST,
    threads: FairSlots | None = None,
) -> list[Tool]:
    """Return the tools over ``backend``.

    Args:
        backend: Where statements run.
        timeout: Seconds for a call whose caller set no limit.
        longest: Maximum seconds of a call, including the wait for a thread.
        threads: Threads of the backend, shared by agents; :func:`shared_threads` by default.
            A call that an agent makes on behalf of another counts as one of that other; calls
            without an agent count as calls of one agent.
    """
    tools = _DatabaseTools(backend, timeout, longest, threads or shared_threads(backend))
    searching = Tool.typed(
        "arcade-index-search", _SEARCH, IndexSearch, tools.search, on_error=_failure
    )
    command = NumbersInput if backend.searches_indexes else CommandInput
    return [
        *([searching] if backend.searches_indexes else []),
        Tool.typed("arcade-query", _QUERY, QueryInput, tools.query, on_error=_failure),
        Tool.typed("arcade-command", _COMMAND, command, tools.command, on_error=_failure),
        Tool.typed("arcade-batch", _BATCH, BatchInput, tools.batch, on_error=_batch_failure),
        Tool.typed("arcade-db-list", _LIST, NoInput, tools.names, on_error=_failure),
        Tool.typed("arcade-db-info", _INFO, InfoInput, tools.info, on_error=_failure),
        Tool.typed("arcade-db-stats", _STATS, StatsInput, tools.stats, on_error=_failure),
        Tool.typed("arcade-status", _STATUS, NoInput, tools.status, on_error=_status_failure),
        Tool.typed("arcade-health", _HEALTH, NoInput, tools.health, on_error=_health_failure),
        Tool.typed("arcade-db-create", _CREATE, CreateInput, tools.create, on_error=_failure),
    ]


class _DatabaseTools:
    """The handlers of the tools."""

    def __init__(
        self, backend: Backend, timeout: float, longest: float, threads: FairSlots
    ) -> None:
        self._backend = backend
        self._reports = DatabaseReports(backend)
        self._timeout = timeout
        self._longest = longest
        self._threads = threads

    async def query(self, given: QueryInput, call: Call) -> Mapping[str, Any]:
        read, asked = self._backend.read, given.statement(given.query)
        rows = await self._run(call, lambda left: read(given.database, asked, timeout=left))
        return {"success": True, "result": rows.json, "count": rows.count}

    async def search(self, given: IndexSearch, call: Call) -> Mapping[str, Any]:
        found = await self._run(call, lambda left: self._backend.search(given, timeout=left))
        return {"success": True, "result": found}

    async def command(self, given: CommandInput, call: Call) -> Mapping[str, Any]:
        [rows] = await self._write(given.database, [given.statement(given.command)], call)
        return {"success": True, "result": rows.json, "count": rows.count}

    async def batch(self, given: BatchInput, call: Call) -> Mapping[str, Any]:
        asked = [
            Statement(each) if isinstance(each, str) else each.statement(each.command)
            for each in given.commands
        ]
        rows = await self._write(given.database, asked, call)
        return {"success": True, "results": rows_in_order(rows).json, "committed": True}

    async def info(self, given: InfoInput, call: Call) -> Mapping[str, Any]:
        info = self._reports.info
        report = await self._run(call, lambda left: info(given.database, timeout=left))
        return {"success": True, **report}

    async def stats(self, given: StatsInput, call: Call) -> Mapping[str, Any]:
        statistics = self._reports.statistics
        report = await self._run(call, lambda left: statistics(given.database, timeout=left))
        return {"success": True, **report}

    async def status(self, _given: NoInput, call: Call) -> Mapping[str, Any]:
        return await self._run(call, lambda left: self._reports.status(timeout=left))

    async def health(self, _given: NoInput, call: Call) -> Mapping[str, Any]:
        return await self._run(call, lambda left: self._reports.health(timeout=left))

    async def names(self, _given: NoInput, call: Call) -> Mapping[str, Any]:
        names = await self._run(call, lambda left: self._backend.databases(timeout=left))
        return {"success": True, "databases": names}

    async def create(self, given: CreateInput, call: Call) -> Mapping[str, Any]:
        await self._run(call, lambda left: self._backend.create(given.name, timeout=left))
        return {"success": True, "database": given.name}

    async def _write(self, name: str, asked: Sequence[Statement], call: Call) -> list[Rows]:
        return await self._run(call, lambda left: self._backend.write(name, asked, timeout=left))

    async def _run(self, call: Call, work: Callable[[float], Awaitable[T]]) -> T:
        """Run work, given its seconds, in a thread of the agent that it is for."""
        seconds = self._timeout if call.remaining is None else call.remaining - _MARGIN
        if seconds <= 0:
            raise DatabaseError("the deadline has passed already")
        seconds = min(seconds, self._longest)
        end = time.monotonic() + seconds
        agent = call.origin.on_behalf_of or call.origin.agent_id or ""
        try:
            async with self._threads.slot(agent, timeout=seconds):
                return await work(max(_SHORTEST, round(end - time.monotonic(), 3)))
        except Full as exc:
            raise DatabaseError(
                f"the database is busy: {exc.waiting} calls of this agent are already waiting:"
                " call again in a moment"
            ) from None
        except TimeoutError:
            raise DatabaseError(
                f"the database is busy: no thread was free for this agent within {seconds:g} s,"
                " nothing was executed: call again in a moment"
            ) from None


def shared_threads(backend: Backend, *, max_waiting: int = MAX_WAITING) -> FairSlots:
    """Return the threads of a backend; one agent alone may use half of them."""
    return FairSlots(backend.concurrency, max_waiting=max_waiting, share=0.5, reserve=True)


def _failure(exc: Exception, tool: str) -> Mapping[str, Any]:
    if isinstance(exc, ValidationError):
        text = validation_text(exc)
    elif isinstance(exc, DatabaseError):
        text = str(exc)
    else:
        name = incident()
        log.error("%s failed, incident %s", tool, name, exc_info=exc)
        text = f"internal error, incident {name}: the log of the database ability explains it"
    return {"success": False, "error": text}


def _status_failure(exc: Exception, tool: str) -> Mapping[str, Any]:
    return {**_failure(exc, tool), "running": False}


def _health_failure(exc: Exception, tool: str) -> Mapping[str, Any]:
    return unhealthy(str(_failure(exc, tool)["error"]), engine=False)


def _batch_failure(exc: Exception, tool: str) -> Mapping[str, Any]:
    return {**_failure(exc, tool), "committed": False}
