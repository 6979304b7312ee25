"""Events about jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

PROGRESS = "search.index.progress"
COMPLETED = "search.index.completed"
FAILED = "search.index.failed"

Publish = Callable[[str, dict[str, Any]], Awaitable[None]]
"""A function that publishes an event on a channel; never raises."""
