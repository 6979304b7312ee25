"""The checks of `doctor` of the models that are served."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ability_search.client.tool_client import ToolClient
from ability_search.client.trust import require_trusted
from ability_search.config.model_settings import Embedding, RerankerSettings
from ability_search.errors import SearchError
from ability_search.extensions.localstack.check_results import CALL_SECONDS, Checks
from ability_search.providers.model_servers import ModelServers


async def check_embedding(client: ToolClient) -> str:
    """Describe the embedding model of new collections."""
    model = _default_model(client)
    return f"{model}, {await _embedded(client, model)} dimensions"


def _default_model(client: ToolClient) -> str:
    stack = client.target.stack
    return (stack and stack.model) or client.settings.embedding.model


async def _embedded(client: ToolClient, model: str) -> int:
    """Embed a word; return the dimensions of the vector."""
    require_trusted(client.settings, os.environ, Embedding)
    connection = client.connection
    once = client.settings.embedding.model_copy(update={"attempts": 1})
    settings = replace(client.settings, embedding=once)
    servers = ModelServers(settings, connection.invoke, agents=connection.agents)
    async with servers.embedder() as embedder:
        vectors = await embedder.embed(model, ["doctor"], timeout=CALL_SECONDS)
    return int(vectors.shape[1])


async def check_models(
    checks: Checks, client: ToolClient, collections: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Check the models that collections need, beside that of new collections.

    If the model server is away, the others are not asked for.

    Returns:
        The collections whose model fits.
    """
    fitting: list[str] = []
    needed: dict[tuple[str, int], list[str]] = {}
    for collection in collections:
        embedding = collection["model"], collection["dimensions"]
        needed.setdefault(embedding, []).append(collection["name"])
    remedy = "Serve it, or embed again: ability-search reindex COLLECTION --model MODEL"
    for (model, dimensions), names in needed.items():
        text = f"{model}, which {', '.join(names)} needs"
        try:
            now = await _embedded(client, model)
        except SearchError as exc:
            hint = exc.hint if exc.retryable else remedy
            checks.add("model", "warn", f"{text}: {exc}", hint or "")
            if exc.retryable:
                checks.skip("model", model)
                break
        else:
            if now != dimensions:
                problem = f"{text}: has {now} dimensions, not {dimensions}"
                checks.add("model", "warn", problem, remedy)
                continue
            fitting += names
            if model != _default_model(client):
                checks.add("model", "ok", text)
    return fitting


async def check_reranking(client: ToolClient) -> str:
    """Rerank two texts; return the model."""
    require_trusted(client.settings, os.environ, RerankerSettings)
    connection = client.connection
    servers = ModelServers(client.settings, connection.invoke, agents=connection.agents)
    async with servers.reranker() as reranker:
        texts = ("A doctor finds out what is wrong.", "Lunch is at noon.")
        await reranker.rerank(None, "What does a doctor do?", texts, timeout=CALL_SECONDS)
    return client.settings.reranker.model or "the server's default model"
