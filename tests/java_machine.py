"""How the engine's Java machine is started in tests."""

from __future__ import annotations

SHORT_LIVED = {"ARCADEDB_JVM_ARGS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Environment variables: it compiles fast instead of well, as hardly anything runs often enough."""
