"""`index`: index local files into a collection."""

from __future__ import annotations

import secrets
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
from ability_search.cli.kinds import KindsByOption, KindsOption, kinds_fields
from ability_search.cli.progress import progress_bar
from ability_search.cli.selecting import collection_name, sweepable, trees
from ability_search.cli.sending import Outcome, remove_vanished, send_files, show
from ability_search.cli.tree_options import CollectionOption, ExcludeOption, IncludeOption
from ability_search.client.following import following


@command(app, "index")
def index(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files or directories.")],
    collection: CollectionOption = None,
    root: Annotated[
        Path | None,
        typer.Option(
            help="Make sources relative to this directory.  [default: the working directory, or"
            " the parent of a PATH outside it]"
        ),
    ] = None,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    chunk_strategy: Annotated[str | None, typer.Option(help="Chunking strategy.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Maximum tokens per chunk.")] = None,
    model: Annotated[str | None, typer.Option(help="Embedding model.")] = None,
    gitignore: Annotated[
        bool, typer.Option("--gitignore", help="Skip files that .gitignore excludes.")
    ] = False,
    kinds: KindsOption = None,
    kinds_by: KindsByOption = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Index unchanged files, too, and embed every text again."),
    ] = False,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Delete sources below PATH whose files no longer exist.")
    ] = False,
    server_side: Annotated[
        bool, typer.Option("--server-side", help="Have the worker read the files.")
    ] = False,
    broker: BrokerOption = None,
    timeout: TimeoutOption = LONG_SECONDS,
    as_json: JsonOption = False,
) -> None:
    """Index files and directories; unchanged files are skipped.

    The files are read here and sent to the worker; with --server-side the worker
    reads them on its own machine, within its allowed_roots. Binary, empty and too
    large files are skipped. The documents are sent in several calls; --timeout
    applies to each. Exit code 1 means that a document failed.

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
    options |= kinds_fields(kinds, kinds_by)
    patterns = given(include=include, exclude=exclude, gitignore=gitignore)
    outcome = Outcome()

    async def work(client: Client) -> None:
        if server_side:
            wanted = {**options, **patterns, **given(sweep=sweep)}
            for path in paths:
                await _on_worker(client, str(path), wanted, outcome, timeout, hidden=as_json)
            return
        chosen = trees(paths, root, **patterns)
        swept = sweepable(chosen) if sweep else []
        await send_files(client, chosen, options, outcome, timeout, hidden=as_json)
        for tree in swept:
            outcome.removed += await remove_vanished(client, name, tree, timeout)

    try:
        with_client(broker, work)
    finally:
        # Earlier calls may have succeeded before one failed.
        if outcome.model is not None or outcome.skipped:
            show(name, outcome, as_json=as_json)
    if outcome.model is None:
        output.fail("nothing to index", "No text file matches the patterns.")
        raise typer.Exit(NOT_FOUND)
    if outcome.failed:
        raise typer.Exit(FAILED)


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
