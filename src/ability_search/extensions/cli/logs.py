"""Logging setup of a process: one handler on stderr, as text or JSON."""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TextIO

from kadi_client.context import LOG_FIELD, call_id

guest: ContextVar[str | None] = ContextVar("guest", default=None)
"""Name of the component of this context, if it runs in the process of another one."""
_LEVELS = {"debug": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR"}
_REPEATED = 20
"""Number of equal messages that are written before the others are counted."""
_FOLDED_SECONDS = 10.0
"""Time in which equal messages are counted together."""
_MOST_FOLDED = 1000
"""Maximum number of different messages that are counted at a time."""
_CHATTY = (
    "asyncio",
    "chardet",
    "httpcore",
    "httpx",
    "kadi_localnet.broker.server.websocket",
    "markdown_it",
    "mcp",
    "uvicorn",
    "websockets",
)


def level_is_set() -> bool:
    """Return whether the environment sets the log level; a blank variable does not."""
    return bool(os.environ.get("SEARCH_LOG_LEVEL", "").strip())


def configure(
    level: Literal["debug", "info", "warning", "error"],
    format: Literal["pretty", "json"],
    *,
    component: str,
) -> None:
    """Send the log of this process to stderr only, replacing any earlier setup.

    Repeated messages are folded, see :class:`FoldingHandler`. There is no rotation, which is up to
    whoever keeps the stream.

    Libraries that log every request are kept at warning, or at info if ``level`` is debug: below
    that they log the content of messages, including texts and keys.

    Args:
        level: Minimum severity.
        format: ``pretty`` for text; ``json`` for one object per line.
        component: Name of this component, added to every line.
    """
    handler = FoldingHandler(sys.stderr)
    handler.setFormatter(
        JsonFormatter(component) if format == "json" else PrettyFormatter(component)
    )
    root = logging.getLogger()
    for earlier in root.handlers:
        if isinstance(earlier, FoldingHandler):
            earlier.close()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.INFO if level == "debug" else logging.WARNING)


class FoldingHandler(logging.StreamHandler[TextIO]):
    """Writes log lines to a stream; of messages that repeat, one line gives the number.

    Messages are equal if they have the same logger, severity and text before its arguments are
    filled in. Of equal warnings or errors 20 are written in 10 seconds, the others are counted. The
    count is written with the text of the last of them, before the first message of any kind after
    the 10 seconds, and when the handler is closed. Messages below warning are all written, because
    there is one for each call.

    Args:
        stream: Where the lines go.
        clock: The time in seconds.
    """

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        self._runs: dict[tuple[str, int, str], _Run] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write or count a record; the caller holds the handler's lock."""
        now = self._clock()
        self._write_counts(before=now - _FOLDED_SECONDS)
        key = (record.name, record.levelno, str(record.msg))
        counted = record.levelno >= logging.WARNING
        if counted and (key in self._runs or len(self._runs) < _MOST_FOLDED):
            run = self._runs.setdefault(key, _Run(now))
            run.seen += 1
            if run.seen > _REPEATED:
                run.last = record
                return
        super().emit(record)

    def close(self) -> None:
        """Write the outstanding counts and close the handler."""
        with self.lock or nullcontext():
            self._write_counts()
        super().close()

    def _write_counts(self, *, before: float = math.inf) -> None:
        """End the runs that began before a time; write the counts of those with more messages."""
        # Runs are in the order in which they began.
        while self._runs:
            key, run = next(iter(self._runs.items()))
            if run.began > before:
                return
            del self._runs[key]
            if run.last is not None:
                try:
                    more = f"{run.seen - _REPEATED} more like this: {run.last.getMessage()}"
                except Exception:  # noqa: BLE001 - as StreamHandler.emit
                    self.handleError(run.last)
                    continue
                fields = {**run.last.__dict__, "msg": more, "args": None}
                fields |= {"exc_info": None, "exc_text": None, "stack_info": None, LOG_FIELD: None}
                super().emit(logging.makeLogRecord(fields))


@dataclass(slots=True)
class _Run:
    """Equal messages."""

    began: float
    seen: int = 0
    last: logging.LogRecord | None = None
    """The last one that was not written."""


class PrettyFormatter(logging.Formatter):
    """Formats local time, severity, component, message and call id, then any traceback."""

    def __init__(self, component: str) -> None:
        super().__init__("%(asctime)s", "%H:%M:%S")
        self._component = component

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line."""
        severity = _LEVELS.get(record.levelname.lower(), record.levelname)
        call = _call_of(record)
        followed = f" [{call}]" if call else ""
        component = guest.get() or self._component
        return f"{record.asctime} {severity:<5} {component}: {record.message}{followed}"


class JsonFormatter(logging.Formatter):
    """Formats ``{"time", "level", "part", "logger", "message", "call"?, "exception"?}``, in UTC."""

    def __init__(self, component: str) -> None:
        super().__init__()
        self._component = component

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        moment = datetime.fromtimestamp(record.created, tz=UTC)
        line = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "part": guest.get() or self._component,
            "logger": record.name,
            "message": record.getMessage(),
        }
        call = _call_of(record)
        if call:
            line["call"] = call
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _call_of(record: logging.LogRecord) -> str | None:
    """Return the id of the call in which the record was logged; ``None`` outside a call."""
    return record.__dict__[LOG_FIELD] if LOG_FIELD in record.__dict__ else call_id()
