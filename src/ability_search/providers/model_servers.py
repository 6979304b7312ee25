"""The servers of models: clients of those that the settings choose."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ability_search.config.model_settings import Embedding, Expansion
from ability_search.config.model_settings import RerankerSettings as Reranking
from ability_search.config.schema import Settings
from ability_search.errors import ConfigurationError
from ability_search.ops.metrics.call_metrics import metered_rpc
from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.ports import Agents, Invoke
from ability_search.providers.chat import CHAT, RemoteChat
from ability_search.providers.embedder import EMBEDDINGS, RemoteEmbedder
from ability_search.providers.reranker import RERANK, RemoteReranker
from ability_search.providers.transports import OverBroker, Service, Transport


@dataclass(frozen=True, slots=True)
class ModelServers:
    """The servers of models that the settings choose, each over the broker or over HTTP.

    Each method yields a client, and raises a :class:`ConfigurationError` if HTTP is chosen but the
    address is missing.
    """

    settings: Settings
    invoke: Invoke
    meter: Meter = UNMETERED
    agents: Agents | None = None

    @asynccontextmanager
    async def embedder(self) -> AsyncIterator[RemoteEmbedder]:
        """Yield the embedder."""
        chosen = self.settings.embedding
        async with self._open(EMBEDDINGS, chosen) as transport:
            yield RemoteEmbedder(transport, chosen, self.meter)

    @asynccontextmanager
    async def reranker(self) -> AsyncIterator[RemoteReranker]:
        """Yield the reranker."""
        chosen = self.settings.reranker
        async with self._open(RERANK, chosen) as transport:
            yield RemoteReranker(transport, **self._limits(chosen.timeout), model=chosen.model)

    @asynccontextmanager
    async def chat(self, *, timeout: float = 0.0) -> AsyncIterator[RemoteChat]:
        """Yield the language model, for requests of up to ``timeout`` seconds or what is set."""
        chosen = self.settings.expansion
        most = max(chosen.timeout, self.settings.kinds.timeout, timeout)
        async with self._open(CHAT, chosen) as transport:
            yield RemoteChat(transport, **self._limits(most), model=chosen.model)

    def _limits(self, timeout: float) -> dict[str, Any]:
        embedding = self.settings.embedding
        return {
            "timeout": timeout,
            "breaker_failures": embedding.breaker_failures,
            "breaker_reset": embedding.breaker_reset,
        }

    @asynccontextmanager
    async def _open(
        self, service: Service, chosen: Embedding | Reranking | Expansion
    ) -> AsyncIterator[Transport]:
        """Yield the transport to the server of a service."""
        if chosen.transport == "broker":
            yield OverBroker(
                service,
                self.invoke,
                api_key=chosen.api_key,
                agents=self.agents,
                trusted=chosen.agent,
            )
            return
        if chosen.api_url is None:
            raise ConfigurationError(f"SEARCH_{chosen.prefix.upper()}API_URL is missing")
        from ability_search.providers.http_transport import OverHttp, http_client

        async with http_client(propagate=self.settings.tracing.propagate) as client:
            url = chosen.api_url.get_secret_value()
            transport = OverHttp(service, client, url, api_key=chosen.api_key)
            yield _Metered(transport, self.meter, f"/v1/{service.route}")


@dataclass(frozen=True, slots=True)
class _Metered(Transport):
    """A transport that counts and times each request."""

    transport: Transport
    meter: Meter
    name: str
    """Name of the requests."""

    async def __call__(self, request: Mapping[str, Any], *, timeout: float) -> Any:
        """Send a request, see :class:`.Transport`."""
        answer = self.transport(request, timeout=timeout)
        return await metered_rpc(self.meter, self.name, answer)

    async def check_offered(self, request: Mapping[str, Any]) -> None:
        """Check that there is a server, see :class:`.Transport`."""
        await self.transport.check_offered(request)


def metered_invoke(invoke: Invoke, meter: Meter) -> Invoke:
    """Return a function that calls tools, and counts and times each call."""

    async def metered(
        tool: str,
        tool_input: Mapping[str, Any],
        *,
        timeout: float = 30.0,
        target_agent: str | None = None,
    ) -> Any:
        answer = invoke(tool, tool_input, timeout=timeout, target_agent=target_agent)
        return await metered_rpc(meter, tool, answer)

    return invoke if meter is UNMETERED else metered
