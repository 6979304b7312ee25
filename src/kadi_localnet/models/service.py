"""The model manager behind the KADI tools and the HTTP server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from kadi_client.tools import Call, Tool
from kadi_localnet.models import multilingual
from kadi_localnet.models.config import ModelsConfig
from kadi_localnet.models.errors import ModelNotServed, ModelsError
from kadi_localnet.models.http import application
from kadi_localnet.models.lanes import Observer
from kadi_localnet.models.local import LocalModel, LocalReranker
from kadi_localnet.models.multilingual import MultilingualEncoder
from kadi_localnet.models.requests import (
    MAX_VALUES,
    EmbeddingRequest,
    RerankRequest,
    answer,
    read_request,
    read_rerank_request,
    rerank_answer,
)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The properties of a served model."""

    name: str
    dimensions: int
    max_tokens: int
    tokenizer: Path | None = None
    """Path of its ``tokenizer.json``."""


class Models:
    """The served models, created by :func:`kadi_localnet.models.open_models`."""

    def __init__(
        self,
        config: ModelsConfig,
        served: Mapping[str, LocalModel],
        rerankers: Mapping[str, LocalReranker],
        observer: Observer,
    ) -> None:
        self._config = config
        self._served = served
        self._rerankers = rerankers
        self._observer = observer

    @property
    def names(self) -> tuple[str, ...]:
        """Return all names of embedding models, including aliases."""
        return tuple(self._served)

    @property
    def rerankers(self) -> tuple[str, ...]:
        """Return all names of rerankers, including aliases."""
        return tuple(self._rerankers)

    @property
    def queued(self) -> dict[str, int]:
        """Return the number of texts in progress or waiting, by the name of the model."""
        embedders = {model.name: model.queued for model in self._served.values()}
        return embedders | {model.name: model.queued for model in self._rerankers.values()}

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Return the tools ``create-embedding`` and ``rerank``, if there is a model for each."""
        embedding = Tool(
            name="create-embedding",
            description="Convert texts to embedding vectors with one of the served models.",
            input_schema=EmbeddingRequest.model_json_schema(),
            handler=self._create_embedding,
            max_values=MAX_VALUES,
        )
        reranking = Tool(
            name="rerank",
            description="Rank texts by their relevance to a query.",
            input_schema=RerankRequest.model_json_schema(),
            handler=self._rerank,
            max_values=MAX_VALUES,
        )
        return (embedding,) * bool(self._served) + (reranking,) * bool(self._rerankers)

    def describe(self, name: str) -> ServedModel:
        """Return dimensions, maximum number of tokens and tokenizer of a served model.

        Raises:
            ModelNotServed: if there is no model of this name.
        """
        encoder = self._find(name).encoder
        if isinstance(encoder, MultilingualEncoder):
            return ServedModel(
                name=name, dimensions=encoder.dimensions, max_tokens=multilingual.MAX_TOKENS
            )
        return ServedModel(
            name=name,
            dimensions=encoder.dimensions,
            max_tokens=encoder.files.model.max_tokens,
            tokenizer=encoder.files.model.tokenizer,
        )

    async def create_embedding(self, raw: Any, *, timeout: float | None = None) -> dict[str, Any]:
        """Answer an embedding request in the shape of OpenAI's API.

        Raises:
            ModelsError: in the subclass for the cause of the failure.
        """
        request = read_request(raw, self._config)
        model = self._find(request.model)
        with self._observed(model.name, len(request.input)):
            embedded = await model.embed(
                request.input,
                timeout=self._config.timeout if timeout is None else timeout,
                dimensions=request.dimensions,
            )
        return answer(request, embedded)

    async def rerank(self, raw: Any, *, timeout: float | None = None) -> dict[str, Any]:
        """Answer a rerank request in the shape of the APIs of Cohere and Jina.

        Raises:
            ModelsError: in the subclass for the cause of the failure.
        """
        request = read_rerank_request(raw, self._config)
        name = request.model or next(iter(self._rerankers), "any reranker")
        reranker = self._rerankers.get(name)
        if reranker is None:
            raise ModelNotServed(name, self.rerankers)
        with self._observed(reranker.name, len(request.documents)):
            reranked = await reranker.rerank(
                request.query,
                request.documents,
                timeout=self._config.timeout if timeout is None else timeout,
            )
        return rerank_answer(request, name, reranked)

    def application(self, *, token: str | None = None) -> Starlette:
        """Return the ASGI application: embeddings, reranking, ``/v1/models`` and ``/health``.

        If ``token`` is given, all routes but ``/health`` require it.
        """
        return application(
            self,
            token=token,
            max_bytes=self._config.max_request_bytes,
            timeout=self._config.timeout,
        )

    async def _create_embedding(self, tool_input: dict[str, Any], call: Call) -> dict[str, Any]:
        return await self.create_embedding(tool_input, timeout=call.remaining)

    async def _rerank(self, tool_input: dict[str, Any], call: Call) -> dict[str, Any]:
        return await self.rerank(tool_input, timeout=call.remaining)

    @contextmanager
    def _observed(self, model: str, texts: int) -> Iterator[None]:
        started = time.perf_counter()
        code = ModelsError.code
        try:
            yield
            code = "ok"
        except ModelsError as exc:
            code = exc.code
            raise
        except asyncio.CancelledError:
            code = "cancelled"
            raise
        finally:
            seconds = time.perf_counter() - started
            self._observer.answered(model, code, texts=texts, seconds=seconds)

    def _find(self, name: str) -> LocalModel:
        model = self._served.get(name)
        if model is None:
            raise ModelNotServed(name, self.names)
        return model
