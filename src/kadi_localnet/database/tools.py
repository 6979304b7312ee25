"""The five tools of a database ability. A failure is a returned value, never an error response."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from kadi_client.context import incident
from kadi_client.slots import FairSlots, Full
from kadi_client.tools import Call, Tool, validation_text
from kadi_localnet.database.backend import LANGUAGES, Backend, DatabaseError, Statement

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
_BATCH = "Run several commands in one transaction: all of them take effect, or none."
_LIST = "Names of the databases."
_CREATE = "Create a database."

log = logging.getLogger(__name__)

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Text = Annotated[str, Field(min_length=1)]
Params = dict[str, Any] | list[Any] | None


class _Options(BaseModel):
    """Language and parameters of a statement."""

    language: str = Field("sql", min_length=1, description="sql or sqlscript.")
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
                f"language {self.language!r} is not allowed, only {', '.join(LANGUAGES)}"
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


class BatchInput(BaseModel):
    """Commands of one transaction."""

    database: Name
    commands: list[Text | BatchCommand] = Field(min_length=1)


class ListInput(BaseModel):
    """No input."""


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
    shared = threads or shared_threads(backend)

    async def run(call: Call, work: Callable[[float], Awaitable[T]]) -> T:
        seconds = min(_seconds(call, timeout), longest)
        end = time.monotonic() + seconds
        agent = call.origin.on_behalf_of or call.origin.agent_id or ""
        try:
            async with shared.slot(agent, timeout=seconds):
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

    async def query(given: QueryInput, call: Call) -> Mapping[str, Any]:
        asked = given.statement(given.query)
        rows = await run(call, lambda left: backend.read(given.database, asked, timeout=left))
        return {"success": True, "result": rows.json, "count": rows.count}

    async def command(given: CommandInput, call: Call) -> Mapping[str, Any]:
        asked = [given.statement(given.command)]
        [rows] = await run(call, lambda left: backend.write(given.database, asked, timeout=left))
        return {"success": True, "result": rows.json, "count": rows.count}

    async def batch(given: BatchInput, call: Call) -> Mapping[str, Any]:
        asked = [
            Statement(each) if isinstance(each, str) else each.statement(each.command)
            for each in given.commands
        ]
        rows = await run(call, lambda left: backend.write(given.database, asked, timeout=left))
        return {"success": True, "results": [each.json for each in rows], "committed": True}

    async def list_(_given: ListInput, call: Call) -> Mapping[str, Any]:
        names = await run(call, lambda left: backend.databases(timeout=left))
        return {"success": True, "databases": names}

    async def create(given: CreateInput, call: Call) -> Mapping[str, Any]:
        await run(call, lambda left: backend.create(given.name, timeout=left))
        return {"success": True, "database": given.name}

    return [
        Tool.typed("arcade-query", _QUERY, QueryInput, query, on_error=_failure),
        Tool.typed("arcade-command", _COMMAND, CommandInput, command, on_error=_failure),
        Tool.typed("arcade-batch", _BATCH, BatchInput, batch, on_error=_batch_failure),
        Tool.typed("arcade-db-list", _LIST, ListInput, list_, on_error=_failure),
        Tool.typed("arcade-db-create", _CREATE, CreateInput, create, on_error=_failure),
    ]


def shared_threads(backend: Backend, *, max_waiting: int = MAX_WAITING) -> FairSlots:
    """Return the threads of a backend; one agent alone may use half of them."""
    return FairSlots(backend.concurrency, max_waiting=max_waiting, share=0.5, reserve=True)


def _seconds(call: Call, timeout: float) -> float:
    if call.remaining is None:
        return timeout
    if call.remaining <= _MARGIN:
        raise DatabaseError("the deadline has passed already")
    return call.remaining - _MARGIN


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


def _batch_failure(exc: Exception, tool: str) -> Mapping[str, Any]:
    return {**_failure(exc, tool), "committed": False}
