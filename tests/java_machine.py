"""How the engine's Java machine is started in tests."""

from __future__ import annotations

import os

SHORT_LIVED = {"ARCADEDB_JVM_ARGS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Environment variables of the engine: it compiles fast instead of well, as hardly anything runs often enough."""

SAME_SOURCES = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
"""Environment variables by which a process imports the modules that this one does."""
