"""Select local files and read them in batches that each fit into one call."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

from ability_search.client.tool_client import BATCH_BYTES, BATCH_DOCUMENTS
from ability_search.collection import proposed_name
from ability_search.config.schema import Limits
from ability_search.errors import InvalidInput
from ability_search.files.file_documents import Extractor, Reading, read_files
from ability_search.files.selection import (
    Identity,
    Selection,
    named_once,
    real_path,
    select,
    unmatched_patterns,
    vanished,
)

_SAMPLE = 200
"""Stored sources that are looked for on the disk, to find the root of a collection."""


@dataclass(frozen=True, slots=True)
class Root:
    """The root of a path."""

    directory: Path
    """Directory to which sources are relative."""
    within: Path
    """Directory that no link may lead out of."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A file or directory and its selected files."""

    selection: Selection
    directory: bool

    def only(self, files: Set[Path]) -> Tree:
        """Return the tree restricted to these files."""
        return replace(self, selection=self.selection.only(files))

    def excluded(self, sources: Sequence[str]) -> list[str]:
        """Return the sources whose files are left out now, although they exist."""
        return self._present(sources, self.selection.excludes)

    def unnamed(self, sources: Sequence[str]) -> list[str]:
        """Return the sources whose files exist, but are not named by a pattern to include."""
        selection = self.selection
        return self._present(
            sources, lambda file: not selection.includes(file) and not selection.excludes(file)
        )

    def _present(self, sources: Sequence[str], wanted: Callable[[Path], bool]) -> list[str]:
        selection = self.selection
        files = ((each, selection.root / each) for each in sources)
        below = (each for each in files if each[0].startswith(selection.prefix))
        return [source for source, file in below if wanted(file) and not vanished(file)]


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


def trees(
    paths: Sequence[Path],
    root: Path | Sequence[Root] | None,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    temporary: Sequence[str] = (),
    gitignore: bool = False,
) -> list[Tree]:
    """Return the files of each path, see :func:`ability_search.files.selection.select`.

    A file below several paths belongs to the first, a link to a file of another path to none.
    ``root`` is as for :func:`choose_roots`, or
    what that returned.

    Raises:
        InvalidInput: if a path does not exist or lies outside ``root``, or a pattern is not valid
            gitignore syntax.
    """
    seen: dict[Path, None] = {}
    known_secrets: dict[Path, frozenset[Identity]] = {}
    found = []
    roots = choose_roots(paths, root) if root is None or isinstance(root, Path) else root
    for path, chosen in zip(paths, roots, strict=True):
        real = _existing(path)
        selection = select(
            real,
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
    return [Tree(selection, path.is_dir()) for path, selection in zip(paths, found, strict=True)]


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


def sweepable(chosen: Sequence[Tree]) -> list[Tree]:
    """Return the directories among the paths.

    Raises:
        InvalidInput: if one of them is the root: every source of the collection would then count
            as one of its files, even one that never was a file.
    """
    directories = [tree for tree in chosen if tree.directory]
    if any(not tree.selection.prefix for tree in directories):
        problem = "the directory must be below the root of the sources"
        hint = "Index it into another collection (-c), or delete this one first."
        raise InvalidInput("--sweep", problem, hint=hint)
    return directories


def count_files(chosen: Sequence[Tree]) -> int:
    """Return the number of selected files."""
    return sum(len(tree.selection.files) for tree in chosen)


def by_root(chosen: Sequence[Tree]) -> Iterator[Selection]:
    """Yield the files of all trees, merged by root."""
    found: dict[tuple[Path, Path], list[Selection]] = {}
    for tree in chosen:
        key = tree.selection.root, tree.selection.within
        found.setdefault(key, []).append(tree.selection)
    for (root, within), selections in found.items():
        files = (file for selection in selections for file in selection.files)
        secrets = frozenset[Identity]().union(*(selection.secrets for selection in selections))
        yield Selection(root, tuple(files), "", within, secrets=secrets)


def read_trees(chosen: Sequence[Tree], limits: Limits, extractor: Extractor) -> Iterator[Reading]:
    """Read the documents lazily, in batches that each fit into one call."""
    most, most_bytes = reading_limits(limits)
    for selection in by_root(chosen):
        yield from read_files(selection, extractor, limits, most=most, most_bytes=most_bytes)


def reading_limits(limits: Limits) -> tuple[int, int]:
    """Return the maximum number of documents in a call, and of bytes of their text."""
    # Half of the limit, because text grows when it is encoded as JSON.
    most_bytes = min(BATCH_BYTES, limits.batch_bytes // 2)
    return min(BATCH_DOCUMENTS, limits.batch_documents), most_bytes
