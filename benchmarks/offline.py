"""Judged sets in this process: the worker's own code over a store in memory.

The embedder is that of the local stack, or a deliberately poor one. Vectors of the former are kept
in a file, so that a text is embedded once, in whatever run.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ability_search.collection import Collection
from ability_search.config.loader import load_settings
from ability_search.config.schema import Settings
from ability_search.documents import Document, SparseVector, Vector
from ability_search.extensions.evaluation.judged_sets import Dataset
from ability_search.extensions.localstack.served_models import models_config
from ability_search.filters.predicate import matches
from ability_search.index.index_fields import IndexFields
from ability_search.ports import Embedder
from ability_search.providers.model_servers import ModelServers
from ability_search.search.response import QueryResult
from ability_search.store.memory import MemoryStore
from ability_search.store.memory_tables import (
    Generation,
    StoredChunk,
    properties,
    row_of,
    selected,
)
from ability_search.store.records import (
    Ahead,
    Row,
    Search,
    Searched,
)
from ability_search.store.values import Columns
from ability_search.tools import requests
from ability_search.tools.inputs import QueryInput
from ability_search.worker import build_services
from kadi_localnet.models.service import open_models

HASHED = "hashed"
"""Name of the model of :class:`HashedWords`."""
AS_OF = "2026-03-25"
"""The day of all queries: ``last week`` must not mean another one in every measurement."""
_TIMEOUT = 3600.0
_NOBODY: Any = None
"""In place of the models that no query here uses."""


async def _unreported(*_progress: object) -> None:
    """Nobody listens."""


class HashedWords:
    """An :class:`~ability_search.ports.Embedder` that knows words, and nothing about them.

    The vector of a text is the mean of random Gaussian vectors, one for each word.
    """

    dimensions = 256

    def __init__(self) -> None:
        self._known: dict[str, Vector] = {}

    async def embed(self, model: str, texts: Sequence[str], *, timeout: float) -> Vector:
        """Return unit vectors of texts, shape (len(texts), 256)."""
        return np.array([self._vector(text) for text in texts], np.float32)

    def _vector(self, text: str) -> Vector:
        words = re.findall(r"\w+", text.lower()) or [""]
        total: Vector = np.sum([self._word(word) for word in words], axis=0)
        return total / np.linalg.norm(total)

    def _word(self, word: str) -> Vector:
        if word not in self._known:
            seed = blake2b(word.encode(), digest_size=8).digest()
            rng = np.random.default_rng(int.from_bytes(seed, "big"))
            self._known[word] = rng.standard_normal(self.dimensions, np.float32)
        return self._known[word]


class KeptVectors:
    """An :class:`~ability_search.ports.Embedder` that embeds each text once.

    Args:
        embedder: Embeds the texts whose vectors are not in the file.
        file: The vectors, an SQLite database; created if it does not exist.
    """

    def __init__(self, embedder: Embedder, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._embedder = embedder
        self._kept = sqlite3.connect(file, check_same_thread=False)
        self._kept.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, value BLOB)")

    async def embed(self, model: str, texts: Sequence[str], *, timeout: float) -> Vector:
        """Return the vectors of texts, shape (len(texts), d)."""
        keys = [blake2b(f"{model}\0{text}".encode(), digest_size=16).digest() for text in texts]
        found = {key: self._read(key) for key in keys}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if found[key] is None}
        if missing:
            vectors = await self._embedder.embed(model, list(missing.values()), timeout=_TIMEOUT)
            found |= dict(zip(missing, vectors, strict=True))
            rows = [(key, vector.tobytes()) for key, vector in zip(missing, vectors, strict=True)]
            with self._kept:
                self._kept.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)
        return np.array([found[key] for key in keys], np.float32)

    def close(self) -> None:
        """Close the file."""
        self._kept.close()

    def _read(self, key: bytes) -> Vector | None:
        row = self._kept.execute("SELECT value FROM vectors WHERE key = ?", (key,)).fetchone()
        return None if row is None else np.frombuffer(row[0], np.float32)


class _Matrices:
    """The vectors and terms of a generation's chunks, as they are now."""

    def __init__(self, generation: Generation) -> None:
        self.size = len(generation.chunks)
        self.chunks = selected(generation.chunks.values(), None)
        self.vectors = np.array([chunk.vector for chunk in self.chunks], np.float64)
        self._weights: dict[str, Mapping[int, float]] = {}
        ids = np.concatenate([np.asarray(each.record.terms, np.int64) for each in self.chunks])
        self._ids, columns = np.unique(ids, return_inverse=True)
        weights = np.concatenate([np.asarray(each.record.weights, float) for each in self.chunks])
        ends = np.cumsum([0, *(len(each.record.terms) for each in self.chunks)])
        shape = (len(self.chunks), len(self._ids))
        self._terms = sparse.csr_matrix((weights, columns, ends), shape).tocsc()

    def found(self, search: Search) -> list[tuple[int, float]]:
        """Return the places of the chunks that a search finds with their scores, best first."""
        by = search.by
        if isinstance(by, SparseVector):
            known = np.isin(by.ids, self._ids)
            at = np.searchsorted(self._ids, np.asarray(by.ids)[known])
            found = self._terms[:, at] @ np.asarray(by.weights)[known]
            found = np.where(found > 0, found, np.nan)
        else:
            found = self.vectors @ np.asarray(by)
        if search.filter is not None:
            allowed = [matches(search.filter, properties(each.record)) for each in self.chunks]
            found = np.where(allowed, found, np.nan)
        scores = found.astype(np.float32)
        best = np.argsort(-scores, kind="stable")[: search.limit]
        return [(place, float(scores[place])) for place in best[~np.isnan(scores[best])].tolist()]

    def product(self, chunk: StoredChunk, terms: SparseVector) -> float:
        """Return the dot product of a chunk's terms with others."""
        if chunk.rid not in self._weights:
            pairs = zip(chunk.record.terms, chunk.record.weights, strict=True)
            self._weights[chunk.rid] = dict(pairs)
        own = self._weights[chunk.rid]
        pairs = zip(terms.ids, terms.weights, strict=True)
        return sum(own[term] * weight for term, weight in pairs if term in own)


