"""Files of artifacts: read with every doubt, written so that a crash leaves the old ones whole."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from ability_search.artifacts.manifest import (
    CHUNKS,
    MANIFEST,
    SKILLS,
    SOURCES,
    USAGE,
    VECTORS,
    Damaged,
    FileDigest,
)
from ability_search.errors import InvalidInput
from ability_search.files.regular_files import open_regular
from ability_search.ops.locks import locked

_LONGEST_LINE = 256 * 1024 * 1024
_BLOCK = 1024 * 1024
_OURS = {MANIFEST, CHUNKS, SOURCES, USAGE, VECTORS, SKILLS}
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


class Reading:
    """A file that is hashed while it is read, and must be what was declared.

    Args:
        file: Open for reading.
        name: What it is called in errors.
        declared: Its size and hash, where they are known.

    Raises:
        Damaged: by every method, if it is anything else.
    """

    def __init__(self, file: BinaryIO, name: str, declared: FileDigest | None) -> None:
        self._file = file
        self.name = name
        self._declared = declared
        self._hash = sha256()
        size = os.fstat(file.fileno()).st_size
        if declared is not None and size != declared.bytes:
            raise Damaged(name, f"has {size} bytes, the manifest says {declared.bytes}")

    def read(self, size: int) -> bytes:
        """The next ``size`` bytes, all of them."""
        data = self._file.read(size)
        if len(data) < size:
            raise Damaged(self.name, "ends too early")
        self._hash.update(data)
        return data

    def line(self) -> bytes | None:
        """The next line without its end; ``None`` at the end of the file."""
        data = self._file.readline(_LONGEST_LINE)
        if not data:
            return None
        if not data.endswith(b"\n"):
            raise Damaged(self.name, "ends within a line, or has one of more than 256 MiB")
        self._hash.update(data)
        return data[:-1]

    def finish(self) -> None:
        """Check that nothing is left, and that the hash is the one that was declared."""
        if self._file.read(1):
            raise Damaged(self.name, "is longer than it should be")
        if self._declared is not None and self._hash.hexdigest() != self._declared.sha256:
            raise Damaged(self.name, "has another SHA-256 than the manifest says")


@contextmanager
def opened(directory: Path, name: str) -> Iterator[BinaryIO]:
    """Open a file of a directory for reading; it must be a plain file, not a link to one.

    Raises:
        Damaged: if it is not there, or is anything else.
    """
    try:
        file = open_regular(directory / name, buffering=_BLOCK)
    except OSError as exc:
        raise Damaged(name, f"cannot be read: {exc.strerror}") from exc
    with file:
        yield file


class Writing:
    """A file that is hashed while it is written."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb", buffering=_BLOCK)
        self._hash = sha256()
        self._bytes = 0

    def write(self, data: bytes) -> None:
        """Append ``data``."""
        self._file.write(data)
        self._hash.update(data)
        self._bytes += len(data)

    def finish(self) -> FileDigest:
        """Have everything on the disk; what the file is."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return FileDigest(bytes=self._bytes, sha256=self._hash.hexdigest())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@contextmanager
def replaced(target: Path) -> Iterator[Path]:
    """A new directory beside ``target``, which takes its place when the block ends well.

    Until then, and after a crash at any instant, ``target`` is as it was. What a killed writer
    left behind is removed by the next one.

    Raises:
        InvalidInput: if ``target`` is no artifact, or somebody else is writing it.
        OSError: if the directory cannot be written.
    """
    target = target.resolve()
    _check_replaceable(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(f".{target.name}.new")
    new.mkdir(exist_ok=True)
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
    """Nothing that is not an artifact's own is ever removed."""
    if not target.exists():
        return
    if not target.is_dir():
        raise InvalidInput(str(target), "is no directory", hint="Name another directory.")
    names = {entry.name for entry in target.iterdir()}
    foreign = sorted(names - _OURS)
    if names and (foreign or MANIFEST not in names):
        what = f"holds {foreign[0]!r}" if foreign else f"holds no {MANIFEST}"
        raise InvalidInput(
            str(target),
            f"{what}, so it is no artifact that could be replaced",
            hint="Name a new or empty directory.",
        )


def _put_in_place(new: Path, target: Path) -> None:
    if not target.exists():
        new.rename(target)
        return
    if not _exchange(new, target):
        # For an instant there is none, which only a system without that operation shows.
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
    """Let two directories change places in one step; false where the system cannot."""
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
