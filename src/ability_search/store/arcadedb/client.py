"""The database port over the ``arcade-*`` tools of one of the database abilities on the network."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from itertools import cycle, repeat
from typing import Any, TypeVar

from ability_search.errors import DatabaseUnavailable, StatementRefused, TooLarge
from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.ports import Invoke, Providers
from ability_search.providers.provider_errors import no_answer
from ability_search.retry import growing, retry
from ability_search.store.arcadedb.core import Statement
from ability_search.store.arcadedb.rows import packed
from kadi_client.errors import FrameTooLarge, KadiError, NoProvider, RemoteError, ToolError
from kadi_client.tracing import Value, span

log = logging.getLogger(__name__)

_REASONS = {  # of a refusal, by what its text contains
    # First, because the text quotes the key, which may match any of the other patterns.
    "duplicate": r"duplicated? ?key|already exists",
    "missing_database": r"\bno (such )?database\b|create it with arcade-db-create"
    r"|\bdatabase\b.{0,80}\b(does not exist|not found|is not available(?! on))",
    "missing_type": r"type\b.{0,200}\b(not found|does not exist)",
    # The last alternative: a record was deleted before a search could read it.
    "conflict": r"concurrent ?(modification|write)|needretry|lock ?timeout|record ?not ?found",
    "disk_full": r"\bdisk is full\b|no space left on device",
    "busy": r"\bthe database is busy\b|\bcalls are running or waiting\b",
    "timeout": r"\bno answer within\b",
    "too_large": r"\bthe answer is too large\b",
}
_PATTERNS = {reason: re.compile(said, re.I) for reason, said in _REASONS.items()}
_RESULT_TOO_LARGE = re.compile(r"\btoo large\b|exceeds the limit of \d+ bytes", re.I)
_READ_ATTEMPTS = 3
_PAUSE = 0.1
"""Seconds between two attempts to find a database ability that is restarting."""
_LOGGED = 200
"""Characters of the database's error to log: enough for the cause, without quoted texts."""
_NOTES: Mapping[str, Value] = {"db.system.name": "arcadedb"}
_INDEX_SEARCH = "arcade-index-search"
_SELECT_ID = Statement("SELECT id FROM DatabaseId")
_OURS = Statement("SELECT name FROM schema:types WHERE name = 'Collection'")
_TYPE_OF_ID = Statement(
    "CREATE DOCUMENT TYPE DatabaseId IF NOT EXISTS BUCKETS 1;"
    " CREATE PROPERTY DatabaseId.single IF NOT EXISTS BOOLEAN;"
    " CREATE INDEX IF NOT EXISTS ON DatabaseId (single) UNIQUE;"
)
_INSERT_ID = """
    BEGIN;
    LET known = SELECT FROM DatabaseId;
    IF ($known.size() = 0) { INSERT INTO DatabaseId SET single = true, id = :id; }
    COMMIT;
"""
"""The index on ``single`` keeps two workers from giving two ids."""
SEPARATE = "Stop all but one of these database abilities, or separate them by networks."

T = TypeVar("T")
Run = Callable[[Statement, str, bool], Awaitable[Any]]
"""Runs a statement on the database of the named agent, as a write if it is true."""
Work = Callable[[str | None, float], Awaitable[T]]
"""Does something on the database of an agent, within some seconds."""


