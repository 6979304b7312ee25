"""Select local files and read them in batches that each fit into one call."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

from ability_search.client.tool_client import BATCH_BYTES, BATCH_DOCUMENTS
from ability_search.config.schema import Limits
from ability_search.errors import InvalidInput
from ability_search.files.file_documents import Reading, read_files
from ability_search.files.isolated_reader import Extractor
from ability_search.files.selection import Identity, Selection, select, vanished

_UNUSABLE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 64
_FALLBACK = "files"


@dataclass(frozen=True, slots=True)
class Tree:
    """A file or directory and its selected files."""

    selection: Selection
    directory: bool

    def only(self, files: Set[Path]) -> Tree:
        """Return the tree restricted to these files."""
        return replace(self, selection=self.selection.only(files))

    def lacks(self, source: str) -> bool:
        """Return whether a source name lies in this directory but its file does not exist."""
        if not source.startswith(self.selection.prefix):
            return False
        return vanished(self.selection.root / source)


def collection_name(path: Path) -> str:
    """Return the default collection name of a path: its directory's name, made valid."""
    real = path.resolve()
    directory = real if real.is_dir() else real.parent
    name = _UNUSABLE.sub("-", directory.name).strip("-._")[:_LONGEST_NAME]
    return name or _FALLBACK


def trees(
    paths: Sequence[Path],
    root: Path | None,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    gitignore: bool = False,
) -> list[Tree]:
    """Return the files of each path, see :func:`ability_search.files.selection.select`.

    A file below several paths belongs to the first.

    Raises:
        InvalidInput: if a path does not exist or lies outside ``root``, or a pattern is not valid
            gitignore syntax.
    """
    seen: set[Path] = set()
    known_secrets: dict[Path, frozenset[Identity]] = {}
    found = []
    for path in paths:
        real = path.resolve()
        if not real.exists():
            problem = f"{path}: no such file or directory"
            raise InvalidInput("PATH", problem, hint="Choose an existing file or directory.")
        home = _home(path, real, root)
        selection = select(
            real,
            home,
            include=include,
            exclude=exclude,
            gitignore=gitignore,
            known_secrets=known_secrets,
        )
        files = tuple(file for file in selection.files if file not in seen)
        seen.update(files)
        found.append(Tree(replace(selection, files=files), real.is_dir()))
    return found


def _home(path: Path, real: Path, root: Path | None) -> Path:
    if root is None:
        cwd = Path.cwd().resolve()
        return cwd if real.is_relative_to(cwd) else real.parent
    home = root.resolve()
    if not real.is_relative_to(home):
        problem = f"{path} is outside {root}"
        raise InvalidInput("--root", problem, hint="Choose a directory that contains every PATH.")
    return home


def sweepable(chosen: Sequence[Tree]) -> list[Tree]:
    """Return the directories among the paths.

    Raises:
        InvalidInput: if one of them is the root: every source of the collection would then count
            as one of its files, even one that never was a file.
    """
    directories = [tree for tree in chosen if tree.directory]
    if any(not tree.selection.prefix for tree in directories):
        problem = "the directory must be below the root"
        raise InvalidInput("--sweep", problem, hint="Pass its parent as --root.")
    return directories


def count_files(chosen: Sequence[Tree]) -> int:
    """Return the number of selected files."""
    return sum(len(tree.selection.files) for tree in chosen)


def by_root(chosen: Sequence[Tree]) -> Iterator[Selection]:
    """Yield the files of all trees, merged by root."""
    found: dict[Path, list[Selection]] = {}
    for tree in chosen:
        found.setdefault(tree.selection.root, []).append(tree.selection)
    for root, selections in found.items():
        files = (file for selection in selections for file in selection.files)
        secrets = frozenset[Identity]().union(*(selection.secrets for selection in selections))
        yield Selection(root, tuple(files), "", root, secrets=secrets)


def read_trees(chosen: Sequence[Tree], limits: Limits, extractor: Extractor) -> Iterator[Reading]:
    """Read the documents lazily, in batches that each fit into one call."""
    for selection in by_root(chosen):
        yield from read_selection(selection, limits, extractor)


def read_selection(selection: Selection, limits: Limits, extractor: Extractor) -> Iterator[Reading]:
    """Read files with a common root, as :func:`read_trees` does."""
    return read_files(
        selection,
        extractor,
        limits,
        most=most_documents(limits),
        # Half of the limit, because text grows when it is encoded as JSON.
        most_bytes=min(BATCH_BYTES, limits.batch_bytes // 2),
    )


def most_documents(limits: Limits) -> int:
    """Return the maximum number of documents per call."""
    return min(BATCH_DOCUMENTS, limits.batch_documents)
