"""Two ways to a rerank server: through the broker, or straight over HTTP."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import httpx
from pydantic import SecretStr

from ability_search.errors import RerankerUnavailable
from ability_search.remote.refusals import (
    Refusal,
    error_text,
    refusal_of_status,
    refusal_of_text,
    refused,
    retry_after,
)
from ability_search.remote.reranker import RerankTransport
from ability_search.remote.store import Invoke
from kadi.errors import FrameTooLarge, KadiError, RemoteError

_NETWORK = "the network's model manager"
_VERSION = re.compile(r"/v\d+$")
_HINTS = {
    "model": "Name a reranker that is served there, or have it serve this one.",
    "texts": "Have fewer hits read, or index with shorter chunks.",
    "key": "Check SEARCH_RERANKER_API_KEY and SEARCH_RERANKER_API_URL.",
}


def rerank_over_broker(invoke: Invoke, *, api_key: SecretStr | None) -> RerankTransport:
    """Scores by the tool ``rerank`` of a model manager on the network."""

    async def transport(request: Mapping[str, Any], *, timeout: float) -> Any:
        key = {"api_key": api_key.get_secret_value()} if api_key else {}
        try:
            answer = await invoke("rerank", {**request, **key}, timeout=timeout)
        except (FrameTooLarge, UnicodeEncodeError) as exc:
            raise _failure("texts", _NETWORK, request) from exc
        except RemoteError as exc:
            raise _failure(refusal_of_text(str(exc)), _NETWORK, request) from exc
        except KadiError as exc:
            raise RerankerUnavailable(f"rerank did not answer: {type(exc).__name__}") from exc
        if isinstance(answer, Mapping) and "results" not in answer and answer.get("error"):
            raise _failure(refusal_of_text(error_text(answer["error"])), _NETWORK, request)
        return answer

    return transport


def rerank_over_http(
    client: httpx.AsyncClient, url: str, *, api_key: SecretStr | None
) -> RerankTransport:
    """Scores by ``POST /v1/rerank`` of a server like Cohere's, Jina's, vLLM or llama.cpp.

    Args:
        client: Keeps the connections; the caller closes it.
        url: Address of the server, as :func:`rerank_address` takes it.
        api_key: Sent as a bearer token.
    """
    address = rerank_address(url)
    headers = {"Authorization": f"Bearer {api_key.get_secret_value()}"} if api_key else {}

    async def transport(request: Mapping[str, Any], *, timeout: float) -> Any:
        try:
            answer = await client.post(
                address, json=dict(request), headers=headers, timeout=timeout
            )
        except UnicodeEncodeError as exc:
            raise _failure("texts", "the rerank API", request) from exc
        except httpx.HTTPError as exc:
            raise RerankerUnavailable(
                f"the rerank API did not answer: {type(exc).__name__}"
            ) from exc
        if answer.is_success:
            try:
                return answer.json()
            except ValueError as exc:
                raise RerankerUnavailable("the rerank API did not answer JSON") from exc
        status = answer.status_code
        who = f"the rerank API ({status})"
        error = _failure(refusal_of_status(status, answer.text), who, request)
        error.retry_after = retry_after(answer.headers)
        raise error

    return transport


def rerank_address(url: str) -> str:
    """The address of the rerank route below a base URL, which may end in a version: ``/v2``."""
    base = url.rstrip("/")
    if base.endswith("/rerank"):
        return base
    return f"{base}/rerank" if _VERSION.search(base) else f"{base}/v1/rerank"


def _failure(refusal: Refusal, who: str, request: Mapping[str, Any]) -> RerankerUnavailable:
    return refused(RerankerUnavailable, refusal, request, who=who, what="rerank", hints=_HINTS)