class ProviderPin:
    """Chooses the agent to send statements to.

    The broker spreads the calls of a tool over all agents that offer it. Two database abilities
    with databases of their own are not replicas: half of what is written would go to each. So every
    database has an id in its records, and a worker sends its statements only to agents whose
    database has the id that it found first, on whichever broker they are.

    Args:
        providers: Lists the agents.
        run: Runs a statement on one of them; raises DatabaseUnavailable if it failed.
    """

    def __init__(self, providers: Providers, run: Run) -> None:
        self._providers = providers
        self._run = run
        self._chosen = False
        self._searching: Collection[str] = ()
        self._agents: Iterator[str | None] = repeat(None)
        self._database: str | None = None
        self._choosing = asyncio.Lock()

    async def agent(self) -> str | None:
        """Return the agent to call: the agents with this database take turns.

        ``None`` is any agent, if the broker does not list the agents.

        Raises:
            DatabaseUnavailable: if several databases are offered, or another one than before.
        """
        if not self._chosen:
            async with self._choosing:
                if not self._chosen:
                    await self._choose()
        return next(self._agents)

    def searches(self, agent: str | None) -> bool:
        """Return whether a chosen agent searches indexes without SQL."""
        return agent in self._searching

    def lost(self) -> None:
        """Choose again before the next statement, as the agent is gone."""
        self._chosen = False

    async def created(self, agent: str | None) -> None:
        """Give the new database of an agent its id."""
        if self._chosen and agent is not None:
            self._database = await self._identify(agent)

    async def ids(self) -> dict[str, str | None]:
        """Return the ids of the databases by the agents that offer them.

        An id is empty if the database has none yet, and ``None`` if there is no database, or it
        holds nothing of this ability.

        Raises:
            DatabaseUnavailable: if an agent does not answer.
            KadiError: if the broker does not list its tools.
        """
        return {
            agent: await self._id(agent) for agent in sorted(await self._providers("arcade-query"))
        }

    async def _choose(self) -> None:
        try:
            ids = await self.ids()
        except KadiError as exc:
            log.warning("the broker does not list its tools, databases are not compared: %s", exc)
            self._chosen = True
            return
        if not ids:
            return  # the call says that there is none, or waits for the agent that was chosen
        if len(ids) > 1 or "" in ids.values():
            ids = {agent: id_ or await self._identify(agent) for agent, id_ in ids.items()}
        known = self._database or next(iter(ids.values()))
        fitting = [agent for agent, id_ in ids.items() if id_ == known]
        if self._database is not None and not fitting:
            raise DatabaseUnavailable(
                f"this worker has worked with the database {self._database}, which no agent on its"
                f" networks offers: {offers(ids)}",
                hint="Bring the database back, or restart the worker to use another one.",
            ) from NoProvider(f"no provider of database {self._database}")
        if self._database is None and len(fitting) < len(ids):
            raise DatabaseUnavailable(
                f"several databases are offered on the networks of this worker: {offers(ids)}",
                hint=SEPARATE,
            )
        self._searching = await self._providers(_INDEX_SEARCH)
        self._agents, self._database, self._chosen = cycle(fitting), known, True

    async def _id(self, agent: str) -> str | None:
        """Return the id of an agent's database, as :meth:`ids`."""
        for statement in (_SELECT_ID, _OURS):
            try:
                rows = await self._run(statement, agent, False)
            except StatementRefused as exc:
                if exc.reason not in ("missing_database", "missing_type"):
                    raise
                rows = []
            if rows:
                return str(rows[0].get("id", ""))
        return None

    async def _identify(self, agent: str) -> str:
        """Give an agent's database an id unless it has one; return its id."""
        for statement in (_TYPE_OF_ID, Statement(_INSERT_ID, {"id": secrets.token_hex(8)})):
            try:
                await self._run(statement, agent, True)
            except StatementRefused as exc:
                # Another worker is giving it one at the same time.
                if exc.reason not in ("duplicate", "conflict"):
                    raise
        return await self._id(agent) or ""


async def _none_listed(_tool: str) -> frozenset[str]:
    return frozenset()


