"""`index`, `watch`, `build`: make local files searchable."""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ability_search.cli import output
from ability_search.cli.app import FAILED, NOT_FOUND, app, command, explain
from ability_search.cli.clients import new_client, with_client
from ability_search.cli.parameters import (
    BrokerOption,
    ChunkStrategyOption,
    CollectionOption,
    ExcludeOption,
    IncludeOption,
    JsonOption,
    KindsByOption,
    KindsOption,
    LanguageOption,
    MaxTokensOption,
    ModelOption,
    RevisionOption,
    TimeoutOption,
    given,
    kinds_fields,
)
from ability_search.cli.progress import progress_bar
from ability_search.client.tool_client import LONG_SECONDS, Advance, ToolClient
from ability_search.stack.lifecycle import run_until_stopped
from ability_search.sync.trees import Tree, collection_name, count_files, sweepable, trees
from ability_search.sync.upload import Outcome, remove_vanished, send_files
from ability_search.sync.watcher import EDITORS, Watcher, changes_of
from kadi_client import KadiError

if TYPE_CHECKING:
    from ability_search.artifacts.artifact_service import ArtifactService
    from ability_search.artifacts.manifest import ChunksManifest
    from ability_search.tools.handlers import Services


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
    chunk_strategy: ChunkStrategyOption = None,
    max_tokens: MaxTokensOption = None,
    model: ModelOption = None,
    language: LanguageOption = None,
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
        language=language,
        force=force,
    )
    options |= kinds_fields(kinds, kinds_by)
    patterns = given(include=include, exclude=exclude, gitignore=gitignore)
    outcome = Outcome()

    async def work(client: ToolClient) -> None:
        if server_side:
            wanted = {**options, **patterns, **given(sweep=sweep)}
            for path in paths:
                with progress_bar(str(path), total=None, hidden=as_json) as advance:
                    answer = await client.run_job(
                        "search-index-file",
                        {**wanted, "path": str(path)},
                        timeout=timeout,
                        advance=advance,
                    )
                outcome.add(answer)
            return
        chosen = trees(paths, root, **patterns)
        swept = sweepable(chosen) if sweep else []
        with progress_bar(name, total=count_files(chosen), hidden=as_json) as advance:
            await send_files(client, chosen, options, outcome, timeout, advance)
        for tree in swept:
            outcome.removed += await remove_vanished(client, name, tree, timeout)

    try:
        with_client(broker, work)
    finally:
        # Earlier calls may have succeeded before one failed.
        if outcome.model is not None or outcome.skipped:
            _show(name, outcome, as_json=as_json)
    if outcome.model is None:
        output.fail("nothing to index", "No text file matches the patterns.")
        raise typer.Exit(NOT_FOUND)
    if outcome.failed:
        raise typer.Exit(FAILED)


@command(app, "watch")
def watch(
    paths: Annotated[list[Path], typer.Argument(metavar="DIRECTORY...", help="Directories.")],
    collection: CollectionOption = None,
    root: Annotated[
        Path | None,
        typer.Option(
            help="Make sources relative to this directory.  [default: the working directory, or"
            " the parent of a DIRECTORY outside it]"
        ),
    ] = None,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    no_gitignore: Annotated[
        bool, typer.Option("--no-gitignore", help="Include files that .gitignore excludes.")
    ] = False,
    model: ModelOption = None,
    kinds: KindsOption = None,
    kinds_by: KindsByOption = None,
    broker: BrokerOption = None,
    timeout: TimeoutOption = LONG_SECONDS,
    as_json: JsonOption = False,
) -> None:
    """Index directories and keep the collection in sync with their files until Ctrl-C.

    The command first does the same as `index --sweep`, then follows new, changed,
    renamed and deleted files and prints one line per batch of changes. It retries
    while the broker or the worker is not available. With --json each line is an
    object.

    Example:
        ability-search watch docs
        ability-search watch src docs -c project --include '*.py' --include '*.md' --json
    """
    directories = [path.resolve() for path in paths]
    for path, directory in zip(paths, directories, strict=True):
        if not directory.is_dir():
            problem = "is not a directory" if directory.exists() else "no such directory"
            raise typer.BadParameter(f"{path}: {problem}", param_hint="DIRECTORY")

    def find() -> list[Tree]:
        return trees(
            paths,
            root,
            include=include or (),
            exclude=[*EDITORS, *(exclude or ())],
            gitignore=not no_gitignore,
        )

    if any(not tree.selection.prefix for tree in find()):
        output.warn(
            "the directory is the root itself: files deleted before now stay in the collection;"
            " pass the parent directory as --root to remove them"
        )
    name = collection or collection_name(paths[0])
    options = given(collection=name, model=model) | kinds_fields(kinds, kinds_by)

    async def work() -> None:
        async with new_client(broker) as client:
            report = WatchLog(name, as_json=as_json)
            await Watcher(client, find, options, timeout, report).follow(changes_of(directories))

    asyncio.run(run_until_stopped(work()))


