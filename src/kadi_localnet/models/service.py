"""The model manager behind the KADI tools and the HTTP server."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.applications import Starlette

from kadi_client.tools import Tool
from kadi_localnet.models import minilm, multilingual
from kadi_localnet.models.config import NAME, ModelDirectory, ModelsConfig, default_cache_dir
from kadi_localnet.models.directory import find_files, is_reranker
from kadi_localnet.models.encoder import CrossEncoder, Encoder
from kadi_localnet.models.errors import InvalidRequest, ModelNotServed, ModelsError, ModelSetupError
from kadi_localnet.models.http import application
from kadi_localnet.models.lanes import Lanes
from kadi_localnet.models.local import LocalModel, Model, Observer
from kadi_localnet.models.requests import (
    MAX_VALUES,
    EmbeddingRequest,
    RerankRequest,
    embedding_answer,
    read_request,
    rerank_answer,
)


@asynccontextmanager
async def open_models(
    config: ModelsConfig, *, observer: Observer | None = None
) -> AsyncIterator[Models]:
    """Load the models of ``config`` and serve them until the context ends.

    The first start with all-MiniLM-L6-v2 builds its graph, which takes some seconds. ``observer``
    gets requests and runs.

    Raises:
        ModelSetupError: if a model cannot be found, built or loaded, or two have the same name.
    """
    sources = list(_sources(config))
    _check_names([name for names, _ in sources for name in names])
    loaded = await asyncio.to_thread(lambda: [load() for _, load in sources])
    lanes = Lanes(bulk_threads=config.threads or _usable_cores())
    embedders: dict[str, LocalModel] = {}
    rerankers: dict[str, LocalModel] = {}
    for (names, _), model in zip(sources, loaded, strict=True):
        served = rerankers if isinstance(model, CrossEncoder) else embedders
        served |= dict.fromkeys(names, LocalModel(names[0], model, lanes, config, observer))
    lanes.start()
    try:
        yield Models(config, embedders, rerankers, observer)
    finally:
        await lanes.close()


@dataclass(frozen=True, slots=True, eq=False)
class Models:
    """The served models, created by :func:`open_models`."""

    config: ModelsConfig
    embedding: Mapping[str, LocalModel]
    reranking: Mapping[str, LocalModel]
    observer: Observer | None

    @property
    def names(self) -> tuple[str, ...]:
        """Return all names of embedding models, including aliases."""
        return tuple(self.embedding)

    @property
    def rerankers(self) -> tuple[str, ...]:
        """Return all names of rerankers, including aliases."""
        return tuple(self.reranking)

    @property
    def queued(self) -> dict[str, int]:
        """Return the number of texts in progress or waiting, by the name of the model."""
        served = (*self.embedding.values(), *self.reranking.values())
        return {model.name: model.queued for model in served}

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Return the tools ``create-embedding`` and ``rerank``, if there is a model for each."""
        embedding = Tool(
            name="create-embedding",
            description="Convert texts to embedding vectors with one of the served models.",
            input_schema=EmbeddingRequest.model_json_schema(),
            handler=lambda given, call: self.create_embedding(given, timeout=call.remaining),
            max_values=MAX_VALUES,
        )
        reranking = Tool(
            name="rerank",
            description="Rank texts by their relevance to a query.",
            input_schema=RerankRequest.model_json_schema(),
            handler=lambda given, call: self.rerank(given, timeout=call.remaining),
            max_values=MAX_VALUES,
        )
        return (embedding,) * bool(self.embedding) + (reranking,) * bool(self.reranking)

    def describe(self, name: str) -> Model:
        """Return an embedding model, for its dimensions, maximum number of tokens and tokenizer.

        Raises:
            ModelNotServed: if there is no model of this name.
        """
        return _find(name, self.embedding).model

    async def create_embedding(self, raw: Any, *, timeout: float | None = None) -> dict[str, Any]:
        """Answer an embedding request in the shape of OpenAI's API.

        Raises:
            ModelsError: in the subclass for the cause of the failure.
        """
        request = read_request(EmbeddingRequest, raw, self.config)
        model = _find(request.model, self.embedding)
        with self._observed(model.name, len(request.input)):
            dimensions = model.model.dimensions
            if request.dimensions not in (None, dimensions):
                raise InvalidRequest(
                    f"dimensions: {model.name} has {dimensions} and cannot be shortened",
                    param="dimensions",
                )
            vectors, tokens = await model.run(request.input, timeout=self._seconds(timeout))
        return embedding_answer(request, vectors, tokens)

    async def rerank(self, raw: Any, *, timeout: float | None = None) -> dict[str, Any]:
        """Answer a rerank request in the shape of the APIs of Cohere and Jina.

        Raises:
            ModelsError: in the subclass for the cause of the failure.
        """
        request = read_request(RerankRequest, raw, self.config)
        name = request.model or next(iter(self.reranking), "any reranker")
        model = _find(name, self.reranking)
        with self._observed(model.name, len(request.documents)):
            scores, tokens = await model.run(
                request.documents, query=request.query, timeout=self._seconds(timeout)
            )
        return rerank_answer(request, name, scores[:, 0].tolist(), tokens)

    def application(self, *, token: str | None = None) -> Starlette:
        """Return the ASGI application: embeddings, reranking, ``/v1/models`` and ``/health``.

        If ``token`` is given, all routes but ``/health`` require it.
        """
        return application(
            {
                "/v1/embeddings": self.create_embedding,
                "/v1/rerank": self.rerank,
                "/rerank": self.rerank,
            },
            (*self.names, *self.rerankers),
            token=token,
            max_bytes=self.config.max_request_bytes,
            timeout=self.config.timeout,
        )

    def _seconds(self, timeout: float | None) -> float:
        return self.config.timeout if timeout is None else timeout

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
            if self.observer:
                seconds = time.perf_counter() - started
                self.observer.answered(model, code, texts=texts, seconds=seconds)


def _find(name: str, served: Mapping[str, LocalModel]) -> LocalModel:
    if name not in served:
        raise ModelNotServed(name, tuple(served))
    return served[name]


def _sources(config: ModelsConfig) -> Iterator[tuple[tuple[str, ...], Callable[[], Model]]]:
    """Yield the names of each model, the primary one first, and what loads it."""
    if config.minilm:
        yield (minilm.NAME, *minilm.ALIASES), partial(_load_minilm, config)
    if config.multilingual:
        names = (multilingual.NAME, *multilingual.ALIASES)
        yield names, multilingual.MultilingualEncoder.load
    for directory in config.directories:
        yield directory.names, partial(_load, directory)


def _load_minilm(config: ModelsConfig) -> Model:
    cache = config.cache_dir or default_cache_dir()
    return Encoder.load(minilm.ensure_files(minilm.weights_directory(), cache))


def _load(directory: ModelDirectory) -> Model:
    kind = CrossEncoder if is_reranker(directory) else Encoder
    return kind.load(find_files(directory))


def _check_names(names: list[str]) -> None:
    if not names:
        raise ModelSetupError("no model to serve: install weights, or name a model directory")
    for name in names:
        if not NAME.fullmatch(name):
            raise ModelSetupError(f"{name!r} is not a valid model name")
        if names.count(name) > 1:
            raise ModelSetupError(f"two models are named {name!r}: rename one of them")


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
