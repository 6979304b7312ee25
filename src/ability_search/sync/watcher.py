"""Keep a collection in sync with the files of directories."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ability_search.client.tool_client import Advance, ToolClient
from ability_search.errors import SearchError
from ability_search.files.selection import left_out, vanished
from ability_search.sync.trees import Tree, count_files
from ability_search.sync.upload import Outcome, remove_sources, remove_vanished, send_files
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

INSTALL_WATCH = "pip install 'ability-search[watch]'"

_LONGEST_PAUSE = 30.0
_QUIET_MS = 300
"""Quiet time that ends a batch of changes, as editors save a file in several steps."""
_LONGEST_MS = 3000
_TICK_MS = 500

Stamp = tuple[int, int, int]
"""Modification time in nanoseconds, size in bytes, and inode number."""
Changes = AsyncIterator[set[Path]]


@dataclass(frozen=True, slots=True)
class Known:
    """A file and its state when it was last indexed."""

    path: Path
    stamp: Stamp


class WatchReport(Protocol):
    """Reports to the user of a :class:`Watcher`."""

    def progress(self, total: int, *, first: bool) -> AbstractContextManager[Advance]:
        """Show the progress of sending ``total`` files during the block."""

    def applied(self, outcome: Outcome, seconds: float) -> None:
        """Report applied changes."""

    def postponed(self, exc: KadiError, seconds: float) -> None:
        """Report a failure, and the seconds until the next attempt."""


@dataclass(slots=True)
class Watcher:
    """Sends the files that changed since it last sent them.

    An event triggers a scan of all files, so that renamed directories, missed events and bursts
    need no special care. Files named by events are always sent again; the worker recognises an
    unchanged file by its hash.

    Args:
        client: The connection.
        find: Returns the current files.
        options: Fields of search-index.
        timeout: Timeout of a call, in seconds.
        report: Reports to the user.
    """

    client: ToolClient
    find: Callable[[], Sequence[Tree]]
    options: Mapping[str, Any]
    timeout: float
    report: WatchReport
    _known: dict[str, Known] = field(default_factory=dict)
    _named: set[Path] = field(default_factory=set)
    _swept: bool = False
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
        outcome = Outcome()
        started = time.monotonic()
        first = not self._swept
        try:
            await self._catch_up(named, outcome)
        except KadiError as exc:
            if not _is_transient(exc):
                raise
            self._named |= named
            self._failures += 1
            seconds = min(_LONGEST_PAUSE, 2.0 ** (self._failures - 1))
            self._not_before = time.monotonic() + seconds
            self.report.postponed(exc, seconds)
            return
        self._failures = 0
        if first or outcome.is_notable:
            self.report.applied(outcome, time.monotonic() - started)

    async def _catch_up(self, named: set[Path], outcome: Outcome) -> None:
        trees = await asyncio.to_thread(self.find)
        current = await asyncio.to_thread(_stamps, trees)
        changed = {
            file.path
            for source, file in current.items()
            if self._known.get(source) != file or file.path in named
        }
        if changed:
            chosen = [tree.only(changed) for tree in trees]
            with self.report.progress(count_files(chosen), first=not self._swept) as advance:
                await send_files(self.client, chosen, self.options, outcome, self.timeout, advance)
        collection = self.options["collection"]
        lost = {source: file for source, file in self._known.items() if source not in current}
        gone = await asyncio.to_thread(_gone, lost)
        removing = remove_sources(self.client, collection, gone, self.timeout)
        outcome.removed += await _unless_missing(removing)
        if not self._swept:
            for tree in trees:
                # In a root directory, every source would count as a file of the tree.
                if tree.selection.prefix:
                    removing = remove_vanished(self.client, collection, tree, self.timeout)
                    outcome.removed += await _unless_missing(removing)
            self._swept = True
        self._known = {**current, **{each: lost[each] for each in lost.keys() - gone}}


async def changes_of(directories: list[Path]) -> AsyncGenerator[set[Path], None]:
    """Yield the changed paths in batches, and an empty set at regular intervals without changes.

    Raises:
        SearchError: if watchfiles is not installed.
    """
    try:
        from watchfiles import awatch
    except ImportError as exc:
        raise SearchError("watchfiles is not installed", hint=f"Run: {INSTALL_WATCH}") from exc

    def wanted(_change: object, path: str) -> bool:
        places = (each for each in directories if Path(path).is_relative_to(each))
        return not any(left_out(Path(path).relative_to(each).as_posix()) for each in places)

    async for found in awatch(
        *directories,
        watch_filter=wanted,
        debounce=_LONGEST_MS,
        step=_QUIET_MS,
        rust_timeout=_TICK_MS,
        yield_on_timeout=True,
        ignore_permission_denied=True,
    ):
        yield {Path(path) for _, path in found}


def _stamps(trees: Sequence[Tree]) -> dict[str, Known]:
    """Return the current files by source."""
    found: dict[str, Known] = {}
    for tree in trees:
        for path in tree.selection.files:
            with suppress(OSError):
                about = path.stat()
                source = path.relative_to(tree.selection.root).as_posix()
                found[source] = Known(path, (about.st_mtime_ns, about.st_size, about.st_ino))
    return found


def _gone(lost: Mapping[str, Known]) -> list[str]:
    """Return the sources whose files no longer exist; others are now excluded or unreadable."""
    return [source for source, file in lost.items() if vanished(file.path)]


async def _unless_missing(removing: Awaitable[int]) -> int:
    """Return the number of removed sources; 0 if the collection does not exist."""
    try:
        return await removing
    except ToolError as exc:
        if exc.code != "not_found":
            raise
        return 0


def _is_transient(exc: KadiError) -> bool:
    """Return whether a failure is transient."""
    if isinstance(exc, ToolError):
        return exc.retryable
    return not isinstance(exc, AuthenticationError | FrameTooLarge)
