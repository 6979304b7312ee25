"""Running a part as a process."""

from __future__ import annotations

import subprocess
import sys

PART = """
import asyncio, gc, os, signal
from contextlib import asynccontextmanager
from ability_search.extensions.cli.component_run import serve
from ability_search.extensions.cli.component_run import Component

@asynccontextmanager
async def open_part(settings, meter):
    asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
    try:
        yield Component({"address": "here"})
    finally:
        print(gc.get_freeze_count())

serve("broker", open_part, supervised=False)
"""
PATIENCE = 60.0


def test_what_a_part_starts_with_is_no_work_for_the_garbage_collector() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PART], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert int(ended.stdout) > 10_000
