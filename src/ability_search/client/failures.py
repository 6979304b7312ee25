"""What a tool says when it fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ability_search.errors import SearchError


class ToolFailure(SearchError):
    """A tool answered that it failed; ``answer`` is what it said, ``hint`` what helps."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        wait = answer.get("retryAfterMs")
        super().__init__(
            str(answer.get("error") or "the tool gave no reason"),
            hint=str(answer.get("hint") or ""),
            retry_after=wait / 1e3 if isinstance(wait, int | float) else None,
        )
        self.answer = dict(answer)
        self.retryable = answer.get("retryable") is True

    @property
    def wire_code(self) -> str:
        """The code of the failure, one of those in docs/tools.md."""
        return str(self.answer.get("code", ""))
