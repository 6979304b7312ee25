"""The embedder port over OpenAI-compatible servers, with batches, retries and a breaker."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ability_search.bounded_batches import batches, text_bytes
from ability_search.documents import Vector
from ability_search.errors import EmbeddingUnavailable, TextsRefused, first_failure
from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.ops.metrics.metric_table import EMBEDDING_BATCHES, EMBEDDING_TEXTS
from ability_search.providers.model_calls import ModelClient
from ability_search.providers.provider_errors import TEMPORARY, WRONG_ADDRESS, Objection
from ability_search.providers.transports import HttpService, Transport
from ability_search.retry import growing, retry
from kadi_client.errors import FrameTooLarge
from kadi_client.tracing import Value, span

_QUICK = 0.25
"""Largest share of the timeout that a request to a slow model should take."""
_CUT = 8
"""Divisor of the number of texts after a request that took longer and failed."""
_RETRIES = 2
"""Retries of single texts at which the server fails, in one call."""
_KNOWN_TEXT = "text"
"""A text that every model embeds."""

Row = Vector | TextsRefused
"""The vector of a text, or the reason why it has none."""

_HINTS = {
    "model": "Choose a model that the model manager serves, or add this model to it.",
    "key": "Check SEARCH_API_KEY and SEARCH_EMBEDDING_API_URL.",
    "address": WRONG_ADDRESS,
    "request": "The server refuses every text. Check its address, and the model.",
}


class BreakerOpen(EmbeddingUnavailable):
    """The circuit breaker of the embedder is open."""


class UnusableAnswer(EmbeddingUnavailable):
    """The embedder returned an unusable answer."""

    retryable = False


class RequestFailed(EmbeddingUnavailable):
    """The server failed at a request: for the moment, or at one of its texts."""


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
    kind = RequestFailed if refusal == "failed" else EmbeddingUnavailable
    error = kind(objection.quoted(problem), hint=_HINTS.get(refusal))
    error.retryable = refusal in TEMPORARY
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

    A request that the server refuses, or fails at although it embeds another text, is repeated
    with half of the texts, down to single ones. If the server then accepts every text, it limits
    the number of texts; later requests to the model respect this.

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
        self._limits: dict[str, int] = {}
        """Number of texts in a request that the server of a model accepts, if it refused more."""
        self._sizes: dict[str, int] = {}
        """Maximum number of texts in a request to a model that is too slow for more."""

    async def embed(self, model: str, texts: Sequence[str], *, timeout: float) -> Vector:
        """Embed ``texts``, in several concurrent requests if the limits require it.

        Each answer extends the deadline to ``timeout`` seconds from then.
        """
        if not texts:
            return np.zeros((0, 0), dtype=np.float32)
        deadline = time.monotonic() + timeout
        runs = batches(texts, text_bytes, most=self._most(model), most_bytes=self._batch_bytes)
        slots = asyncio.Semaphore(self._concurrency)
        retries = iter(range(_RETRIES))

        async def request(some: Sequence[str]) -> Vector:
            nonlocal deadline
            try:
                return await self._request(model, some, deadline, retries)
            finally:
                deadline = time.monotonic() + timeout

        async def in_turn(run: Sequence[str]) -> list[Row]:
            async with slots:
                return await self._rows(model, run, request)

        try:
            async with asyncio.TaskGroup() as group:
                parts = [group.create_task(in_turn(run)) for run in runs]
        except ExceptionGroup as failures:
            raise first_failure(failures) from failures
        return _joined([row for part in parts for row in part.result()])

    async def _rows(
        self,
        model: str,
        texts: Sequence[str],
        request: Callable[[Sequence[str]], Awaitable[Vector]],
    ) -> list[Row]:
        """Return the rows of texts, from requests with fewer texts where the server refuses many.

        ``request`` embeds the first of the texts.
        """
        rows: list[Row] = []
        waiting = [texts]
        accepted, limited = 0, False
        while waiting:
            some = waiting.pop()
            try:
                vectors = await request(some)
            except TextsRefused as exc:
                if len(some) == 1:
                    rows.append(exc)
                    continue
                half = len(some) // 2
                waiting += some[half:], some[:half]
                limited = limited or not exc.retryable
            else:
                rows.extend(vectors)
                accepted = max(accepted, len(vectors))
                if len(vectors) < len(some):
                    waiting.append(some[len(vectors) :])
        if limited and not any(isinstance(row, TextsRefused) for row in rows):
            self._limits[model] = accepted
        return rows

    async def _request(
        self, model: str, texts: Sequence[str], deadline: float, retries: Iterator[int]
    ) -> Vector:
        """Embed the first ``texts`` in one request, as many as the speed of the model allows.

        There is no retry after the deadline. A single text at which the server fails is repeated
        as long as there are ``retries``.
        """

        def passing(exc: BaseException) -> bool:
            if not isinstance(exc, EmbeddingUnavailable) or isinstance(exc, BreakerOpen):
                return False
            if isinstance(exc, TextsRefused):
                single = len(texts) == 1 and exc.retryable
                return single and next(retries, None) is not None
            return exc.retryable

        async def run() -> Vector:
            some = texts[: self._sizes.get(model)]
            with span("embed", attributes=_notes(model, some)):
                return await self._try(model, some, deadline)

        return await retry(
            run,
            when=passing,
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
        started = time.monotonic()
        try:
            vectors = await self._vectors(model, texts, left)
        except EmbeddingUnavailable as exc:
            self._resize(model, len(texts), time.monotonic() - started, failed=True)
            raise await self._judged(exc, model, deadline) from exc.__cause__
        self._resize(model, len(texts), time.monotonic() - started)
        self._meter.add(EMBEDDING_BATCHES, 1)
        self._meter.add(EMBEDDING_TEXTS, len(texts), "embedded")
        return vectors

    async def _vectors(self, model: str, texts: Sequence[str], timeout: float) -> Vector:
        request = {"model": model, "input": list(texts), "encoding_format": "base64"}
        answer = await self._ask(request, model=model, timeout=timeout)
        return unit_vectors(answer, expected=len(texts))

    async def _judged(
        self, exc: EmbeddingUnavailable, model: str, deadline: float
    ) -> EmbeddingUnavailable:
        """Return the error for a failed request.

        It is a :class:`TextsRefused` only if the model embeds another text at the same time.
        """
        refused = isinstance(exc, TextsRefused)
        failed = isinstance(exc, RequestFailed | UnusableAnswer) and exc.retry_after is None
        if not (refused or failed):
            return exc
        try:
            await self._vectors(model, [_KNOWN_TEXT], max(0.0, deadline - time.monotonic()))
        except EmbeddingUnavailable as other:
            if refused and not isinstance(other, TextsRefused):
                return other
            return UnusableAnswer(str(exc), hint=_HINTS["request"]) if refused else exc
        result = TextsRefused(str(exc))
        result.retryable = exc.retryable
        return result

    def _most(self, model: str) -> int:
        """Return the maximum number of texts in a request to a model."""
        return min(self._batch_texts, self._limits.get(model, self._batch_texts))

    def _resize(self, model: str, texts: int, seconds: float, *, failed: bool = False) -> None:
        """Adapt the number of texts in a request to the seconds that one of ``texts`` took."""
        quick = self._timeout * _QUICK
        if seconds > quick:
            size = texts // _CUT if failed else int(texts * quick / seconds)
        elif failed or texts < self._sizes.get(model, self._most(model)):
            return
        else:
            size = 2 * texts
        if size < self._most(model):
            self._sizes[model] = max(1, size)
        else:
            self._sizes.pop(model, None)


def _notes(model: str, texts: Sequence[str]) -> dict[str, Value]:
    """Return the span attributes of a request: the number of texts, never the texts."""
    return {"gen_ai.request.model": model, "ability_search.texts": len(texts)}


def _joined(rows: Sequence[Row]) -> Vector:
    vectors = [row for row in rows if not isinstance(row, TextsRefused)]
    if len(set(map(len, vectors))) > 1:
        raise UnusableAnswer("the embedder's vectors differ in dimensions")
    for row in rows:
        if isinstance(row, TextsRefused):
            raise TextsRefused(str(row), hint=row.hint, rows=rows)
    return np.stack(vectors)


def unit_vectors(answer: Any, *, expected: int) -> Vector:
    """Return the vectors of an OpenAI-shaped answer, ordered by index and scaled to unit length.

    Raises:
        UnusableAnswer: if vectors are missing, differ in dimensions, are empty, or have no
            direction: they are zero or not finite.
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
        raise UnusableAnswer("the embedder's vector for a text is unusable: zero or not finite")
    return np.asarray(vectors / norms, dtype=np.float32)


def _vector(value: Any) -> npt.NDArray[np.float64]:
    """Decode a vector in double precision, so that the norm does not overflow or underflow."""
    if isinstance(value, str):
        floats = np.frombuffer(base64.b64decode(value, validate=True), dtype="<f4")
        return floats.astype(np.float64)
    return np.asarray(value, dtype=np.float64)
