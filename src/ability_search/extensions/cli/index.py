"""`index`: make local files searchable."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import typer

from ability_search.client.tool_client import ToolClient
from ability_search.errors import InvalidInput
from ability_search.extensions.cli import output, parameters
from ability_search.extensions.cli.app import FAILED, NOT_FOUND, app, command
from ability_search.extensions.cli.clients import LONG_CALL, CallOptions, progress_bar, with_client
from ability_search.extensions.cli.local_files import (
    Place,
    UploadReport,
    collection_name,
    count_files,
    find_place,
    remove_sources,
    select_paths,
    send_files,
    sweepable,
    unselected,
)
from ability_search.files.selection import Selection
from ability_search.index.index_fields import IndexFields
from ability_search.text.loaders import decoded

_STDIN = Path("-")
_PATIENCE = 60.0
"""Seconds that `index` waits for components that are away, such as a database that restarts."""


@dataclass(frozen=True, slots=True)
class GivenText:
    """A text to index instead of files."""

    text: Annotated[str | None, "Index this text instead of files."] = None
    source: Annotated[
        str | None, "Source of the text.  [default: its title, or else a hash of it]"
    ] = None
    title: Annotated[str | None, "Title of the text."] = None
    metadata: Annotated[str | None, "Metadata of the text.", "JSON"] = None

    def document(self, paths: Sequence[Path], unfit: Mapping[str, Any]) -> dict[str, Any]:
        """Return the document of the text, or of standard input; empty if files are to be read.

        Args:
            paths: The files; ``-`` alone is standard input.
            unfit: Options for files, with their values.

        Raises:
            typer.BadParameter: if an option is missing or not allowed, or the text is blank.
        """
        about = parameters.given(source=self.source, title=self.title, metadata=self.metadata)
        if self.text is None and list(paths) != [_STDIN]:
            if not paths:
                raise typer.BadParameter("is missing; or give --text", param_hint="PATH")
            for name in about:
                problem = "is for --text, or - for stdin"
                raise typer.BadParameter(problem, param_hint=f"--{name}")
            return {}
        for option, value in {"PATH": self.text is not None and paths, **unfit}.items():
            if value:
                raise typer.BadParameter("is for files, not for a text", param_hint=option)
        content = decoded(sys.stdin.buffer.read()) if self.text is None else self.text
        if not content.strip():
            raise typer.BadParameter("is blank", param_hint="-" if self.text is None else "--text")
        title = self.title or ""
        return {
            "source": self.source or title or sha256(content.encode()).hexdigest()[:16],
            "title": title,
            "content": content,
            "metadata": parameters.json_object(self.metadata or "{}", "--metadata"),
        }


@dataclass(frozen=True, slots=True)
class LocalFiles(parameters.Patterns):
    """The choice of files to index, the side that reads them, and the fate of others."""

    gitignore: Annotated[bool, "Skip files that .gitignore excludes."] = False
    sweep: Annotated[
        bool, "Delete sources below PATH whose files no longer exist, or are excluded."
    ] = False
    yes: parameters.YesOption = False
    server_side: Annotated[bool, "Have the worker read the files."] = False

    @property
    def patterns(self) -> dict[str, Any]:
        """The patterns that were given."""
        return parameters.given(
            include=self.include, exclude=self.exclude, gitignore=self.gitignore
        )

    @property
    def unfit(self) -> dict[str, Any]:
        """The options that do not fit a text, with their values."""
        options = {"--root": self.root, "--sweep": self.sweep, "--server-side": self.server_side}
        return options | {f"--{name}": value for name, value in self.patterns.items()}


@command(app, "index")
def index(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="[PATH]...",
            help="Files or directories; - reads one text from stdin.",
            default_factory=list,
            show_default=False,
        ),
    ],
    collection: parameters.CollectionOption = None,
    *,
    text: GivenText,
    files: LocalFiles,
    indexing: IndexFields,
    calling: CallOptions = LONG_CALL,
) -> None:
    """Index files and directories; unchanged files are skipped.

    The files are read here and sent to the worker; with --server-side the worker
    reads them on its own machine, within its allowed_roots. Binary, empty and too
    large files are skipped; a file that has become empty is deleted from the
    collection. A file keeps the name that it has in the collection, in whatever
    directory the command runs. --sweep refuses to delete all or most sources of a
    directory unless --yes is given, because its drive may not be mounted. The documents are
    sent in several calls; --timeout applies to each. A single text is given with
    --text, or with - on standard input; a text of the same source is replaced. Exit
    code 1 means that a document failed.

    Example:
        ability-search index docs
        ability-search index src README.md -c project --include '*.py' --include '*.md'
        ability-search index docs --sweep --json
        ability-search index -c notes --text "Backups run at two." --title Backups
        git log -5 | ability-search index - -c notes --source log --metadata '{"team": "ops"}'
    """
    document = text.document(paths, files.unfit)
    if document and collection is None:
        raise typer.BadParameter("is needed for a text", param_hint="--collection")
    run = IndexRun(paths, collection, files, parameters.tool_fields(indexing), calling)

    async def work(client: ToolClient) -> None:
        client.patience = _PATIENCE
        if document:
            await run.send_text(client, document)
        elif files.server_side:
            await run.read_there(client)
        else:
            await run.read_here(client)

    outcome = run.outcome
    try:
        with_client(calling.broker, work)
    finally:
        # It may have had results before it failed.
        if outcome.model is not None or outcome.skipped or outcome.removed:
            _show(outcome, calling)
    _exit_unless_done(outcome)


@dataclass(frozen=True, slots=True)
class IndexRun:
    """One run of ``index``; its results add up in the outcome."""

    paths: Sequence[Path]
    collection: str | None
    files: LocalFiles
    options: Mapping[str, Any]
    """Fields of the tool."""
    calling: CallOptions
    outcome: UploadReport = field(default_factory=UploadReport)

    async def send_text(self, client: ToolClient, document: Mapping[str, Any]) -> None:
        """Index one text."""
        self.outcome.collection = self.collection or ""
        request = {**self.options, "collection": self.collection, "documents": [document]}
        self.outcome.add(
            await client.run_job("search-index", request, timeout=self.calling.timeout)
        )

    async def read_there(self, client: ToolClient) -> None:
        """Have the worker read the files."""
        files, name = self.files, self.collection or collection_name(self.paths[0])
        self.outcome.collection = name
        swept = parameters.given(sweep=files.sweep, sweepAll=files.sweep and files.yes)
        request = {**self.options, **files.patterns, **swept, "collection": name}
        for path in self.paths:
            # A relative path is relative to the worker's directory, if that is another machine.
            where = path if client.target.stack is None else path.absolute()
            with progress_bar(str(path), total=None, hidden=self.calling.as_json) as advance:
                answer = await client.run_job(
                    "search-index-file",
                    {**request, "path": str(where)},
                    timeout=self.calling.timeout,
                    advance=advance,
                )
            self.outcome.add(answer)

    async def read_here(self, client: ToolClient) -> None:
        """Read the files here and send them."""
        files, outcome = self.files, self.outcome
        call = partial(client.call, timeout=self.calling.timeout)
        place = await find_place(call, self.paths, collection=self.collection, root=files.root)
        outcome.collection = name = place.collection
        outcome.warnings += place.warnings
        chosen = select_paths(self.paths, place.roots, **files.patterns)
        removing = _swept(chosen, place, confirmed=files.yes) if files.sweep else set[str]()
        if not files.sweep:
            outcome.warnings += _left(chosen, place, excluded=True)
        outcome.warnings += _left(chosen, place, excluded=False)
        request = {**self.options, "collection": name}
        with progress_bar(name, total=count_files(chosen), hidden=self.calling.as_json) as advance:
            await send_files(client, chosen, request, outcome, self.calling.timeout, advance)
        removing.update({*outcome.stale}.intersection(place.sources))
        outcome.keep(place.sources)
        with progress_bar(name, total=len(removing), hidden=self.calling.as_json) as advance:
            outcome.removed += await remove_sources(call, name, sorted(removing), advance)


def _swept(chosen: Sequence[Selection], place: Place, *, confirmed: bool) -> set[str]:
    """Return the sources to delete, see :class:`.Sweep`.

    Ask before those of a directory are deleted that may be on a drive not mounted.

    Raises:
        InvalidInput: if nobody can be asked.
    """
    removing: set[str] = set()
    for selection in sweepable(chosen):
        swept = selection.swept(place.sources)
        removing.update(swept.gone, *swept.doubtful.values())
        for directory, sources in swept.doubtful.items():
            problem = (
                f"{directory.rstrip('/')} lacks or excludes the files of"
                f" {output.counted(len(sources), 'source')} in {place.collection}, which would be"
                " deleted"
            )
            if not confirmed and not sys.stdin.isatty():
                hint = "Check that its drive is mounted, or delete them with --yes."
                raise InvalidInput("--sweep", problem, hint=hint)
            if not confirmed:
                typer.confirm(f"{problem}. Delete them?", abort=True, err=True)
    return removing


def _left(chosen: Sequence[Selection], place: Place, *, excluded: bool) -> list[str]:
    """Return a warning for each directory with stored sources that are not selected now."""
    problem = (
        "excluded now, --sweep deletes them"
        if excluded
        else "not named by --include, they stay as they are"
    )
    return [
        f"{output.counted(len(left), 'source')} in {place.collection}, such as {left[0]!r}:"
        f" {problem}"
        for selection in chosen
        if (left := unselected(selection, place.sources, excluded=excluded))
    ]


def _show(outcome: UploadReport, calling: CallOptions) -> None:
    if calling.printed(outcome.as_json()):
        return
    name = output.plain(outcome.collection)
    output.stdout().print(f"[bold]{name}[/bold]: {outcome.summary}")
    outcome.print_problems()


def _exit_unless_done(outcome: UploadReport) -> None:
    if outcome.model is None and not outcome.removed:
        output.fail("nothing to index", "No text file matches the patterns.")
        raise typer.Exit(NOT_FOUND)
    if outcome.failed:
        raise typer.Exit(FAILED)
