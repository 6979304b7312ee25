"""`index`: files of this machine into a collection."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from ability_search.cli import output
from ability_search.cli.app import app, command
from ability_search.cli.client import (
    LONG_SECONDS,
    BrokerOption,
    Client,
    JsonOption,
    TimeoutOption,
    given,
    with_client,
)
from ability_search.cli.failures import FAILED, NOT_FOUND
from ability_search.cli.progress import Advance, following, progress_bar
from ability_search.cli.selecting import Batch, Tree, batches, collection_name, sweepable, trees
from ability_search.files import Skipped

_COUNTED = ("documents", "chunks", "added", "updated", "unchanged", "deduplicated")
_PAGE = 10_000


@dataclass(slots=True)
class Outcome:
    """What became of the files, over all calls."""

    counts: Counter[str] = field(default_factory=Counter)
    failed: list[dict[str, str]] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)
    removed: int = 0
    model: str | None = None

    def add(self, answer: dict[str, Any]) -> None:
        """Take in the answer of a call."""
        self.counts.update({name: answer[name] for name in _COUNTED})
        self.failed += answer["failed"]
        self.skipped += answer.get("skipped", ())
        self.removed += answer.get("removed", 0)
        self.model = answer["model"]

    def skip(self, files: Iterable[Skipped]) -> None:
        """Note files that were left out before anything was sent."""
        self.skipped += [{"path": file.path, "reason": file.reason} for file in files]


@command(app, "index")
def index(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files, directories.")],
    collection: Annotated[
        str | None,
        typer.Option("--collection", "-c", help="Collection.  [default: the directory's name]"),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(
            help="Sources are paths relative to it.  [default: the working directory, or the"
            " parent of a PATH outside of it]"
        ),
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Only these files (gitignore syntax)."),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="None of these files.")
    ] = None,
    chunk_strategy: Annotated[str | None, typer.Option(help="How texts are cut.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Most tokens in a chunk.")] = None,
    model: Annotated[str | None, typer.Option(help="Embedding model.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Unchanged files too.")] = False,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Remove sources under a PATH whose files are gone.")
    ] = False,
    server_side: Annotated[
        bool, typer.Option("--server-side", help="Let the worker read the files.")
    ] = False,
    broker: BrokerOption = None,
    timeout: TimeoutOption = LONG_SECONDS,
    as_json: JsonOption = False,
) -> None:
    """Index files and directories; what has not changed costs nothing.

    The files are read here and sent; with --server-side the worker reads them,
    on its machine and inside its allowed_roots. Files that are binary, empty or
    too large are skipped. --timeout holds for each call of bounded size. Exit
    code 1 means that a document failed.

    Example:
        ability-search index docs
        ability-search index src README.md -c project --include '*.py' --include '*.md'
        ability-search index docs --sweep --json
    """
    name = collection or collection_name(paths[0])
    options = given(
        collection=name,
        chunkStrategy=chunk_strategy,
        maxTokens=max_tokens,
        model=model,
        force=force,
    )
    patterns = given(include=include, exclude=exclude)
    outcome = Outcome()

    async def work(client: Client) -> None:
        if server_side:
            wanted = {**options, **patterns, **given(sweep=sweep)}
            for path in paths:
                await _on_worker(client, str(path), wanted, outcome, timeout, hidden=as_json)
            return
        chosen = trees(paths, root, **patterns)
        swept = sweepable(chosen) if sweep else []
        await _from_here(client, chosen, options, outcome, timeout, hidden=as_json)
        for tree in swept:
            outcome.removed += await _sweep(client, name, tree, timeout)

    try:
        with_client(broker, work)
    finally:
        # Of several calls some may have succeeded before one failed.
        if outcome.model is not None or outcome.skipped:
            _show(name, outcome, as_json=as_json)
    if outcome.model is None:
        output.fail("nothing to index", "No file was found that is text and fits the patterns.")
        raise typer.Exit(NOT_FOUND)
    if outcome.failed:
        raise typer.Exit(FAILED)


async def _from_here(
    client: Client,
    chosen: list[Tree],
    options: dict[str, Any],
    outcome: Outcome,
    timeout: float,
    *,
    hidden: bool,
) -> None:
    total = sum(len(tree.selection.files) for tree in chosen)
    done = 0
    limits = client.settings.limits
    for tree in chosen:
        outcome.skip(tree.selection.skipped)
    with progress_bar(options["collection"], total=total, hidden=hidden) as advance:
        for batch in batches(chosen, limits):
            outcome.skip(batch.skipped)
            if batch.documents:
                outcome.add(await _send(client, batch, options, timeout, advance, done))
            done += len(batch.documents) + len(batch.skipped)
            advance(done, total, "")


async def _send(
    client: Client,
    batch: Batch,
    options: dict[str, Any],
    timeout: float,
    advance: Advance,
    done: int,
) -> dict[str, Any]:
    job = secrets.token_hex(8)
    async with following(client.connection, job, advance, before=done):
        return await client.call(
            "search-index", {**options, "documents": batch.documents, "jobId": job}, timeout=timeout
        )


async def _on_worker(
    client: Client,
    path: str,
    wanted: dict[str, Any],
    outcome: Outcome,
    timeout: float,
    *,
    hidden: bool,
) -> None:
    job = secrets.token_hex(8)
    with progress_bar(path, total=None, hidden=hidden) as advance:
        async with following(client.connection, job, advance):
            request = {**wanted, "path": path, "jobId": job}
            outcome.add(await client.call("search-index-file", request, timeout=timeout))


async def _sweep(client: Client, collection: str, tree: Tree, timeout: float) -> int:
    """Delete the sources below a directory that has no such file any more."""
    gone: list[str] = []
    cursor: str | None = None
    while True:
        page = await client.call(
            "search-collection-info",
            given(collection=collection, limit=_PAGE, cursor=cursor),
            timeout=timeout,
        )
        gone += [s for s in page["sources"] if tree.lacks(s)]
        cursor = page.get("nextCursor")
        if cursor is None:
            break
    for source in gone:
        wanted = {"collection": collection, "source": source}
        await client.call("search-delete", wanted, timeout=timeout)
    return len(gone)


def _show(collection: str, outcome: Outcome, *, as_json: bool) -> None:
    counts = {name: outcome.counts[name] for name in _COUNTED}
    if as_json:
        output.print_json(
            {
                "collection": collection,
                **counts,
                "removed": outcome.removed,
                "model": outcome.model,
                "failed": outcome.failed,
                "skipped": outcome.skipped,
            }
        )
        return
    told = ", ".join(f"{counts[name]:,} {name}" for name in ("added", "updated", "unchanged"))
    further = {
        "deduplicated": counts["deduplicated"],
        "removed": outcome.removed,
        "skipped": len(outcome.skipped),
        "failed": len(outcome.failed),
    }
    told += "".join(f", {count:,} {name}" for name, count in further.items() if count)
    output.stdout().print(
        f"[bold]{output.plain(collection)}[/bold]: {told}; {counts['chunks']:,} chunks stored"
    )
    for item in outcome.skipped:
        output.stderr().print(
            f"skipped {output.plain(item['path'])}: {output.plain(item['reason'])}", soft_wrap=True
        )
    for item in outcome.failed:
        output.warn(f"{item['source']} failed: {item['error']}")
