"""Files of artifacts: checked while they are read, replaced atomically."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from ability_search.errors import InvalidInput
from ability_search.extensions.artifacts.artifact_format import (
    CHUNKS,
    MANIFEST,
    SKILLS,
    SOURCES,
    USAGE,
    VECTORS,
    Damaged,
    FileDigest,
)
from ability_search.files.regular_files import open_regular
from ability_search.ops.locks import locked

_LONGEST_LINE = 256 * 1024 * 1024
_BLOCK = 1024 * 1024
_OURS = {MANIFEST, CHUNKS, SOURCES, USAGE, VECTORS, SKILLS}
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


class CheckedFile:
    """Reads a file and compares its size and hash with those in the manifest.

    Args:
        file: The file, open for reading.
        name: Name of the file in errors.
        declared: Its size and hash; ``None`` if they are unknown.

    Raises:
        Damaged: by every method, if the file differs.
    """

    def __init__(self, file: BinaryIO, name: str, declared: FileDigest | None) -> None:
        self._file = file
        self.name = name
        self._declared = declared
        self._hash = sha256()
        self.size = os.fstat(file.fileno()).st_size
        if declared is not None and self.size != declared.bytes:
            raise Damaged(name, f"has {self.size} bytes, the manifest says {declared.bytes}")

    def read(self, size: int) -> bytes:
        """Return exactly the next ``size`` bytes."""
        data = self._file.read(min(size, self.size))
        if len(data) < size:
            raise Damaged(self.name, "is truncated")
        self._hash.update(data)
        return data

    def rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the JSON object in each line, after the place of the line."""
        for number in count(1):
            data = self._file.readline(_LONGEST_LINE)
            if not data:
                return
            if not data.endswith(b"\n"):
                problem = "has an incomplete last line, or a line of more than 256 MiB"
                raise Damaged(self.name, problem)
            self._hash.update(data)
            place = f"{self.name}:{number}"
            yield place, json_object(data, place)

    def finish(self) -> None:
        """Check that the file ends here and has the declared hash."""
        if self._file.read(1):
            raise Damaged(self.name, "is longer than the manifest says")
        if self._declared is not None and self._hash.hexdigest() != self._declared.sha256:
            raise Damaged(self.name, "does not have the SHA-256 in the manifest")


@contextmanager
def opened(directory: Path, name: str, declared: FileDigest | None = None) -> Iterator[CheckedFile]:
    """Open a regular file of a directory; all of it has to be read in the block.

    Links are not followed.

    Raises:
        Damaged: if it is missing or not a regular file, or as :meth:`CheckedFile.finish`.
    """
    try:
        file = open_regular(directory / name, buffering=_BLOCK)
    except OSError as exc:
        raise Damaged(name, f"cannot be read: {exc.strerror}") from exc
    with file:
        found = CheckedFile(file, name, declared)
        yield found
        found.finish()


def json_object(data: bytes, place: str) -> dict[str, Any]:
    """Return the JSON object in a line or file.

    Raises:
        Damaged: if it is none.
    """
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as exc:
        raise Damaged(place, f"is not JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise Damaged(place, "is not a JSON object")
    return value


class DigestedFile:
    """Writes a file and computes its size and hash."""

    def __init__(self, path: Path) -> None:
        # Only for the owner, as the data directory: it holds the same texts.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = os.fdopen(descriptor, "wb", buffering=_BLOCK)
        self._hash = sha256()
        self._bytes = 0

    def write(self, data: bytes) -> None:
        """Append ``data``."""
        self._file.write(data)
        self._hash.update(data)
        self._bytes += len(data)

    def finish(self) -> FileDigest:
        """Flush the file to disk; return its size and hash."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return FileDigest(bytes=self._bytes, sha256=self._hash.hexdigest())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@contextmanager
def replaced(target: Path) -> Iterator[Path]:
    """Yield a new directory next to ``target`` and replace ``target`` by it afterwards.

    If the block fails or the process dies, ``target`` is unchanged. The next call removes what a
    killed process left behind.

    Raises:
        InvalidInput: if ``target`` is not an artifact, or another process is writing it.
        OSError: if the directory cannot be written.
    """
    target = target.resolve()
    _check_replaceable(target)
    for above in [each for each in target.parents if not each.exists()][::-1]:
        above.mkdir(mode=0o700, exist_ok=True)
    new = target.with_name(f".{target.name}.new")
    new.mkdir(mode=0o700, exist_ok=True)
    taken = InvalidInput(
        str(target), "is being written by another process", hint="Wait until it is done."
    )
    with locked(new, taken):
        empty(new)
        try:
            yield new
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        _sync(new)
        _put_in_place(new, target)
        _sync(target.parent)


def empty(directory: Path) -> None:
    """Remove everything in a directory."""
    for entry in list(directory.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _check_replaceable(target: Path) -> None:
    """Check that a directory holds nothing but an artifact, since it will be removed."""
    if not target.exists():
        return
    if not target.is_dir():
        raise InvalidInput(str(target), "is not a directory", hint="Choose another directory.")
    names = {entry.name for entry in target.iterdir()}
    foreign = sorted(names - _OURS)
    if names and (foreign or MANIFEST not in names):
        found = f"it contains {foreign[0]!r}" if foreign else f"it has no {MANIFEST}"
        raise InvalidInput(
            str(target),
            f"is not an artifact and will not be replaced: {found}",
            hint="Choose a new or empty directory.",
        )


def _put_in_place(new: Path, target: Path) -> None:
    if not target.exists():
        new.rename(target)
        return
    if not _exchange(new, target):
        # Not atomic: for an instant there is no artifact.
        old = target.with_name(f".{target.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
        try:
            new.rename(target)
        except OSError:
            old.rename(target)
            raise
        new = old
    shutil.rmtree(new, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two directories atomically; return false if the system does not support it."""
    if sys.platform != "linux":
        return False
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    names = os.fsencode(one), os.fsencode(other)
    result: int = rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE)
    return result == 0


def _sync(directory: Path) -> None:
    if sys.platform == "win32":
        return
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
