"""A KADI broker: in memory, one process, one event loop; several can be one network."""

from kadi_localnet.broker.access import Access
from kadi_localnet.broker.backplane import BackplaneLost
from kadi_localnet.broker.limits import Limits
from kadi_localnet.broker.server import Broker, serve_broker

__all__ = ["Access", "BackplaneLost", "Broker", "Limits", "serve_broker"]
