"""Progress of long work, as its events tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

from ability_search.cli import output
from kadi import Connection

CHANNEL = "search.index.progress"

Advance = Callable[[int, int, str], None]
"""Called with the documents done, the documents in total, and the stage."""


@contextmanager
def progress_bar(name: str, *, total: int | None, hidden: bool) -> Iterator[Advance]:
    """A bar on stderr while the block runs, if that is a terminal.

    A known ``total`` (of documents) stays; otherwise the events say it.
    """
    console = output.stderr()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=hidden or not console.is_terminal,
    )
    with bar:
        task = bar.add_task(output.plain(name), total=total)

        def advance(done: int, of: int, stage: str) -> None:
            bar.update(
                task,
                completed=done,
                total=of if total is None else total,
                description=output.plain(f"{name} {stage}".strip()),
            )

        yield advance


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
