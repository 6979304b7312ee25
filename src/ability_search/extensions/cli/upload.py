"""Send local files to the worker, and delete the sources of files that no longer exist."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ability_search.client.tool_client import Advance, Call, ToolClient
from ability_search.config.schema import Settings
from ability_search.documents import Document
from ability_search.extensions.cli.trees import (
    Root,
    Tree,
    are_stored,
    by_root,
    choose_roots,
    collection_name,
    count_files,
    read_trees,
    reading_limits,
)
from ability_search.files.file_documents import open_extractor, send_changed
from ability_search.files.selection import Skipped, kept_texts
from kadi_client import ToolError

_COUNTED = ("documents", "chunks", "added", "updated", "unchanged", "deduplicated", "reused")
_PAGE = 10_000
_REMOVED_AT_ONCE = 200
"""Sources deleted in one call; enough that its time is that of the chunks, not of the call."""


@dataclass(slots=True)
class Outcome:
    """The results of indexing files, summed over all calls."""

    collection: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    failed: list[dict[str, str]] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    removed: int = 0
    model: str | None = None
    stale: list[str] = field(default_factory=list)
    """Sources of files that were skipped, of which an earlier text may be stored."""

    def add(self, answer: Mapping[str, Any]) -> None:
        """Add the answer of a call."""
        self.counts.update({name: answer.get(name, 0) for name in _COUNTED})
        wanted = len(answer.get("wanted") or ())
        self.counts["documents"] -= wanted
        self.failed += answer["failed"]
        self.skipped += answer.get("skipped", ())
        self.warnings += answer.get("warnings") or ()
        self.removed += answer.get("removed", 0)
        if answer["documents"] > wanted:
            self.model = answer["model"]

    def skip(self, files: Iterable[Skipped]) -> None:
        """Add files that were skipped before anything was sent."""
        for file in files:
            self.skipped.append({"path": file.path, "reason": file.reason})
            if file.stale:
                self.stale.append(file.path)

    def keep(self, sources: Collection[str]) -> None:
        """Warn of the skipped files of which an earlier text is stored that is not deleted."""
        kept = {each["path"] for each in self.skipped}.difference(self.stale)
        self.warnings += kept_texts(sorted(kept.intersection(sources)))

    @property
    def is_notable(self) -> bool:
        """Return whether anything changed, failed, was skipped or needs attention."""
        changes = self.counts["added"] + self.counts["updated"] + self.removed
        return bool(changes or self.failed or self.skipped or self.warnings)

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as a JSON object."""
        return {
            "collection": self.collection,
            **{name: self.counts[name] for name in _COUNTED},
            "removed": self.removed,
            "model": self.model,
            "failed": self.failed,
            "skipped": self.skipped,
            "warnings": self.warnings,
        }


async def send_files(
    client: ToolClient,
    chosen: Sequence[Tree],
    options: Mapping[str, Any],
    outcome: Outcome,
    timeout: float,
    advance: Advance,
) -> None:
    """Read local files and send them in calls of bounded size; add to the outcome.

    Files whose bytes have not changed since they were indexed are neither extracted nor sent.
    """
    for tree in chosen:
        outcome.skip(tree.selection.skipped)
    most, most_bytes = reading_limits(client.settings.limits)
    upload = _Upload(client, options, outcome, timeout, advance, count_files(chosen))
    await send_changed(by_root(chosen), upload, client.settings, most=most, most_bytes=most_bytes)


async def read_documents(
    chosen: Sequence[Tree], settings: Settings, outcome: Outcome
) -> AsyncGenerator[list[Document], None]:
    """Yield the documents of local files in batches, as a worker would receive them.

    Skipped files are added to the outcome.
    """
    for tree in chosen:
        outcome.skip(tree.selection.skipped)
    with open_extractor(settings) as extractor:
        readings = read_trees(chosen, settings.limits, extractor)
        while (reading := await asyncio.to_thread(next, readings, None)) is not None:
            outcome.skip(reading.skipped)
            yield [replace(each, file=False) for each in reading.documents]


