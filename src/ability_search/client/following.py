"""Reports the progress events of a job to a callback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from ability_search.tools.table import PROGRESS
from kadi_client import Connection

_DRAIN_SECONDS = 2.0

Advance = Callable[[int, int, str], None]
"""Callback with the documents done, the total number of documents, and the stage."""
AwaitedAdvance = Callable[[int, int, str], Awaitable[None]]


@asynccontextmanager
async def following(
    connection: Connection, job: str, advance: Advance | AwaitedAdvance, *, before: int = 0
) -> AsyncIterator[None]:
    """Call ``advance`` for each progress event of a job during the block.

    ``before`` documents were done before the job and are added to its count. Events that arrived
    by the end of the block are still reported.
    """
    async with connection.subscribe(PROGRESS) as events:

        async def follow() -> None:
            async for event in events:
                data = event.data if isinstance(event.data, dict) else {}
                if data.get("jobId") == job:
                    done, total = int(data.get("done", 0)), int(data.get("total", 0))
                    told = advance(before + done, total, str(data.get("stage", "")))
                    if told is not None:
                        await told

        task = asyncio.create_task(follow())
        try:
            yield
            # Events published before the answer have arrived before it.
            events.end()
            await asyncio.wait([task], timeout=_DRAIN_SECONDS)
        finally:
            task.cancel()
            await asyncio.wait([task])
