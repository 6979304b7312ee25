"""Services of model servers, and the transport to them through the broker."""

from __future__ import annotations

import asyncio
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import SecretStr

from ability_search import unanswered
from ability_search.config.trusted_agent import TrustedAgent
from ability_search.errors import SearchError
from ability_search.ports import Agents, Invoke
from ability_search.providers.model_agents import ABSENT_SECONDS, NoAgent, Receiver
from ability_search.providers.provider_errors import (
    TEMPORARY,
    WRONG_ADDRESS,
    Objection,
    Refusal,
    message_in,
    no_answer,
    refusal_of_text,
    words_of,
)
from kadi_client.errors import (
    FrameTooLarge,
    KadiError,
    NoProvider,
    ProviderLost,
    RemoteError,
    ToolError,
)

STREAM: Final = "stream"
"""Field of a request for an answer in chunks."""
_AGENTS = 16
"""Maximum number of agents that are asked for a model."""
_UNLISTED = 3
"""Calls for a model that an agent does not have, where the broker does not list its agents."""
_RESTART_SECONDS = 10.0
"""Seconds that a request waits for an agent that has answered before and may be restarting."""
_CHECK_SECONDS = 1.0
"""Seconds to list the agents after a request was not answered in time."""
_SHORTEST = 0.001
"""Minimum seconds of a call."""


