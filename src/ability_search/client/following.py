"""Progress of long work, as its events tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from kadi import Connection

CHANNEL = "search.index.progress"

Advance = Callable[[int, int, str], None]
"""Called with the documents done, the documents in total, and the stage."""


@asynccontextmanager
async def following(
    connection: Connection, job: str, advance: Advance, *, before: int = 0
) -> AsyncIterator[None]:
    """Tell ``advance`` of a job's events while the block runs; ``before`` are done already."""
    async with connection.subscribe(CHANNEL) as events:

        async def follow() -> None:
            async for event in events:
                data = event.data if isinstance(event.data, dict) else {}
                if data.get("jobId") == job:
                    done, total = int(data.get("done", 0)), int(data.get("total", 0))
                    advance(before + done, total, str(data.get("stage", "")))

        task = asyncio.create_task(follow())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
