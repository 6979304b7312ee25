"""The JVM that runs the embedded engine; a process starts it once."""

from __future__ import annotations

import gc
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import jpype
from arcadedb_embedded.exceptions import ArcadeDBError
from arcadedb_embedded.jvm import start_jvm

from kadi_localnet.database.backend import (
    MINIMUM_VERSION,
    DatabaseError,
    dotted,
    is_too_old,
)

_REGEX_MILLISECONDS = 30_000
"""Time for all regular expressions of a statement, as for the statement itself by default; that of
the engine, 1 s, is too short for filters of many patterns over a large collection."""
MIB = 1024 * 1024
_SMALLEST_HEAP = 256
_LARGEST_HEAP = 2048
_HEAP_SHARE = 0.25
_MOST_SHARE = 0.75
_GROWTH = 1.5
_ENGINE_BYTES = _SMALLEST_HEAP * MIB
_COPIES = 4
"""Times that a vector is assumed to be in memory while a graph is rebuilt."""
_GRAPH_BYTES = 800
"""Bytes of a vector in the old and the new graph, its record id included."""

_MARKING_SHARE = 75
"""Percentage of the heap that is in use when the collector marks it.

By default, 45, most of it are graphs that stay, and every second young collection marks it: that
takes a twentieth of the processor time of a query.
"""

_ENGINE = "com.arcadedb"
_FRAMES = 24

_BRIDGE = "_jpype"
_TASKS = Path("/proc/self/task")
_COMPILERS = "C1 Compiler", "C2 Compiler"
_NICER = 10
"""Gives compilers a tenth of the share of other threads on a busy machine. They must not
starve, as code that is not compiled is several times slower."""

_STDERR = 2
_NOTICE = b"WARNING: Using incubator modules"
"""The engine needs that module, and the JVM has no option to omit the warning."""

_LARGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

log = logging.getLogger(__name__)
_starting = threading.Lock()


def needed_heap_mb(vectors: Iterable[tuple[int, int]]) -> int:
    """Return the heap that indexes need in MiB: ``256 MiB + sum n (16 d + 800 bytes)``.

    An estimate, fitted to one load: at 384 dimensions a heap of 2 GiB sufficed for 225,000 chunks
    and not for 300,000.

    Args:
        vectors: Number ``n`` and dimensions ``d`` of the vectors of each index.
    """
    used = sum(count * (_COPIES * 4 * size + _GRAPH_BYTES) for count, size in vectors)
    return (_ENGINE_BYTES + used) // MIB


