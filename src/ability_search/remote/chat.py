"""The chat port over the tool ``chat-completion`` of a model manager on the network."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from pydantic import SecretStr

from ability_search.errors import ChatUnavailable
from ability_search.remote.breaker import CircuitBreaker
from ability_search.remote.refusals import Refusal, error_text, refusal_of_text, refused
from ability_search.remote.store import Invoke
from kadi.errors import FrameTooLarge, KadiError, RemoteError

log = logging.getLogger(__name__)

_MOST_TOKENS = 256
_HINTS = {
    "model": "Name a model that is served there, or have it serve this one.",
    "texts": "Ask a shorter question.",
    "key": "Check SEARCH_EXPANSION_API_KEY.",
}


class BrokerChat:
    """A :class:`~ability_search.ports.Chat` behind a broker.

    A query waits for it, so a request is made once; a model that keeps failing is left alone.

    Args:
        invoke: Calls a tool on the network.
        model: The default; ``None`` leaves the choice to the model manager.
        api_key: Of the model manager.
        timeout: Longest wait for a request, in seconds.
        breaker_failures: Failures in a row after which requests fail at once.
        breaker_reset: Seconds until a request is let through again.
    """

    def __init__(
        self,
        invoke: Invoke,
        *,
        model: str | None,
        api_key: SecretStr | None,
        timeout: float,
        breaker_failures: int,
        breaker_reset: float,
    ) -> None:
        self._invoke = invoke
        self._model = model
        self._api_key = api_key
        self._timeout = timeout
        self.breaker = CircuitBreaker(limit=breaker_failures, reset=breaker_reset)

    async def complete(self, system: str, user: str, *, model: str | None, timeout: float) -> str:
        """Ask the model, which is to choose its likeliest words, at most 256 tokens."""
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        request: dict[str, Any] = {
            "messages": messages,
            "max_tokens": _MOST_TOKENS,
            "temperature": 0,
        }
        if chosen := model or self._model:
            request["model"] = chosen
        started = time.perf_counter()
        with self.breaker.watching(ChatUnavailable, "the language model"):
            answer = await self._ask(request, min(timeout, self._timeout))
        log.debug("chat-completion took %.1f ms", (time.perf_counter() - started) * 1e3)
        return read_completion(answer)

    async def _ask(self, request: Mapping[str, Any], timeout: float) -> Any:
        key = {"api_key": self._api_key.get_secret_value()} if self._api_key else {}
        try:
            async with asyncio.timeout(timeout):
                answer = await self._invoke("chat-completion", {**request, **key}, timeout=timeout)
        except TimeoutError as exc:
            raise ChatUnavailable(
                f"the language model did not answer within {timeout:.3g} s"
            ) from exc
        except (FrameTooLarge, UnicodeEncodeError) as exc:
            raise _failure("texts", request) from exc
        except RemoteError as exc:
            raise _failure(refusal_of_text(str(exc)), request) from exc
        except KadiError as exc:
            raise ChatUnavailable(f"chat-completion did not answer: {type(exc).__name__}") from exc
        if isinstance(answer, Mapping) and "choices" not in answer and answer.get("error"):
            raise _failure(refusal_of_text(error_text(answer["error"])), request)
        return answer


def read_completion(answer: Any) -> str:
    """Read ``{choices: [{message: {content}}]}``: the words of the first choice.

    Raises:
        ChatUnavailable: if there are none.
    """
    try:
        content = answer["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError) as exc:
        raise _unusable("the language model's answer is not in the OpenAI shape") from exc
    if not isinstance(content, str) or not content.strip():
        raise _unusable("the language model answered nothing")
    return content


def _unusable(problem: str) -> ChatUnavailable:
    error = ChatUnavailable(problem, hint="Use another model; what this one answers is of no use.")
    error.retryable = False
    return error


def _failure(refusal: Refusal, request: Mapping[str, Any]) -> ChatUnavailable:
    who = "the network's model manager"
    return refused(ChatUnavailable, refusal, request, who=who, what="answer", hints=_HINTS)
