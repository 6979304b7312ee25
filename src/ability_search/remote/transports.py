"""Two ways to an embedding server: through the broker, or straight over HTTP."""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping
from typing import Any

import httpx
from pydantic import SecretStr

from ability_search.errors import EmbeddingUnavailable, TextsRefused
from ability_search.remote.embedder import Transport
from ability_search.remote.store import Invoke
from kadi.errors import FrameTooLarge, KadiError, RemoteError

_UNKNOWN_MODEL = re.compile(r"model.*(not served|not found|unknown|does not exist)", re.I)
_BUSY = frozenset({408, 425, 429})


def over_broker(invoke: Invoke, *, api_key: SecretStr | None) -> Transport:
    """Embeddings by the tool ``create-embedding`` of a model manager on the network."""

    async def transport(request: Mapping[str, Any], *, timeout: float) -> Any:
        key = {"api_key": api_key.get_secret_value()} if api_key else {}
        try:
            return await invoke("create-embedding", {**request, **key}, timeout=timeout)
        except FrameTooLarge as exc:
            raise TextsRefused(f"the texts do not fit into a message: {exc}") from exc
        except RemoteError as exc:
            raise _remote_failure(str(exc), request["model"]) from exc
        except KadiError as exc:
            raise EmbeddingUnavailable(
                f"create-embedding did not answer: {type(exc).__name__}"
            ) from exc

    return transport


def over_http(client: httpx.AsyncClient, url: str, *, api_key: SecretStr | None) -> Transport:
    """Embeddings by ``POST /v1/embeddings`` of an OpenAI-compatible server.

    Args:
        client: Keeps the connections; the caller closes it.
        url: Address of the server, with or without ``/v1/embeddings``.
        api_key: Sent as a bearer token.
    """
    address = embeddings_address(url)
    headers = {"Authorization": f"Bearer {api_key.get_secret_value()}"} if api_key else {}

    async def transport(request: Mapping[str, Any], *, timeout: float) -> Any:
        try:
            answer = await client.post(
                address, json=dict(request), headers=headers, timeout=timeout
            )
        except httpx.HTTPError as exc:
            raise EmbeddingUnavailable(
                f"the embedding API did not answer: {type(exc).__name__}"
            ) from exc
        if answer.is_success:
            try:
                return answer.json()
            except ValueError as exc:
                raise EmbeddingUnavailable("the embedding API did not answer JSON") from exc
        raise _http_failure(answer, request["model"])

    return transport


def embeddings_address(url: str) -> str:
    """The address of the embeddings route below a base URL."""
    base = url.rstrip("/")
    return base if base.endswith("/v1/embeddings") else f"{base}/v1/embeddings"


def _remote_failure(text: str, model: str) -> EmbeddingUnavailable:
    if _UNKNOWN_MODEL.search(text):
        return _not_served(model)
    return EmbeddingUnavailable("the model manager could not embed")


def _http_failure(answer: httpx.Response, model: str) -> EmbeddingUnavailable:
    status = answer.status_code
    if status in _BUSY or status >= 500:
        return EmbeddingUnavailable(
            f"the embedding API answered {status}", retry_after=retry_after(answer.headers)
        )
    if status == 404 or _UNKNOWN_MODEL.search(answer.text[:2000]):
        return _not_served(model)
    if status in (400, 413, 422):
        return TextsRefused(f"the embedding API refused the texts with {status}")
    error = EmbeddingUnavailable(
        f"the embedding API answered {status}",
        hint="Check SEARCH_API_KEY and SEARCH_EMBEDDING_API_URL.",
    )
    error.retryable = False
    return error


def _not_served(model: str) -> EmbeddingUnavailable:
    error = EmbeddingUnavailable(
        f"model {model!r} is not served",
        hint="Name a model that the model manager serves, or have it serve this one.",
    )
    error.retryable = False
    return error


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a Retry-After header asks for, whether as a number or as a date (RFC 9110)."""
    value = headers.get("retry-after", "").strip()
    if value.isdigit():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
