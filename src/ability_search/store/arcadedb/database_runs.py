"""Restarts of a database, seen by what its answers carry."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Any

from ability_search.errors import DatabaseUnavailable, StatementRefused
from ability_search.store.arcadedb.core import RUN, Statement
from ability_search.store.arcadedb.provider_pin import Run

log = logging.getLogger(__name__)

_MARK = f"SET GLOBAL {RUN} = ifnull(${RUN}, :run); RETURN {{'mark': ${RUN}}};"
_MOST_UNMARKED = 8
"""Answers without a word after it was set, from which on it is not looked for any more."""


class DatabaseRuns:
    """Tells of each restart of the database, see :data:`.core.RUN`.

    The word is in the memory of the engine, so it is gone after a restart, also one of which no
    call failed. The first worker that misses it sets another; each worker that meets an unknown
    one knows that the database was restarted. Replicas have words of their own.

    Servers that share reads but not memory may never have it in their answers. After some of these
    it is not looked for any more, and the log says so.

    Args:
        run: Runs a statement on the database of an agent.
        restarted: Called once for each unknown word, and for each answer without any.
    """

    def __init__(self, run: Run, restarted: Callable[[], None]) -> None:
        self._run = run
        self._restarted = restarted
        self._known: set[str] = set()
        self._unmarked = 0
        self._watching = True
        self._marking = asyncio.Lock()

    async def see(self, word: Any, agent: str | None) -> None:
        """Note the word of an answer of an agent; set one if there is none."""
        if word in self._known or not self._watching:
            return
        self._restarted()
        if isinstance(word, str):
            self._known.add(word)
        elif not self._marking.locked():
            # Other answers need not wait for it.
            async with self._marking:
                await self._mark(agent)

    async def _mark(self, agent: str | None) -> None:
        """Set the word of a database, unless another worker has done so meanwhile."""
        statement = Statement(_MARK, {"run": secrets.token_hex(8)})
        try:
            answer = await self._run(statement, agent, True)
        except StatementRefused as exc:
            self._give_up(str(exc))
            return
        except DatabaseUnavailable as exc:
            log.debug("the database has no word of its run yet: %s", exc)
            return
        word = answer.get("mark") if isinstance(answer, dict) else None
        if isinstance(word, str) and word not in self._known:
            self._known.add(word)
            self._unmarked = 0
            return
        self._unmarked += 1
        if self._unmarked >= _MOST_UNMARKED:
            self._give_up("its answers do not show what was set")

    def _give_up(self, why: str) -> None:
        self._watching = False
        log.warning(
            "restarts of the database are not noticed at once, only by the regular check: %s", why
        )
