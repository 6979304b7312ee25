"""Logging setup of a process: one handler on stderr, as text or JSON."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal

from kadi_client.context import LOG_FIELD, call_id

_LEVELS = {"debug": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR"}
_CHATTY = (
    "asyncio",
    "charset_normalizer",
    "httpcore",
    "httpx",
    "kadi_localnet.broker.server.websocket",
    "markdown_it",
    "mcp",
    "uvicorn",
    "websockets",
)


def configure(
    level: Literal["debug", "info", "warning", "error"],
    format: Literal["pretty", "json"],
    *,
    component: str,
) -> None:
    """Send the log of this process to stderr only, replacing any earlier setup.

    Libraries that log every request are kept at warning, or at info if ``level`` is debug: below
    that they log the content of messages, including texts and keys.

    Args:
        level: Minimum severity.
        format: ``pretty`` for text; ``json`` for one object per line.
        component: Name of this component, added to every line.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonFormatter(component) if format == "json" else PrettyFormatter(component)
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.INFO if level == "debug" else logging.WARNING)


class PrettyFormatter(logging.Formatter):
    """Formats local time, severity, component, message and call id, then any traceback."""

    def __init__(self, component: str) -> None:
        super().__init__(datefmt="%H:%M:%S")
        self._component = component

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line."""
        severity = _LEVELS.get(record.levelname.lower(), record.levelname)
        call = _call_of(record)
        followed = f" [{call}]" if call else ""
        return f"{record.asctime} {severity:<5} {self._component}: {record.message}{followed}"

    def usesTime(self) -> bool:
        """Return ``True``."""
        return True


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
            "part": self._component,
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
    return getattr(record, LOG_FIELD, None) or call_id()
