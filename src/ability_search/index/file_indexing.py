"""Indexing files and directories of this machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from ability_search.documents import Document
from ability_search.files.file_documents import changed_files, open_extractor, read_files
from ability_search.files.selection import (
    Selection,
    Skipped,
    allowed,
    kept_texts,
    select,
    unmatched_patterns,
)
from ability_search.filters.tree import Field, OneOf
from ability_search.index.index_calls import IndexOptions, IndexReport, Progress, Report
from ability_search.index.index_ports import IndexPorts
from ability_search.index.indexer import Indexer
from ability_search.store.pages import NAMES, read_pages
from ability_search.store.values import Read, Sources

_PAGE = 1000


class FileRequest(BaseModel):
    """A selection of files to index, and their format."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    path: str
    format: str | None = None
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    gitignore: bool = False
    sweep: bool = False
    """Remove sources under the path whose files are gone or excluded now."""
    sweep_all: bool = False
    """Remove those too that :meth:`.Selection.swept` doubts."""


@dataclass(frozen=True, slots=True)
class FileReport:
    """The result of indexing files."""

    index: IndexReport
    files: int
    skipped: list[Skipped]
    removed: int


class FileIndexing:
    """The index-file service.

    Args:
        ports: The ports and settings of indexing.
        indexing: The index service.
        base: Directory that relative paths start from.
    """

    def __init__(self, ports: IndexPorts, indexing: Indexer, *, base: Path) -> None:
        self._store = ports.store
        self._registry = ports.registry
        self._settings = ports.settings
        self._indexing = indexing
        self._base = base

    async def index(
        self, name: str, request: FileRequest, options: IndexOptions, report: Report
    ) -> FileReport:
        """Index a file, or the files below a directory.

        Sources are paths relative to the allowed root, or with several roots to the directory
        that holds them all, so that equal names do not collide.

        Raises:
            ForbiddenPath: if the path lies outside the allowed roots.
            InvalidInput: if there is nothing there, or a pattern is wrong.
        """
        selection = await asyncio.to_thread(self._select, request)
        skipped: list[Skipped] = []
        total = _Total(name, options.model or "", len(selection.files), report, skipped)
        limits = self._settings.limits

        async def compare(
            documents: Sequence[Document], unread: Sequence[Skipped]
        ) -> Collection[str]:
            skipped.extend(unread)
            wanted = await self._store_documents(name, documents, options, total)
            unchanged = [each.source for each in documents if each.source not in wanted]
            inside = await self._indexing.inside(name, unchanged)
            total.result.documents += inside
            total.result.unchanged += inside
            return wanted

        changes = changed_files(
            selection,
            compare,
            most=limits.batch_documents,
            max_bytes=limits.file_bytes,
            format=request.format,
        )
        with open_extractor(self._settings, total.stage) as extractor:
            async for changed in changes:
                read = read_files(
                    changed,
                    extractor,
                    limits,
                    most=limits.batch_documents,
                    most_bytes=limits.batch_bytes,
                    format=request.format,
                )
                while (reading := await asyncio.to_thread(next, read, None)) is not None:
                    skipped += reading.skipped
                    await self._store_documents(name, reading.documents, options, total)
        unread = [*selection.skipped, *skipped]
        removed = await self._indexing.discard(name, [each.path for each in unread if each.stale])
        kept = await self._indexing.stored(name, [each.path for each in unread if not each.stale])
        total.result.warnings += kept_texts(kept)
        if request.sweep:
            removed += await self._sweep(
                name, selection, total.result.warnings, confirmed=request.sweep_all
            )
        taken = len(selection.files) - sum(not each.part for each in skipped)
        return FileReport(total.result, taken, unread, removed)

    async def _store_documents(
        self, name: str, documents: Sequence[Document], options: IndexOptions, total: _Total
    ) -> Sequence[str]:
        """Store documents; return the sources of those whose text is needed."""
        if not documents:
            return ()
        total.result.documents += sum(each.of is not None for each in documents)
        total.result.documents -= sum(each.container for each in documents)
        report = await self._indexing.index(name, documents, options, total.report)
        total.add(report)
        return report.wanted

    def _select(self, request: FileRequest) -> Selection:
        roots = self._settings.files.allowed_roots
        path, root = allowed(request.path, roots, base=self._base)
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

    async def _sweep(
        self, name: str, selection: Selection, warnings: list[str], *, confirmed: bool
    ) -> int:
        """Remove the sources below the selection that are gone; return their number.

        What :meth:`.Selection.swept` doubts is kept, unless it was confirmed.
        """
        collection = await self._registry.reload(name)
        if collection is None:
            return 0
        stored: list[str] = []
        of = Sources(filter=OneOf(Field("file"), (True,)))
        ask = Read(of, collection, NAMES, _PAGE, after=selection.prefix)
        async for page in read_pages(self._store, ask):
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
            warnings.append(
                f"{directory or name} lacks or excludes the files of {len(sources)} of"
                f" {len(stored)} sources; they are kept, because its drive may not be mounted"
                " (sweepAll deletes them)"
            )
        parts = [gone[start : start + _PAGE] for start in range(0, len(gone), _PAGE)]
        return sum([await self._indexing.discard(name, part) for part in parts])


class _Total:
    """Sums up the reports of the parts of a directory tree."""

    def __init__(
        self, name: str, model: str, documents: int, report: Report, skipped: Sequence[Skipped]
    ) -> None:
        self.result = IndexReport(name, documents, model)
        self._report = report
        self._skipped = skipped
        self._loop = asyncio.get_running_loop()

    def add(self, part: IndexReport) -> None:
        """Add the report of one part."""
        total = self.result
        total.model, total.dimensions = part.model, part.dimensions
        total.chunks += part.chunks
        total.added += part.added
        total.updated += part.updated
        total.unchanged += part.unchanged
        total.deduplicated += part.deduplicated
        total.reused += part.reused
        total.failed += part.failed
        total.warnings += [each for each in part.warnings if each not in total.warnings]
        total.seconds += part.seconds

    async def report(self, progress: Progress) -> None:
        """Report the progress of a part as that of the whole."""
        total = self.result
        done = total.done + progress.done + sum(not each.part for each in self._skipped)
        await self._report(Progress(total.collection, done, total.documents, progress.stage))

    def stage(self, stage: str) -> None:
        """Report what is being read, from any thread."""
        progress = Progress(self.result.collection, 0, self.result.documents, f"reading {stage}")
        asyncio.run_coroutine_threadsafe(self.report(progress), self._loop)
