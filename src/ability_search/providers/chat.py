"""The chat port over servers with OpenAI-compatible chat completions."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, suppress
from typing import Any

from ability_search.errors import ChatUnavailable
from ability_search.ports import Chat
from ability_search.providers.model_calls import ModelClient
from ability_search.providers.transports import STREAM, Service

_MOST_TOKENS = 256
_MOST_AT_ONCE = 4
_QUICK, _SLOW = 1 / 8, 1 / 4
"""Shares of the timeout within which an answer is quick, and after which it is slow."""
_THOUGHT = ("<think>", "</think>")
"""Marks of what some models write before their answer."""
_MARK = re.compile(r"^\s*(?:[-*+\u2022\u2013\u2014]+|\(?\d{1,2}[.):])\s+")
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_WORD = re.compile(r"\w")
_COPIED = 4
"""Words from which a line that stands in the instruction too is a copy of it."""
_QUOTES = " \t'\"`*_[]\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb"
_LARGER = (
    "If the request is longer than the context of the model, use one with a larger context; for"
    " answers, lower answer_passage_tokens."
)
_FASTER = (
    "Use a faster model, or raise the timeout: answer_timeout, expansion_timeout, kinds_timeout."
)
_HINTS = {
    "model": "Choose a model that the server offers, or add this model to the server.",
    "texts": _LARGER,
    "key": "Check SEARCH_EXPANSION_API_KEY and SEARCH_EXPANSION_API_URL.",
    "late": _FASTER,
}


class _Cut(ChatUnavailable):
    """An answer ended at its maximum number of tokens."""

    retryable = False


CHAT = Service(
    tool="chat-completion",
    agent_setting="SEARCH_EXPANSION_AGENT",
    route="chat/completions",
    answered="choices",
    optional=("max_tokens", "temperature"),
    who="the language model",
    api="the chat API",
    verb="answer",
    unavailable=ChatUnavailable,
    hints=_HINTS,
)


class RemoteChat(ModelClient):
    """A :class:`~ability_search.ports.Chat` over a transport."""

    service = CHAT

    async def complete(
        self, system: str, user: str, *, model: str | None, timeout: float, enough: int
    ) -> str:
        """Return the model's completion with temperature 0 and at most 256 tokens.

        What a model writes between ``<think>`` and ``</think>`` first is left out. A server that
        streams is stopped after ``enough`` characters, because small models do not end.
        """
        answer = ""
        parts = self.stream(system, user, model=model, timeout=timeout, tokens=_MOST_TOKENS)
        with suppress(_Cut):
            async with aclosing(parts):
                async for part in parts:
                    answer += part
                    thinks = answer.lstrip().startswith(_THOUGHT[0])
                    said = answer.partition(_THOUGHT[1])[2] if thinks else answer
                    if len(said) >= enough:
                        break
        # The first mark may be in the prompt of the server.
        _, closed, said = answer.rpartition(_THOUGHT[1])
        if not closed and said.lstrip().startswith(_THOUGHT[0]) or closed and not said.strip():
            raise _unusable(f"the language model only thought, in {_MOST_TOKENS} tokens")
        return said

    async def stream(
        self, system: str, user: str, *, model: str | None, timeout: float, tokens: int
    ) -> AsyncGenerator[str]:
        """Yield the parts of the model's answer with temperature 0.

        At the end of an answer that is cut after ``tokens`` an error is raised.

        A server that does not stream, such as the tool of a model manager, answers in one part.
        """
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        request = {"messages": messages, "max_tokens": tokens, "temperature": 0, STREAM: True}
        ends = time.monotonic() + timeout
        answer = await self._ask(request, model=model, timeout=timeout)
        if not isinstance(answer, AsyncGenerator):
            yield read_completion(answer)
            _check_whole(answer, tokens)
            return
        begun, empty = False, True
        async with aclosing(answer):
            while True:
                try:
                    async with asyncio.timeout(ends - time.monotonic()):
                        chunk = await anext(answer, None)
                except TimeoutError as exc:
                    late = f"{CHAT.who} took longer than {timeout:.3g} s"
                    raise ChatUnavailable(late, hint=_FASTER) from exc
                except ChatUnavailable as exc:
                    if begun:
                        raise
                    # llama.cpp's server answers so to what is longer than the context.
                    raise ChatUnavailable(f"{exc} before its first word", hint=_LARGER) from exc
                if chunk is None:
                    break
                begun = True
                if part := read_part(chunk):
                    empty = False
                    yield part
                _check_whole(chunk, tokens)
        if empty:
            raise _unusable("the language model returned an empty answer")


class PacedChat:
    """A language model for many requests, of which as many are sent at once as it can answer.

    The first is sent alone. One that takes less than an eighth of its timeout doubles the number,
    up to 4; one that takes more than a quarter halves it. A server that works on one request at a
    time would let the others wait until they time out. Waiting for a turn takes no time of a
    request.

    Args:
        chat: The language model.
    """

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._most = 1
        self._sent = 0
        self._changed = asyncio.Event()

    async def complete(
        self, system: str, user: str, *, model: str | None, timeout: float, enough: int
    ) -> str:
        """Return the model's completion; ``timeout`` begins when the request is sent."""
        while self._sent >= self._most:
            await self._changed.wait()
        self._sent += 1
        started = time.monotonic()
        try:
            return await self._chat.complete(
                system, user, model=model, timeout=timeout, enough=enough
            )
        finally:
            share = (time.monotonic() - started) / timeout
            if share < _QUICK:
                self._most = min(_MOST_AT_ONCE, 2 * self._most)
            elif share > _SLOW:
                self._most = max(1, self._most // 2)
            self._sent -= 1
            self._changed.set()
            self._changed = asyncio.Event()


def read_part(chunk: Any) -> str:
    """Return the text in ``{choices: [{delta: {content}}]}``; empty without, as in the last chunk.

    Raises:
        ChatUnavailable: if the chunk is an error.
    """
    try:
        if chunk.get("error"):
            raise ChatUnavailable("the language model broke off its answer with an error")
        content = chunk["choices"][0]["delta"].get("content") if chunk.get("choices") else ""
    except (KeyError, IndexError, TypeError, AttributeError) as exc:
        raise _unusable("the language model's answer is not in the OpenAI shape") from exc
    return content if isinstance(content, str) else ""


def read_completion(answer: Any) -> str:
    """Return the text of the first choice in ``{choices: [{message: {content}}]}``.

    Raises:
        ChatUnavailable: if there is no text.
    """
    try:
        content = answer["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError) as exc:
        raise _unusable("the language model's answer is not in the OpenAI shape") from exc
    if not isinstance(content, str) or not content.strip():
        raise _unusable("the language model returned an empty answer")
    return content


def answer_lines(answer: str, instruction: str) -> Iterator[str]:
    """Yield the distinct lines of an answer that have a word, without list marks and quotes.

    Skipped are code fences, lines that end in a colon, which introduce the others, and lines of
    several words that small models copy from the ``instruction``.
    """
    given = instruction.casefold()
    seen = set()
    for line in answer.splitlines():
        text = _MARK.sub("", line).strip(_QUOTES)
        if _FENCE.match(line) or text.endswith(":") or not _WORD.search(text):
            continue
        folded = text.casefold()
        if folded in seen or (len(folded.split()) >= _COPIED and folded in given):
            continue
        seen.add(folded)
        yield text


def _check_whole(answer: Any, tokens: int) -> None:
    """Check that an answer, or the chunk of one, does not say that it was cut."""
    choice = answer["choices"][0] if answer.get("choices") else {}
    if choice.get("finish_reason") == "length":
        raise _Cut(f"the answer was cut after {tokens} tokens", hint="Raise answer_tokens.")


def _unusable(problem: str) -> ChatUnavailable:
    error = ChatUnavailable(problem, hint="Use another model; this one returns unusable answers.")
    error.retryable = False
    return error
