"""`watch`: keep a collection in sync with the files of directories."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
    Set,
)
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from ability_search.client.tool_client import Call, ToolClient
from ability_search.errors import InvalidInput, SearchError
from ability_search.extensions.cli import output
from ability_search.extensions.cli.app import app, command, explain
from ability_search.extensions.cli.clients import LONG_CALL, CallOptions, new_client, progress_bar
from ability_search.extensions.cli.extras import install_command
from ability_search.extensions.cli.lifecycle import run_until_stopped
from ability_search.extensions.cli.local_files import (
    Place,
    Root,
    UploadReport,
    choose_roots,
    count_files,
    find_place,
    remove_sources,
    select_paths,
    send_files,
    unselected,
)
from ability_search.extensions.cli.parameters import CollectionOption, Patterns, tool_fields
from ability_search.files.selection import Selection, left_out, needs_consent, vanished
from ability_search.index.index_fields import IndexFields
from kadi_client import KadiError, ToolError
from kadi_client.errors import AuthenticationError, FrameTooLarge

EDITORS = (
    "*~",
    r"\#*#",
    ".#*",
    "~$*",
    ".*.sw?",
    "*.tmp",
    "*.part",
    "*.crdownload",
    ".~lock.*#",
    ".goutputstream-*",
    "*___jb_???___",
)
"""Patterns of temporary files that programs write next to an edited file."""

_LONGEST_PAUSE = 30.0
_QUIET_MS = 300
"""Quiet time that ends a batch of changes, as editors save a file in several steps."""
_LONGEST_MS = 3000
_TICK_MS = 500
_RETURN_SECONDS = 2.0
"""Pause between two looks for a directory that is gone."""

Changes = AsyncIterator[set[Path]]


class Known(NamedTuple):
    """A file and its state when it was last indexed."""

    path: Path
    modified_ns: int
    size: int
    inode: int
    device: int
    """The file system that it is on."""


@dataclass(frozen=True, slots=True)
class WatchLog:
    """Prints one line for each batch of changes."""

    as_json: bool

    def applied(self, outcome: UploadReport, seconds: float) -> None:
        """Print one line about applied changes."""
        if self.as_json:
            took = round(seconds * 1e3, 1)
            _print_line({**outcome.as_json(), "tookMs": took})
            return
        now = f"{datetime.now():%H:%M:%S}"
        output.stdout().print(
            f"[dim]{now}[/dim] [bold]{output.plain(outcome.collection)}[/bold]:"
            f" {outcome.summary} ({seconds:.1f} s)"
        )
        outcome.print_problems()

    def missing(self, directories: Sequence[Path]) -> None:
        """Print the directories that are waited for."""
        if self.as_json:
            _print_line({"missing": list(map(str, directories))})
            return
        for each in directories:
            output.warn(f"{each} is gone; its sources are kept. Waiting until it is back")

    def postponed(self, exc: KadiError, seconds: float) -> None:
        """Print a failure and when the next attempt is."""
        problem = explain(exc).text
        if self.as_json:
            _print_line({"error": problem, "retryInSeconds": seconds})
        else:
            output.warn(f"{problem}; retrying in {seconds:g} s")


def _print_line(report: dict[str, Any]) -> None:
    typer.echo(json.dumps({"time": datetime.now(UTC).isoformat(timespec="seconds"), **report}))


@dataclass(slots=True)
class Watcher:
    """Sends the files that changed since it last sent them.

    An event triggers a scan of all files, so that renamed directories, missed events and bursts
    need no special care. Files named by events are always sent again; the worker recognises an
    unchanged file by its hash.

    Args:
        client: The connection.
        locate: Finds the collection with a call, as :func:`find_place` does.
        find: Returns the current files.
        options: Fields of search-index, without the collection.
        timeout: Timeout of a call, in seconds.
        report: Reports to the user.
    """

    client: ToolClient
    locate: Callable[[Call], Awaitable[Place]]
    find: Callable[[Sequence[Root]], Sequence[Selection]]
    options: Mapping[str, Any]
    timeout: float
    report: WatchLog
    _place: Place | None = None
    _known: dict[str, Known] = field(default_factory=dict)
    _named: set[Path] = field(default_factory=set)
    _swept: bool = False
    _warned: set[str] = field(default_factory=set)
    _failures: int = 0
    _not_before: float = 0.0

    async def follow(self, changes: Changes) -> None:
        """Apply changes until the iterator ends; an empty set is an opportunity to retry.

        Raises:
            SearchError, KadiError: if a failure is permanent.
        """
        async for named in changes:
            self._named |= named
            due = not self._swept or bool(self._named)
            if due and time.monotonic() >= self._not_before:
                await self._try()

    async def _try(self) -> None:
        named, self._named = self._named, set()
        outcome = UploadReport()
        started = time.monotonic()
        first = not self._swept
        try:
            await self._catch_up(named, outcome)
        except KadiError as exc:
            permanent = isinstance(exc, AuthenticationError | FrameTooLarge)
            if permanent or (isinstance(exc, ToolError) and not exc.retryable):
                raise
            self._named |= named
            self._failures += 1
            seconds = min(_LONGEST_PAUSE, 2.0 ** (self._failures - 1))
            self._not_before = time.monotonic() + seconds
            self.report.postponed(exc, seconds)
            return
        self._failures = 0
        outcome.warnings = [each for each in outcome.warnings if each not in self._warned]
        self._warned.update(outcome.warnings)
        if first or outcome.is_notable:
            self.report.applied(outcome, time.monotonic() - started)

    async def _catch_up(self, named: set[Path], outcome: UploadReport) -> None:
        call = partial(self.client.call, timeout=self.timeout)
        if self._place is None:
            self._place = await self.locate(call)
            outcome.warnings += self._place.warnings
        place = self._place
        outcome.collection = place.collection
        progress = partial(
            progress_bar, place.collection, hidden=self.report.as_json or self._swept
        )
        found = await asyncio.to_thread(self.find, place.roots)
        current = await asyncio.to_thread(_stamps, found)
        changed = {
            file.path
            for source, file in current.items()
            if self._known.get(source) != file or file.path in named
        }
        if changed:
            chosen = [each.only(changed) for each in found]
            for each in () if self._swept else found:
                outcome.skip(each.skipped)
            options = {**self.options, "collection": place.collection}
            with progress(total=count_files(chosen)) as advance:
                await send_files(self.client, chosen, options, outcome, self.timeout, advance)
        lost = {source: file for source, file in self._known.items() if source not in current}
        outcome.keep({*place.sources, *self._known})
        if self._swept:
            gone = await asyncio.to_thread(_gone, lost, found, len(self._known), named, outcome)
            removing = {*gone, *outcome.stale}
        else:
            gone = await asyncio.to_thread(_vanished, found, place, outcome)
            removing = gone.union({*outcome.stale}.intersection(place.sources))
        with progress(total=len(removing)) as advance:
            outcome.removed += await remove_sources(
                call, place.collection, sorted(removing), advance
            )
        self._swept = True
        self._known = current | {each: lost[each] for each in lost.keys() - gone}


async def changes_of(directories: Sequence[Path]) -> AsyncGenerator[set[Path], None]:
    """Yield the changed paths in batches, and an empty set at regular intervals without changes.

    It ends when one of the directories is deleted, moved or replaced.

    Raises:
        SearchError: if watchfiles is not installed.
    """
    try:
        from watchfiles import awatch
    except ImportError as exc:
        raise SearchError(
            "watchfiles is not installed", hint=f"Run: {install_command('watch')}"
        ) from exc

    def wanted(_change: object, path: str) -> bool:
        places = (each for each in directories if Path(path).is_relative_to(each))
        return not any(left_out(Path(path).relative_to(each).as_posix()) for each in places)

    watched = list(map(_identity, directories))
    if None in watched:
        return
    async for found in awatch(
        *directories,
        watch_filter=wanted,
        debounce=_LONGEST_MS,
        step=_QUIET_MS,
        rust_timeout=_TICK_MS,
        yield_on_timeout=True,
        ignore_permission_denied=True,
    ):
        named = {Path(path) for _, path in found}
        # A new directory may have the inode number of the deleted one.
        if watched != list(map(_identity, directories)) or not named.isdisjoint(directories):
            return
        yield named


def _identity(directory: Path) -> tuple[int, int] | None:
    """Return the device and inode number of a directory; ``None`` if there is none."""
    with suppress(OSError):
        about = directory.stat()
        return about.st_dev, about.st_ino
    return None


def _stamps(selections: Sequence[Selection]) -> dict[str, Known]:
    """Return the current files by source."""
    found: dict[str, Known] = {}
    for selection in selections:
        for path in selection.files:
            with suppress(OSError):
                about = path.stat()
                source = path.relative_to(selection.root).as_posix()
                stamp = about.st_mtime_ns, about.st_size, about.st_ino, about.st_dev
                found[source] = Known(path, *stamp)
    return found


def _gone(
    lost: Mapping[str, Known],
    selections: Sequence[Selection],
    known: int,
    named: Set[Path],
    outcome: UploadReport,
) -> set[str]:
    """Return the sources whose files no longer exist, or are left out by a pattern now.

    Others are unreadable, or on a drive that is no longer mounted: on another device, or all in a
    directory that is empty without an event that says so. Most of the ``known`` ones are not left
    out without consent. The two latter are warned about.
    """
    missing = [
        source
        for source, file in lost.items()
        if vanished(file.path) and _device_of(file.path) == file.device
    ]
    silent = [
        each for each in missing if named.isdisjoint((lost[each].path, *lost[each].path.parents))
    ]
    held: set[str] = set()
    for selection in selections:
        doubtful = selection.emptied(silent)
        outcome.warnings += _kept(doubtful, outcome.collection)
        held.update(*doubtful.values())
    gone = {source for source in missing if source not in held}
    excluded = {
        source
        for source, file in lost.items()
        if any(selection.excludes(file.path) for selection in selections)
    }
    if needs_consent(len(excluded), known, files=True):
        outcome.warnings.append(
            f"{len(excluded):,} of {known:,} sources are excluded now; they stay searchable,"
            " `ability-search index --sweep` deletes them"
        )
        return gone
    return gone | excluded


def _device_of(path: Path) -> int:
    """Return the file system of the nearest directory above a path that exists."""
    return next(each for each in path.parents if each.is_dir()).stat().st_dev


def _vanished(selections: Sequence[Selection], place: Place, outcome: UploadReport) -> set[str]:
    """Return the stored sources of directories whose files no longer exist, or are left out now.

    None that :meth:`.Selection.swept` doubts, and none of a root directory, because every source
    would count as one of its files; both are warned about.
    """
    found: set[str] = set()
    for selection in selections:
        swept = selection.swept(place.sources)
        if selection.prefix:
            found.update(swept.gone)
            outcome.warnings += _kept(swept.doubtful, place.collection)
        elif lost := [*swept.gone, *chain(*swept.doubtful.values())]:
            outcome.warnings.append(
                f"{selection.root} is the root of the sources: {len(lost):,} sources without a"
                f" file stay in {place.collection}; `ability-search delete` deletes them"
            )
        if unnamed := unselected(selection, place.sources, excluded=False):
            outcome.warnings.append(
                f"{len(unnamed):,} sources, such as {unnamed[0]!r}, are not named by --include;"
                " they stay as they are"
            )
    return found


def _kept(doubtful: Mapping[str, Sequence[str]], collection: str) -> list[str]:
    return [
        f"{directory} lacks or excludes its files: {len(sources):,} sources without a file stay in"
        f" {collection}, as its drive may not be mounted; `ability-search index --sweep` deletes"
        " them"
        for directory, sources in doubtful.items()
    ]


@command(app, "watch")
def watch(
    paths: Annotated[list[Path], typer.Argument(metavar="DIRECTORY...", help="Directories.")],
    collection: CollectionOption = None,
    no_gitignore: Annotated[bool, "Include files that .gitignore excludes."] = False,
    *,
    files: Patterns,
    indexing: IndexFields,
    calling: CallOptions = LONG_CALL,
) -> None:
    """Index directories and keep the collection in sync with their files until Ctrl-C.

    The command first does the same as `index --sweep`, then follows new, changed,
    renamed and deleted files and prints one line per batch of changes. It retries
    while the broker or the worker is not available. If a directory vanishes, such as
    that of a drive, its sources are kept, and the command waits until it is back.
    With --json each line is an object.

    Example:
        ability-search watch docs
        ability-search watch src docs -c project --include '*.py' --include '*.md' --json
    """
    directories = [path.resolve() for path in paths]
    for path, directory in zip(paths, directories, strict=True):
        if not directory.is_dir():
            problem = "is not a directory" if directory.exists() else "no such directory"
            raise typer.BadParameter(f"{path}: {problem}", param_hint="DIRECTORY")

    def find(roots: Sequence[Root]) -> list[Selection]:
        return select_paths(
            directories,
            roots,
            include=files.include or (),
            exclude=files.exclude or (),
            temporary=EDITORS,
            gitignore=not no_gitignore,
        )

    find(choose_roots(paths, files.root))  # a wrong pattern is reported before anything starts
    options = tool_fields(indexing)

    async def work() -> None:
        async with new_client(calling.broker) as client:
            locate = partial(find_place, paths=paths, collection=collection, root=files.root)
            report = WatchLog(as_json=calling.as_json)
            new_watcher = partial(Watcher, client, locate, find, options, calling.timeout, report)
            await _follow(directories, new_watcher, report)

    asyncio.run(run_until_stopped(work()))


async def _follow(
    directories: Sequence[Path], new_watcher: Callable[[], Watcher], report: WatchLog
) -> None:
    """Follow the changes in directories; while one of them is gone, wait for it."""
    awaited: list[Path] = []
    while True:
        missing = [each for each in directories if not each.is_dir()]
        if missing:
            if missing != awaited:
                report.missing(missing)
            await asyncio.sleep(_RETURN_SECONDS)
        else:
            try:
                await new_watcher().follow(changes_of(directories))
            except InvalidInput:
                if all(map(Path.is_dir, directories)):
                    raise
        awaited = missing
