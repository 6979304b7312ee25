"""Two ways to an embedding server: through the broker, or straight over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
from pydantic import SecretStr

from ability_search.errors import EmbeddingUnavailable, TextsRefused
from ability_search.remote.embedder import Transport
from ability_search.remote.refusals import (
    error_text,
    refusal_of_status,
    refusal_of_text,
    retry_after,
)
from ability_search.remote.store import Invoke
from kadi.errors import FrameTooLarge, KadiError, RemoteError

_NOT_UNICODE = "a text is not Unicode: it holds half of a surrogate pair"


def over_broker(invoke: Invoke, *, api_key: SecretStr | None) -> Transport:
    """Embeddings by the tool ``create-embedding`` of a model manager on the network."""

    async def transport(request: Mapping[str, Any], *, timeout: float) -> Any:
        key = {"api_key": api_key.get_secret_value()} if api_key else {}
        try:
            answer = await invoke("create-embedding", {**request, **key}, timeout=timeout)
        except FrameTooLarge as exc:
            raise TextsRefused(f"the texts do not fit into a message: {exc}") from exc
        except UnicodeEncodeError as exc:
            raise TextsRefused(_NOT_UNICODE) from exc
        except RemoteError as exc:
            raise _told_failure(str(exc), request["model"]) from exc
        except KadiError as exc:
            raise EmbeddingUnavailable(
                f"create-embedding did not answer: {type(exc).__name__}"
            ) from exc
        if isinstance(answer, Mapping) and "data" not in answer and answer.get("error"):
            raise _told_failure(error_text(answer["error"]), request["model"])
        return answer

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
        except UnicodeEncodeError as exc:
            raise TextsRefused(_NOT_UNICODE) from exc
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


def _told_failure(text: str, model: str) -> EmbeddingUnavailable:
    """What a model manager tells in words only."""
    refusal = refusal_of_text(text)
    if refusal == "model":
        return _not_served(model)
    if refusal == "texts":
        return TextsRefused("the model manager refused the texts: too long, or too many")
    if refusal == "key":
        return _misconfigured("the model manager refused the key")
    return EmbeddingUnavailable("the model manager could not embed")


def _http_failure(answer: httpx.Response, model: str) -> EmbeddingUnavailable:
    status = answer.status_code
    refusal = refusal_of_status(status, answer.text)
    if refusal == "model":
        return _not_served(model)
    if refusal == "texts":
        return TextsRefused(f"the embedding API refused the texts with {status}")
    if refusal == "key":
        return _misconfigured(f"the embedding API answered {status}")
    return EmbeddingUnavailable(
        f"the embedding API answered {status}", retry_after=retry_after(answer.headers)
    )


def _misconfigured(problem: str) -> EmbeddingUnavailable:
    error = EmbeddingUnavailable(problem, hint="Check SEARCH_API_KEY and SEARCH_EMBEDDING_API_URL.")
    error.retryable = False
    return error


def _not_served(model: str) -> EmbeddingUnavailable:
    error = EmbeddingUnavailable(
        f"model {model!r} is not served",
        hint="Name a model that the model manager serves, or have it serve this one.",
    )
    error.retryable = False
    return error
