"""Selection of local files, within the allowed directories."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pathspec import GitIgnoreSpec

from ability_search.bounded_batches import batches
from ability_search.errors import ForbiddenPath, InvalidInput

_LEFT_OUT = (
    ".git/",
    ".hg/",
    ".svn/",
    "node_modules/",
    "__pycache__/",
    ".venv/",
    "*.pyc",
    # Secrets are never indexed.
    ".env",
    ".env.*",
    "*.key",
    "*.pem",
    "*.p12",
    "id_rsa*",
    "id_ed25519*",
    "secrets.toml",
)
_NEVER = GitIgnoreSpec.from_lines(_LEFT_OUT)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that was not read, and the reason; the path is relative to the root."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Selection:
    """Selected files of a directory tree."""

    root: Path
    """Directory to which sources are relative."""
    files: tuple[Path, ...]
    prefix: str
    """Common beginning of the sources of files below the path."""
    skipped: tuple[Skipped, ...] = ()
    """Directories that could not be read."""

    def only(self, files: Set[Path]) -> Selection:
        """Return the selection reduced to these files."""
        return replace(self, files=tuple(file for file in self.files if file in files))


def allowed(path: str, roots: Sequence[Path], *, base: Path) -> tuple[Path, Path]:
    """Return the real path, with links resolved, and the allowed root that contains it.

    Args:
        path: The path given by the caller.
        roots: Directories that may be read.
        base: Directory to which a relative path is relative.

    Raises:
        ForbiddenPath: if the path is outside all roots.
        InvalidInput: if it does not exist.
    """
    if "\0" in path:
        raise InvalidInput("path", "holds a NUL character")
    try:
        real = (base / path).resolve()
    except (OSError, RuntimeError) as exc:
        raise InvalidInput("path", "leads in circles, or nowhere") from exc
    for root in roots:
        resolved = root.resolve()
        if real.is_relative_to(resolved):
            if not _exists(real):
                raise InvalidInput("path", "no such file or directory on the worker's machine")
            return real, resolved
    raise ForbiddenPath(
        "path: lies outside the directories that this worker may read",
        hint="Add its directory to the setting allowed_roots (SEARCH_ALLOWED_ROOTS).",
    )


def select(
    path: Path,
    root: Path,
    *,
    names_from: Path | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    gitignore: bool = False,
) -> Selection:
    """Return the files below a path, or the file at the path, in the order of their names.

    Version control, installed packages and secrets are left out; other hidden files are not. Links
    to places outside the root are not followed.

    Args:
        path: As returned by :func:`allowed`.
        root: The allowed root that contains it.
        names_from: Directory to which sources are relative. Default: the root.
        include: Patterns of files to select. Default: all files.
        exclude: Patterns of files and directories to leave out.
        gitignore: Also leave out files matched by ``.gitignore`` files, in the path and above it
            up to the top of the repository.

    Raises:
        InvalidInput: if a pattern is not in gitignore syntax.
    """
    base = names_from or root
    below = path.relative_to(base).as_posix()
    prefix = "" if below == "." else f"{below}/"
    if path.is_file():
        return Selection(base, (path,), prefix)
    skipped: list[Skipped] = []

    def unreadable(exc: OSError) -> None:
        where = Path(exc.filename).relative_to(base).as_posix()
        skipped.append(Skipped(shown(where), exc.strerror or "cannot be read"))

    wanted = _patterns(include, "include") if include else None
    unwanted = _patterns([*_LEFT_OUT, *exclude], "exclude")
    ignored = _Ignored(path) if gitignore else None
    files = [
        file
        for file in _walk(path, root, unwanted, ignored, unreadable)
        if wanted is None or wanted.match_file(file.relative_to(path).as_posix())
    ]
    return Selection(base, tuple(files), prefix, tuple(skipped))


def slices(selection: Selection, *, most: int) -> Iterator[Selection]:
    """Cut a selection into parts of at most ``most`` files."""
    for start in range(0, len(selection.files), most):
        yield replace(selection, files=selection.files[start : start + most])


def parts(selection: Selection, *, most: int, most_bytes: int) -> Iterator[Selection]:
    """Cut a selection into parts of at most ``most`` files and ``most_bytes`` bytes.

    A larger file is a part of its own.
    """
    for part in batches(selection.files, _size, most=most, most_bytes=most_bytes):
        yield replace(selection, files=tuple(part))


def vanished(file: Path) -> bool:
    """Return whether a file no longer exists; false if that cannot be determined."""
    try:
        return not stat.S_ISREG(file.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def shown(name: str) -> str:
    """Return a path as text; bytes that are not valid UTF-8 are replaced."""
    return name.encode("utf-8", "replace").decode()


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _patterns(patterns: Sequence[str], name: str) -> GitIgnoreSpec:
    try:
        return GitIgnoreSpec.from_lines(patterns)
    except ValueError as exc:
        raise InvalidInput(name, "not in gitignore syntax", hint="Example: *.md") from exc


class _Ignored:
    """Rules of ``.gitignore`` files; for each path the nearest file with a match decides."""

    def __init__(self, top: Path) -> None:
        self._specs: dict[Path, GitIgnoreSpec] = {}
        above = [top, *top.parents]
        repository = next((n for n, each in enumerate(above) if (each / ".git").exists()), 0)
        for directory in above[1 : repository + 1]:
            self.read(directory)

    def read(self, directory: Path) -> None:
        """Load the file of a directory if it exists and can be read."""
        with suppress(OSError, ValueError):
            text = (directory / ".gitignore").read_text(encoding="utf-8", errors="replace")
            self._specs[directory] = GitIgnoreSpec.from_lines(text.splitlines())

    def names(self, path: Path, *, directory: bool) -> bool:
        """Return whether the loaded rules leave out a path."""
        for here in path.parents:
            spec = self._specs.get(here)
            if spec is not None:
                name = path.relative_to(here).as_posix()
                decided = spec.check_file(f"{name}/" if directory else name).include
                if decided is not None:
                    return decided
        return False


def left_out(path: str) -> bool:
    """Return whether a path, relative to an indexed directory, is never indexed."""
    return _NEVER.match_file(path)


def _walk(
    top: Path,
    root: Path,
    unwanted: GitIgnoreSpec,
    ignored: _Ignored | None,
    unreadable: Callable[[OSError], None],
) -> Iterator[Path]:
    def wanted(path: Path, *, directory: bool) -> bool:
        relative = path.relative_to(top).as_posix()
        if unwanted.match_file(f"{relative}/" if directory else relative):
            return False
        return ignored is None or not ignored.names(path, directory=directory)

    for walked, names, files in os.walk(top, onerror=unreadable):
        here = Path(walked)
        if ignored is not None:
            ignored.read(here)
        names[:] = sorted(name for name in names if wanted(here / name, directory=True))
        for name in sorted(files):
            file = here / name
            if not wanted(file, directory=False):
                continue
            if file.is_file() and file.resolve().is_relative_to(root):
                yield file
