"""The events of indexing jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ability_search.tools.table import COMPLETED, FAILED, PROGRESS
from kadi_client import Event

CHANNELS = (PROGRESS, COMPLETED, FAILED)
LAST = (COMPLETED, FAILED)


def details(event: Event) -> Mapping[str, Any]:
    """Return the data of an event; empty if it is not an object."""
    return event.data if isinstance(event.data, dict) else {}
