"""The process that reads files: ``python -P -m ability_search.files.reader_process BYTES``.

It reads requests from standard input and answers them on standard output until the input ends.
``BYTES`` is the address space it may take, where the system knows such a limit.
"""

from __future__ import annotations

import contextlib
import os
import sys

import msgspec

from ability_search.files.reader_messages import Reply, Request, read_frame, write_frame
from ability_search.text.loaders import Unreadable, extract


def answer(body: bytes) -> Reply:
    """Read the file of a request."""
    request = msgspec.msgpack.decode(body, type=Request)
    try:
        return Reply(extract(request.name, request.data, request.format, request.bounds))
    except Unreadable as exc:
        return Reply(problem=str(exc))


def main() -> None:
    """Answer requests until the input ends."""
    _limit_memory(int(sys.argv[1]))
    # What a library prints must not come between the answers.
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        while (body := read_frame(sys.stdin.buffer)) is not None:
            write_frame(out, answer(body))


def _limit_memory(most: int) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    main()
