"""Ports over the network; answers and errors of other systems are translated here."""

from ability_search.remote.chat import CHAT, RemoteChat
from ability_search.remote.embedder import EMBEDDINGS, RemoteEmbedder
from ability_search.remote.reranker import RERANK, RemoteReranker
from ability_search.remote.store import BrokerStore, Invoke
from ability_search.remote.transports import (
    HttpService,
    Service,
    Transport,
    over_broker,
    over_http,
)

__all__ = [
    "CHAT",
    "EMBEDDINGS",
    "RERANK",
    "BrokerStore",
    "HttpService",
    "Invoke",
    "RemoteChat",
    "RemoteEmbedder",
    "RemoteReranker",
    "Service",
    "Transport",
    "over_broker",
    "over_http",
]
