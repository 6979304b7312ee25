"""The ports over the network: foreign answers and foreign errors are translated here."""

from ability_search.remote.embedder import RemoteEmbedder, Transport
from ability_search.remote.store import BrokerStore, Invoke
from ability_search.remote.transports import over_broker, over_http

__all__ = ["BrokerStore", "Invoke", "RemoteEmbedder", "Transport", "over_broker", "over_http"]