@dataclass(slots=True)
class _Upload:
    client: ToolClient
    options: Mapping[str, Any]
    outcome: Outcome
    timeout: float
    advance: Advance
    total: int
    done: int = 0

    def skip(self, files: Sequence[Skipped]) -> None:
        """Record files that cannot be read."""
        self.outcome.skip(files)
        self._count(len(files))

    def reading(self, file: str) -> None:
        """Show what is being read, from any thread."""
        self.advance(self.done, self.total, f"reading {file}")

    async def send(self, documents: Sequence[Document]) -> Collection[str]:
        """Send documents; return the sources of which the worker needs the text."""
        answer = await self.client.run_job(
            "search-index",
            {**self.options, "documents": [wire_document(each) for each in documents]},
            timeout=self.timeout,
            advance=self.advance,
            before=self.done,
        )
        self.outcome.add(answer)
        needed = set(answer.get("wanted") or ())
        self._count(sum(each.of is None and each.source not in needed for each in documents))
        return needed

    def _count(self, files: int) -> None:
        self.done += files
        self.advance(self.done, self.total, "")


def wire_document(document: Document) -> dict[str, Any]:
    """Return a document as search-index takes it."""
    return {
        "source": document.source,
        "title": document.title,
        "content": document.content,
        "fileHash": document.file_hash,
        "of": document.of,
        "children": document.children,
        "metadata": dict(document.metadata),
        "format": document.format,
        "language": document.language,
    }


async def list_sources(call: Call, collection: str, **options: Any) -> list[str]:
    """Return all sources of a collection, read page by page; ``options`` are the tool's."""
    sources: list[str] = []
    wanted: dict[str, Any] = {"collection": collection, "limit": _PAGE, **options}
    while True:
        page = await call("search-collection-info", wanted)
        sources += page["sources"]
        if page.get("nextCursor") is None:
            return sources
        wanted = {**wanted, "cursor": page["nextCursor"]}


@dataclass(frozen=True, slots=True)
class Place:
    """The collection of paths, the roots of their sources, and the sources stored before."""

    collection: str
    roots: Sequence[Root]
    sources: Sequence[str]
    warnings: Sequence[str] = ()


async def find_place(
    call: Call, paths: Sequence[Path], *, collection: str | None, root: Path | None
) -> Place:
    """Return where the files of paths are stored, or will be.

    The files of a collection keep the names that they have in it, wherever the command runs.

    Args:
        call: Calls a tool.
        paths: Files or directories.
        collection: The collection; by default it is named after the first path.
        root: As for :func:`choose_roots`.

    Raises:
        InvalidInput: if a path or the root cannot be used.
    """
    name = collection or collection_name(paths[0])
    sources = await _stored(call, name)
    roots = choose_roots(paths, root, sources)
    if collection is not None or are_stored(paths, roots, sources):
        return Place(name, roots, sources)
    warning = f"{name} holds other documents too; --collection keeps these files apart"
    return Place(name, roots, sources, (warning,) if sources else ())


async def _stored(call: Call, collection: str) -> list[str]:
    try:
        # A document of a file is deleted with the file, whatever its name.
        return await list_sources(call, collection, children=False)
    except ToolError as exc:
        if exc.code != "not_found":
            raise
        return []


async def remove_sources(
    call: Call, collection: str, sources: Sequence[str], advance: Advance
) -> int:
    """Delete sources, many in a call; return how many.

    The collection may be missing: an emptied file is deleted whether or not it was stored.
    """
    removed = 0
    for start in range(0, len(sources), _REMOVED_AT_ONCE):
        part = sources[start : start + _REMOVED_AT_ONCE]
        advance(start, len(sources), "deleting")
        try:
            await call("search-delete", {"collection": collection, "sources": part})
            removed += len(part)
        except ToolError as exc:
            if exc.code != "not_found":
                raise
    return removed
