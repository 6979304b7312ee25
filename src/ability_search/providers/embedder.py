"""The embedder port over OpenAI-compatible servers, with batches, retries and a breaker."""

from __future__ import annotations

import asyncio
import base64
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from ability_search.bounded_batches import batches, text_bytes
from ability_search.config.model_settings import Embedding
from ability_search.documents import Vector
from ability_search.errors import EmbeddingUnavailable, TextsRefused, first_failure
from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.ops.metrics.metric_table import EMBEDDING_BATCHES, EMBEDDING_TEXTS
from ability_search.providers.model_calls import ModelClient
from ability_search.providers.transports import Service, Transport
from ability_search.retry import growing, retry
from kadi_client.errors import CallTimeout
from kadi_client.tracing import Value, span

_QUICK = 0.25
"""Largest share of the timeout that a request to a slow model should take."""
_CUT = 8
"""Divisor of the number of texts after a request that took longer and failed."""
_RETRIES = 2
"""Retries of single texts at which the server fails, in one call."""
_KNOWN_TEXT = "text"
"""A text that every model embeds."""
_MOST_UNANSWERED = 40
"""Requests of one call that a server may leave unanswered, although it embeds other texts."""
_TWICE = 2
"""Requests with a single text that the server leaves unanswered until the text is refused."""
_REMEMBERED = 600.0
"""Seconds in which a text is not sent again that left the server without an answer."""
_MOST_REMEMBERED = 1000
_MODEL, _TEXTS = "gen_ai.request.model", "ability_search.texts"
"""Attributes of the span of a request."""

Row = Vector | TextsRefused
"""The vector of a text, or the reason why it has none."""

_HINTS = {
    "model": "Choose a model that the model manager serves, or add this model to it.",
    "key": "Check SEARCH_API_KEY and SEARCH_EMBEDDING_API_URL.",
    "request": "The server refuses every text. Check its address, and the model.",
}


class BreakerOpen(EmbeddingUnavailable):
    """The circuit breaker of the embedder is open."""


class UnusableAnswer(EmbeddingUnavailable):
    """The embedder returned an unusable answer."""

    retryable = False


class RequestFailed(EmbeddingUnavailable):
    """The server failed at a request: for the moment, or at one of its texts."""


