"""Progress bars of long operations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ability_search.client.tool_client import Advance
from ability_search.extensions.cli import output

if TYPE_CHECKING:
    from ability_search.extensions.cli.upload import Outcome
    from ability_search.index.index_calls import Progress as Counts
    from ability_search.index.index_calls import Report


@contextmanager
def progress_bar(name: str, *, total: int | None, hidden: bool) -> Iterator[Advance]:
    """Show a progress bar on stderr during the block, if stderr is a terminal.

    ``total`` is a number of documents; if ``None``, the progress events set it. For 0 nothing is
    shown.
    """
    console = output.stderr()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=hidden or total == 0 or not console.is_terminal,
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


@contextmanager
def report_bar(name: str, *, hidden: bool) -> Iterator[Report]:
    """Show a progress bar as :func:`progress_bar`; yield a callback for the indexing services."""
    with progress_bar(name, total=None, hidden=hidden) as advance:

        async def report(counts: Counts) -> None:
            advance(counts.done, counts.total, counts.stage)

        yield report


def counts_text(outcome: Outcome) -> str:
    """Return the counts as text."""
    counts = outcome.counts
    text = ", ".join(f"{counts[name]:,} {name}" for name in ("added", "updated", "unchanged"))
    further = {
        "deduplicated": counts["deduplicated"],
        "vector reused" if counts["reused"] == 1 else "vectors reused": counts["reused"],
        "removed": outcome.removed,
        "skipped": len(outcome.skipped),
        "failed": len(outcome.failed),
    }
    text += "".join(f", {count:,} {name}" for name, count in further.items() if count)
    return f"{text}; {output.counted(counts['chunks'], 'chunk')} stored"


def print_problems(outcome: Outcome) -> None:
    """Print the skipped files, the warnings and the failures."""
    for item in outcome.skipped:
        output.stderr().print(
            f"skipped {output.plain(item['path'])}: {output.plain(item['reason'])}"
        )
    for warning in dict.fromkeys(outcome.warnings):
        output.warn(warning)
    for item in outcome.failed:
        output.warn(f"{item['source']} failed: {item['error']}")
