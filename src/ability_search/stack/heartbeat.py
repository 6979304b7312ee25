"""How long the event loop of a part is held, and the sign of life that its parent waits for."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from ability_search.ops.metrics.meter import Meter
from ability_search.ops.metrics.metric_table import LOOP_HELD_SECONDS

log = logging.getLogger(__name__)

BEAT_SECONDS = 5.0
"""How often a part gives a sign of life."""
_TICK_SECONDS = 0.1
_WARNING_SECONDS = 1.0


@asynccontextmanager
async def heartbeat(meter: Meter, beat: Callable[[], None] | None = None) -> AsyncIterator[None]:
    """Measure how long the event loop is held while in the block, and call ``beat`` from it.

    Args:
        meter: Takes the measurements.
        beat: Is called every ``BEAT_SECONDS``.
    """
    task = asyncio.create_task(_tick(meter, beat), name="heartbeat")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _tick(meter: Meter, beat: Callable[[], None] | None) -> None:
    beats = time.monotonic()
    while True:
        # The clock of the loop may stand still while a callback runs.
        due = time.monotonic() + _TICK_SECONDS
        await asyncio.sleep(_TICK_SECONDS)
        now = time.monotonic()
        held = max(0.0, now - due)
        meter.observe(LOOP_HELD_SECONDS, held)
        if held > _WARNING_SECONDS:
            log.warning("the event loop was held for %.1f s", held)
        if beat is not None and now >= beats:
            beat()
            beats = now + BEAT_SECONDS


def write_beat() -> None:
    """Write an empty line to standard output, unless its reader does not read."""
    descriptor = sys.stdout.fileno()
    if sys.platform != "win32":
        os.set_blocking(descriptor, False)
    with suppress(OSError):
        os.write(descriptor, b"\n")
