"""Reading files, those in risky formats in a child process.

The child is this module, run by ``python -P -m`` with two arguments, ``BYTES`` and ``FORMATS``. It
answers requests from standard input on standard output until the input ends. ``BYTES`` is its
maximum address space, on systems that can limit it. ``FORMATS`` are the formats of this process in
JSON: the child loads no extensions, only what reads the file. The child and the programs that it
runs are one process group, which ends as a whole.
"""

from __future__ import annotations

import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from ability_search.extensions.formats.foreign_files import (
    ForeignReading,
    OutOfTime,
    is_spent,
    read_file,
)
from ability_search.extensions.formats.ocr import PageTexts, recognizer
from ability_search.files.file_documents import Extractor
from ability_search.text.formats import OUT_OF_TIME, Format, table, too_much_memory, use
from ability_search.text.loaders import Bounds, Extracted, Unreadable, is_foreign

MOST_TIMES = 60
"""Number of timeouts that the recognition of all images of a file may take together."""
# -P: never import modules from the working directory.
_COMMAND = (sys.executable, "-P", "-m", "ability_search.extensions.formats.isolated_reader")
_LENGTH = struct.Struct("<Q")


class Request(msgspec.Struct, frozen=True):
    """A file to read."""

    name: str
    data: bytes
    format: str | None
    bounds: Bounds
    timeout: float
    known: dict[str, str] = {}
    """Texts of its images that were recognised before, by the hashes of the images."""


class Reply(msgspec.Struct, frozen=True):
    """The text of a file, or the reason why it cannot be read."""

    found: Extracted | None = None
    problem: str = ""
    spent: bool = False
    """The process has used most of its memory: a new one has to read the next file."""
    busy: bool = False
    """The file is still being read: the recognition of another image begins."""
    texts: dict[str, str] = {}
    """Texts of its images, by their hashes, if some were left unread for lack of time."""


def write_frame(stream: BinaryIO, message: Request | Reply) -> None:
    """Write the length of a message and the message."""
    body = msgspec.msgpack.encode(message)
    stream.write(_LENGTH.pack(len(body)))
    stream.write(body)
    stream.flush()


def read_frame(stream: BinaryIO) -> bytes | None:
    """Return the next message; ``None`` if the stream ended."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    body = stream.read(length)
    return body if len(body) == length else None


class IsolatedReader(Extractor):
    """A reader of files; foreign formats are read in a child process.

    A file that makes the child crash, hang or use too much memory affects no other file: the child
    is ended, and the next file starts a new one. Methods block and are for one thread at a time,
    except :meth:`close`, which also ends a read in progress.

    Args:
        bounds: Limits for one file.
        timeout: Maximum seconds for one file; each image in it that is recognised has as many, all
            of them together :data:`MOST_TIMES` as many.
        kept: Directory for the texts of images, see :class:`.PageTexts`.
        advance: Called before each image is recognised, with the file and the number of the image.
    """

    def __init__(
        self,
        bounds: Bounds,
        *,
        timeout: float,
        kept: Path | None = None,
        advance: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(bounds)
        self._timeout = timeout
        self._kept = PageTexts(kept)
        self._advance = advance
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._closed = False

    def extract(self, name: str, data: bytes, format: str | None) -> Extracted:
        """Read the text of a file, as :func:`ability_search.text.loaders.extract` does.

        Raises:
            Unreadable: if the file has no readable text, or takes longer than the timeout.
        """
        if not is_foreign(format):
            return super().extract(name, data, format)
        known = self._kept.load(data)
        request = Request(name, data, format, self._bounds, self._timeout, known)
        child = self._running()
        late = threading.Event()

        def end() -> None:
            late.set()
            _kill(child)

        sent: Request | None = request
        for image in count(1):
            timer = threading.Timer(self._timeout, end)
            timer.start()
            try:
                reply = _ask(child, sent)
            finally:
                timer.cancel()
            if reply is None or not reply.busy:
                break
            sent = None
            self._advance(f"{name}, image {image}")
        if reply is None:
            self._end_child()
            if self._closed:
                raise Unreadable("stopped before it was read")
            raise Unreadable(
                f"not read within {self._timeout:g} seconds (file_timeout)"
                if late.is_set()
                else f"reading it crashed: corrupt, or {too_much_memory(self._bounds)}"
            )
        if reply.spent:
            self._end_child()
        if known or reply.texts:
            self._kept.keep(data, reply.texts)
        if reply.found is None:
            raise Unreadable(reply.problem)
        return reply.found

    def close(self) -> None:
        """End the child and any read in progress."""
        self._closed = True
        self._end_child()

    def _running(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed:
                raise Unreadable("stopped before it was read")
            if self._child is None:
                own_group: dict[str, Any] = {} if sys.platform == "win32" else {"process_group": 0}
                self._child = subprocess.Popen(
                    [
                        *_COMMAND,
                        str(self._bounds.memory),
                        msgspec.json.encode(table().formats).decode(),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    # Unused threads would reserve address space for every processor.
                    env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                    **own_group,
                )
            return self._child

    def _end_child(self) -> None:
        with self._lock:
            child, self._child = self._child, None
        if child is not None:
            _kill(child)
            child.wait()
            for stream in (child.stdin, child.stdout):
                with suppress(OSError):
                    cast(BinaryIO, stream).close()


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kill the child and the programs that it runs."""
    if sys.platform == "win32":
        child.kill()
    elif child.returncode is None:
        # Until it is waited for, no other group has its id, even if it has ended.
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


