"""The call of a tool as a handler sees it, without a session behind it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kadi_client.tools import Origin


@dataclass
class PlainCall:
    """A call whose caller waits ``remaining`` seconds; ``None`` waits for ever."""

    remaining: float | None = 30.0
    request_id: str = "r-1"
    origin: Origin = field(default_factory=Origin)
    abandoned: bool = False

    async def publish(self, channel: str, data: Any) -> None:
        """Drop the event."""
