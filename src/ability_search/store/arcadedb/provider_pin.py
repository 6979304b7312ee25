"""The database that a worker works with, where several are offered.

The broker spreads the calls of a tool over all agents that offer it. Two database abilities with
databases of their own are not replicas: half of what is written would go to each. So every database
has an id in its records, and a worker sends its statements only to agents whose database has the
id that it found first, on whichever broker they are.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from itertools import cycle, repeat
from typing import Any

from ability_search.errors import DatabaseUnavailable, StatementRefused
from ability_search.ports import Providers
from ability_search.store.arcadedb.core import Statement
from kadi_client.errors import KadiError, NoProvider

log = logging.getLogger(__name__)

_TOOL = "arcade-query"
INDEX_SEARCH = "arcade-index-search"
_SELECT = Statement("SELECT id FROM DatabaseId")
_OURS = Statement("SELECT name FROM schema:types WHERE name = 'Collection'")
_TYPE = Statement(
    "CREATE DOCUMENT TYPE DatabaseId IF NOT EXISTS BUCKETS 1;"
    " CREATE PROPERTY DatabaseId.single IF NOT EXISTS BOOLEAN;"
    " CREATE INDEX IF NOT EXISTS ON DatabaseId (single) UNIQUE;"
)
_INSERT = """
    BEGIN;
    LET known = SELECT FROM DatabaseId;
    IF ($known.size() = 0) { INSERT INTO DatabaseId SET single = true, id = :id; }
    COMMIT;
"""
"""The index on ``single`` keeps two workers from giving two ids."""


SEPARATE = "Stop all but one of these database abilities, or separate them by networks."


def offers(ids: Mapping[str, str | None]) -> str:
    """Return the text that names the agents and the ids of their databases."""
    return ", ".join(f"agent {agent} offers {id_ or 'none'}" for agent, id_ in ids.items())


Run = Callable[[Statement, str, bool], Awaitable[Any]]
"""Runs a statement on the database of the named agent, as a write if it is true."""


class ProviderPin:
    """Chooses the agent to send statements to.

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
        return {agent: await self._id(agent) for agent in sorted(await self._providers(_TOOL))}

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
        self._searching = await self._providers(INDEX_SEARCH)
        self._agents, self._database, self._chosen = cycle(fitting), known, True

    async def _id(self, agent: str) -> str | None:
        """Return the id of an agent's database, as :meth:`ids`."""
        for statement in (_SELECT, _OURS):
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
        for statement in (_TYPE, Statement(_INSERT, {"id": secrets.token_hex(8)})):
            try:
                await self._run(statement, agent, True)
            except StatementRefused as exc:
                # Another worker is giving it one at the same time.
                if exc.reason not in ("duplicate", "conflict"):
                    raise
        return await self._id(agent) or ""