def _ask(child: subprocess.Popen[bytes], request: Request | None) -> Reply | None:
    """Send a request, if any, and return the next reply of the child; ``None`` if it ended."""
    try:
        if request is not None:
            write_frame(cast(BinaryIO, child.stdin), request)
        body = read_frame(cast(BinaryIO, child.stdout))
    except (OSError, ValueError):
        # The child ended, or another thread closed its streams.
        return None
    return None if body is None else msgspec.msgpack.decode(body, type=Reply)


def answer(
    body: bytes,
    send: Callable[[Reply], None] = lambda _: None,
    now: Callable[[], float] = time.monotonic,
) -> Reply:
    """Read the file of an encoded request; send that it is busy before each image.

    Images that were recognised before are not recognised again. When the time for all images is
    up, the others are left unread.
    """
    request = msgspec.msgpack.decode(body, type=Request)
    read = recognizer(request.timeout)
    most = MOST_TIMES * request.timeout
    started = now()
    texts: dict[str, str] = {}

    def recognize(image: bytes) -> str:
        if now() - started > most:
            problem = f"not read within {most:g} seconds; the next indexing goes on {OUT_OF_TIME}"
            raise OutOfTime(problem)
        send(Reply(busy=True))
        key = sha256(image).hexdigest()
        if key in request.known:
            texts[key] = request.known[key]
        else:
            texts[key] = read(image) if read else ""
        return texts[key]

    try:
        reading = ForeignReading.within(request.bounds, recognize if read else None)
        found = read_file(request.name, request.data, request.format, reading)
    except Unreadable as exc:
        return Reply(problem=str(exc), spent=is_spent())
    return Reply(found, spent=is_spent(), texts=texts if found.late else {})


def main() -> None:
    """Answer requests from standard input until it ends."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]), int(sys.argv[1])))
    use(msgspec.json.decode(sys.argv[2], type=tuple[Format, ...]))
    if sys.platform != "win32":
        threading.Thread(target=_end_with_parent, daemon=True).start()
    # Libraries that print must not write between the replies.
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        while (body := read_frame(sys.stdin.buffer)) is not None:
            write_frame(out, answer(body, partial(write_frame, out)))


def _end_with_parent() -> None:
    """Kill this process and the programs that it runs once its parent has closed the input."""
    poll = select.poll()
    poll.register(0, select.POLLHUP)
    poll.poll()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
