"""Loading the models of a configuration."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from kadi_localnet.models import minilm, multilingual
from kadi_localnet.models.config import ModelsConfig, check_names, default_cache_dir
from kadi_localnet.models.crossencoder import CrossEncoder
from kadi_localnet.models.directory import find_files, find_reranker_files, is_reranker
from kadi_localnet.models.encoder import Encoder
from kadi_localnet.models.errors import ModelSetupError
from kadi_localnet.models.lanes import NOBODY, Lanes, Observer
from kadi_localnet.models.local import LocalModel, LocalReranker, Runtime
from kadi_localnet.models.multilingual import MultilingualEncoder
from kadi_localnet.models.service import Models

Names = tuple[str, ...]
"""The names under which a model is served, the primary name first."""
Loaded = Encoder | MultilingualEncoder | CrossEncoder


@asynccontextmanager
async def open_models(
    config: ModelsConfig, *, observer: Observer = NOBODY
) -> AsyncIterator[Models]:
    """Load the models of ``config`` and serve them until the context ends.

    The first start with all-MiniLM-L6-v2 builds its graph, which takes some seconds. ``observer``
    gets requests and runs.

    Raises:
        ModelSetupError: if a model cannot be found, built or loaded, or two have the same name.
    """
    names = list(_names(config))
    if not names:
        raise ModelSetupError("no model to serve: install weights, or name a model directory")
    check_names(names)
    loaded = await asyncio.to_thread(_load, config)
    lanes = Lanes(bulk_threads=config.threads or _usable_cores())
    runtime = Runtime(lanes, config.batch_tokens, config.max_queued_texts, observer)
    served, rerankers = _local(loaded, runtime)
    lanes.start()
    try:
        yield Models(config, served, rerankers, observer)
    finally:
        await lanes.close()


def _names(config: ModelsConfig) -> Iterator[str]:
    if config.minilm:
        yield from (minilm.NAME, *minilm.ALIASES)
    if config.multilingual:
        yield from (multilingual.NAME, *multilingual.ALIASES)
    for directory in config.directories:
        yield from directory.names


def _load(config: ModelsConfig) -> list[tuple[Names, Loaded]]:
    loaded: list[tuple[Names, Loaded]] = []
    if config.minilm:
        cache = config.cache_dir or default_cache_dir()
        files = minilm.ensure_files(minilm.weights_directory(), cache, config.precision)
        loaded.append(((minilm.NAME, *minilm.ALIASES), Encoder.load(files)))
    if config.multilingual:
        names = (multilingual.NAME, *multilingual.ALIASES)
        loaded.append((names, MultilingualEncoder.load()))
    for directory in config.directories:
        if is_reranker(directory):
            reranker = CrossEncoder.load(find_reranker_files(directory))
            loaded.append((directory.names, reranker))
        else:
            loaded.append((directory.names, Encoder.load(find_files(directory))))
    return loaded


def _local(
    loaded: list[tuple[Names, Loaded]], runtime: Runtime
) -> tuple[dict[str, LocalModel], dict[str, LocalReranker]]:
    served: dict[str, LocalModel] = {}
    rerankers: dict[str, LocalReranker] = {}
    for names, encoder in loaded:
        if isinstance(encoder, CrossEncoder):
            reranker = LocalReranker(names[0], encoder, runtime)
            rerankers |= dict.fromkeys(names, reranker)
        else:
            served |= dict.fromkeys(names, LocalModel(names[0], encoder, runtime))
    return served, rerankers


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
