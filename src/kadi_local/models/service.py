"""The model manager: one implementation behind the KADI tool and the HTTP door."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx

from kadi.tools import Call, Tool
from kadi_local.models import minilm
from kadi_local.models.config import ModelsConfig, check_names, default_cache_dir
from kadi_local.models.directory import find_files
from kadi_local.models.encoder import Encoder, EncoderFiles
from kadi_local.models.errors import ModelNotServed, ModelSetupError
from kadi_local.models.http import application, serve
from kadi_local.models.lanes import Lanes
from kadi_local.models.local import LocalModel
from kadi_local.models.remote import RemoteModel
from kadi_local.models.requests import Embedded, EmbeddingRequest, answer, read_request

log = logging.getLogger(__name__)


class Model(Protocol):
    """Something that embeds, here or elsewhere."""

    @property
    def name(self) -> str:
        """The name it is known by first."""

    async def embed(
        self,
        texts: Sequence[str],
        *,
        timeout: float,
        dimensions: int | None = None,
        api_key: str | None = None,
    ) -> Embedded:
        """Vectors of ``texts``, in their order, within ``timeout`` seconds."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What is known of a served model; upstream models are known by name only."""

    name: str
    local: bool
    dimensions: int | None = None
    max_tokens: int | None = None
    tokenizer: Path | None = None
    """Its ``tokenizer.json``."""


class Models:
    """The served models; made by :func:`open_models`."""

    def __init__(self, config: ModelsConfig, served: Mapping[str, Model]) -> None:
        self._config = config
        self._served = served

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that is served, aliases included."""
        return tuple(self._served)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """``create-embedding``, to be served on a KADI network."""
        return (
            Tool(
                name="create-embedding",
                description="Turn texts into embedding vectors with one of the served models.",
                input_schema=EmbeddingRequest.model_json_schema(),
                handler=self._handle,
            ),
        )

    def describe(self, name: str) -> ServedModel:
        """Dimensions, maximum of tokens and tokenizer of a served model.

        Raises:
            ModelNotServed: if there is none of this name.
        """
        model = self._find(name)
        if not isinstance(model, LocalModel):
            return ServedModel(name=name, local=False)
        encoder = model.encoder
        return ServedModel(
            name=name,
            local=True,
            dimensions=encoder.dimensions,
            max_tokens=encoder.files.max_tokens,
            tokenizer=encoder.files.tokenizer,
        )

    async def create_embedding(self, raw: Any, *, timeout: float | None = None) -> dict[str, Any]:
        """Answer one request, as OpenAI's API does.

        Raises:
            ModelsError: of the kind that says what was wrong.
        """
        request = read_request(raw, self._config)
        embedded = await self._find(request.model).embed(
            request.input,
            timeout=self._config.timeout if timeout is None else timeout,
            dimensions=request.dimensions,
            api_key=request.api_key.get_secret_value() if request.api_key else None,
        )
        return answer(request, embedded)

    def serve_http(
        self, host: str = "127.0.0.1", port: int = 0, *, token: str | None = None
    ) -> AbstractAsyncContextManager[str]:
        """Serve ``/v1/embeddings``, ``/v1/models`` and ``/health``; enters to the base URL.

        Raises:
            ModelSetupError: on entering, if the port cannot be bound, or ``host`` is reachable
                from other machines and there is no ``token``.
        """
        app = application(
            self,
            token=token,
            max_bytes=self._config.max_request_bytes,
            timeout=self._config.timeout,
        )
        return serve(app, host, port, token=token)

    async def _handle(self, tool_input: dict[str, Any], call: Call) -> dict[str, Any]:
        return await self.create_embedding(tool_input, timeout=call.remaining)

    def _find(self, name: str) -> Model:
        model = self._served.get(name)
        if model is None:
            raise ModelNotServed(name, self.names)
        return model


@asynccontextmanager
async def open_models(config: ModelsConfig) -> AsyncIterator[Models]:
    """Load what ``config`` names and serve it until the context ends.

    The first start with all-MiniLM-L6-v2 builds its graph, which takes some seconds.

    Raises:
        ModelSetupError: if a model cannot be found, built or loaded, or two have one name.
    """
    sources = local_sources(config)
    upstream_names = [name for upstream in config.upstreams for name in upstream.models]
    check_names([*(name for names, _ in sources for name in names), *upstream_names])
    lanes = Lanes(bulk_threads=config.threads or _usable_cores())
    loaded = await asyncio.to_thread(_load, config, sources)
    served: dict[str, Model] = {}
    for names, encoder in loaded:
        model = LocalModel(
            names[0],
            encoder,
            lanes,
            batch_tokens=config.batch_tokens,
            max_queued_texts=config.max_queued_texts,
        )
        served |= dict.fromkeys(names, model)
    lanes.start()
    try:
        # Redirects are not followed: they would take the key to another host.
        async with httpx.AsyncClient(timeout=config.timeout, follow_redirects=False) as client:
            for upstream in config.upstreams:
                for name in upstream.models:
                    served[name] = RemoteModel(name, upstream, client)
            yield Models(config, served)
    finally:
        await lanes.close()


def find_tokenizer(config: ModelsConfig, model: str) -> Path | None:
    """The ``tokenizer.json`` of a local model of ``config``, found without loading anything.

    ``None`` for a model served upstream, of which nothing is known, and for one not served.

    Raises:
        ModelSetupError: if the files of the model are missing.
    """
    if config.minilm and model in (minilm.NAME, *minilm.ALIASES):
        return minilm.weights_directory() / "tokenizer.json"
    for directory in config.directories:
        if model in directory.names:
            return find_files(directory).tokenizer
    return None


Source = tuple[tuple[str, ...], EncoderFiles | None]
"""Names of a local model and its files; ``None`` for those of all-MiniLM-L6-v2."""


def local_sources(config: ModelsConfig) -> list[Source]:
    """The models to load, under which names."""
    sources: list[Source] = [((minilm.NAME, *minilm.ALIASES), None)] if config.minilm else []
    sources += [(directory.names, find_files(directory)) for directory in config.directories]
    if not sources and not config.upstreams:
        raise ModelSetupError("no model to serve: configure a local model or an upstream server")
    return sources


def _load(config: ModelsConfig, sources: Sequence[Source]) -> list[tuple[tuple[str, ...], Encoder]]:
    cache = config.cache_dir or default_cache_dir()
    return [
        (
            names,
            Encoder.load(
                files or minilm.ensure_files(minilm.weights_directory(), cache, config.precision)
            ),
        )
        for names, files in sources
    ]


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
