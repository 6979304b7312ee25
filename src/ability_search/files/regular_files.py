"""Opening regular files: links are not followed, and pipes and devices do not block."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_FILE = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
# O_PATH needs the right to pass through a directory, not the right to list it.
_DIRECTORY = (
    getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
)
_TYPES = {
    stat.S_IFDIR: "directory",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFBLK: "device",
    stat.S_IFCHR: "device",
}


class NotRegular(OSError):
    """A path names a link, a directory, a FIFO, a socket or a device, not a regular file."""

    def __init__(self, problem: str) -> None:
        super().__init__(errno.EINVAL, problem)


def open_regular(path: Path, *, buffering: int = -1) -> BinaryIO:
    """Open a regular file for reading; return at once, whatever the path names.

    Links in the directories of the path are followed, a link in its last component is not.

    Raises:
        NotRegular: if it is a link, or is not a regular file.
        OSError: if it does not exist or cannot be opened.
    """
    return _checked(_open_file(path), buffering)


def open_beneath(root: Path, path: Path) -> BinaryIO:
    """Open a regular file below a directory for reading, following no link below the directory.

    Every component is opened relative to the one before it. A file or directory that is replaced
    by a link at any time is refused.

    Args:
        root: The directory; links in its own path are followed.
        path: Path of the file, in ``root``.

    Raises:
        NotRegular: as :func:`open_regular`, also if a directory below ``root`` is a link.
        OSError: if it does not exist or cannot be opened.
        ValueError: if the path is not in ``root``.
    """
    *directories, name = path.relative_to(root).parts or (path.name,)
    if os.open not in os.supports_dir_fd:
        return open_regular(path)
    at = os.open(root if path != root else root.parent, _DIRECTORY)
    try:
        for directory in directories:
            inner = _open_directory(directory, at)
            os.close(at)
            at = inner
        descriptor = _open_file(name, at)
    finally:
        os.close(at)
    return _checked(descriptor)


def _open_directory(name: str, at: int) -> int:
    try:
        return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
    except NotADirectoryError as exc:
        # With O_DIRECTORY, Linux reports a link like this too.
        if stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
            raise NotRegular(f"its directory {name!r} was replaced by a link") from exc
        raise
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise NotRegular(f"its directory {name!r} was replaced by a link") from exc
        raise


def _open_file(path: Path | str, at: int | None = None) -> int:
    try:
        return os.open(path, _FILE, dir_fd=at)
    except OSError as exc:
        if exc.errno in (errno.ELOOP, errno.EMLINK):
            raise NotRegular("a link, not a regular file") from exc
        if exc.errno in (errno.ENXIO, errno.ENODEV):
            raise NotRegular("a socket or device, not a regular file") from exc
        raise


def _checked(descriptor: int, buffering: int = -1) -> BinaryIO:
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise NotRegular(f"a {_TYPES.get(stat.S_IFMT(mode), 'special file')}, not a regular file")
    return os.fdopen(descriptor, "rb", buffering=buffering)
