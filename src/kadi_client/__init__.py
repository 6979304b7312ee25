"""A Python client for the KADI agent network: connect, serve tools, call tools, exchange events."""

from kadi_client.brokers import Brokers, Endpoint
from kadi_client.connection import DEFAULT_URL, Connection
from kadi_client.errors import (
    AuthenticationError,
    CallTimeout,
    FrameTooLarge,
    KadiError,
    NotConnected,
    ProtocolError,
    RemoteError,
    ToolError,
)
from kadi_client.identity import Identity
from kadi_client.messages import Raw
from kadi_client.stdio import serve_stdio
from kadi_client.subscriptions import Event, Subscription
from kadi_client.tools import Call, Tool

__all__ = [
    "DEFAULT_URL",
    "AuthenticationError",
    "Brokers",
    "Call",
    "CallTimeout",
    "Connection",
    "Endpoint",
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
    "ToolError",
    "serve_stdio",
]