class MatrixStore(MemoryStore):
    """The store in memory with faster searches, for collections of which nothing is replaced.

    Searches of kinds, and of chunks without a vector, are not supported.
    """

    def __init__(self) -> None:
        super().__init__()
        self._matrices: dict[str, _Matrices] = {}

    def forget(self) -> None:
        """Read the chunks anew for the next search; call it after their weights have changed."""
        self._matrices = {}

    async def search(
        self,
        collection: Collection,
        searches: Sequence[Search],
        columns: Columns,
        *,
        ahead: Ahead | None = None,
        consistent: bool = True,
    ) -> Searched:
        """See :meth:`ability_search.store.port.Store.search`."""
        generation = self._generation(collection.type)
        matrices = self._matrices.get(collection.type)
        if matrices is None or matrices.size != len(generation.chunks):
            matrices = self._matrices[collection.type] = _Matrices(generation)
        places = {each.name: matrices.found(each) for each in searches}
        found = {each.name: _rows(matrices, each, places[each.name], columns) for each in searches}
        return Searched(self._collection(collection.name), found)


def _rows(
    matrices: _Matrices,
    search: Search,
    places: Sequence[tuple[int, float]],
    columns: Columns,
) -> list[Row]:
    vectors = matrices.vectors[[place for place, _ in places]]
    cosines = {
        name: (vectors @ np.asarray(other)).astype(np.float32).tolist()
        for name, other in columns.cosines.items()
    }
    plain = replace(columns, products={}, cosines={})
    rows = []
    for n, (place, score) in enumerate(places):
        chunk = matrices.chunks[place]
        row = row_of(chunk, score, plain, by=search.by)
        compared = {name: values[n] for name, values in cosines.items()}
        further = {name: matrices.product(chunk, terms) for name, terms in columns.products.items()}
        row.columns = {**row.columns, **compared, **further}
        rows.append(row)
    return rows


@asynccontextmanager
async def offline_embedder(
    cache: Path, environ: Mapping[str, str], *, model: str
) -> AsyncIterator[tuple[Settings, Embedder]]:
    """Yield an embedder, and the settings of a worker that uses it.

    Args:
        cache: Directory of the vectors.
        environ: The environment that the settings are read from.
        model: The embedding model, one of the local stack or :data:`HASHED`.
    """
    environ = {**environ, "SEARCH_EMBEDDING_MODEL": model}
    settings = load_settings(environ, cache)
    if model == HASHED:
        yield settings, HashedWords()
        return
    async with open_models(models_config(settings)) as models:

        async def invoke(
            tool: str,
            tool_input: Mapping[str, Any],
            *,
            timeout: float = _TIMEOUT,
            target_agent: str | None = None,
        ) -> Any:
            return await models.create_embedding(tool_input, timeout=timeout)

        about = models.describe(model)
        described = {"SEARCH_EMBEDDING_MAX_TOKENS": str(about.max_tokens)}
        if about.tokenizer is not None:
            described["SEARCH_TOKENIZER"] = str(about.tokenizer)
        settings = load_settings({**environ, **described}, cache)
        async with ModelServers(settings, invoke).embedder() as embedder:
            kept = KeptVectors(embedder, cache / "vectors.sqlite")
            try:
                yield settings, kept
            finally:
                kept.close()


async def indexed(dataset: Dataset, settings: Settings, embedder: Embedder) -> MatrixStore:
    """Return a store with the documents of a set in the collection ``set``, as maintained.

    Raises:
        ValueError: if a document cannot be indexed.
    """
    store = MatrixStore()
    services = build_services(settings, store, embedder, _NOBODY, _NOBODY, base=Path())
    documents = [Document(**each) for each in dataset.documents()]
    report = await services.indexing.index("set", documents, IndexFields(), _unreported)
    if report.failed:
        raise ValueError(f"{dataset.directory}: {report.failed[0]}")
    await services.maintenance.idle()
    await services.maintenance.maintain("set")
    store.forget()
    return store


Ask = Callable[[Mapping[str, Any]], Awaitable[QueryResult]]
"""Answers a query, given the fields of ``search-query`` but for the collection."""


def asking(store: MatrixStore, settings: Settings, embedder: Embedder) -> Ask:
    """Return a function that searches a store of :func:`indexed`, as of :data:`AS_OF`."""
    services = build_services(settings, store, embedder, _NOBODY, _NOBODY, base=Path())
    own = {"collection": "set", "asOf": AS_OF}

    async def ask(fields: Mapping[str, Any]) -> QueryResult:
        asked = QueryInput.model_validate({**own, **fields})
        return await services.queries.answer(
            asked, requests.query_filter(asked, settings.limits, None)
        )

    return ask
