"""A KADI broker for one machine: in memory, one process, one event loop."""

from kadi_localnet.broker.access import Access
from kadi_localnet.broker.limits import Limits
from kadi_localnet.broker.server import Broker, serve_broker

__all__ = ["Access", "Broker", "Limits", "serve_broker"]
