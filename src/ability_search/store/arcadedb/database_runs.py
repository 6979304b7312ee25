"""Restarts of a database, seen by what its answers carry."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections.abc import Callable
from typing import Any

from ability_search.errors import DatabaseUnavailable, StatementRefused
from ability_search.store.arcadedb.core import RUN, Statement
from ability_search.store.arcadedb.provider_pin import Run

log = logging.getLogger(__name__)

_MARK = f"SET GLOBAL {RUN} = ifnull(${RUN}, :run); RETURN {{'mark': ${RUN}}};"
_MOST_MARKS = 8
"""Marks in a row that no answer confirms, after which the database is no longer watched."""


class DatabaseRuns:
    """Tells of each restart of the database, see :data:`.core.RUN`.

    The word is in the memory of the engine, so it is gone after a restart, also one of which no
    call failed. The first worker that misses it sets another; each worker that meets an unknown
    one knows that the database was restarted. Replicas have words of their own.

    Servers that share reads but not memory may never have it in their answers. After some of these
    the database is no longer watched, and the log says so.

    Args:
        run: Runs a statement on the database of an agent.
        restarted: Called once for each unknown word, and before each mark.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        run: Run,
        restarted: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._restarted = restarted
        self._clock = clock
        self._known: set[str] = set()
        self._expected: str | None = None
        """The word of the last mark, until an answer has it."""
        self._marks = 0
        """Marks in a row that no answer confirmed."""
        self._marked_at = -math.inf
        """When the last mark was answered."""
        self._watching = True
        self._marking = asyncio.Lock()

    async def see(self, word: Any, agent: str | None, *, asked_at: float) -> None:
        """Note the word of an answer of an agent; set one if there is none.

        An answer without a word tells nothing if its question was asked before the last mark was
        answered: the database may have answered it before the mark.

        Args:
            word: The word, of whatever type the answer has it; ``None`` if there is none.
            agent: The agent that answered.
            asked_at: When the question was sent, by the clock.
        """
        if not self._watching:
            return
        if isinstance(word, str):
            self._meet(word)
        elif not self._marking.locked() and asked_at >= self._marked_at:
            self._restarted()
            async with self._marking:
                await self._mark(agent)

    def _meet(self, word: str) -> None:
        if word == self._expected:
            self._expected, self._marks = None, 0
        if word not in self._known:
            self._known.add(word)
            self._restarted()

    async def _mark(self, agent: str | None) -> None:
        """Set the word of a database, unless another worker has done so meanwhile."""
        statement = Statement(_MARK, {"run": secrets.token_hex(8)})
        try:
            answer = await self._run(statement, agent, True)
        except StatementRefused as exc:
            self._give_up(str(exc))
            return
        except DatabaseUnavailable as exc:
            log.debug("the run of the database could not be marked yet: %s", exc)
            return
        self._marked_at = self._clock()
        self._marks += 1
        word = answer.get("mark") if isinstance(answer, dict) else None
        if isinstance(word, str) and word not in self._known:
            self._known.add(word)
            self._expected = word
        if self._marks >= _MOST_MARKS:
            self._give_up("its answers do not show what was set")

    def _give_up(self, why: str) -> None:
        self._watching = False
        log.warning(
            "restarts of the database are not noticed at once, only by the regular check: %s", why
        )
