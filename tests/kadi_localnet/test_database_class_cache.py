"""The classes of the engine in a file."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from kadi_localnet.database import class_cache
from kadi_localnet.database.class_cache import class_file, class_options, write_classes

PROGRAM = """
import asyncio, sys
from pathlib import Path
from kadi_localnet.database.embedded import EmbeddedDatabases

async def main(directory, *options):
    async with EmbeddedDatabases(Path(directory), heap_mb=256, jvm_options=options) as databases:
        print(await databases.databases(timeout=60))

asyncio.run(main(*sys.argv[1:]))
"""

WRITE = """
import asyncio, sys
from pathlib import Path
from kadi_localnet.database.class_cache import write_classes

asyncio.run(write_classes(Path(sys.argv[1])))
"""


def started(directory: Path, *options: str) -> str:
    """What a process with the engine prints."""
    command = [sys.executable, "-c", PROGRAM, str(directory), *options]
    done = subprocess.run(command, capture_output=True, check=True, text=True, timeout=120)
    return done.stdout


@pytest.mark.slow
@pytest.mark.engine
async def test_the_engine_starts_with_classes_from_the_file(tmp_path: Path) -> None:
    file = class_file(tmp_path / "cache")
    assert class_options(file) == ()
    old = file.with_name("engine-1-0.classes")
    old.parent.mkdir()
    old.touch()
    await write_classes(file)
    assert list(file.parent.iterdir()) == [file]
    log = tmp_path / "loaded"
    options = (*class_options(file), f"-Xlog:class+load:file={log}")
    assert started(tmp_path / "data", *options) == "[]\n"
    sources = [line.partition("source: ")[2] for line in log.read_text("utf-8").splitlines()]
    assert sources.count("shared objects file") > 0.9 * len(sources)


@pytest.mark.engine
async def test_writing_ends_with_the_process_that_wants_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_cache, "_LATER", 0.0)
    directory = tmp_path / "cache"
    directory.mkdir()
    async with asyncio.timeout(60), class_cache.kept_classes(class_file(directory)):
        while not any(directory.rglob("databases")):  # noqa: ASYNC110 - a file
            await asyncio.sleep(0)
    assert not any(directory.iterdir())


def users_of(directory: Path) -> list[str]:
    """Command lines that name a directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
    return [line for line in found if str(directory) in line]


@pytest.mark.engine
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_writing_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    file = class_file(tmp_path / "cache")
    with subprocess.Popen([sys.executable, "-c", WRITE, str(file)]) as parent:
        while not any(file.parent.rglob("databases")):
            time.sleep(0.05)
        assert len(users_of(file.parent)) == 3
        parent.kill()
    while users_of(file.parent):
        time.sleep(0.05)
    assert not file.exists()


@pytest.mark.engine
def test_the_engine_starts_without_a_file_that_is_damaged(tmp_path: Path) -> None:
    file = class_file(tmp_path)
    file.write_bytes(b"damaged")
    assert started(tmp_path / "data", *class_options(file)) == "[]\n"
