"""Local files: select them, send them to the worker, delete the sources of those that are gone."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ability_search.client.tool_client import (
    BATCH_BYTES,
    BATCH_DOCUMENTS,
    Advance,
    Call,
    ToolClient,
)
from ability_search.collection import proposed_name
from ability_search.config.schema import Limits, Settings
from ability_search.documents import Document
from ability_search.errors import InvalidInput
from ability_search.extensions.cli import output
from ability_search.files.file_documents import (
    Extractor,
    FileBatch,
    open_extractor,
    read_files,
    send_changed,
)
from ability_search.files.selection import (
    Identity,
    Selection,
    Skipped,
    kept_texts,
    named_once,
    real_path,
    select,
    unmatched_patterns,
    vanished,
)
from ability_search.tools.results import COUNTED
from kadi_client import ToolError

_PAGE = 10_000
_REMOVED_AT_ONCE = 200
"""Sources deleted in one call; enough that its time is that of the chunks, not of the call."""
_SAMPLE = 200
"""Stored sources that are looked for on the disk, to find the root of a collection."""


@dataclass(frozen=True, slots=True)
class Root:
    """The root of a path."""

    directory: Path
    """Directory to which sources are relative."""
    within: Path
    """Directory that no link may lead out of."""


def unselected(selection: Selection, sources: Sequence[str], *, excluded: bool) -> list[str]:
    """Return the sources whose files exist, but are not selected now.

    Args:
        selection: The files of a path.
        sources: Stored sources.
        excluded: Whether to return those that are left out, or those that no pattern includes.
    """

    def wanted(file: Path) -> bool:
        left_out = selection.excludes(file)
        return left_out if excluded else not (left_out or selection.includes(file))

    files = ((each, selection.root / each) for each in sources if each.startswith(selection.prefix))
    return [source for source, file in files if wanted(file) and not vanished(file)]


def collection_name(path: Path) -> str:
    """Return the default collection name of a path: its directory's name, made valid.

    Raises:
        InvalidInput: if that name has no letter or digit.
    """
    directory = _directory(path.resolve())
    name = proposed_name(directory.name).strip("-._")
    if not name:
        problem = f"no collection can be named after the directory {str(directory)!r}"
        raise InvalidInput("--collection", problem, hint="Choose a name, for example: -c files")
    return name


def stored_root(path: Path, sources: Sequence[str]) -> Path | None:
    """Return the directory to which the stored sources of the files of a path are relative.

    It is the path or a directory above it, in which at least half of the sources exist that are
    stored under the name of the path; if there are none, at least half of all sources. ``None`` if
    there is no such directory. Of several, the one with the highest share is returned.
    """
    directory = _directory(path.resolve())
    above = (directory, *directory.parents)
    best: tuple[float, Path | None] = (0.0, None)
    for whole in (False, True):
        for root in above:
            prefix = "" if whole else _prefix(directory, root)
            named = [source for source in sources if source.startswith(prefix)]
            sample = named[:: len(named) // _SAMPLE + 1]
            share = sum(os.path.isfile(f"{root}/{each}") for each in sample) / (len(sample) or 1)
            if share >= 0.5 and share > best[0]:
                best = (share, root)
        if best[1] is not None:
            break
    return best[1]


def are_stored(paths: Sequence[Path], roots: Sequence[Root], sources: Sequence[str]) -> bool:
    """Return whether any of the stored sources is a file of one of the paths."""
    for path, root in zip(paths, roots, strict=True):
        prefix = _prefix(_directory(path.resolve()), root.directory)
        if any(
            each.startswith(prefix) and os.path.isfile(root.directory / each) for each in sources
        ):
            return True
    return False


def _directory(real: Path) -> Path:
    return real if real.is_dir() else real.parent


def _prefix(path: Path, root: Path) -> str:
    """Return the common beginning of the sources of files below a directory."""
    return "" if path == root else f"{path.relative_to(root).as_posix()}/"


def select_paths(
    paths: Sequence[Path],
    root: Path | Sequence[Root] | None,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    temporary: Sequence[str] = (),
    gitignore: bool = False,
) -> list[Selection]:
    """Return the files of each path, see :func:`ability_search.files.selection.select`.

    A file below several paths belongs to the first, a link to a file of another path to none.
    ``root`` is as for :func:`choose_roots`, or what that returned.

    Raises:
        InvalidInput: if a path does not exist or lies outside ``root``, or a pattern is not valid
            gitignore syntax.
    """
    seen: dict[Path, None] = {}
    known_secrets: dict[Path, frozenset[Identity]] = {}
    found = []
    roots = choose_roots(paths, root) if root is None or isinstance(root, Path) else root
    for path, chosen in zip(paths, roots, strict=True):
        selection = select(
            _existing(path),
            chosen.within,
            names_from=chosen.directory,
            include=include,
            exclude=exclude,
            temporary=temporary,
            gitignore=gitignore,
            known_secrets=known_secrets,
        )
        files = tuple(file for file in selection.files if file not in seen)
        seen.update(dict.fromkeys(files))
        found.append(replace(selection, files=files))
    if found:
        first = found[0]
        found[0] = replace(first, skipped=(*first.skipped, *unmatched_patterns(found)))
    if len(found) > 1:
        found = named_once(found, {file: real_path(file) or file for file in seen})
    return found


def choose_roots(
    paths: Sequence[Path], root: Path | None, stored: Sequence[str] = ()
) -> list[Root]:
    """Return the root of each path.

    Without ``root``, it is the directory to which the ``stored`` sources are relative, or else the
    working directory if it is above the path, or else the parent of the path.

    Raises:
        InvalidInput: if a path does not exist or lies outside ``root``.
    """
    found = []
    cwd = Path.cwd().resolve()
    for path in paths:
        real = _existing(path)
        if root is None:
            default = cwd if cwd in real.parents else real.parent
            within = cwd if real == cwd else default
            found.append(Root(stored_root(real, stored) or default, within))
        elif real.is_relative_to(home := root.resolve()):
            found.append(Root(home, home))
        else:
            problem, hint = f"{path} is outside {root}", "Choose a directory above every PATH."
            raise InvalidInput("--root", problem, hint=hint)
    return found


def _existing(path: Path) -> Path:
    real = path.resolve()
    if not real.exists():
        problem = f"{path}: no such file or directory"
        raise InvalidInput("PATH", problem, hint="Choose an existing file or directory.")
    return real


def sweepable(chosen: Sequence[Selection]) -> list[Selection]:
    """Return the directories among the paths.

    Raises:
        InvalidInput: if one of them is the root: every source of the collection would then count
            as one of its files, even one that never was a file.
    """
    if not all(selection.prefix for selection in chosen):
        problem = "the directory must be below the root of the sources"
        hint = "Index it into another collection (-c), or delete this one first."
        raise InvalidInput("--sweep", problem, hint=hint)
    return [each for each in chosen if (each.root / each.prefix).is_dir()]


def count_files(chosen: Sequence[Selection]) -> int:
    """Return the number of selected files."""
    return sum(len(selection.files) for selection in chosen)


def by_root(chosen: Sequence[Selection]) -> Iterator[Selection]:
    """Yield the files of all paths, merged by root."""
    found: dict[tuple[Path, Path], list[Selection]] = {}
    for selection in chosen:
        found.setdefault((selection.root, selection.within), []).append(selection)
    for (root, within), selections in found.items():
        files = (file for selection in selections for file in selection.files)
        secrets = frozenset[Identity]().union(*(selection.secrets for selection in selections))
        yield Selection(root, tuple(files), "", within, secrets=secrets)


def read_selections(
    chosen: Sequence[Selection], limits: Limits, extractor: Extractor
) -> Iterator[FileBatch]:
    """Read the documents lazily, in batches that each fit into one call."""
    most, most_bytes = reading_limits(limits)
    for selection in by_root(chosen):
        yield from read_files(selection, extractor, limits, most=most, most_bytes=most_bytes)


def reading_limits(limits: Limits) -> tuple[int, int]:
    """Return the maximum number of documents in a call, and of bytes of their text."""
    # Half of the limit, because text grows when it is encoded as JSON.
    most_bytes = min(BATCH_BYTES, limits.batch_bytes // 2)
    return min(BATCH_DOCUMENTS, limits.batch_documents), most_bytes


@dataclass(slots=True)
class UploadReport:
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
        self.counts.update({name: answer.get(name, 0) for name in COUNTED})
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

    @property
    def summary(self) -> str:
        """Return the counts as text."""
        counts = self.counts
        text = ", ".join(f"{counts[name]:,} {name}" for name in ("added", "updated", "unchanged"))
        further = {
            "deduplicated": counts["deduplicated"],
            "vector reused" if counts["reused"] == 1 else "vectors reused": counts["reused"],
            "removed": self.removed,
            "skipped": len(self.skipped),
            "failed": len(self.failed),
        }
        text += "".join(f", {count:,} {name}" for name, count in further.items() if count)
        return f"{text}; {output.counted(counts['chunks'], 'chunk')} stored"

    def print_problems(self) -> None:
        """Print the skipped files, the warnings and the failures."""
        for item in self.skipped:
            path, reason = output.plain(item["path"]), output.plain(item["reason"])
            output.stderr().print(f"skipped {path}: {reason}")
        for warning in dict.fromkeys(self.warnings):
            output.warn(warning)
        for item in self.failed:
            output.warn(f"{item['source']} failed: {item['error']}")

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as a JSON object."""
        return {
            "collection": self.collection,
            **{name: self.counts[name] for name in COUNTED},
            "removed": self.removed,
            "model": self.model,
            "failed": self.failed,
            "skipped": self.skipped,
            "warnings": self.warnings,
        }


