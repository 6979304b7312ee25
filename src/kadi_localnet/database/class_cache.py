"""The classes of the engine as the JVM has loaded and linked them, in a file for its next starts.

With the file the engine starts with two thirds of the processor time and takes 20 MB less. It is
written by a process that uses a database as a worker would, while the first process that lacks it
runs; a JVM that cannot use it starts without.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from arcadedb_embedded.jvm import get_bundled_jre_lib_path, get_jar_path

from kadi_localnet.database.backend import Statement
from kadi_localnet.database.embedded import EmbeddedDatabases

_LATER = 20.0
"""Seconds after the start until the file is written, which takes ten seconds of a processor."""
_TIMEOUT = 120.0
_NAME = "engine-1-{}.classes"
"""Name of a file; increase its number when options of the JVM change."""
_ENGINE = "engine"
"""Argument of the process that uses the engine."""
_USE = [
    "CREATE DOCUMENT TYPE Source; CREATE PROPERTY Source.source STRING;"
    " CREATE INDEX ON Source (source) UNIQUE; CREATE VERTEX TYPE Chunk BUCKETS 1;"
    " CREATE PROPERTY Chunk.vector ARRAY_OF_FLOATS; CREATE INDEX ON Chunk (vector)"
    ' LSM_VECTOR METADATA {"dimensions": 2, "similarity": "COSINE"}',
    "BEGIN; LET $added = INSERT INTO Chunk CONTENT {'vector': [1.0, 0.5], 'text': 'a'};"
    " INSERT INTO Source CONTENT {'source': 'a', 'chunks': 1}; COMMIT; RETURN $added",
    "LET $found = SELECT expand(vectorNeighbors('Chunk[vector]', [1.0, 0.4], 1));"
    " LET $source = SELECT source, chunks FROM Source WHERE source = 'a' ORDER BY chunks LIMIT 1;"
    " RETURN {'found': $found, 'source': $source}",
    "UPDATE Source SET chunks = 0 WHERE source = 'a'; DELETE FROM Source WHERE chunks = 0",
]
"""Scripts like those of a worker."""

log = logging.getLogger(__name__)


def class_file(directory: Path) -> Path:
    """Return the file for the installed engine in a directory of cached files."""
    digest = blake2b(digest_size=8)
    for path in (Path(get_bundled_jre_lib_path()), *sorted(Path(get_jar_path()).glob("*.jar"))):
        about = path.stat()
        digest.update(f"{path} {about.st_size} {about.st_mtime_ns}\n".encode())
    return directory / _NAME.format(digest.hexdigest())


def class_options(file: Path) -> Sequence[str]:
    """Return the options of a JVM that uses the file; none if it does not exist."""
    return (f"-XX:AOTCache={file}", "-Xlog:aot*=off") if file.is_file() else ()


@asynccontextmanager
async def kept_classes(file: Path) -> AsyncIterator[None]:
    """Write the file during the block if it does not exist, once the block has run for a while."""
    if class_options(file):
        yield
        return
    writing = asyncio.create_task(_write(file), name="engine classes")
    try:
        yield
    finally:
        writing.cancel()
        await asyncio.wait([writing])


async def _write(file: Path) -> None:
    await asyncio.sleep(_LATER)
    try:
        await write_classes(file)
    except (OSError, TimeoutError) as exc:
        log.warning("the classes of the engine cannot be kept as %s: %s", file, exc)


async def write_classes(file: Path) -> None:
    """Write the file, in a process of its own; remove those of other engines.

    Raises:
        OSError: if the directory cannot be written.
        TimeoutError: if it takes too long.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{file.stem}-"
    for unfinished in file.parent.glob(f"{prefix}*"):
        shutil.rmtree(unfinished, ignore_errors=True)
    with TemporaryDirectory(dir=file.parent, prefix=prefix, ignore_cleanup_errors=True) as scratch:
        draft = Path(scratch) / file.name
        own_group: dict[str, Any] = {} if sys.platform == "win32" else {"process_group": 0}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", __name__, str(draft)),
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=DEVNULL,
            **own_group,
        )
        assert process.stdin is not None
        try:
            await asyncio.wait_for(process.wait(), _TIMEOUT)
        finally:
            process.stdin.close()
            await process.wait()
        if draft.is_file():
            draft.replace(file)
            for other in file.parent.glob(_NAME.format("*")):
                if other != file:
                    other.unlink(missing_ok=True)


async def _use_engine(draft: Path) -> None:
    """Use a database; the JVM then writes the file at the end of the process."""
    directory, options = draft.parent / "databases", [f"-XX:AOTCacheOutput={draft}"]
    async with EmbeddedDatabases(directory, jvm_options=options) as databases:
        await databases.create("d", timeout=_TIMEOUT)
        for text in _USE:
            script = Statement(text, "sqlscript")
            await databases.write("d", [script], timeout=_TIMEOUT)


def _end_with_parent() -> None:
    """End this process group when the parent closes standard input or dies."""
    os.read(sys.stdin.fileno(), 1)
    if sys.platform == "win32":
        os._exit(1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    if sys.argv[2:] == [_ENGINE]:
        asyncio.run(_use_engine(Path(sys.argv[1])))
    else:
        # A process with a JVM that ends, and writes the file with another one, runs no thread.
        threading.Thread(target=_end_with_parent, daemon=True).start()
        if sys.platform != "win32":
            os.nice(19)
        command = [sys.executable, "-P", "-m", "kadi_localnet.database.class_cache"]
        subprocess.run([*command, sys.argv[1], _ENGINE], stdin=subprocess.DEVNULL, check=False)
