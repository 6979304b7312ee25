"""The ports over the network: foreign answers and foreign errors are translated here."""

from ability_search.remote.chat import BrokerChat
from ability_search.remote.embedder import RemoteEmbedder, Transport
from ability_search.remote.rerank_transports import rerank_over_broker, rerank_over_http
from ability_search.remote.reranker import RemoteReranker, RerankTransport
from ability_search.remote.store import BrokerStore, Invoke
from ability_search.remote.transports import over_broker, over_http

__all__ = [
    "BrokerChat",
    "BrokerStore",
    "Invoke",
    "RemoteEmbedder",
    "RemoteReranker",
    "RerankTransport",
    "Transport",
    "over_broker",
    "over_http",
    "rerank_over_broker",
    "rerank_over_http",
]
