"""The database port over the ``arcade-*`` tools of one of the database abilities on the network."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeVar

from ability_search import unanswered
from ability_search.errors import (
    DatabaseUnavailable,
    EngineTooOld,
    SearchError,
    StatementRefused,
    TooLarge,
)
from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.ports import Agents, Invoke
from ability_search.providers.provider_errors import message_in, no_answer, texts_in
from ability_search.retry import growing, retry
from ability_search.store.arcadedb.core import SELECT_RUN, Statement
from ability_search.store.arcadedb.database_runs import DatabaseRuns
from ability_search.store.arcadedb.engine_version import is_too_old, too_old
from ability_search.store.arcadedb.provider_pin import (
    INDEX_SEARCH,
    QUERY,
    ProviderPin,
)
from ability_search.store.arcadedb.refusals import (
    PASSING,
    answer_too_large,
    is_understood,
    refusal,
    unlike_a_result,
)
from ability_search.store.arcadedb.rows import packed
from kadi_client.errors import (
    CallTimeout,
    FrameTooLarge,
    KadiError,
    NoProvider,
    ProviderLost,
    RemoteError,
    ToolError,
)
from kadi_client.tracing import Value, span

log = logging.getLogger(__name__)

_RESULT_TOO_LARGE = re.compile(r"\btoo large\b|exceeds the limit of \d+ bytes", re.I)
_READ_ATTEMPTS = 3
_PAUSE = 0.1
"""Seconds between two attempts to find a database ability that is restarting."""
_NOTES: Mapping[str, Value] = {"db.system.name": "arcadedb"}
_COMMAND = "arcade-command"
_CREATE = "arcade-db-create"
_LIST = "arcade-db-list"
_DROP = "arcade-db-drop"
_VERSION = "SELECT version() AS version"
_NOT_DROPPED = (
    "Upgrade the ArcadeDB server. There was no database to ask for the version, so {database!r} was"
    " created there, and is empty: drop it if nothing else needs it."
)

T = TypeVar("T")
Work = Callable[[str | None, float], Awaitable[T]]
"""Does something on the database of an agent, within some seconds."""


def _unheard() -> None:
    """Tell nobody of a restart."""


@dataclass(slots=True, eq=False)
class BrokerScripts:
    """Runs :class:`.Scripts` over a broker.

    A write creates the database if it is missing.

    Args:
        invoke: Calls a tool on the network.
        database: Name of the database.
        timeout: Maximum time for one operation in seconds, including retries.
        meter: Counts retries.
        agents: Lists the agents that offer a tool; without it, calls go to any.
        patience: Seconds for which a statement waits for a database ability that is restarting.
        restarted: Called when an answer shows that the database was restarted since the last one,
            or is answered by it for the first time, before that answer is returned.
    """

    invoke: Invoke
    _: KW_ONLY
    database: str
    timeout: float
    meter: Meter = UNMETERED
    agents: Agents | None = None
    patience: float = 0.0
    restarted: Callable[[], None] = _unheard
    pin: ProviderPin = field(init=False)
    _runs: DatabaseRuns = field(init=False)
    _answered: bool = False

    def __post_init__(self) -> None:
        self.pin = ProviderPin(self.agents, self._run_on)
        self._runs = DatabaseRuns(self._run_on, self.restarted)

    async def read(self, script: str, params: Mapping[str, Any]) -> Any:
        """Run a script or query; retry it if the connection failed or a write conflicted."""
        statement = Statement(script, params)
        return await self._repeated(lambda agent, left: self._run_on(statement, agent, False, left))

    async def search(self, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Search indexes; with retries as for :meth:`read`."""
        asked = {"database": self.database, **request}
        return await self._repeated(lambda agent, left: self._search_on(asked, agent, left))

    async def _repeated(self, work: Work[T]) -> T:
        """Do the work of a read; again if the connection failed or a write conflicted."""
        deadline = time.monotonic() + self.timeout

        def passing(exc: BaseException) -> bool:
            if isinstance(exc, StatementRefused):
                return exc.reason in PASSING or exc.reason == "busy"
            # If the tool has no provider, the attempt has waited already.
            waited = isinstance(exc.__cause__, NoProvider)
            return isinstance(exc, DatabaseUnavailable) and exc.retryable and not waited

        return await retry(
            lambda: self._run(work, max(0.001, deadline - time.monotonic())),
            when=passing,
            attempts=_READ_ATTEMPTS,
            pause=growing(0.1, longest=1.0),
            within=self.timeout,
            meter=self.meter,
        )

    async def write(self, script: str, params: Mapping[str, Any]) -> Any:
        """Run a script once; if the database is missing, create it first."""
        statement = Statement(script, params)
        return await self._run(
            lambda agent, left: self._run_on(statement, agent, True, left), self.timeout
        )

    async def _run(self, work: Work[T], timeout: float) -> T:
        """Do some work; wait for a database that has answered before and is restarting.

        While it is away the list of agents is read again and again, so that one under another id is
        found as soon as it is listed.
        """
        started = time.monotonic()
        patience = min(timeout, self.patience) if self._answered else 0.0
        while True:
            left = max(0.001, started + timeout - time.monotonic())
            try:
                return await work(await self.pin.agent(), left)
            except DatabaseUnavailable as exc:
                # Without a provider, nothing was executed.
                waited = time.monotonic() - started
                if not isinstance(exc.__cause__, NoProvider) or waited + _PAUSE >= patience:
                    raise
                with unanswered.noting(str(exc)):
                    await asyncio.sleep(_PAUSE)

    async def _search_on(
        self, request: Mapping[str, Any], agent: str | None, timeout: float
    ) -> Mapping[str, Any] | None:
        """Search on the database of one agent; ``None`` if it does not offer that."""
        if not self.pin.searches(agent):
            return None
        asked_at = time.monotonic()
        with span("database search", attributes=_NOTES):
            answer = await self._call(INDEX_SEARCH, request, timeout, agent)
        found = answer.get("result")
        if not isinstance(found, Mapping):
            raise unlike_a_result(INDEX_SEARCH, answer, self.pin.describe(agent))
        await self._runs.see(found.get("run"), agent, asked_at=asked_at)
        return found

    async def _run_on(
        self, statement: Statement, agent: str | None, write: bool, timeout: float | None = None
    ) -> Any:
        """Run a statement on the database of one agent; a write creates it if it is missing."""
        timeout = timeout or self.timeout
        try:
            return await self._execute(statement, agent, write, timeout)
        except StatementRefused as exc:
            if exc.reason != "missing_database" or not write:
                raise
        await self._create(agent, timeout)
        await self.pin.created(agent)
        return await self._execute(statement, agent, write, timeout)

    async def _execute(
        self, statement: Statement, agent: str | None, write: bool, timeout: float
    ) -> Any:
        asked_at = time.monotonic()
        script, params = statement
        key = "command" if write else "query"
        tool = _COMMAND if write else QUERY
        request = {
            "database": self.database,
            key: script,
            # The engine caches parsed queries, but parses a script each time.
            "language": "sqlscript" if write or ";" in script else "sql",
            "params": params,
        }
        if write and self.pin.searches(agent):
            request |= packed(params)
        with span(f"database {key}", attributes=_NOTES):
            answer = await self._call(tool, request, timeout, agent)
            log.debug("%s took %.1f ms", tool, (time.monotonic() - asked_at) * 1e3)
        result = answer.get("result", [])
        if not isinstance(result, list):
            raise unlike_a_result(tool, answer, self.pin.describe(agent))
        answered = _map_in(result)
        if answered is None:
            return result
        if "run" in answered:
            await self._runs.see(answered.pop("run"), agent, asked_at=asked_at)
        return answered

    # The database

    async def _create(self, agent: str | None, timeout: float) -> None:
        """Create the database, unless the engine of the agent is too old.

        Raises:
            EngineTooOld: if it is; then nothing was created.
        """
        version = await self.engine_version(agent, timeout)
        if is_too_old(version):
            raise too_old(version, self.pin.describe(agent))
        try:
            await self._call(_CREATE, {"name": self.database}, timeout, agent)
        except StatementRefused as exc:
            if "exist" not in exc.detail:
                raise
            return
        log.info("created database %s", self.database)
        if not version:
            version = await self._version_of(self.database, agent, timeout)
            if is_too_old(version):
                raise await self._taken_back(version, agent, timeout)
        # The word of the new database is known before anything is stored that could be lost.
        await self._execute(SELECT_RUN, agent, False, timeout)

    async def engine_version(self, agent: str | None, timeout: float) -> str:
        """Return the version of an agent's engine; empty if it has no database to ask.

        Raises:
            DatabaseUnavailable: if the agent does not answer.
        """
        try:
            names = await self.database_names(agent, timeout)
        except DatabaseUnavailable as exc:
            if not isinstance(exc, StatementRefused) and not isinstance(exc.__cause__, NoProvider):
                raise
            log.debug("the databases of %s are not listed: %s", self.pin.describe(agent), exc)
            return ""
        # That of this ability first: the user of the agent may have no rights on others.
        for name in sorted(names, key=lambda name: name != self.database):
            version = await self._version_of(name, agent, timeout)
            if version:
                return version
        return ""

    async def database_names(self, agent: str | None, timeout: float) -> list[str]:
        """Return the names of the databases of an agent.

        Raises:
            DatabaseUnavailable: if the agent does not answer, or refuses.
        """
        answer = await self._call(_LIST, {}, timeout, agent)
        names = answer.get("databases")
        if not isinstance(names, list):
            raise unlike_a_result(_LIST, answer, self.pin.describe(agent))
        return [str(name) for name in names]

    async def _version_of(self, database: str, agent: str | None, timeout: float) -> str:
        """Return the version of the engine of a database; empty if that does not say it."""
        request = {"database": database, "query": _VERSION, "language": "sql", "params": {}}
        try:
            answer = await self._call(QUERY, request, timeout, agent)
        except StatementRefused as exc:
            log.debug("%s does not say the version of its engine: %s", database, exc)
            return ""
        rows = answer.get("result")
        if isinstance(rows, list) and rows and isinstance(rows[0], Mapping):
            return str(rows[0].get("version") or "")
        return ""

    async def _taken_back(self, version: str, agent: str | None, timeout: float) -> EngineTooOld:
        """Drop the database that was just created only to ask for the version; return the error."""
        where = self.pin.describe(agent)
        request = {"name": self.database, "database": self.database, "confirm": True}
        try:
            await self._call(_DROP, request, timeout, agent)
        except DatabaseUnavailable as exc:
            log.warning("the empty database %s is left at %s: %s", self.database, where, exc)
            return too_old(version, where, hint=_NOT_DROPPED.format(database=self.database))
        return too_old(version, where)

    # Calls

    async def _call(
        self, tool: str, tool_input: Mapping[str, Any], timeout: float, agent: str | None
    ) -> Mapping[str, Any]:
        who = self.pin.describe(agent)
        try:
            with unanswered.noting(f"{who} has not answered {tool}"):
                answer = await self.invoke(tool, tool_input, timeout=timeout, target_agent=agent)
        except FrameTooLarge as exc:
            raise TooLarge(
                f"{exc.size} bytes for the database, at most {exc.limit} fit into a message",
                hint="Send less at a time, or raise the setting max_message_bytes.",
            ) from exc
        except ToolError as exc:
            self._answered = True
            raise refusal(str(exc), who=who, params=tool_input) from exc
        except KadiError as exc:
            log.debug("%s failed: %s", tool, exc)
            raise self._unanswered(tool, tool_input, exc, who) from exc
        if isinstance(answer, Mapping) and answer.get("success") is True:
            self._answered = True
            return answer
        text = message_in(answer, error=False)
        if text:
            raise refusal(text, who=who, params=tool_input)
        raise unlike_a_result(tool, answer, who)

    def _unanswered(
        self, tool: str, tool_input: Mapping[str, Any], exc: KadiError, who: str
    ) -> SearchError:
        """Return the error for a call without an answer; look for the agents again if need be."""
        if isinstance(exc, NoProvider | ProviderLost):
            self.pin.lost()
        elif isinstance(exc, CallTimeout):
            self.pin.doubt()
        elif isinstance(exc, RemoteError):
            if _RESULT_TOO_LARGE.search(str(exc)):
                return answer_too_large()
            if is_understood(str(exc)):
                # An ability that raises its errors, instead of returning them.
                return refusal(str(exc), who=who, params=tool_input)
        sent = {"input": list(texts_in(tool_input))}
        return DatabaseUnavailable(no_answer(tool, exc, sent, who=who))


def _map_in(rows: list[Any]) -> dict[str, Any] | None:
    """Return the map of a script's RETURN, or of :func:`.core.rows_together`, in an answer.

    A database answers ``RETURN {...}`` with one row, which has the map as its only column
    ``value``. The row of :func:`.core.rows_together` is its map; only that has a column ``run``.
    ``None`` if the rows are rows.
    """
    if len(rows) != 1 or not isinstance(rows[0], dict):
        return None
    row: dict[str, Any] = rows[0]
    if "run" in row:
        return row
    returned = row.get("value") if len(row) == 1 else None
    return returned if isinstance(returned, dict) else None