@dataclass(slots=True, eq=False)
class BrokerScripts:
    """Runs :class:`.Scripts` over a broker.

    A write creates the database if it is missing.

    Args:
        invoke: Calls a tool on the network.
        database: Name of the database.
        timeout: Maximum time for one operation in seconds, including retries.
        meter: Counts retries.
        providers: Lists the agents that offer a tool; without it, calls go to any.
        patience: Seconds for which a statement waits for a database ability that is restarting.
    """

    invoke: Invoke
    _: KW_ONLY
    database: str
    timeout: float
    meter: Meter = UNMETERED
    providers: Providers = _none_listed
    patience: float = 0.0
    pin: ProviderPin = field(init=False)
    _answered: bool = False

    def __post_init__(self) -> None:
        self.pin = ProviderPin(self.providers, self._run_on)

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
                return exc.reason in ("conflict", "busy")
            # If the tool has no provider, the attempt has waited already.
            waited = isinstance(exc.__cause__, NoProvider)
            return isinstance(exc, DatabaseUnavailable) and not waited

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
        """Do some work; wait for a database that has answered before and is restarting."""
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
                await asyncio.sleep(_PAUSE)

    async def _search_on(
        self, request: Mapping[str, Any], agent: str | None, timeout: float
    ) -> Mapping[str, Any] | None:
        """Search on the database of one agent; ``None`` if it does not offer that."""
        if not self.pin.searches(agent):
            return None
        with span("database search", attributes=_NOTES):
            answer = await self._call(_INDEX_SEARCH, request, timeout, agent)
        found = answer.get("result")
        if not isinstance(found, Mapping):
            raise DatabaseUnavailable(f"{_INDEX_SEARCH} returned a result that is not an object")
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
        try:
            await self._call("arcade-db-create", {"name": self.database}, timeout, agent)
        except StatementRefused as exc:
            if "exist" not in exc.detail:
                raise
        log.info("created database %s", self.database)
        await self.pin.created(agent)
        return await self._execute(statement, agent, write, timeout)

    async def _execute(
        self, statement: Statement, agent: str | None, write: bool, timeout: float
    ) -> Any:
        started = time.perf_counter()
        script, params = statement
        key = "command" if write else "query"
        tool = f"arcade-{key}"
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
            log.debug("%s took %.1f ms", tool, (time.perf_counter() - started) * 1e3)
        result = answer.get("result", [])
        if not isinstance(result, list):
            raise DatabaseUnavailable(f"{tool} returned a result that is not a list of rows")
        if len(result) != 1:
            return result
        if isinstance(result[0], dict) and set(result[0]) == {"value"}:
            return result[0]["value"]
        # The result is the map of a RETURN, or of a query of variables: the scripts used here end
        # in RETURN {...} or in a SELECT, never in another RETURN.
        mapped = script.rstrip().endswith("};") or script.startswith("SELECT $")
        return result[0] if mapped else result

    async def _call(
        self, tool: str, tool_input: Mapping[str, Any], timeout: float, agent: str | None
    ) -> Mapping[str, Any]:
        try:
            answer = await self.invoke(tool, tool_input, timeout=timeout, target_agent=agent)
        except FrameTooLarge as exc:
            raise TooLarge(
                f"{exc.size} bytes for the database, at most {exc.limit} fit into a message",
                hint="Send less at a time, or raise the setting max_message_bytes.",
            ) from exc
        except ToolError as exc:
            self._answered = True
            refused = refusal(str(exc))
            raise _too_large() if refused.reason == "too_large" else refused from exc
        except KadiError as exc:
            log.debug("%s failed: %s", tool, exc)
            if isinstance(exc, RemoteError) and _RESULT_TOO_LARGE.search(str(exc)):
                raise _too_large() from exc
            if isinstance(exc, NoProvider):
                self.pin.lost()
            raise DatabaseUnavailable(no_answer(tool, exc)) from exc
        if not isinstance(answer, Mapping) or answer.get("success") is not True:
            raise DatabaseUnavailable(f"{tool} returned an answer that is not a result")
        self._answered = True
        return answer


def refusal(text: str) -> StatementRefused:
    """Return the error for the error text of a database."""
    reason = next((name for name, said in _PATTERNS.items() if said.search(text)), "other")
    level = logging.WARNING if reason == "other" else logging.DEBUG
    log.log(level, "statement refused (%s): %s", reason, text.partition("\n")[0][:_LOGGED])
    return StatementRefused(reason, text)


def _too_large() -> TooLarge:
    return TooLarge(
        "the database's answer does not fit into a message",
        hint="Request less at a time, or raise the setting max_message_bytes.",
    )


def offers(ids: Mapping[str, str | None]) -> str:
    """Return the text that names the agents and the ids of their databases."""
    return ", ".join(f"agent {agent} offers {id_ or 'none'}" for agent, id_ in ids.items())
