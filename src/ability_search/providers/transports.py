"""Services of model servers, and the transport to them through the broker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from pydantic import SecretStr

from ability_search.errors import SearchError
from ability_search.ports import Invoke, Providers
from ability_search.providers.provider_errors import (
    TEMPORARY,
    WRONG_ADDRESS,
    Objection,
    message_in,
    no_answer,
    refusal_of_text,
    words_of,
)
from kadi_client.errors import FrameTooLarge, KadiError, RemoteError, ToolError

STREAM: Final = "stream"
"""Field of a request for an answer in chunks."""
_AGENTS = 16
"""Maximum number of agents that are asked for a model."""
_UNLISTED = 3
"""Calls for a model that an agent does not have, where the broker does not list its agents."""


class Transport(Protocol):
    """A function that sends one request to a model server.

    If the request has ``stream``, the answer may be an async generator of its chunks.
    """

    async def __call__(self, request: Mapping[str, Any], *, timeout: float) -> Any:
        """Send a request and return the server's answer.

        Raises:
            SearchError: of the class given by the :class:`Service`. ``retryable`` is false on the
                instance if a retry cannot help; ``retry_after`` is set if the server sent it.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service of model servers, offered by tools on the network and by HTTP APIs.

    Attributes:
        tool: Name of the tool of a model manager on the network.
        route: Path of the API after the version.
        answered: A field present in every answer.
        optional: Fields of a request that are left out for a server that refuses them.
        who: Name of the server in errors.
        api: Name of the API in errors.
        verb: What it is asked to do, as in "could not rerank".
        unserved: Message if it refuses the model, over ``who`` and ``model``.
        unavailable: Class of the errors.
        kinds: Subclasses of it by reason; that of ``held`` is an open circuit breaker.
        hints: Hints by reason; that of ``late`` is no answer in time.
    """

    tool: str
    route: str
    answered: str
    optional: tuple[str, ...] = ()
    who: str
    api: str
    verb: str
    unserved: str = "{who} refused the model {model!r}"
    unavailable: type[SearchError]
    kinds: Mapping[str, type[SearchError]] = field(default_factory=dict)
    hints: Mapping[str, str]

    def failure(self, objection: Objection, request: Mapping[str, Any]) -> SearchError:
        """Return the error for a request that was not fulfilled.

        It is retryable only if the reason is temporary; it names the model if that is the reason.
        """
        refusal, who = objection.refusal, objection.who
        if refusal in TEMPORARY:
            problem = f"{who} could not {self.verb}"
        elif refusal == "model" and "model" in request:
            problem = self.unserved.format(who=who, model=request["model"])
        else:
            problem = f"{who} refused the {refusal}"
        error = self.kind(refusal)(objection.quoted(problem), hint=self.hint(refusal))
        error.retryable = refusal in TEMPORARY
        return error

    def kind(self, reason: str) -> type[SearchError]:
        """Return the class of an error."""
        return self.kinds.get(reason, self.unavailable)

    def hint(self, reason: str) -> str | None:
        """Return the hint of an error; ``None`` for that of its class."""
        return self.hints.get(reason, WRONG_ADDRESS if reason == "address" else None)


@dataclass(slots=True, eq=False)
class OverBroker:
    """A transport that calls the tool of a model manager on the network.

    The broker chooses the agent of a call. If that agent does not have the model, the call goes to
    the others, and further calls for the model go to the agent that has it.

    Args:
        service: The service.
        invoke: Calls a tool.
        api_key: Sent with each request, and only to the agent that offered the tool at first; if
            several did, to none.
        providers: Lists the agents. Without it, the key goes to whichever agent the broker chooses.
    """

    service: Service
    invoke: Invoke
    api_key: SecretStr | None
    providers: Providers | None = None
    _trusted: str | None = None
    """The agent that receives the key."""
    _serving: dict[Any, str] = field(default_factory=dict)
    """An agent that has a model, by models that another agent does not have."""

    async def __call__(self, request: Mapping[str, Any], *, timeout: float) -> Any:
        """Send a request, see :class:`Transport`."""
        try:
            agent = await self._receiver() or self._serving.get(request.get("model"))
            answer = await self._ask(request, agent, timeout)
            if isinstance(answer, Objection) and self.api_key is None:
                answer = await self._ask_others(request, agent, answer, timeout)
        except (FrameTooLarge, UnicodeEncodeError) as exc:
            raise self.service.failure(Objection("texts", said=unsent(exc)), request) from exc
        except KadiError as exc:
            raise self.service.unavailable(no_answer(self.service.tool, exc, request)) from exc
        if isinstance(answer, Objection):
            raise self.service.failure(answer, request)
        return answer

    async def _receiver(self) -> str | None:
        """Return the agent that receives the key; ``None`` for any."""
        if self.api_key is None or self.providers is None:
            return None
        if self._trusted is None:
            tool = self.service.tool
            agents = sorted(await self.providers(tool))
            if len(agents) > 1:
                raise self.service.unavailable(
                    f"several agents offer {tool} ({', '.join(agents)}), and an API key is"
                    " sent to one only: keep the others out of the networks of this worker"
                )
            self._trusted = next(iter(agents), None)
        return self._trusted

    async def _ask(self, request: Mapping[str, Any], agent: str | None, timeout: float) -> Any:
        """Return the answer of an agent, which may be an :class:`Objection`."""
        sent = {name: value for name, value in request.items() if name != STREAM}
        # Where agents are listed, an unknown one gets no key.
        if self.api_key and (agent is not None or self.providers is None):
            sent["api_key"] = self.api_key.get_secret_value()
        try:
            answer = await self.invoke(self.service.tool, sent, timeout=timeout, target_agent=agent)
        except ToolError as exc:
            text = message_in(exc.answer) or str(exc)
        except RemoteError as exc:
            text = str(exc)
        else:
            answer = _unwrapped(answer)
            text = failure_in(self.service, answer)
            if not text:
                return answer
        return Objection(refusal_of_text(text), said=words_of(text, request, self.api_key))

    async def _ask_others(
        self, request: Mapping[str, Any], asked: str | None, objection: Objection, timeout: float
    ) -> Any:
        """Return the answer of another agent that has the model, if any, and remember it.

        Otherwise return a temporary objection if there was one, else ``objection``. Where agents
        are not listed, the broker chooses again.
        """
        remembered = asked is not None and objection.refusal in ("passing", "lost")
        if objection.refusal != "model" and not remembered:
            return objection
        # The other agents that offer the tool; None for a choice of the broker.
        listed: frozenset[str] = frozenset()
        if self.providers is not None:
            with suppress(KadiError):
                listed = await self.providers(self.service.tool)
        others = sorted(listed - {asked})[:_AGENTS] if listed else [None] * _UNLISTED
        for agent in others:
            answer = await self._ask(request, agent, timeout)
            refusal = answer.refusal if isinstance(answer, Objection) else None
            if refusal in ("passing", "lost"):
                objection = answer
            elif refusal != "model":
                if agent is not None:
                    self._serving[request.get("model")] = agent
                return answer
        return objection


def unsent(exc: FrameTooLarge | UnicodeEncodeError) -> str:
    """Return why texts cannot be sent."""
    if isinstance(exc, FrameTooLarge):
        return f"they do not fit into a message: {exc}"
    return "a text is not valid Unicode: it contains an unpaired surrogate"


def failure_in(service: Service, answer: Any) -> str:
    """Return the message of an answer that is a failure; empty if it may be a result."""
    if not isinstance(answer, Mapping) or service.answered in answer:
        return ""
    failed = bool(answer.get("isError")) or answer.get("success") is False
    return message_in(answer, error=failed)


def _unwrapped(answer: Any) -> Any:
    """Return the result in an answer of an MCP server, which may be JSON in a text."""
    if not isinstance(answer, Mapping) or answer.get("isError"):
        return answer
    if isinstance(answer.get("structuredContent"), Mapping):
        return answer["structuredContent"]
    content = answer.get("content")
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], Mapping):
        text = content[0].get("text")
        try:
            return json.loads(text) if isinstance(text, str) else answer
        except ValueError:
            return {"error": text}
    return answer
