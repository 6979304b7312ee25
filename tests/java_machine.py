"""Start of the processes of tests."""

from __future__ import annotations

import os

SHORT_LIVED = {"ARCADEDB_JVM_ARGS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Environment of the engine: its compiler is fast rather than good, as most code runs rarely."""

SAME_SOURCES = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
"""Environment of a process that imports the same modules as this one."""
