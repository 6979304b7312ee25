"""The database port over the ``arcade-*`` tools of a database ability."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeVar

from ability_search.errors import DatabaseUnavailable, StatementRefused, TooLarge
from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.ports import Invoke, Providers
from ability_search.providers.provider_errors import no_answer
from ability_search.retry import growing, retry
from ability_search.store.arcadedb.core import Statement
from ability_search.store.arcadedb.provider_pin import INDEX_SEARCH, ProviderPin
from ability_search.store.arcadedb.rows import packed
from kadi_client.errors import FrameTooLarge, KadiError, NoProvider, RemoteError, ToolError
from kadi_client.tracing import Value, span

log = logging.getLogger(__name__)

_REASONS = (
    # First, because the text quotes the key, which may match any of the other patterns.
    ("duplicate", re.compile(r"duplicated? ?key|already exists", re.I)),
    (
        "missing_database",
        re.compile(
            r"\bno (such )?database\b|create it with arcade-db-create"
            r"|\bdatabase\b.{0,80}\b(does not exist|not found|is not available(?! on))",
            re.I,
        ),
    ),
    ("missing_type", re.compile(r"type\b.{0,200}\b(not found|does not exist)", re.I)),
    (
        "conflict",
        re.compile(
            # The last alternative: a record was deleted before a search could read it.
            r"concurrent ?(modification|write)|needretry|lock ?timeout|record ?not ?found",
            re.I,
        ),
    ),
    ("disk_full", re.compile(r"\bdisk is full\b|no space left on device", re.I)),
    ("busy", re.compile(r"\bthe database is busy\b|\bcalls are running or waiting\b", re.I)),
    ("timeout", re.compile(r"\bno answer within\b", re.I)),
    ("too_large", re.compile(r"\bthe answer is too large\b", re.I)),
)
_RESULT_TOO_LARGE = re.compile(r"\btoo large\b|exceeds the limit of \d+ bytes", re.I)
_READ_ATTEMPTS = 3
_PAUSE = 0.1
"""Seconds between two attempts to find a database ability that is restarting."""
_LOGGED = 200
"""Characters of the database's error to log: enough for the cause, without quoted texts."""
_NOTES: Mapping[str, Value] = {"db.system.name": "arcadedb"}


T = TypeVar("T")

Work = Callable[[str | None, float], Awaitable[T]]
"""Does something on the database of an agent, within some seconds."""


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
    providers: Providers | None = None
    patience: float = 0.0
    _pin: ProviderPin | None = field(init=False)
    _answered: bool = False

    def __post_init__(self) -> None:
        self._pin = None if self.providers is None else ProviderPin(self.providers, self._run_on)

    async def database_ids(self) -> dict[str, str | None]:
        """Return the ids of the databases on the network, as :meth:`.ProviderPin.ids`."""
        return {} if self._pin is None else await self._pin.ids()

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
        return await retry(
            lambda: self._run(work, max(0.001, deadline - time.monotonic())),
            when=_passing,
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
                agent = None if self._pin is None else await self._pin.agent()
                return await work(agent, left)
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
        if self._pin is None or not self._pin.searches(agent):
            return None
        with span("database search", attributes=_NOTES):
            answer = await self._call(INDEX_SEARCH, request, timeout, agent)
        found = answer.get("result")
        if not isinstance(found, Mapping):
            raise DatabaseUnavailable(f"{INDEX_SEARCH} returned a result that is not an object")
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
        if self._pin is not None:
            await self._pin.created(agent)
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
        if write and self._pin is not None and self._pin.searches(agent):
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
        except RemoteError as exc:
            log.debug("%s failed: %s", tool, exc)
            if _RESULT_TOO_LARGE.search(str(exc)):
                raise _too_large() from exc
            if isinstance(exc, NoProvider) and self._pin is not None:
                self._pin.lost()
            raise DatabaseUnavailable(no_answer(tool, exc)) from exc
        except KadiError as exc:
            raise DatabaseUnavailable(no_answer(tool, exc)) from exc
        if not isinstance(answer, Mapping) or answer.get("success") is not True:
            raise DatabaseUnavailable(f"{tool} returned an answer that is not a result")
        self._answered = True
        return answer


def refusal(text: str) -> StatementRefused:
    """Return the error for the error text of a database."""
    reason = next((name for name, pattern in _REASONS if pattern.search(text)), "other")
    level = logging.WARNING if reason == "other" else logging.DEBUG
    log.log(level, "statement refused (%s): %s", reason, text.partition("\n")[0][:_LOGGED])
    return StatementRefused(reason, text)


def _too_large() -> TooLarge:
    return TooLarge(
        "the database's answer does not fit into a message",
        hint="Request less at a time, or raise the setting max_message_bytes.",
    )


def _passing(exc: BaseException) -> bool:
    """Return True if a read may succeed when it is retried."""
    if isinstance(exc, StatementRefused):
        return exc.reason in ("conflict", "busy")
    # If the tool has no provider, the attempt has waited already.
    return isinstance(exc, DatabaseUnavailable) and not isinstance(exc.__cause__, NoProvider)
