"""The results of the checks of `doctor`."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

from ability_search.errors import SearchError
from kadi_client import KadiError, ToolError

CALL_SECONDS = 15.0
"""Timeout of a call of a tool."""

State = Literal["ok", "warn", "fail", "skip"]


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    state: State
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Checks:
    """The checks of a run."""

    show: Callable[[Check], None] = lambda _: None
    """Called with each check when it is made."""
    made: list[Check] = field(default_factory=list)

    def add(self, name: str, state: State, text: str, remedy: str = "") -> None:
        """Add a check."""
        check = Check(name, state, text, remedy)
        self.show(check)
        self.made.append(check)

    def skip(self, name: str, cause: str) -> None:
        """Add a check that is not made because another one failed."""
        self.add(name, "skip", f"not checked, as {cause} failed")

    def failed(self, *names: str) -> str | None:
        """Return the first of some checks that failed."""
        failed = {check.name for check in self.made if check.state == "fail"}
        return next((name for name in names if name in failed), None)

    async def run(
        self, name: str, work: Awaitable[str], *, state: State = "fail", remedy: str = ""
    ) -> bool:
        """Add the check of some work, which returns its text, with the time that it took.

        There is none if the text is empty.

        If it fails, the check has the ``state`` and, unless the failure has a hint, the ``remedy``;
        false is returned.
        """
        started = time.perf_counter()
        try:
            text = await work
        except (KadiError, SearchError) as exc:
            hint = exc.hint if isinstance(exc, SearchError | ToolError) else ""
            self.add(name, state, str(exc), hint or remedy)
            return False
        if text:
            self.add(name, "ok", f"{text}, {(time.perf_counter() - started) * 1e3:.0f} ms")
        return True
