"""Files on this machine as documents: which ones, and what is in them."""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Callable, Iterator, Sequence
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
_LEFT_OUT = (
    ".git/",
    ".hg/",
    ".svn/",
    "node_modules/",
    "__pycache__/",
    ".venv/",
    "*.pyc",
    # Secrets: nobody who indexes a directory means these.
    ".env",
    ".env.*",
    "*.key",
    "*.pem",
    "*.p12",
    "id_rsa*",
    "id_ed25519*",
    "secrets.toml",
)
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
    """What the sources are relative to."""
    files: tuple[Path, ...]
    prefix: str
    """What the sources of files below the path begin with."""
    skipped: tuple[Skipped, ...] = ()
    """Directories that could not be read."""


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
) -> Selection:
    """The files below a path (or the one it is), in the order of their names.

    ``.gitignore`` files are not read. Version control and installed packages are left out, hidden
    files are not; links that lead out of the root are not followed.

    Args:
        path: As :func:`allowed` returned it.
        root: The allowed root it lies in.
        names_from: What sources are relative to; the root unless given.
        include: Patterns of files to take; all if there are none.
        exclude: Patterns of files and directories to leave out.

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
        skipped.append(Skipped(_shown(where), exc.strerror or "cannot be read"))

    wanted = _patterns(include, "include") if include else None
    unwanted = _patterns([*_LEFT_OUT, *exclude], "exclude")
    files = [
        file
        for file in _walk(path, root, unwanted, unreadable)
        if wanted is None or wanted.match_file(file.relative_to(path).as_posix())
    ]
    return Selection(base, tuple(files), prefix, tuple(skipped))


def parts(selection: Selection, *, most: int, most_bytes: int) -> Iterator[Selection]:
    """Cut a selection into parts of at most ``most`` files and ``most_bytes`` bytes.

    A file that alone is larger is a part of its own.
    """
    part: list[Path] = []
    size = 0
    for file in selection.files:
        length = _size(file)
        if part and (len(part) == most or size + length > most_bytes):
            yield Selection(selection.root, tuple(part), selection.prefix)
            part, size = [], 0
        part.append(file)
        size += length
    if part:
        yield Selection(selection.root, tuple(part), selection.prefix)


def read(selection: Selection, *, max_bytes: int, format: str | None = None) -> Reading:
    """Read the files of a selection; sources are paths relative to the root, with ``/``."""
    reading = Reading()
    for file in selection.files:
        name = file.relative_to(selection.root).as_posix()
        if _shown(name) != name:
            reading.skipped.append(Skipped(_shown(name), "its name is not valid UTF-8"))
            continue
        try:
            reading.documents.append(read_file(file, name, max_bytes=max_bytes, format=format))
        except (OSError, ValueError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
            reading.skipped.append(Skipped(name, reason))
    return reading


def vanished(file: Path) -> bool:
    """Whether there is no such file any more, as far as it can be told."""
    try:
        return not stat.S_ISREG(file.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False


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
    """Text in UTF-8, with a byte order mark in UTF-16 or 32, or in what its bytes look like.

    Raises:
        ValueError: if it is no text.
    """
    if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return data.decode("utf-32")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
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


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _shown(name: str) -> str:
    return name.encode("utf-8", "replace").decode()


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


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


def _walk(
    top: Path, root: Path, unwanted: GitIgnoreSpec, unreadable: Callable[[OSError], None]
) -> Iterator[Path]:
    for directory, names, files in os.walk(top, onerror=unreadable):
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