class Unanswered(EmbeddingUnavailable):
    """The server ended or hung while it worked on a request, maybe because of one of its texts.

    Attributes:
        texts: Number of texts of the request.
        late: Whether it hung, as a model does that is too slow for so many texts.
    """

    def __init__(
        self, message: str, *, hint: str | None = None, texts: int = 1, late: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.texts = texts
        self.late = late


EMBEDDINGS = Service(
    tool="create-embedding",
    agent_setting="SEARCH_EMBEDDING_AGENT",
    route="embeddings",
    answered="data",
    optional=("encoding_format",),
    who="the embedder",
    api="the embedding API",
    verb="embed",
    unserved="model {model!r} is not served",
    unavailable=EmbeddingUnavailable,
    kinds={"texts": TextsRefused, "failed": RequestFailed, "lost": Unanswered, "held": BreakerOpen},
    hints=_HINTS,
)


class RemoteEmbedder(ModelClient):
    """An :class:`~ability_search.ports.Embedder` over a transport.

    Requests to a model that would take more than a quarter of ``timeout`` at the speed of the last
    one have fewer texts. A request that fails after that time is repeated with an eighth of them.

    A request that the server refuses, or fails at although it embeds another text, is repeated
    with half of the texts, down to single ones. If the server then accepts both halves, it limits
    the number of texts; later requests to the model respect this.

    A request at which the server ends or hangs is repeated when the server embeds another text
    again, at first as it was, then with half of the texts, one such request at a time. A single
    text that stays without an answer is refused, and not sent again for ten minutes.

    Args:
        transport: Sends requests to the server.
        settings: The limits. Calls do not share that of concurrent requests, so that indexing does
            not delay queries.
        meter: Counts requests, texts and retries.
    """

    service = EMBEDDINGS

    def __init__(self, transport: Transport, settings: Embedding, meter: Meter = UNMETERED) -> None:
        super().__init__(
            transport,
            timeout=settings.timeout,
            breaker_failures=settings.breaker_failures,
            breaker_reset=settings.breaker_reset,
        )
        self._settings = settings
        self._meter = meter
        self._limits: dict[str, int] = {}
        """Number of texts in a request that the server of a model accepts, if it refused more."""
        self._sizes: dict[str, int] = {}
        """Maximum number of texts in a request to a model that is too slow for more."""
        self._suspecting: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Held by model while texts are sent that may end the server, to tell whose fault it is."""
        self._refused = _RefusedTexts()
        self._dimensions: dict[str, int] = {}

    async def embed(self, model: str, texts: Sequence[str], *, timeout: float) -> Vector:
        """Embed ``texts``, in several concurrent requests if the limits require it.

        Each answer extends the deadline to ``timeout`` seconds from then.
        """
        if not texts:
            return np.zeros((0, 0), dtype=np.float32)
        known = [self._refused.get(model, text) for text in texts]
        sent = [text for text, row in zip(texts, known, strict=True) if row is None]
        largest = self._settings.batch_bytes
        runs = list(batches(sent, text_bytes, most=self._most(model), most_bytes=largest))
        slots = asyncio.Semaphore(self._settings.concurrency)
        call = _Call(timeout)

        async def in_turn(run: Sequence[str]) -> list[Row]:
            async with slots:
                return await self._rows(model, run, call)

        if len(runs) == 1:  # that of a query, which needs no task
            parts = [await self._rows(model, runs[0], call)]
        else:
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(in_turn(run)) for run in runs]
            except ExceptionGroup as failures:
                raise first_failure(failures) from failures
            parts = [task.result() for task in tasks]
        rows = iter([row for part in parts for row in part])
        joined = [next(rows) if row is None else row for row in known]
        return await self._joined(model, joined, call)

    async def _rows(
        self, model: str, texts: Sequence[str], call: _Call, *, unanswered: int = 0
    ) -> list[Row]:
        """Return the rows of texts, from requests with fewer texts where the server refuses many.

        A request embeds the first of the texts.
        """
        rows: list[Row] = []
        while len(rows) < len(texts):
            some = texts[len(rows) : len(rows) + self._most(model)]
            try:
                rows += list(await self._requested(model, some, call, suspected=unanswered > 0))
            except (TextsRefused, Unanswered) as exc:
                rows += await self._divided(model, some, call, exc, unanswered)
        return rows

    async def _divided(
        self,
        model: str,
        texts: Sequence[str],
        call: _Call,
        failure: TextsRefused | Unanswered,
        unanswered: int,
    ) -> list[Row]:
        """Return the rows of the texts of a failed request, from two with half of them.

        If the server accepts all of these, it limits the number of texts.
        """
        limited = not failure.retryable
        if isinstance(failure, Unanswered):
            call.count(failure)
            texts, limited = texts[: failure.texts], not failure.late
            if len(texts) == 1 and unanswered >= _TWICE:
                return [self._refused.add(model, texts[0], failure)]
            if len(texts) == 1 or not unanswered:
                return await self._rows(model, texts, call, unanswered=unanswered + 1)
        elif len(texts) == 1:
            return [failure]
        middle = (len(texts) + 1) // 2
        rows = await self._rows(model, texts[:middle], call, unanswered=unanswered)
        rows += await self._rows(model, texts[middle:], call, unanswered=unanswered)
        if limited and not any(isinstance(row, TextsRefused) for row in rows):
            self._limits[model] = min(self._most(model), middle)
        return rows

    async def _requested(
        self, model: str, texts: Sequence[str], call: _Call, *, suspected: bool
    ) -> Vector:
        """Embed the first ``texts``; suspected ones when the server embeds another text again."""
        async with self._suspecting[model] if suspected else nullcontext():
            if suspected:
                call.extend(self._timeout * _QUICK if call.timeout > self._timeout else 0.0)
                try:
                    await self._request(model, [_KNOWN_TEXT], call)
                except Unanswered as exc:
                    raise EmbeddingUnavailable(str(exc), hint=exc.hint) from exc.__cause__
                call.extend()
            try:
                vectors = await self._request(model, texts, call)
            except TextsRefused:
                call.extend()
                raise
        call.extend()
        return vectors

    async def _request(self, model: str, texts: Sequence[str], call: _Call) -> Vector:
        """Embed the first ``texts`` in one request, as many as the speed of the model allows.

        There is no retry after the deadline. A single text at which the server fails is repeated
        as long as the call has retries.
        """

        def passing(exc: BaseException) -> bool:
            if not isinstance(exc, EmbeddingUnavailable) or isinstance(exc, BreakerOpen):
                return False
            if isinstance(exc, TextsRefused):
                single = len(texts) == 1 and exc.retryable
                return single and next(call.retries, None) is not None
            if isinstance(exc, Unanswered):
                return texts == [_KNOWN_TEXT] or (exc.late and exc.texts > 1)
            return exc.retryable

        async def run() -> Vector:
            some = texts[: self._sizes.get(model)]
            # The number of texts, never the texts.
            notes: dict[str, Value] = {_MODEL: model, _TEXTS: len(some)}
            with span("embed", attributes=notes):
                return await self._try(model, some, call)

        return await retry(
            run,
            when=passing,
            attempts=self._settings.attempts,
            pause=growing(0.5, longest=5),
            within=call.left,
            meter=self._meter,
            target="embedder",
        )

    async def _try(self, model: str, texts: Sequence[str], call: _Call) -> Vector:
        if not call.left:
            raise EmbeddingUnavailable(f"{EMBEDDINGS.who} did not answer in time")
        started = time.monotonic()
        try:
            vectors = await self._vectors(model, texts, call.left)
        except EmbeddingUnavailable as exc:
            self._resize(model, len(texts), time.monotonic() - started, failed=True)
            raise await self._judged(exc, model, texts, call) from exc.__cause__
        self._resize(model, len(texts), time.monotonic() - started)
        self._meter.add(EMBEDDING_BATCHES, 1)
        self._meter.add(EMBEDDING_TEXTS, len(texts), "embedded")
        return vectors

    async def _vectors(self, model: str, texts: Sequence[str], timeout: float) -> Vector:
        request = {"model": model, "input": list(texts), "encoding_format": "base64"}
        answer = await self._ask(request, model=model, timeout=timeout, patience=timeout)
        return unit_vectors(answer, expected=len(texts))

    async def _judged(
        self, exc: EmbeddingUnavailable, model: str, texts: Sequence[str], call: _Call
    ) -> EmbeddingUnavailable:
        """Return the error for a failed request.

        It is a :class:`TextsRefused` only if the model embeds another text at the same time.
        """
        late = isinstance(exc.__cause__, TimeoutError | CallTimeout)
        if late or isinstance(exc, Unanswered):
            return Unanswered(str(exc), hint=exc.hint, texts=len(texts), late=late)
        refused = isinstance(exc, TextsRefused)
        failed = isinstance(exc, RequestFailed | UnusableAnswer) and exc.retry_after is None
        if not (refused or failed):
            return exc
        try:
            await self._vectors(model, [_KNOWN_TEXT], call.left)
        except EmbeddingUnavailable as other:
            if refused and not isinstance(other, TextsRefused):
                return other
            return UnusableAnswer(str(exc), hint=_HINTS["request"]) if refused else exc
        result = TextsRefused(str(exc))
        result.retryable = exc.retryable
        return result

    async def _joined(self, model: str, rows: Sequence[Row], call: _Call) -> Vector:
        """Return the vectors of rows; those of dimensions that the model does not have are refused.

        If they differ, the vector of another text shows the dimensions of the model.
        """
        sizes = {len(row) for row in rows if not isinstance(row, TextsRefused)}
        usual = self._dimensions.setdefault(model, min(sizes)) if sizes else 0
        if sizes - {usual}:
            usual = (await self._request(model, [_KNOWN_TEXT], call)).shape[1]
            self._dimensions[model] = usual
        judged: list[Row] = [
            row if isinstance(row, TextsRefused) or len(row) == usual else _other_size(row, usual)
            for row in rows
        ]
        vectors = [row for row in judged if not isinstance(row, TextsRefused)]
        if len(vectors) == len(judged):
            return np.stack(vectors)
        first = next(row for row in judged if isinstance(row, TextsRefused))
        raise TextsRefused(str(first), hint=first.hint, rows=judged)

    def _most(self, model: str) -> int:
        """Return the maximum number of texts in a request to a model."""
        return min(self._settings.batch_texts, self._limits.get(model, sys.maxsize))

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


class _Call:
    """The time and the attempts that are left of a call; each answer extends its deadline.

    Attributes:
        timeout: Seconds until the deadline at first, and after each extension.
        retries: Retries of single texts that are left.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.retries = iter(range(_RETRIES))
        self._deadline = time.monotonic() + timeout
        self._unanswered = 0

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return max(0.0, self._deadline - time.monotonic())

    def extend(self, seconds: float | None = None) -> None:
        """Leave at least ``seconds``; by default those of the timeout."""
        more = self.timeout if seconds is None else seconds
        self._deadline = max(self._deadline, time.monotonic() + more)

    def count(self, exc: Unanswered) -> None:
        """Count a request without an answer.

        Raises:
            EmbeddingUnavailable: if there were too many.
        """
        self._unanswered += 1
        if self._unanswered >= _MOST_UNANSWERED:
            problem = f"{exc}; this happened {self._unanswered} times in one call"
            raise EmbeddingUnavailable(problem, hint=exc.hint) from exc


class _RefusedTexts:
    """The texts, by model, that are not sent again for some time, and the reasons."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, str], tuple[float, str]] = {}

    def get(self, model: str, text: str) -> TextsRefused | None:
        """Return the error for a text; ``None`` if it can be sent."""
        until, reason = self._texts.get((model, text), (0.0, ""))
        return TextsRefused(reason, unanswered=True) if until > time.monotonic() else None

    def add(self, model: str, text: str, exc: Unanswered) -> TextsRefused:
        """Add a text that stayed without an answer."""
        while len(self._texts) >= _MOST_REMEMBERED:
            del self._texts[next(iter(self._texts))]
        reason = f"{exc}, each time that it was asked to embed this text, and no other one"
        self._texts[model, text] = time.monotonic() + _REMEMBERED, reason
        return TextsRefused(reason, unanswered=True)


def _other_size(row: Vector, usual: int) -> TextsRefused:
    return TextsRefused(
        f"the embedder's vectors differ in dimensions: {len(row)} for a text, {usual} for others"
    )


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
