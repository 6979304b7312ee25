"""The embedder port over OpenAI-compatible servers, with batches, retries and a breaker."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ability_search.bounded_batches import batches, text_bytes
from ability_search.documents import Vector
from ability_search.errors import EmbeddingUnavailable, TextsRefused, first_failure
from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.ops.metrics.metric_table import EMBEDDING_BATCHES, EMBEDDING_TEXTS
from ability_search.providers.model_calls import ModelClient
from ability_search.providers.provider_errors import WRONG_ADDRESS, Objection
from ability_search.providers.transports import HttpService, Transport
from ability_search.retry import growing, retry
from kadi_client.errors import FrameTooLarge
from kadi_client.tracing import Value, span

_QUICK = 0.25
"""Largest share of the timeout that a request to a slow model should take."""
_CUT = 8
"""Divisor of the number of texts after a request that took longer and failed."""

_HINTS = {
    "model": "Choose a model that the model manager serves, or add this model to it.",
    "key": "Check SEARCH_API_KEY and SEARCH_EMBEDDING_API_URL.",
    "address": WRONG_ADDRESS,
}


class BreakerOpen(EmbeddingUnavailable):
    """The circuit breaker of the embedder is open."""


class UnusableAnswer(EmbeddingUnavailable):
    """The embedder returned an unusable answer."""

    retryable = False


def _failure(objection: Objection, request: Mapping[str, Any]) -> EmbeddingUnavailable:
    refusal = objection.refusal
    if refusal == "texts":
        return TextsRefused(_refused_texts(objection))
    if refusal == "model":
        problem = f"model {request['model']!r} is not served"
    elif objection.status is not None:
        problem = f"{objection.who} returned an error"
    elif refusal == "key":
        problem = "the model manager refused the key"
    else:
        problem = "the model manager could not embed"
    error = EmbeddingUnavailable(objection.quoted(problem), hint=_HINTS.get(refusal))
    error.retryable = refusal == "passing"
    return error


def _refused_texts(objection: Objection) -> str:
    if isinstance(objection.cause, FrameTooLarge):
        return f"the texts do not fit into a message: {objection.cause}"
    if objection.cause is not None:
        return "a text is not valid Unicode: it contains an unpaired surrogate"
    if objection.status is not None:
        return objection.quoted(f"{objection.who} refused the texts")
    return objection.quoted("the model manager refused the texts: too long, or too many")


EMBEDDINGS = HttpService(
    tool="create-embedding",
    answered="data",
    unavailable=EmbeddingUnavailable,
    failure=_failure,
    api="the embedding API",
    route="embeddings",
    optional=("encoding_format",),
)


class RemoteEmbedder(ModelClient):
    """An :class:`~ability_search.ports.Embedder` over a transport.

    Requests to a model that would take more than a quarter of ``timeout`` at the speed of the last
    one have fewer texts. A request that fails after that time is repeated with an eighth of them.

    Args:
        transport: Sends requests to the server.
        batch_texts: Maximum number of texts in a request.
        batch_bytes: Maximum bytes of text in a request, unless a single text is longer.
        concurrency: Maximum number of requests of one call in flight. Calls do not share this
            limit, so that indexing does not delay queries.
        timeout: Maximum time for one request in seconds.
        attempts: Maximum attempts of a request that fails for a temporary reason; ``None`` for as
            many as the deadline of the call allows.
        breaker_failures: Consecutive failures of this kind after which the circuit breaker of a
            model opens; its requests then wait, or fail if their deadline is earlier.
        breaker_reset: Seconds until a request is let through again.
        meter: Counts requests, texts and retries.
    """

    service = EMBEDDINGS
    who = "the embedder"
    held_back = BreakerOpen
    patient = True

    def __init__(
        self,
        transport: Transport,
        *,
        batch_texts: int,
        batch_bytes: int,
        concurrency: int,
        timeout: float,
        attempts: int | None = None,
        breaker_failures: int,
        breaker_reset: float,
        meter: Meter = UNMETERED,
    ) -> None:
        super().__init__(
            transport,
            timeout=timeout,
            breaker_failures=breaker_failures,
            breaker_reset=breaker_reset,
        )
        self._batch_texts = batch_texts
        self._batch_bytes = batch_bytes
        self._concurrency = concurrency
        self._attempts = attempts
        self._meter = meter
        self._sizes: dict[str, int] = {}
        """Maximum number of texts in a request to a model that is too slow for ``batch_texts``."""

    async def embed(self, model: str, texts: Sequence[str], *, timeout: float) -> Vector:
        """Embed ``texts``, in several concurrent requests if the limits require it.

        Each answer extends the deadline to ``timeout`` seconds from then.
        """
        if not texts:
            return np.zeros((0, 0), dtype=np.float32)
        deadline = time.monotonic() + timeout
        runs = batches(texts, text_bytes, most=self._batch_texts, most_bytes=self._batch_bytes)
        slots = asyncio.Semaphore(self._concurrency)

        async def in_turn(run: Sequence[str]) -> Vector:
            nonlocal deadline
            parts: list[Vector] = []
            async with slots:
                while run:
                    parts.append(await self._request(model, run, deadline))
                    deadline = time.monotonic() + timeout
                    run = run[len(parts[-1]) :]
            return _joined(parts)

        try:
            async with asyncio.TaskGroup() as group:
                parts = [group.create_task(in_turn(run)) for run in runs]
        except ExceptionGroup as failures:
            raise first_failure(failures) from failures
        return _joined([part.result() for part in parts])

    async def _request(self, model: str, texts: Sequence[str], deadline: float) -> Vector:
        """Embed the first ``texts`` in one request, as many as the speed of the model allows.

        There is no retry after the deadline.
        """

        async def run() -> Vector:
            some = texts[: self._sizes.get(model)]
            with span("embed", attributes=_notes(model, some)):
                return await self._try(model, some, deadline)

        return await retry(
            run,
            when=_passing,
            attempts=self._attempts,
            pause=growing(0.5, longest=5),
            within=max(0.0, deadline - time.monotonic()),
            meter=self._meter,
            target="embedder",
        )

    async def _try(self, model: str, texts: Sequence[str], deadline: float) -> Vector:
        left = deadline - time.monotonic()
        if left <= 0:
            raise EmbeddingUnavailable(f"{self.who} did not answer in time")
        request = {"model": model, "input": list(texts), "encoding_format": "base64"}
        started = time.monotonic()
        try:
            answer = await self._ask(request, model=model, timeout=left)
        except EmbeddingUnavailable:
            self._resize(model, len(texts), time.monotonic() - started, failed=True)
            raise
        self._resize(model, len(texts), time.monotonic() - started)
        vectors = unit_vectors(answer, expected=len(texts))
        self._meter.add(EMBEDDING_BATCHES, 1)
        self._meter.add(EMBEDDING_TEXTS, len(texts), "embedded")
        return vectors

    def _resize(self, model: str, texts: int, seconds: float, *, failed: bool = False) -> None:
        """Adapt the number of texts in a request to the seconds that one of ``texts`` took."""
        quick = self._timeout * _QUICK
        if seconds > quick:
            size = texts // _CUT if failed else int(texts * quick / seconds)
        elif failed or texts < self._sizes.get(model, self._batch_texts):
            return
        else:
            size = 2 * texts
        if size < self._batch_texts:
            self._sizes[model] = max(1, size)
        else:
            self._sizes.pop(model, None)


def _notes(model: str, texts: Sequence[str]) -> dict[str, Value]:
    """Return the span attributes of a request: the number of texts, never the texts."""
    return {"gen_ai.request.model": model, "ability_search.texts": len(texts)}


def _joined(parts: Sequence[Vector]) -> Vector:
    if len({part.shape[1] for part in parts}) > 1:
        raise UnusableAnswer("the embedder's vectors differ in dimensions")
    return np.concatenate(parts)


def unit_vectors(answer: Any, *, expected: int) -> Vector:
    """Return the vectors of an OpenAI-shaped answer, ordered by index and scaled to unit length.

    Raises:
        UnusableAnswer: if vectors are missing, differ in dimensions or are empty.
        TextsRefused: if the vector of a text has no direction: it is zero or not finite.
    """
    try:
        rows = sorted(answer["data"], key=lambda row: row["index"])
        if [row["index"] for row in rows] != list(range(expected)):
            raise UnusableAnswer(f"the embedder returned {len(rows)} vectors for {expected} texts")
        vectors = np.stack([_vector(row["embedding"]) for row in rows])
    except (KeyError, TypeError, ValueError, OverflowError) as exc:
        raise UnusableAnswer("the embedder's answer is not in the OpenAI shape") from exc
    if vectors.ndim != 2 or not vectors.shape[1]:
        raise UnusableAnswer("the embedder's vectors are empty")
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not (np.isfinite(norms).all() and norms.all()):
        raise TextsRefused("the embedder's vector for a text is unusable: zero or not finite")
    return np.asarray(vectors / norms, dtype=np.float32)


def _vector(value: Any) -> npt.NDArray[np.float64]:
    """Decode a vector in double precision, so that the norm does not overflow or underflow."""
    if isinstance(value, str):
        floats = np.frombuffer(base64.b64decode(value, validate=True), dtype="<f4")
        return floats.astype(np.float64)
    return np.asarray(value, dtype=np.float64)


def _passing(exc: BaseException) -> bool:
    return (
        isinstance(exc, EmbeddingUnavailable) and exc.retryable and not isinstance(exc, BreakerOpen)
    )
