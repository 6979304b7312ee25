"""Periodic background tasks."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from ability_search.errors import SearchError
from kadi_client.context import handling
from kadi_client.tracing import span

log = logging.getLogger(__name__)


@asynccontextmanager
async def watching(
    about: str, look: Callable[[], Awaitable[None]], *, every: float
) -> AsyncIterator[None]:
    """Call ``look`` periodically while the block runs: at once, then about ``every`` seconds.

    The pauses vary randomly, so that workers that started together drift apart. ``about`` names
    the task in the log. Each run has its own call id and span.
    """
    task = asyncio.create_task(_watch(about, look, every), name=about)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _watch(about: str, look: Callable[[], Awaitable[None]], every: float) -> None:
    while True:
        with handling({}):
            await _tried(about, look)
        await asyncio.sleep(every * random.uniform(0.75, 1.25))


async def _tried(about: str, look: Callable[[], Awaitable[None]]) -> None:
    try:
        with span(about):
            await look()
    except SearchError as exc:
        log.debug("%s postponed: %s", about, exc)
    except Exception:
        log.exception("%s failed", about)
