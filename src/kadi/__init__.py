"""A Python client for the KADI agent network: connect, serve tools, call tools, exchange events."""

from kadi.connection import DEFAULT_URL, Connection
from kadi.errors import (
    AuthenticationError,
    CallTimeout,
    FrameTooLarge,
    KadiError,
    NotConnected,
    ProtocolError,
    RemoteError,
)
from kadi.identity import Identity
from kadi.messages import Raw
from kadi.stdio import serve_stdio
from kadi.subscriptions import Event, Subscription
from kadi.tools import Call, Tool

__all__ = [
    "DEFAULT_URL",
    "AuthenticationError",
    "Call",
    "CallTimeout",
    "Connection",
    "Event",
    "FrameTooLarge",
    "Identity",
    "KadiError",
    "NotConnected",
    "ProtocolError",
    "Raw",
    "RemoteError",
    "Subscription",
    "Tool",
    "serve_stdio",
]