def heap_mb_for(needed: int, memory: int | None = None) -> int:
    """Return a quarter of the memory, 256 to 2048 MiB, or more for indexes that need more.

    Args:
        needed: As returned by :func:`needed_heap_mb`; the heap leaves them room to grow by half.
        memory: Bytes; by default all of the machine.

    Raises:
        DatabaseError: if that is more than three quarters of the memory.
    """
    available = _memory() if memory is None else memory
    most = int(available * _MOST_SHARE) // MIB
    if needed > most:
        raise DatabaseError(
            f"the vectors of the databases need a heap of about {needed} MiB, and this machine has"
            f" {available // MIB} MiB of memory, of which {most} MiB may be heap: use a machine"
            " with more memory, or set arcadedb_heap to try a smaller heap"
        )
    usual = max(_SMALLEST_HEAP, min(_LARGEST_HEAP, int(available * _HEAP_SHARE) // MIB))
    return usual if needed <= usual else min(int(needed * _GROWTH), most)


def start(*, heap_mb: int, crash_directory: Path, options: Sequence[str] = ()) -> None:
    """Start the JVM unless it is running; its settings cannot be changed afterwards.

    Its log goes to standard error from level WARNING. It installs no signal handlers (``-Xrs``),
    so Python handles SIGTERM and SIGINT.

    Args:
        heap_mb: Maximum size of the heap in MiB.
        crash_directory: Directory for the report of a crash.
        options: Further options of the JVM.

    Raises:
        DatabaseError: if the JVM does not start, or the engine is older than ``MINIMUM_VERSION``.
    """
    with _starting:
        if not jpype.isJVMStarted():
            os.environ.setdefault(
                "ARCADEDB_JVM_ERROR_FILE", str(crash_directory / "hs_err_pid%p.log")
            )
            logging_configuration = Path(__file__).with_name("engine-logging.properties")
            try:
                with _without_notice():
                    start_jvm(
                        heap_size=f"{heap_mb}m",
                        jvm_args=[
                            "-Xrs",
                            # Out of memory, the engine is in no defined state: exit.
                            "-XX:+ExitOnOutOfMemoryError",
                            f"-XX:InitiatingHeapOccupancyPercent={_MARKING_SHARE}",
                            f"-Djava.util.logging.config.file={logging_configuration}",
                            "-Darcadedb.installCustomFormatter=false",
                            *_large_pages(),
                            *options,
                        ],
                    )
            except ArcadeDBError as exc:
                raise DatabaseError(
                    f"the JVM did not start with a heap of {heap_mb} MiB: {exc}"
                ) from exc
            system = jpype.JClass("java.lang.System")
            system.setOut(system.err)
            # The process would wait for this thread at its end. Its next call attaches it again,
            # as a daemon.
            jpype.JClass("java.lang.Thread").detach()
            _separate_collectors()
            _yield_when_compiling()
            _confine_engine(crash_directory)
            settings = jpype.JClass("com.arcadedb.GlobalConfiguration")
            settings.COMMAND_REGEX_TIMEOUT.setValue(_REGEX_MILLISECONDS)
            log.info("engine %s started, heap %d MiB", _engine_version(), heap_mb)
        check_version(_engine_version())


def _confine_engine(directory: Path) -> None:
    """Disable the engine's access to files, network addresses and scripts.

    :mod:`.statement_guard` refuses such statements before they run. This function covers what the
    guard does not see, such as triggers in a database that another program has written.
    """
    settings = jpype.JClass("com.arcadedb.GlobalConfiguration")
    settings.POLYGLOT_ENGINE_ENABLED.setValue(False)
    settings.OPENCYPHER_LOAD_CSV_ALLOW_FILE_URLS.setValue(False)
    settings.OPENCYPHER_LOAD_CSV_ALLOW_REMOTE_URLS.setValue(False)
    settings.SERVER_SECURITY_IMPORT_BLOCK_LOCAL_NETWORKS.setValue(True)
    # The only allowed directory, which does not exist.
    settings.SERVER_SECURITY_IMPORT_ALLOWED_LOCAL_PATHS.setValue(str(directory / "imports"))


@contextmanager
def _without_notice() -> Iterator[None]:
    """Hide the warning about the vector module; pass other output on after the block."""
    sys.stderr.flush()
    real = os.dup(_STDERR)
    with tempfile.TemporaryFile() as captured:
        os.dup2(captured.fileno(), _STDERR)
        try:
            yield
        finally:
            os.dup2(real, _STDERR)
            os.close(real)
            captured.seek(0)
            for line in captured:
                if not line.startswith(_NOTICE):
                    os.write(_STDERR, line)


def _large_pages() -> list[str]:
    """Return the option for large pages of the heap if the system has them (Linux).

    A search reads vectors all over the heap, and much of its time is address translation.
    """
    with suppress(OSError):
        if "[never]" not in _LARGE_PAGES.read_text(encoding="ascii"):
            return ["-XX:+UseTransparentHugePages"]
    return []


def _separate_collectors() -> None:
    """Decouple the garbage collectors of Java and Python.

    The bridge runs a full collection of Python after each one of Java, and one of Java after one of
    Python while memory grows; each stops all calls for a tenth of a second or more. This serves
    object cycles across the two languages, which do not exist here: only values go to Java.
    """
    gc.callbacks[:] = [each for each in gc.callbacks if each.__module__ != _BRIDGE]


def _yield_when_compiling() -> None:
    """Lower the priority of the JVM's compiler threads (Linux).

    Threads that the JVM adds later inherit it.
    """
    niceness = os.getpriority(os.PRIO_PROCESS, 0) + _NICER
    for task in _TASKS.glob("*"):
        with suppress(OSError):
            if (task / "comm").read_text(encoding="utf-8").startswith(_COMPILERS):
                os.setpriority(os.PRIO_PROCESS, int(task.name), niceness)


def heap_bytes() -> tuple[int, int]:
    """Return the used bytes of the Java heap, garbage included, and its maximum."""
    runtime = jpype.JClass("java.lang.Runtime").getRuntime()
    return int(runtime.totalMemory()) - int(runtime.freeMemory()), int(runtime.maxMemory())


def check_version(version: str) -> None:
    """Check that the engine is not too old.

    Raises:
        DatabaseError: naming both versions and the remedy.
    """
    if is_too_old(version):
        needed = dotted(MINIMUM_VERSION)
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


def waiting_threads() -> str:
    """Return the threads of the engine that wait for a lock, with its owner and their stack."""
    management = jpype.JClass("java.lang.management.ManagementFactory").getThreadMXBean()
    found = []
    for thread in management.dumpAllThreads(True, True):
        frames = [str(frame) for frame in thread.getStackTrace()]
        if thread.getLockName() is not None and any(_ENGINE in frame for frame in frames):
            owner = thread.getLockOwnerName() or "several"
            head = f"{thread.getThreadName()} waits for {thread.getLockName()} of {owner}"
            found.append("\n    ".join([head, *frames[:_FRAMES]]))
    return "\n".join(found)
