"""The choice of the agents that get the statements of a worker."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import cycle, repeat
from typing import Any

from ability_search.errors import DatabaseUnavailable, StatementRefused
from ability_search.ports import Agents
from ability_search.store.arcadedb.core import Statement
from ability_search.store.arcadedb.engine_version import is_too_old, too_old
from ability_search.store.arcadedb.refusals import PASSING
from kadi_client.errors import KadiError, NoProvider
from kadi_client.tools import quoted_name

log = logging.getLogger(__name__)

QUERY = "arcade-query"
INDEX_SEARCH = "arcade-index-search"
SEPARATE = "Stop all but one of these database abilities, or separate them by networks."
_SELECT_ID = Statement("SELECT id FROM DatabaseId")
_OURS = Statement("SELECT name FROM schema:types WHERE name = 'Collection'")
_VERSION = Statement("SELECT version() AS version")
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
_MISSING = ("missing_database", "missing_type")

Run = Callable[[Statement, str | None, bool], Awaitable[Any]]
"""Runs a statement on the database of an agent, ``None`` for any; as a write if it is true."""


class ProviderPin:
    """Chooses the agent to send statements to.

    The broker spreads the calls of a tool over all agents that offer it. Two database abilities
    with databases of their own are not replicas: half of what is written would go to each. So every
    database has an id in its records, and a worker sends its statements only to agents whose
    database has the id that it found first, on whichever broker they are.

    Args:
        agents: Lists the agents; ``None`` lets the broker choose for each call.
        run: Runs a statement on one of them; raises DatabaseUnavailable if it failed.
    """

    def __init__(self, agents: Agents | None, run: Run) -> None:
        self._listing = agents
        self._run = run
        self._chosen = agents is None
        self._doubted = False
        self._names: Mapping[str, str] = {}
        """Of the agents of the last listing, and of those that were chosen last."""
        self._fitting: list[str] = []
        """The agents with this database."""
        self._searching: Mapping[str, str] = {}
        self._agents: Iterator[str | None] = repeat(None)
        self._database: str | None = None
        self._choosing = asyncio.Lock()

    async def agent(self) -> str | None:
        """Return the agent to call: the agents with this database take turns.

        ``None`` is any agent, if the broker does not list the agents.

        Raises:
            DatabaseUnavailable: if several databases are offered, or another one than before, or
                none any more; the cause of the last two is :class:`.NoProvider`.
            EngineTooOld: if the engine of a database is too old.
        """
        if not self._chosen or self._doubted:
            async with self._choosing:
                if self._doubted:
                    await self._look_again()
                if not self._chosen:
                    await self._choose()
        return next(self._agents)

    def searches(self, agent: str | None) -> bool:
        """Return whether a chosen agent searches indexes without SQL."""
        return agent in self._searching

    def describe(self, agent: str | None) -> str:
        """Return the text that names a database ability: its name and agent id, if known."""
        if agent is None:
            return "the database ability"
        name = self._names.get(agent, "")
        if name in ("", agent):
            return f"agent {agent}"
        return f"{quoted_name(name)} (agent {agent})"

    async def list_agents(self) -> list[str]:
        """Return the ids of the agents that offer a database, whichever it is.

        Raises:
            KadiError: if the broker does not list its tools.
        """
        listed = await self._list(QUERY)
        last = {agent: self._names.get(agent, "") for agent in self._fitting}
        self._names = {**last, **listed}
        return sorted(listed)

    def lost(self) -> None:
        """Choose again before the next statement, as the agent is gone."""
        self._chosen = self._listing is None

    def doubt(self) -> None:
        """Look before the next statement whether all agents are still listed: one is silent."""
        self._doubted = self._listing is not None

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
            EngineTooOld: if the engine of an agent is too old.
            KadiError: if the broker does not list its tools.
        """
        ids, failures = await self._listed_ids()
        for failure in failures.values():
            raise failure
        return ids

    async def _listed_ids(
        self,
    ) -> tuple[dict[str, str | None], dict[str, DatabaseUnavailable]]:
        """Return the ids of :meth:`ids`, and the failures of the agents that have none."""
        agents = await self.list_agents()
        answers = await asyncio.gather(*map(self._id, agents), return_exceptions=True)
        ids: dict[str, str | None] = {}
        failures: dict[str, DatabaseUnavailable] = {}
        for agent, answer in zip(agents, answers, strict=True):
            if isinstance(answer, DatabaseUnavailable):
                failures[agent] = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                ids[agent] = answer
        return ids, failures

    async def _list(self, tool: str) -> Mapping[str, str]:
        """Return the display names of the agents that offer a tool by their ids."""
        if self._listing is None:
            return {}
        return {agent.id: agent.name for agent in await self._listing(tool) if agent.id}

    async def _look_again(self) -> None:
        """Choose again if one of the chosen agents is no longer listed."""
        self._doubted = False
        try:
            listed = await self._list(QUERY)
        except KadiError as exc:
            log.debug("the broker does not list its tools: %s", exc)
            return
        if not set(self._fitting) <= set(listed):
            self._chosen = False

    async def _choose(self) -> None:
        try:
            ids, failures = await self._listed_ids()
            searching = await self._list(INDEX_SEARCH)
        except KadiError as exc:
            log.warning("the broker does not list its tools, databases are not compared: %s", exc)
            self._chosen = True
            return
        if self._database is None:
            # Whoever writes first decides which database it is, so all must be known.
            for failure in failures.values():
                raise failure
        if not ids:
            self._require_none_known(failures)
            self._agents = repeat(None)
            return  # the error of the call says that there is none
        if len(ids) > 1 or "" in ids.values():
            ids = {agent: id_ or await self._identify(agent) for agent, id_ in ids.items()}
        database = self._database or next(iter(ids.values()))
        fitting = [agent for agent, id_ in ids.items() if id_ == database]
        if self._database is not None and not fitting:
            for failure in failures.values():
                raise failure
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
        if self._fitting and set(fitting) != set(self._fitting):
            chosen = ", ".join(map(self.describe, fitting))
            log.info("statements now go to %s, which has the same database", chosen)
        self._fitting, self._searching = fitting, searching
        self._agents, self._database, self._chosen = cycle(fitting), database, True

    def _require_none_known(self, failures: Mapping[str, DatabaseUnavailable]) -> None:
        """Raise the reason why no agent offers the database that this worker works with.

        A call without the name of an agent would reach any database.

        Raises:
            DatabaseUnavailable: if it works with one.
        """
        for failure in failures.values():
            raise failure
        if self._database is not None:
            last = " or ".join(map(self.describe, self._fitting))
            raise DatabaseUnavailable(
                f"no agent on the networks of this worker offers a database; {last} did",
                hint="Start the database ability again, or check that it is connected.",
            ) from NoProvider(f"no provider of database {self._database}")

    async def _id(self, agent: str) -> str | None:
        """Return the id of an agent's database, as :meth:`ids`."""
        await self._check_engine(agent)
        for statement in (_SELECT_ID, _OURS):
            rows = await self._rows(statement, agent)
            if rows:
                return str(rows[0].get("id", ""))
        return None

    async def _check_engine(self, agent: str) -> None:
        """Raise EngineTooOld if the engine of an agent's database, if there is one, is too old."""
        rows = await self._rows(_VERSION, agent)
        version = str(rows[0].get("version") or "") if rows else ""
        if is_too_old(version):
            raise too_old(version, self.describe(agent))

    async def _rows(self, statement: Statement, agent: str) -> Any:
        """Return the rows of a statement; none if the database or a type is missing."""
        try:
            return await self._run(statement, agent, False)
        except StatementRefused as exc:
            if exc.reason not in _MISSING:
                raise
            return []

    async def _identify(self, agent: str) -> str:
        """Give an agent's database an id unless it has one; return its id."""
        for statement in (_TYPE_OF_ID, Statement(_INSERT_ID, {"id": secrets.token_hex(8)})):
            try:
                await self._run(statement, agent, True)
            except StatementRefused as exc:
                # Another worker is giving it one at the same time.
                if exc.reason not in ("duplicate", *PASSING):
                    raise
        return await self._id(agent) or ""


def offers(ids: Mapping[str, str | None]) -> str:
    """Return the text that names the agents and the ids of their databases."""
    return ", ".join(f"agent {agent} offers {id_ or 'none'}" for agent, id_ in ids.items())
