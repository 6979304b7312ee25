"""Files on this machine as documents: which ones, and what is in them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from charset_normalizer import from_bytes
from pathspec import GitIgnoreSpec

from ability_search.documents import Document
from ability_search.errors import ForbiddenPath, InvalidInput

_FORMATS = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".mdx": "markdown",
    ".txt": "text",
    ".text": "text",
    ".log": "text",
    ".rst": "rst",
    ".html": "html",
    ".htm": "html",
    ".json": "json",
    ".csv": "csv",
}
_CODE = {
    ".c": "c",
    ".h": "c",
    ".cc": "cpp",
    ".cpp": "cpp",
    ".hpp": "cpp",
    ".cs": "csharp",
    ".css": "css",
    ".go": "go",
    ".java": "java",
    ".js": "javascript",
    ".jsx": "javascript",
    ".kt": "kotlin",
    ".lua": "lua",
    ".php": "php",
    ".pl": "perl",
    ".py": "python",
    ".rb": "ruby",
    ".rs": "rust",
    ".scala": "scala",
    ".sh": "bash",
    ".sql": "sql",
    ".swift": "swift",
    ".toml": "toml",
    ".ts": "typescript",
    ".tsx": "tsx",
    ".yaml": "yaml",
    ".yml": "yaml",
}
_LEFT_OUT = (".git/", ".hg/", ".svn/", "node_modules/", "__pycache__/", ".venv/", "*.pyc")
_SNIFFED = 8192


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that was left out, and why; the path is relative to the root."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Selection:
    """Which files of a tree are meant."""

    root: Path
    files: tuple[Path, ...]
    prefix: str
    """What the sources of all files begin with."""


@dataclass(slots=True)
class Reading:
    """Documents read, and what could not be."""

    documents: list[Document] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


def allowed(path: str, roots: Sequence[Path], *, base: Path) -> tuple[Path, Path]:
    """The real place of a path and the allowed root it lies in; links are followed first.

    Args:
        path: As the caller gave it; a relative one starts at ``base``.
        roots: Directories that may be read.
        base: Where relative paths start.

    Raises:
        ForbiddenPath: if it lies outside all roots.
        InvalidInput: if there is nothing there.
    """
    if "\0" in path:
        raise InvalidInput("path", "holds a NUL character")
    real = (base / path).resolve()
    for root in roots:
        resolved = root.resolve()
        if real.is_relative_to(resolved):
            if not real.exists():
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
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> Selection:
    """The files below a path (or the one it is), in the order of their names.

    ``.gitignore`` files are not read. Version control and installed packages are left out, hidden
    files are not; links that lead out of the root are not followed.

    Raises:
        InvalidInput: if a pattern is not in gitignore syntax.
    """
    if path.is_file():
        return Selection(root, (path,), path.relative_to(root).as_posix())
    wanted = _patterns(include, "include") if include else None
    unwanted = _patterns([*_LEFT_OUT, *exclude], "exclude")
    files = [
        file
        for file in _walk(path, root, unwanted)
        if wanted is None or wanted.match_file(file.relative_to(path).as_posix())
    ]
    prefix = path.relative_to(root).as_posix()
    return Selection(root, tuple(files), "" if prefix == "." else f"{prefix}/")


def read(selection: Selection, *, max_bytes: int, format: str | None = None) -> Reading:
    """Read the files of a selection; sources are paths relative to the root, with ``/``."""
    reading = Reading()
    for file in selection.files:
        name = file.relative_to(selection.root).as_posix()
        try:
            reading.documents.append(read_file(file, name, max_bytes=max_bytes, format=format))
        except (OSError, ValueError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
            reading.skipped.append(Skipped(name, reason))
    return reading


def read_file(file: Path, source: str, *, max_bytes: int, format: str | None = None) -> Document:
    """Read one file as a document.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it is too large, empty or not text.
    """
    size = file.stat().st_size
    if size > max_bytes:
        raise ValueError(f"{size} bytes, more than the {max_bytes} allowed (max_file_bytes)")
    text = decoded(file.read_bytes())
    if not text.strip():
        raise ValueError("empty")
    suffix = file.suffix.lower()
    language = _CODE.get(suffix)
    kind = format or _FORMATS.get(suffix) or ("code" if language else None)
    return Document(
        source=source,
        title=_title(text, kind) or file.name,
        content=text,
        metadata={"path": source, "extension": suffix.removeprefix(".")},
        format=kind,
        language=language if kind == "code" else None,
        file=True,
    )


def decoded(data: bytes) -> str:
    """Text in UTF-8, with a byte order mark in UTF-16, or else in what its bytes look like.

    Raises:
        ValueError: if it is no text.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16")
    if b"\0" in data[:_SNIFFED]:
        raise ValueError("binary, not text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        guess = from_bytes(data).best()
    if guess is None:
        raise ValueError("text in an encoding that could not be recognised")
    return str(guess)


def _title(text: str, format: str | None) -> str | None:
    if format != "markdown":
        return None
    for line in text[:_SNIFFED].splitlines():
        if line.startswith("# "):
            return line.removeprefix("# ").strip()
    return None


def _patterns(patterns: Sequence[str], name: str) -> GitIgnoreSpec:
    try:
        return GitIgnoreSpec.from_lines(patterns)
    except ValueError as exc:
        raise InvalidInput(name, "not in gitignore syntax", hint="Example: *.md") from exc


def _walk(top: Path, root: Path, unwanted: GitIgnoreSpec) -> Iterator[Path]:
    for directory, names, files in os.walk(top):
        here = Path(directory)
        relative = here.relative_to(top)
        names[:] = sorted(
            name for name in names if not unwanted.match_file(f"{(relative / name).as_posix()}/")
        )
        for name in sorted(files):
            file = here / name
            if unwanted.match_file((relative / name).as_posix()):
                continue
            if file.is_file() and file.resolve().is_relative_to(root):
                yield file
