"""Commands of the program as processes of their own."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

PATIENCE = 60.0
"""Seconds that a process may take in all."""
_OF_THE_PROGRAM = ("SEARCH_", "BROKER_", "KADI_", "XDG_")


def foreign_environ() -> dict[str, str]:
    """The environment of this process without what the program reads."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(_OF_THE_PROGRAM)
    }


@asynccontextmanager
async def process(environ: Mapping[str, str], *arguments: str) -> AsyncIterator[Process]:
    """A command in the directory ``HOME``; it is ended at the end if it still runs."""
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "ability_search", *arguments),
        env={**foreign_environ(), "SEARCH_LOG_LEVEL": "debug", **environ},
        cwd=environ["HOME"],
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            yield started
    finally:
        if started.returncode is None:
            started.kill()
            await started.communicate()


async def log_until(running: Process, text: str) -> str:
    """What a process logs, up to the line with a text."""
    assert running.stderr is not None
    lines = ""
    async for line in running.stderr:
        lines += line.decode()
        if text in lines:
            return lines
    raise AssertionError(f"{text!r} was not logged:\n{lines}")


async def rest(running: Process) -> tuple[str, str]:
    """What a process writes until it ends, its standard input closed: on stdout and on stderr."""
    out, err = await running.communicate(b"")
    return out.decode(), err.decode()
