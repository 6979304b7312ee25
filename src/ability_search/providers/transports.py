"""Transports to a model server: through the broker, or over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import httpx
from pydantic import SecretStr

from ability_search.errors import SearchError
from ability_search.ports import Invoke, Providers
from ability_search.providers.provider_errors import (
    TEMPORARY,
    UNREACHED,
    WRONG_ADDRESS,
    Objection,
    Refusal,
    message_in,
    no_answer,
    refusal_of_status,
    refusal_of_text,
    words_of,
)
from kadi_client.addresses import route_address
from kadi_client.backoff import retry_after
from kadi_client.errors import FrameTooLarge, KadiError, RemoteError, ToolError

STREAM: Final = "stream"
"""Field of a request for an answer in chunks."""
_EVENTS = "text/event-stream"
_DONE = "[DONE]"
_AGENTS = 16
"""Maximum number of agents that are asked for a model."""
_UNLISTED = 3
"""Calls for a model that an agent does not have, where the broker does not list its agents."""


_BROKEN_OFF = (
    *(httpx.ReadError, httpx.ReadTimeout, httpx.WriteError, httpx.WriteTimeout),
    *(httpx.RemoteProtocolError, httpx.DecodingError),
)
"""Errors of a connection after the server had accepted it, or of what it sent."""


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
            raise self.service.failure(Objection("texts", said=_unsent(exc)), request) from exc
        except KadiError as exc:
            raise self.service.unavailable(no_answer(self.service.tool, exc)) from exc
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
            text = _failure_in(self.service, answer)
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
        for agent in await self._others(asked):
            answer = await self._ask(request, agent, timeout)
            refusal = answer.refusal if isinstance(answer, Objection) else None
            if refusal in ("passing", "lost"):
                objection = answer
            elif refusal != "model":
                if agent is not None:
                    self._serving[request.get("model")] = agent
                return answer
        return objection

    async def _others(self, asked: str | None) -> Sequence[str | None]:
        """Return the other agents that offer the tool; ``None`` for a choice of the broker."""
        listed: frozenset[str] = frozenset()
        if self.providers is not None:
            with suppress(KadiError):
                listed = await self.providers(self.service.tool)
        return sorted(listed - {asked})[:_AGENTS] if listed else [None] * _UNLISTED


class OverHttp:
    """A transport that posts JSON to an HTTP API.

    Args:
        service: The service.
        client: The HTTP client; the caller closes it.
        url: Base URL of the server, see :func:`route_address`.
        api_key: Sent as a bearer token.
    """

    def __init__(
        self, service: Service, client: httpx.AsyncClient, url: str, *, api_key: SecretStr | None
    ) -> None:
        self._service = service
        self._client = client
        self._address = route_address(url, service.route)
        self._api_key = api_key
        token = f"Bearer {api_key.get_secret_value()}" if api_key else ""
        self._headers = {"Authorization": token} if token else {}
        self._left_out: set[str] = set()
        """Optional fields that the server refused."""

    async def __call__(self, request: Mapping[str, Any], *, timeout: float) -> Any:
        """Send a request, see :class:`Transport`."""
        service = self._service
        fields = {name: value for name, value in request.items() if name not in self._left_out}
        try:
            posted = self._client.build_request(
                "POST", self._address, json=fields, headers=self._headers, timeout=timeout
            )
            answer = await self._client.send(posted, stream=True)
            if answer.is_success and answer.headers.get("content-type", "").startswith(_EVENTS):
                return _chunks(service, answer)
            async with aclosing(answer):
                await answer.aread()
        except UnicodeEncodeError as exc:
            refused = Objection("texts", service.api, said=_unsent(exc))
            raise service.failure(refused, request) from exc
        except httpx.HTTPError as exc:
            reason: Refusal = "lost" if isinstance(exc, _BROKEN_OFF) else "passing"
            lost = self._objection(reason, None, f"{type(exc).__name__}: {exc}", request)
            problem = f"{lost.who} did not answer: {lost.said}"
            raise service.kind(reason)(problem, hint=UNREACHED) from exc
        if answer.is_success:
            return self._result(answer, request)
        optional = (name for name in service.optional if name in fields)
        if refused_fields := refused_among(optional, fields, answer):
            self._left_out.update(refused_fields)
            return await self(request, timeout=timeout)
        refusal = refusal_of_status(answer.status_code, answer.text)
        error = service.failure(
            self._objection(refusal, answer.status_code, answer.text, request), request
        )
        if error.retryable:
            error.retry_after = retry_after(answer.headers)
        if error.retry_after:
            error.hint = f"{service.api} asks to wait {error.retry_after:.0f} s."
        raise error

    def _result(self, answer: httpx.Response, request: Mapping[str, Any]) -> Any:
        """Return the JSON of a successful response."""
        service = self._service
        try:
            result = answer.json()
        except ValueError as exc:
            failed = self._objection("failed", answer.status_code, answer.text, request)
            problem = failed.quoted(f"{failed.who} did not return JSON")
            raise service.kind("lost")(problem, hint=WRONG_ADDRESS) from exc
        if text := _failure_in(service, result):
            refused = self._objection(refusal_of_text(text), answer.status_code, text, request)
            raise service.failure(refused, request)
        return result

    def _objection(
        self, refusal: Refusal, status: int | None, text: str, request: Mapping[str, Any]
    ) -> Objection:
        said = words_of(text, request, self._api_key)
        return Objection(refusal, self._service.api, status, said=said, url=self._address)


def _unsent(exc: FrameTooLarge | UnicodeEncodeError) -> str:
    """Return why texts cannot be sent."""
    if isinstance(exc, FrameTooLarge):
        return f"they do not fit into a message: {exc}"
    return "a text is not valid Unicode: it contains an unpaired surrogate"


def _failure_in(service: Service, answer: Any) -> str:
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


async def _chunks(service: Service, answer: httpx.Response) -> AsyncGenerator[Any]:
    """Yield the JSON of server-sent events up to ``[DONE]``; iterate it, so that it is closed.

    Raises:
        SearchError: of the service, if the stream breaks off, or an event is an error.
    """
    try:
        async for line in answer.aiter_lines():
            data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
            if data == _DONE:
                return
            if data:
                yield json.loads(data)
    except httpx.HTTPError as exc:
        problem = f"{service.api} broke off its answer: {type(exc).__name__}"
        raise service.unavailable(problem) from exc
    except ValueError as exc:
        raise service.unavailable(f"{service.api} did not return JSON") from exc
    finally:
        await answer.aclose()
    raise service.unavailable(f"{service.api} broke off its answer")


def refused_among(
    optional: Iterable[str], request: Mapping[str, Any], answer: httpx.Response
) -> list[str]:
    """Return the fields of a request that an error response names, by name or by value."""
    if answer.status_code not in (400, 422):
        return []
    text = answer.text
    return [name for name in optional if name in text or f"`{request[name]}`" in text]
