"""What a block does in the thread of the event loop, in steps instead of seconds."""

from __future__ import annotations

import sys
from asyncio.events import Handle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

PACKAGE = "/src/ability_search/"
LONG = 50_000
"""Characters of a text that is not to be read in the event loop."""


@dataclass
class LoopWatch:
    """Calls of the search ability's functions, and what they call, in one thread."""

    steps: int = 0
    """Most calls in a step of the event loop."""
    where: str = ""
    """Where that step ended."""
    readers: set[str] = field(default_factory=set)
    """Functions that got a long text."""
    _now: int = 0

    def note(self, frame: FrameType, event: str, _arg: Any) -> None:
        """Count a call; see :func:`sys.setprofile`."""
        code = frame.f_code
        if event == "call" and code is Handle._run.__code__:
            self._now = 0
        if event not in ("call", "c_call") or PACKAGE not in code.co_filename:
            return
        self._now += 1
        if self._now > self.steps:
            self.steps, self.where = self._now, code.co_qualname
        if event == "call" and any(map(_is_long, frame.f_locals.values())):
            self.readers.add(f"{code.co_filename.rpartition('/')[2]}:{code.co_qualname}")


def _is_long(value: object) -> bool:
    return isinstance(value, str) and len(value) > LONG


@contextmanager
def loop_watched() -> Iterator[LoopWatch]:
    """Watch the current thread, which runs the event loop, during the block."""
    watch, before = LoopWatch(), sys.getprofile()
    sys.setprofile(watch.note)
    try:
        yield watch
    finally:
        sys.setprofile(before)
