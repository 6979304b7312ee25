"""Indexing files and directories of this machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ability_search.documents import Document
from ability_search.files.file_documents import send_changed
from ability_search.files.selection import (
    Selection,
    Skipped,
    allowed,
    kept_texts,
    select,
    unmatched_patterns,
)
from ability_search.filters.tree import Field, OneOf
from ability_search.index.index_calls import IndexReport, Report
from ability_search.index.index_fields import FileFields, IndexFields
from ability_search.index.index_ports import IndexPorts
from ability_search.index.pipeline import IndexPipeline
from ability_search.index.stored_sources import StoredSources
from ability_search.store.pages import NAMES, read_pages
from ability_search.store.values import Read, Sources

_PAGE = 1000


@dataclass(slots=True)
class FileReport(IndexReport):
    """The result of indexing files."""

    files: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    removed: int = 0


@dataclass(frozen=True, slots=True)
class FileIndexing:
    """The index-file service.

    Args:
        ports: The ports and settings of indexing.
        indexing: The index service.
        sources: Deletes the sources of files that are gone.
        base: Directory that relative paths start from.
    """

    ports: IndexPorts
    indexing: IndexPipeline
    sources: StoredSources
    base: Path

    async def index(
        self, name: str, request: FileFields, options: IndexFields, report: Report
    ) -> FileReport:
        """Index a file, or the files below a directory.

        Sources are paths relative to the allowed root, or with several roots to the directory
        that holds them all, so that equal names do not collide.

        Raises:
            ForbiddenPath: if the path lies outside the allowed roots.
            InvalidInput: if there is nothing there, or a pattern is wrong.
        """
        selection = await asyncio.to_thread(self._select, request)
        result = FileReport(name, len(selection.files), options.model or "")
        run = _FileRun(self.indexing, self.sources, options, report, result)
        limits = self.ports.settings.limits
        await send_changed(
            [selection],
            run,
            self.ports.settings,
            most=limits.batch_documents,
            most_bytes=limits.batch_bytes,
            format=request.format,
        )
        result.files = len(selection.files) - run.unread
        unread = result.skipped = [*selection.skipped, *result.skipped]
        stale = [each.path for each in unread if each.stale]
        result.removed = await self.sources.discard(name, stale)
        kept = await self.sources.stored(name, [each.path for each in unread if not each.stale])
        result.warnings += kept_texts(kept)
        if request.sweep:
            result.removed += await self._sweep(selection, result, confirmed=request.sweep_all)
        return result

    def _select(self, request: FileFields) -> Selection:
        roots = self.ports.settings.files.allowed_roots
        path, root = allowed(request.path, roots, base=self.base)
        selection = select(
            path,
            root,
            names_from=Path(os.path.commonpath([each.resolve() for each in roots])),
            include=request.include,
            exclude=request.exclude,
            gitignore=request.gitignore,
        )
        unmatched = unmatched_patterns([selection])
        return replace(selection, skipped=(*selection.skipped, *unmatched))

    async def _sweep(self, selection: Selection, result: IndexReport, *, confirmed: bool) -> int:
        """Remove the sources below the selection that are gone; return their number.

        What :meth:`.Selection.swept` doubts is kept, unless it was confirmed.
        """
        name = result.collection
        collection = await self.ports.registry.reload(name)
        if collection is None:
            return 0
        stored: list[str] = []
        of = Sources(filter=OneOf(Field("file"), (True,)))
        ask = Read(of, collection, NAMES, _PAGE, after=selection.prefix)
        async for page in read_pages(self.ports.store, ask):
            names = (row["source"] for row in page.items)
            below = [source for source in names if source.startswith(selection.prefix)]
            stored += below
            if len(below) < len(page.items):
                break
        swept = await asyncio.to_thread(selection.swept, stored)
        gone = [*swept.gone]
        for directory, sources in swept.doubtful.items():
            if confirmed:
                gone += sources
                continue
            result.warnings.append(
                f"{directory or name} lacks or excludes the files of {len(sources)} of"
                f" {len(stored)} sources; they are kept, because its drive may not be mounted"
                " (sweepAll deletes them)"
            )
        parts = [gone[start : start + _PAGE] for start in range(0, len(gone), _PAGE)]
        return sum([await self.sources.discard(name, part) for part in parts])


@dataclass(slots=True)
class _FileRun:
    """One run: indexes the documents of files, and sums up the reports of their parts."""

    indexing: IndexPipeline
    sources: StoredSources
    options: IndexFields
    publish: Report
    result: FileReport
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    @property
    def unread(self) -> int:
        """Number of files that cannot be read."""
        return sum(not each.part for each in self.result.skipped)

    def skip(self, files: Sequence[Skipped]) -> None:
        """Record files that cannot be read."""
        self.result.skipped += files

    def reading(self, file: str) -> None:
        """Report what is being read, from any thread."""
        progress = self.report(0, self.result.documents, f"reading {file}")
        asyncio.run_coroutine_threadsafe(progress, self.loop)

    async def send(self, documents: Sequence[Document]) -> Collection[str]:
        """Index documents; return the sources of those whose text is needed."""
        total = self.result
        total.documents += sum(each.of is not None for each in documents)
        total.documents -= sum(each.container for each in documents)
        part = await self.indexing.index(total.collection, documents, self.options, self.report)
        total.add(part)
        # The documents in a file that is unchanged are neither read nor compared.
        unchanged = {each.source for each in documents if each.unread}.difference(part.wanted)
        inside = await self.sources.inside(total.collection, sorted(unchanged))
        total.documents += inside
        total.unchanged += inside
        return part.wanted

    async def report(self, done: int, _total: int, stage: str) -> None:
        """Report the progress of a part as that of the whole."""
        done += self.result.done + self.unread
        await self.publish(done, self.result.documents, stage)
