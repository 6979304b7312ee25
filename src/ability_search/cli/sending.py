"""Sends local files to the tools, and reports the outcome."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ability_search.cli import output
from ability_search.cli.client import Client, given
from ability_search.cli.progress import progress_bar
from ability_search.cli.selecting import (
    Tree,
    by_root,
    most_documents,
    read_selection,
    wire_document,
)
from ability_search.client.following import Advance, following
from ability_search.documents import Document
from ability_search.files.file_documents import Reading, open_extractor, prints
from ability_search.files.selection import Selection, Skipped, slices

_COUNTED = ("documents", "chunks", "added", "updated", "unchanged", "deduplicated", "reused")
_PAGE = 10_000


@dataclass(slots=True)
class Outcome:
    """The results of indexing files, summed over all calls."""

    counts: Counter[str] = field(default_factory=Counter)
    failed: list[dict[str, str]] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    removed: int = 0
    model: str | None = None

    def add(self, answer: dict[str, Any]) -> None:
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
        self.skipped += [{"path": file.path, "reason": file.reason} for file in files]

    @property
    def says_something(self) -> bool:
        """Return whether anything changed, failed or was skipped."""
        changes = self.counts["added"] + self.counts["updated"] + self.removed
        return bool(changes or self.failed or self.skipped)

    @property
    def told(self) -> str:
        """Return the counts as text."""
        counts = self.counts
        told = ", ".join(f"{counts[name]:,} {name}" for name in ("added", "updated", "unchanged"))
        further = {
            "deduplicated": counts["deduplicated"],
            "vector reused" if counts["reused"] == 1 else "vectors reused": counts["reused"],
            "removed": self.removed,
            "skipped": len(self.skipped),
            "failed": len(self.failed),
        }
        told += "".join(f", {count:,} {name}" for name, count in further.items() if count)
        return f"{told}; {output.counted(counts['chunks'], 'chunk')} stored"

    def document(self, collection: str) -> dict[str, Any]:
        """Return the outcome as a JSON object."""
        return {
            "collection": collection,
            **{name: self.counts[name] for name in _COUNTED},
            "removed": self.removed,
            "model": self.model,
            "failed": self.failed,
            "skipped": self.skipped,
            "warnings": self.warnings,
        }


async def send_files(
    client: Client,
    chosen: list[Tree],
    options: dict[str, Any],
    outcome: Outcome,
    timeout: float,
    *,
    hidden: bool,
) -> None:
    """Read local files and send them in calls of bounded size; add to the outcome.

    Files whose bytes have not changed since they were indexed are neither extracted nor sent.
    """
    total = sum(len(tree.selection.files) for tree in chosen)
    for tree in chosen:
        outcome.skip(tree.selection.skipped)
    limits = client.settings.limits
    with (
        progress_bar(options["collection"], total=total, hidden=hidden) as advance,
        open_extractor(client.settings) as extractor,
    ):
        sender = _Sender(client, options, outcome, timeout, advance, total)
        for selection in by_root(chosen):
            async for changed in sender.changed(selection, most_documents(limits)):
                readings = read_selection(changed, limits, extractor)
                while (reading := await asyncio.to_thread(next, readings, None)) is not None:
                    await sender.send(reading)


@dataclass(slots=True)
class _Sender:
    """Sends the files of one command."""

    client: Client
    options: dict[str, Any]
    outcome: Outcome
    timeout: float
    advance: Advance
    total: int
    done: int = 0

    async def changed(self, selection: Selection, most: int) -> AsyncIterator[Selection]:
        """Yield new and changed files, in batches of about ``most``."""
        found: list[Path] = []
        for part in slices(selection, most=most):
            found += await self._compare(part)
            if len(found) >= most:
                yield replace(selection, files=tuple(found))
                found = []
        if found:
            yield replace(selection, files=tuple(found))

    async def _compare(self, selection: Selection) -> list[Path]:
        limits = self.client.settings.limits
        printed = await asyncio.to_thread(prints, selection, max_bytes=limits.file_bytes)
        self._skip(printed.skipped)
        if not printed.files:
            return []
        answer = await self._call([file.document() for file in printed.files])
        wanted = set(answer.get("wanted") or ())
        self._count(len(printed.files) - len(wanted))
        return [file.path for file in printed.files if file.source in wanted]

    async def send(self, reading: Reading) -> None:
        """Send the documents of a reading."""
        self._skip(reading.skipped)
        if reading.documents:
            await self._call(reading.documents)
            self._count(len(reading.documents))

    async def _call(self, documents: Sequence[Document]) -> dict[str, Any]:
        job = secrets.token_hex(8)
        async with following(self.client.connection, job, self.advance, before=self.done):
            answer = await self.client.call(
                "search-index",
                {
                    **self.options,
                    "documents": [wire_document(each) for each in documents],
                    "jobId": job,
                },
                timeout=self.timeout,
            )
        self.outcome.add(answer)
        return answer

    def _skip(self, files: Sequence[Skipped]) -> None:
        self.outcome.skip(files)
        self._count(len(files))

    def _count(self, files: int) -> None:
        self.done += files
        self.advance(self.done, self.total, "")


async def remove_vanished(client: Client, collection: str, tree: Tree, timeout: float) -> int:
    """Delete the sources below a directory whose files no longer exist; return how many."""
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
    return await remove_sources(client, collection, gone, timeout)


async def remove_sources(
    client: Client, collection: str, sources: Sequence[str], timeout: float
) -> int:
    """Delete sources, one call each; return how many."""
    for source in sources:
        wanted = {"collection": collection, "source": source}
        await client.call("search-delete", wanted, timeout=timeout)
    return len(sources)


def show(collection: str, outcome: Outcome, *, as_json: bool) -> None:
    """Print the outcome."""
    if as_json:
        output.print_json(outcome.document(collection))
        return
    output.stdout().print(f"[bold]{output.plain(collection)}[/bold]: {outcome.told}")
    show_problems(outcome)


def show_problems(outcome: Outcome) -> None:
    """Print the skipped files, the warnings and the failures."""
    for item in outcome.skipped:
        output.stderr().print(
            f"skipped {output.plain(item['path'])}: {output.plain(item['reason'])}", soft_wrap=True
        )
    for warning in dict.fromkeys(outcome.warnings):
        output.warn(warning)
    for item in outcome.failed:
        output.warn(f"{item['source']} failed: {item['error']}")