@dataclass(frozen=True, slots=True)
class WatchLog:
    """Prints one line for each batch of changes."""

    collection: str
    as_json: bool

    def progress(self, total: int, *, first: bool) -> AbstractContextManager[Advance]:
        """Show a progress bar the first time."""
        return progress_bar(self.collection, total=total, hidden=self.as_json or not first)

    def applied(self, outcome: Outcome, seconds: float) -> None:
        """Print one line about applied changes."""
        if self.as_json:
            took = round(seconds * 1e3, 1)
            _print_line({**outcome.as_json(self.collection), "tookMs": took})
            return
        now = f"{datetime.now():%H:%M:%S}"
        output.stdout().print(
            f"[dim]{now}[/dim] [bold]{output.plain(self.collection)}[/bold]: {_counts(outcome)}"
            f" ({seconds:.1f} s)",
            soft_wrap=True,
        )
        _show_problems(outcome)

    def postponed(self, exc: KadiError, seconds: float) -> None:
        """Print a failure and when the next attempt is."""
        problem = explain(exc).text
        if self.as_json:
            _print_line({"error": problem, "retryInSeconds": seconds})
        else:
            output.warn(f"{problem}; retrying in {seconds:g} s")


def _print_line(report: dict[str, Any]) -> None:
    typer.echo(json.dumps({"time": datetime.now(UTC).isoformat(timespec="seconds"), **report}))


@command(app, "build")
def build(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Directory or file.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory to write to.")],
    base: Annotated[
        Path | None,
        typer.Option(help="Artifact to reuse vectors from.  [default: the one in DIR]"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Embed everything again.")] = False,
    name: Annotated[
        str | None,
        typer.Option(help="Name of the collection.  [default: the directory's name]"),
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="Make sources relative to this directory, as in `index`.")
    ] = None,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    model: ModelOption = None,
    revision: RevisionOption = None,
    broker: BrokerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Build an artifact from files, in the format that `export` writes.

    Unchanged files keep their vectors from the base artifact if it was built with
    the same model and settings. DIR is replaced once the new artifact is complete.
    Exit code 1 means that a document failed.

    Example:
        ability-search build skills search --include SKILL.md
        ability-search build skills own --base search --revision "$(git rev-parse HEAD)"
    """
    from ability_search.artifacts.artifact_service import BuildOptions
    from ability_search.cli.transfer import with_artifacts
    from ability_search.components.local_services import build_artifact

    chosen = trees([path], root, **given(include=include, exclude=exclude))
    wanted = name or collection_name(path)
    options = BuildOptions(
        base=None if force else base or directory, model=model, force=force, revision=revision
    )

    async def work(
        services: Services, artifacts: ArtifactService
    ) -> tuple[ChunksManifest, Outcome]:
        return await build_artifact(services, artifacts, wanted, directory, chosen, options)

    manifest, outcome = with_artifacts(broker, work, hidden=as_json)
    if as_json:
        artifact = {"directory": str(directory), "revision": manifest.revision}
        output.print_json(outcome.as_json(wanted) | artifact)
    else:
        output.stdout().print(
            f"built [bold]{output.plain(wanted)}[/bold] in {output.plain(directory)}:"
            f" {_counts(outcome)}",
            soft_wrap=True,
        )
        _show_problems(outcome)
    if outcome.failed:
        raise typer.Exit(FAILED)


def _show(collection: str, outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        output.print_json(outcome.as_json(collection))
        return
    output.stdout().print(f"[bold]{output.plain(collection)}[/bold]: {_counts(outcome)}")
    _show_problems(outcome)


def _counts(outcome: Outcome) -> str:
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


def _show_problems(outcome: Outcome) -> None:
    """Print the skipped files, the warnings and the failures."""
    for item in outcome.skipped:
        output.stderr().print(
            f"skipped {output.plain(item['path'])}: {output.plain(item['reason'])}", soft_wrap=True
        )
    for warning in dict.fromkeys(outcome.warnings):
        output.warn(warning)
    for item in outcome.failed:
        output.warn(f"{item['source']} failed: {item['error']}")