class Transport(ABC):
    """Sends requests to a model server.

    If a request has ``stream``, the answer may be an async generator of its chunks.
    """

    @abstractmethod
    async def __call__(self, request: Mapping[str, Any], *, timeout: float) -> Any:
        """Send a request and return the server's answer.

        Raises:
            SearchError: of the class given by the :class:`Service`. ``retryable`` is false on the
                instance if a retry cannot help; ``retry_after`` is set if the server sent it.
        """

    async def check_offered(  # noqa: B027 - a server with an address is there
        self, request: Mapping[str, Any]
    ) -> None:
        """Check, after a request was not answered in time, that there is a server to answer it.

        Raises:
            SearchError: of the service, caused by a :class:`NoProvider`, if there is none.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service of model servers, offered by tools on the network and by HTTP APIs.

    Attributes:
        tool: Name of the tool of a model manager on the network.
        agent_setting: Name of the setting of the agent that requests go to.
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
    agent_setting: str
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
        if refusal == "absent":
            error.retry_after = ABSENT_SECONDS
        error.__cause__ = objection.cause
        return error

    def kind(self, reason: str) -> type[SearchError]:
        """Return the class of an error."""
        return self.kinds.get(reason, self.unavailable)

    def hint(self, reason: str) -> str | None:
        """Return the hint of an error; ``None`` for that of its class."""
        return self.hints.get(reason, WRONG_ADDRESS if reason == "address" else None)


@dataclass(slots=True, eq=False)
class OverBroker(Transport):
    """A transport that calls the tool of a model manager on the network.

    The broker chooses the agent of a call. If that agent does not have the model, the call goes to
    the others, and further calls for the model go to the agent that has it.

    With an API key, or if the settings name the agent, all calls go to one agent, see
    :class:`.Receiver`. Agents are listed only to choose, and when the chosen agent has left.

    Args:
        service: The service.
        invoke: Calls a tool.
        api_key: Sent with each request.
        agents: Lists the agents. Without it, the key goes to whichever agent the broker chooses.
        trusted: The agent that the settings name.
    """

    service: Service
    invoke: Invoke
    api_key: SecretStr | None
    agents: Agents | None = None
    trusted: TrustedAgent | None = None
    _receiver: Receiver | None = field(init=False, default=None)
    _answered: bool = field(init=False, default=False)
    """Whether there has been an answer."""
    _serving: dict[Any, str] = field(init=False, default_factory=dict)
    """An agent that has a model, by models that another agent does not have."""

    def __post_init__(self) -> None:
        if self.agents is not None and (self.api_key is not None or self.trusted is not None):
            self._receiver = Receiver(self.service, self.agents, self.trusted)

    async def __call__(self, request: Mapping[str, Any], *, timeout: float) -> Any:
        """Send a request, see :class:`Transport`."""
        ends = time.monotonic() + timeout
        try:
            answer = await self._awaited(request, ends)
        except (FrameTooLarge, UnicodeEncodeError) as exc:
            raise self.service.failure(Objection("texts", said=unsent(exc)), request) from exc
        except NoAgent as exc:
            raise self._unavailable(exc) from exc
        except KadiError as exc:
            raise self.service.unavailable(no_answer(self.service.tool, exc, request)) from exc
        if isinstance(answer, Objection):
            raise self.service.failure(answer, request)
        self._answered = True
        return answer

    async def check_offered(self, request: Mapping[str, Any]) -> None:
        """Check after a timeout that an agent could have answered, see :class:`Transport`.

        A broker may hold a call until its agent returns. That says nothing about the model, and
        another agent may have come meanwhile.
        """
        if self.agents is None:
            return
        service = self.service
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                if self._receiver is not None:
                    before = self._receiver.agent
                    self._receiver.lost(before)
                    present = await self._receiver.choose() == before
                else:
                    present = bool(await self.agents(service.tool))
        except NoAgent as exc:
            raise self._unavailable(exc) from exc
        except (KadiError, TimeoutError):
            return
        if not present:
            said = f"no provider for tool {service.tool!r}"
            absent = Objection("absent", said=said, cause=NoProvider(said))
            raise service.failure(absent, request)

    def _unavailable(self, exc: NoAgent) -> SearchError:
        """Return the error for a request for which there is no agent."""
        return self.service.unavailable(str(exc), hint=exc.hint, retry_after=exc.retry_after)

    async def _awaited(self, request: Mapping[str, Any], ends: float) -> Any:
        """Return the answer to a request, which may be an :class:`Objection`.

        If agents have answered before and none is there, one of them may be restarting: the request
        waits for it, as it would in a broker that holds calls, but not as long as a language model
        may take to answer: an agent that is gone for good must not hold its callers up.
        """
        give_up = min(ends, time.monotonic() + _RESTART_SECONDS)
        while True:
            patient = self._answered and time.monotonic() + ABSENT_SECONDS < give_up
            try:
                answer = await self._answer(request, ends)
                if _is(answer, "absent"):
                    answer = await self._checked(answer, self._target(request))
                if not (patient and _is(answer, "absent")):
                    return answer
            except NoAgent as exc:
                if not (patient and exc.away):
                    raise
            await asyncio.sleep(ABSENT_SECONDS)

    async def _answer(self, request: Mapping[str, Any], ends: float) -> Any:
        """Return the answer to a request, which may be an :class:`Objection`."""
        if self._receiver is not None:
            return await self._answer_of_receiver(self._receiver, request, ends)
        agent = self._target(request)
        answer = await self._ask(request, agent, ends)
        if isinstance(answer, Objection) and self.api_key is None:
            answer = await self._ask_others(request, agent, answer, ends)
        return answer

    def _target(self, request: Mapping[str, Any]) -> str | None:
        """Return the agent that a request goes to at first; ``None`` for any."""
        if self._receiver is not None:
            return self._receiver.agent
        return self._serving.get(request.get("model"))

    async def _answer_of_receiver(
        self, receiver: Receiver, request: Mapping[str, Any], ends: float
    ) -> Any:
        """Return the answer of the agent that all requests go to."""
        agent = await receiver.choose()
        answer = await self._ask(request, agent, ends)
        if not _is(answer, "absent", "lost"):
            return answer
        receiver.lost(agent)
        if _is(answer, "lost"):
            return answer
        # The agent had left before the call, so nothing ran; another one may be there.
        successor = await receiver.choose()
        return answer if successor == agent else await self._ask(request, successor, ends)

    async def _ask(self, request: Mapping[str, Any], agent: str | None, ends: float) -> Any:
        """Return the answer of an agent, which may be an :class:`Objection`."""
        sent = {name: value for name, value in request.items() if name != STREAM}
        # Where agents are listed, an unknown one gets no key.
        if self.api_key and (agent is not None or self.agents is None):
            sent["api_key"] = self.api_key.get_secret_value()
        left = max(_SHORTEST, ends - time.monotonic())
        try:
            with unanswered.noting(f"{self.service.who} has not answered {self.service.tool}"):
                answer = await self.invoke(
                    self.service.tool, sent, timeout=left, target_agent=agent
                )
        except ToolError as exc:
            text = message_in(exc.answer) or str(exc)
        except (NoProvider, ProviderLost) as exc:
            reason: Refusal = "absent" if isinstance(exc, NoProvider) else "lost"
            return Objection(reason, said=words_of(str(exc), request, self.api_key), cause=exc)
        except RemoteError as exc:
            text = str(exc)
        else:
            answer = _unwrapped(answer)
            text = failure_in(self.service, answer)
            if not text:
                return answer
        return Objection(refusal_of_text(text), said=words_of(text, request, self.api_key))

    async def _ask_others(
        self, request: Mapping[str, Any], asked: str | None, objection: Objection, ends: float
    ) -> Any:
        """Return the answer of another agent that has the model, if any, and remember it.

        Otherwise return a temporary objection if there was one, else ``objection``. Where agents
        are not listed, the broker chooses again.
        """
        remembered = asked is not None and objection.refusal in ("absent", "passing", "lost")
        if objection.refusal != "model" and not remembered:
            return objection
        # The other agents that offer the tool; None for a choice of the broker.
        others: Sequence[str | None] = [None] * _UNLISTED
        if self.agents is not None:
            with suppress(KadiError):
                offers = await self.agents(self.service.tool)
                listed = {agent.id for agent in offers if agent.id}
                if listed or not offers:
                    others = sorted(listed - {asked})[:_AGENTS]
        for agent in others:
            answer = await self._ask(request, agent, ends)
            if _is(answer, "passing", "lost"):
                objection = answer
            elif not _is(answer, "model", "absent"):
                if agent is not None:
                    self._serving[request.get("model")] = agent
                return answer
        return objection

    async def _checked(self, objection: Objection, agent: str | None) -> Objection:
        """Return the objection that an agent is absent, or what it is if the agent is there.

        An agent may answer in these words, for example if a server behind it is away.
        """
        if self.agents is None:
            return objection
        offers = {offer.id for offer in await self.agents(self.service.tool)}
        present = bool(offers) if agent is None else agent in offers
        return replace(objection, refusal="passing", cause=None) if present else objection


def _is(answer: Any, *refusals: Refusal) -> bool:
    """Return whether an answer is an objection for one of some reasons."""
    return isinstance(answer, Objection) and answer.refusal in refusals


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
