"""Vectors of a query, by model."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ability_search.collection import ModelInput
from ability_search.documents import Floats, Vector
from ability_search.ports import Embedder
from ability_search.search.wants import Vectors


def moved_vector(
    vector: npt.ArrayLike, examples: npt.ArrayLike, weights: npt.ArrayLike, *, beta: float
) -> Floats:
    """Return the query vector moved towards its first hits, ``q + beta sum_j w_j t_j``, normalized.

    Args:
        vector: query vector of unit length, shape (d,).
        examples: vectors of the m feedback hits, of unit length, shape (m, d).
        weights: weights of those m, shape (m,), summing to 1.
        beta: how far the vector moves.

    Returns:
        Shape (d,), of unit length; the query vector itself if the sum is zero.
    """
    own, towards, share = (np.asarray(each, np.float64) for each in (vector, examples, weights))
    moved = own + beta * share @ towards
    length = float(np.linalg.norm(moved))
    return np.asarray(moved / length if length > 0 else own)


class QueryVectors:
    """A query's vectors by model, computed once for all collections that share it.

    Args:
        embedder: The embedder.
        phrasings: The texts of each phrasing by the names of their vectors.
        passage: Text that is embedded as a passage, not as a query.
        timeout: Of a request, in seconds.
    """

    def __init__(
        self,
        embedder: Embedder,
        phrasings: Sequence[Mapping[str, str]],
        *,
        passage: str | None,
        timeout: float,
    ) -> None:
        self._embedder = embedder
        self._phrasings = phrasings
        self._passage = passage
        self._timeout = timeout
        self._requests: dict[ModelInput, asyncio.Task[Vector]] = {}
        self._milliseconds: dict[ModelInput, float] = {}

    def request(self, model: ModelInput) -> None:
        """Start the request to ``model``, unless already started."""
        if model not in self._requests:
            self._requests[model] = asyncio.create_task(self._embed(model))

    async def of(self, model: ModelInput, phrasing: int = 0) -> tuple[Vectors, int]:
        """Return the vectors of a phrasing by name, and their size; raise the request's error."""
        self.request(model)
        vectors = await asyncio.shield(self._requests[model])
        start = sum(map(len, self._phrasings[:phrasing]))
        texts = self._phrasings[phrasing]
        rows = [array("f", row.tobytes()) for row in vectors[start : start + len(texts)]]
        return dict(zip(texts, rows, strict=True)), vectors.shape[1]

    def milliseconds(self, model: ModelInput) -> float:
        """Return how long ``model`` took to answer; 0 if it has not answered."""
        return self._milliseconds.get(model, 0.0)

    async def close(self) -> None:
        """Cancel pending requests and wait for them."""
        every = self._requests.values()
        open_ = [each for each in every if each.cancel() or each.cancelled() or each.exception()]
        if open_:  # to wait for a task takes a turn of the loop even if it is done
            await asyncio.gather(*open_, return_exceptions=True)

    async def _embed(self, model: ModelInput) -> Vector:
        prefixed = [
            (model.passage_prefix if text == self._passage else model.query_prefix) + text
            for texts in self._phrasings
            for text in texts.values()
        ]
        started = time.perf_counter()
        try:
            return await self._embedder.embed(model.model, prefixed, timeout=self._timeout)
        finally:
            self._milliseconds[model] = (time.perf_counter() - started) * 1e3
