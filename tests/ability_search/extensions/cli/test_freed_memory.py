"""What was freed goes back to the system."""

from __future__ import annotations

import ctypes
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ability_search.extensions.cli.lifecycle import return_freed_memory

MIB = 1 << 20


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def _leave_holes() -> bytes:
    """Free most of many blocks, but not the last one, which keeps the heap from shrinking."""
    blocks = [b"x" * (64 * 1024 - n) for n in range(1600)]
    return blocks[-1]


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc"
)
def test_freed_memory_of_a_thread_is_returned() -> None:
    with ThreadPoolExecutor(1) as thread:
        kept = thread.submit(_leave_holes).result()
        before = resident()
        return_freed_memory()
        assert before - resident() > 30 * MIB
        assert kept
