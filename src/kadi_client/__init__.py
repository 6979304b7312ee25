"""A Python client for the KADI agent network: connect, serve tools, call tools, exchange events."""

from kadi_client.brokers import Brokers, Endpoint
from kadi_client.connection import DEFAULT_URL, Connection
from kadi_client.errors import (
    AuthenticationError,
    CallTimeout,
    DecryptionError,
    FrameTooLarge,
    KadiError,
    NoProvider,
    NotConnected,
    ProtocolError,
    ProviderLost,
    RemoteError,
    SecretsError,
    SecretsMissing,
    SecretsRejected,
    SecretsTimeout,
    SecretsUnreadable,
    ToolError,
)
from kadi_client.identity import Identity
from kadi_client.messages import Raw
from kadi_client.secrets import request_secrets
from kadi_client.stdio import serve_stdio
from kadi_client.subscriptions import Event, Subscription
from kadi_client.tools import Agent, Call, Tool

__all__ = [
    "DEFAULT_URL",
    "Agent",
    "AuthenticationError",
    "Brokers",
    "Call",
    "CallTimeout",
    "Connection",
    "DecryptionError",
    "Endpoint",
    "Event",
    "FrameTooLarge",
    "Identity",
    "KadiError",
    "NoProvider",
    "ProviderLost",
    "NotConnected",
    "ProtocolError",
    "Raw",
    "RemoteError",
    "SecretsError",
    "SecretsMissing",
    "SecretsRejected",
    "SecretsTimeout",
    "SecretsUnreadable",
    "Subscription",
    "Tool",
    "ToolError",
    "request_secrets",
    "serve_stdio",
]
