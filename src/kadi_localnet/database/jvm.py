"""The Java machine that runs the embedded engine: one for the life of the process."""

from __future__ import annotations

import gc
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import jpype
from arcadedb_embedded.exceptions import ArcadeDBError
from arcadedb_embedded.jvm import start_jvm

from kadi_localnet.database.backend import DatabaseError

MINIMUM_VERSION = (26, 10, 2)
"""Earlier engines have no registry of running queries, by which a call is ended at its deadline;
those before 26.10.1 take no rows as the filter of a sparse vector search."""

MIB = 1024 * 1024
_SMALLEST_HEAP = 256
_LARGEST_HEAP = 2048
_HEAP_SHARE = 0.25

_BRIDGE = "_jpype"
_TASKS = Path("/proc/self/task")
_COMPILERS = "C1 Compiler", "C2 Compiler"
_NICER = 10
"""A tenth of the share of others where all want the processors: code that is not compiled costs
several times as much, so that what compiles must not starve."""

_STDERR = 2
_NOTICE = b"WARNING: Using incubator modules"
"""The engine asks for that module, the machine cannot be told that it is meant so."""

_LARGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

log = logging.getLogger(__name__)
_starting = threading.Lock()


def default_heap_mb(memory: int | None = None) -> int:
    """A quarter of the memory (bytes; of this machine or container), 256 to 2048 MiB."""
    available = _memory() if memory is None else memory
    return max(_SMALLEST_HEAP, min(_LARGEST_HEAP, int(available * _HEAP_SHARE) // MIB))


def start(*, heap_mb: int | None = None, crash_directory: Path) -> None:
    """Start the machine unless it runs already; its settings cannot be changed afterwards.

    Its log goes to standard error from level WARNING. It installs no signal handlers (``-Xrs``),
    so that SIGTERM and SIGINT stay with Python whoever was first.

    Raises:
        DatabaseError: if it does not start, or the engine is older than ``MINIMUM_VERSION``.
    """
    with _starting:
        if not jpype.isJVMStarted():
            os.environ.setdefault(
                "ARCADEDB_JVM_ERROR_FILE", str(crash_directory / "hs_err_pid%p.log")
            )
            heap = heap_mb or default_heap_mb()
            logging_configuration = Path(__file__).with_name("engine-logging.properties")
            try:
                with _without_notice():
                    start_jvm(
                        heap_size=f"{heap}m",
                        jvm_args=[
                            "-Xrs",
                            # An engine without memory fails in any state: better a new process.
                            "-XX:+ExitOnOutOfMemoryError",
                            f"-Djava.util.logging.config.file={logging_configuration}",
                            "-Darcadedb.installCustomFormatter=false",
                            *_large_pages(),
                        ],
                    )
            except ArcadeDBError as exc:
                raise DatabaseError(
                    f"the Java machine did not start with a heap of {heap} MiB: {exc}"
                ) from exc
            system = jpype.JClass("java.lang.System")
            system.setOut(system.err)
            # The end of the process waits for the thread that started the machine, unless it is a
            # daemon of it, as which it is attached again by its next call.
            jpype.JClass("java.lang.Thread").detach()
            _separate_collectors()
            _yield_when_compiling()
            _close_ways_out(crash_directory)
            log.info("engine %s started, heap %d MiB", _engine_version(), heap)
        check_version(_engine_version())


def _close_ways_out(directory: Path) -> None:
    """Switch off what of the engine reads files and addresses or runs scripts.

    Statements that would are refused before they run (:mod:`.statement_guard`). This holds for what
    the guard does not see, such as triggers that were made before there was one.
    """
    settings = jpype.JClass("com.arcadedb.GlobalConfiguration")
    settings.POLYGLOT_ENGINE_ENABLED.setValue(False)
    settings.OPENCYPHER_LOAD_CSV_ALLOW_FILE_URLS.setValue(False)
    settings.OPENCYPHER_LOAD_CSV_ALLOW_REMOTE_URLS.setValue(False)
    settings.SERVER_SECURITY_IMPORT_BLOCK_LOCAL_NETWORKS.setValue(True)
    # Only from there, and there is nothing.
    settings.SERVER_SECURITY_IMPORT_ALLOWED_LOCAL_PATHS.setValue(str(directory / "imports"))


@contextmanager
def _without_notice() -> Iterator[None]:
    """Keep the notice of the module for vectors off standard error; all else comes afterwards."""
    sys.stderr.flush()
    real = os.dup(_STDERR)
    with tempfile.TemporaryFile() as told:
        os.dup2(told.fileno(), _STDERR)
        try:
            yield
        finally:
            os.dup2(real, _STDERR)
            os.close(real)
            told.seek(0)
            for line in told:
                if not line.startswith(_NOTICE):
                    os.write(_STDERR, line)


def _large_pages() -> list[str]:
    """Large pages for the heap where the system has them (Linux).

    A search looks at vectors all over the heap, and much of its time is the finding of their pages.
    """
    with suppress(OSError):
        if "[never]" not in _LARGE_PAGES.read_text(encoding="ascii"):
            return ["-XX:+UseTransparentHugePages"]
    return []


def _separate_collectors() -> None:
    """Let the collectors of Java and of Python each work when it has to itself.

    The bridge runs a full one of Python after each of Java, and a full one of Java after one of
    Python while memory grows; each stops all calls, for a tenth of a second or more. That is for
    objects that hold each other across the border; here only values go to Java.
    """
    gc.callbacks[:] = [each for each in gc.callbacks if each.__module__ != _BRIDGE]


def _yield_when_compiling() -> None:
    """Let the threads that compile give way to those that answer; on Linux.

    Threads that the machine adds later inherit it.
    """
    niceness = os.getpriority(os.PRIO_PROCESS, 0) + _NICER
    for task in _TASKS.glob("*"):
        with suppress(OSError):
            if (task / "comm").read_text(encoding="utf-8").startswith(_COMPILERS):
                os.setpriority(os.PRIO_PROCESS, int(task.name), niceness)


def heap_bytes() -> tuple[int, int]:
    """The Java heap in use, with what the collector has not freed yet, and the most it may use."""
    runtime = jpype.JClass("java.lang.Runtime").getRuntime()
    return int(runtime.totalMemory()) - int(runtime.freeMemory()), int(runtime.maxMemory())


def check_version(version: str) -> None:
    """Refuse an engine that is too old.

    Raises:
        DatabaseError: naming both versions and the remedy.
    """
    digits = version.split("-")[0].split(".")[:3]
    known = tuple(int(part) for part in digits if part.isdigit())
    if known < MINIMUM_VERSION:
        needed = ".".join(map(str, MINIMUM_VERSION))
        raise DatabaseError(
            f"ArcadeDB {version} is too old, {needed} is needed:"
            f" pip install 'arcadedb-embedded>={needed}'"
        )


def _engine_version() -> str:
    return str(jpype.JClass("com.arcadedb.Constants").getRawVersion())


def _memory() -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _CGROUP_LIMITS:
        try:
            memory = min(memory, int(Path(path).read_text(encoding="ascii")))
        except (OSError, ValueError):
            continue
    return memory