async def send_files(
    client: ToolClient,
    chosen: Sequence[Selection],
    options: Mapping[str, Any],
    outcome: UploadReport,
    timeout: float,
    advance: Advance,
) -> None:
    """Read local files and send them in calls of bounded size; add to the outcome.

    Files whose bytes have not changed since they were indexed are neither extracted nor sent.
    """
    for selection in chosen:
        outcome.skip(selection.skipped)
    most, most_bytes = reading_limits(client.settings.limits)
    upload = _Upload(client, options, outcome, timeout, advance, count_files(chosen))
    await send_changed(by_root(chosen), upload, client.settings, most=most, most_bytes=most_bytes)


async def read_documents(
    chosen: Sequence[Selection], settings: Settings, outcome: UploadReport
) -> AsyncGenerator[list[Document], None]:
    """Yield the documents of local files in batches, as a worker would receive them.

    Skipped files are added to the outcome.
    """
    for selection in chosen:
        outcome.skip(selection.skipped)
    with open_extractor(settings) as extractor:
        readings = read_selections(chosen, settings.limits, extractor)
        while (reading := await asyncio.to_thread(next, readings, None)) is not None:
            outcome.skip(reading.skipped)
            yield [replace(each, file=False) for each in reading.documents]


@dataclass(slots=True)
class _Upload:
    client: ToolClient
    options: Mapping[str, Any]
    outcome: UploadReport
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
    sources: list[str] = []
    try:
        # A document of a file is deleted with the file, whatever its name.
        sources = await list_sources(call, name, children=False)
    except ToolError as exc:
        if exc.code != "not_found":
            raise
    roots = choose_roots(paths, root, sources)
    if collection is not None or are_stored(paths, roots, sources):
        return Place(name, roots, sources)
    warning = f"{name} holds other documents too; --collection keeps these files apart"
    return Place(name, roots, sources, (warning,) if sources else ())


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
