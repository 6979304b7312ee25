"""Progress bars of long operations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

from ability_search.cli import output
from ability_search.client.following import Advance


@contextmanager
def progress_bar(name: str, *, total: int | None, hidden: bool) -> Iterator[Advance]:
    """Show a progress bar on stderr during the block, if stderr is a terminal.

    ``total`` is a number of documents; if ``None``, the progress events set it.
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
