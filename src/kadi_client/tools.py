"""Tools that a provider offers on the network."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import JsonSchemaMode

from kadi_client.errors import AuthenticationError
from kadi_client.identity import agent_id
from kadi_client.messages import Raw, decode, encode

P = TypeVar("P", bound=BaseModel)

ROUTING_KEY = "_kadi"
"""Reserved key inside a tool's input: routing hints, never part of the input itself."""

REQUIRE_AGENT = "requireAgent"
"""Hint that names the agent that must serve the call."""

_FORM = re.compile(r"str|(?:constrained-)?int|float|bool|[A-Z]\w*|[a-z-]+\[.*\]", re.DOTALL)
"""A step of an error's location that is a form of the field above it, not a field."""

_IN_WORDS = {
    "extra_forbidden": "There is no such field",
    "model_type": "Input should be an object",
    "model_attributes_type": "Input should be an object",
    "dict_type": "Input should be an object",
}
"""Texts that replace those of pydantic, by the type of the error."""

_FEW = 10
"""Maximum number of fields that an error lists."""
_SHORT = 32
"""Maximum number of objects in a list that are encoded at once."""
_MOST_ERRORS = 1000
"""Maximum number of errors of an input that are read; pydantic gives all of them or none."""
_MOST_PATHS = 50
_LONGEST_NAME = 100
"""Maximum length of a field name for which a similar one is suggested."""
_AGENT_NAME = 64
"""Maximum characters of an agent's name in a message."""


class Origin(msgspec.Struct, frozen=True):
    """The origin of a call, as far as the broker names it."""

    protocol: str = "kadi"
    """``"mcp"`` for a client that reached the broker over MCP."""
    session_id: str | None = None
    public_key: str | None = None
    network: str | None = None
    """Network that the call came through."""
    on_behalf_of: str | None = None
    """Id of the agent whose call the calling agent handles, as it says; to be trusted only where
    the calling agent is."""

    @property
    def agent_id(self) -> str | None:
        """Id of the calling agent; ``None`` if the broker does not name its key."""
        try:
            return None if self.public_key is None else agent_id(self.public_key)
        except AuthenticationError:
            return None


UNKNOWN = Origin()


class Call(Protocol):
    """The call of a tool, as its handler sees it."""

    @property
    def request_id(self) -> str:
        """Return the broker's id of this call, for logs."""

    @property
    def origin(self) -> Origin:
        """Return where the call comes from, as far as the broker says so."""

    @property
    def remaining(self) -> float | None:
        """Return the seconds until the caller stops waiting; ``None`` if there is no limit."""

    @property
    def abandoned(self) -> bool:
        """Return whether the call was cancelled without a request by the caller.

        True if the caller disconnected, the session was lost or this agent is shutting down; false
        if the caller gave up or its time ran out.
        """

    async def publish(self, channel: str, data: Any) -> None:
        """Publish an event on the session that the call came in on; never raises if it is gone."""


Handler = Callable[[dict[str, Any], Call], Awaitable[Any]]
OnError = Callable[[Exception, str], Any]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that an agent serves: JSON in, JSON out.

    Example:
        async def greet(tool_input: dict[str, Any], call: Call) -> dict[str, str]:
            return {"text": f"Hello, {tool_input['name']}!"}

        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        greeting = Tool("greet", "Greet somebody by name.", schema, greet)
        async with Connection("ws://localhost:8080/kadi", tools=[greeting]) as broker:
            print(await broker.invoke("greet", {"name": "Ada"}))

    ``handler(tool_input, call)`` returns a JSON value; :class:`kadi_client.Raw` is sent as it is.
    An exception reaches the caller as an error with the exception's text. The input is not checked
    against the schema; :meth:`typed` creates tools that check theirs.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    handler: Handler
    output_schema: Mapping[str, Any] | None = None
    networks: Sequence[str] | None = None
    """Networks of its agent that it is offered on; ``None`` for all of them."""
    max_values: int | None = None
    """Maximum number of objects and arrays in an input, see
    :func:`kadi_client.messages.has_more_values`; ``None`` for any number."""

    @classmethod
    def typed(
        cls,
        name: str,
        description: str,
        params: type[P],
        handler: Callable[[P, Call], Awaitable[BaseModel | Raw | Mapping[str, Any]]],
        *,
        result: type[BaseModel] | None = None,
        on_error: OnError | None = None,
        max_values: int | None = None,
    ) -> Tool:
        """Create a tool whose input is validated by a pydantic model.

        Example:
            class Person(BaseModel):
                name: str

            async def greet(person: Person, call: Call) -> dict[str, str]:
                return {"text": f"Hello, {person.name}!"}

            await broker.serve([Tool.typed("greet", "Greet somebody by name.", Person, greet)])

        Args:
            name: Name of the tool.
            description: What it does, for agents that choose among tools.
            params: Model of the input; its JSON schema becomes the input schema.
            handler: Takes the validated input; a model that it returns is sent by its aliases,
                without fields that are ``None``.
            result: Model of the output, if it has one; for its schema only.
            on_error: Turns an exception of the validation or of the handler, and the name of the
                tool, into an answer. Without it the caller gets an error: its text names the
                fields that are not valid, without their values.
            max_values: See :attr:`Tool.max_values`.
        """

        async def handle(raw: dict[str, Any], call: Call) -> Any:
            try:
                answer = await handler(params.model_validate(raw), call)
            except Exception as exc:
                if on_error is not None:
                    return on_error(exc, name)
                if isinstance(exc, ValidationError):
                    raise ValueError(validation_text(exc, params)) from exc
                raise
            return encoded(answer) if isinstance(answer, BaseModel) else answer

        return cls(
            name=name,
            description=description,
            input_schema=_schema_of(params, "validation"),
            handler=handle,
            output_schema=_schema_of(result, "serialization") if result else None,
            max_values=max_values,
        )


def encoded(answer: BaseModel) -> Raw:
    """Return the answer of a tool as JSON, by alias, without fields that are ``None``.

    The members of a long list are encoded one by one: to encode all of them at once may take
    tenths of a second in which no other thread runs.
    """
    values = {name: getattr(answer, name) for name in type(answer).model_fields}
    lists = {
        name
        for name, value in values.items()
        if isinstance(value, list) and len(value) > _SHORT and isinstance(value[0], BaseModel)
    }
    if not lists:
        return Raw(_json(answer))
    members = []
    for name, field in type(answer).model_fields.items():
        if name in lists:
            items = b",".join(map(_json, values[name]))
            members.append(b"%b:[%b]" % (encode(field.serialization_alias or name), items))
        elif values[name] is not None:
            members.append(_json(answer, include={name})[1:-1])
    return Raw(b"{%b}" % b",".join(members))


def _json(value: BaseModel, *, include: set[str] | None = None) -> bytes:
    text = value.model_dump_json(by_alias=True, exclude_none=True, include=include)
    return text.encode()


@lru_cache(256)
def _schema_of(model: type[BaseModel], mode: JsonSchemaMode) -> Mapping[str, Any]:
    """Return the JSON schema of a model; generating that of a large one takes 20 ms."""
    return model.model_json_schema(by_alias=True, mode=mode)


def without_routing(tool_input: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a tool's input into the input proper and the routing hints under ``_kadi``.

    An absent input counts as empty; so do hints that are not an object.

    Raises:
        TypeError: if the input is not an object.
    """
    if tool_input is None:
        return {}, {}
    if not isinstance(tool_input, dict):
        raise TypeError("toolInput must be an object")
    hints = tool_input.get(ROUTING_KEY)
    if ROUTING_KEY not in tool_input:
        return tool_input, {}
    stripped = {key: value for key, value in tool_input.items() if key != ROUTING_KEY}
    return stripped, hints if isinstance(hints, dict) else {}


def with_hints(tool_input: Any, hints: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool's input with routing hints added to those it has.

    Raises:
        TypeError: if the input is not an object.
    """
    plain = decode(tool_input) if isinstance(tool_input, Raw) else tool_input
    stripped, given = without_routing(plain)
    return {ROUTING_KEY: {**given, **hints}, **stripped}


def validation_text(error: ValidationError, params: type[BaseModel] | None = None) -> str:
    """Return one line that names each field that is not valid and what was expected of it.

    Of several forms that a field may have, it names the one closest to the value, else all. The
    values themselves are left out: they may be large or secret. It names ``_MOST_PATHS`` at most,
    and none but their number beyond ``_MOST_ERRORS``.

    Args:
        error: The error.
        params: The model that was validated, to name the field that an unknown one is similar to.
    """
    if error.error_count() > _MOST_ERRORS:
        return f"input: {error.error_count()} fields are not valid"
    expected: dict[tuple[int | str, ...], list[str]] = {}
    for item in error.errors(include_url=False, include_input=False, include_context=False):
        text = _IN_WORDS.get(item["type"]) or item["msg"].removeprefix("Value error, ")
        # Without the steps that name the forms of a field.
        steps = (step for step in item["loc"][1:] if not _FORM.fullmatch(str(step)))
        path = (*item["loc"][:1], *steps)
        if len(expected) == _MOST_PATHS and path not in expected:
            break
        if params is not None and item["type"] == "extra_forbidden":
            name, fields = str(path[-1]), _fields_at(params, path[:-1])
            if len(name) <= _LONGEST_NAME and (close := get_close_matches(name, fields, n=1)):
                text += f" (did you mean {close[0]}?)"
            elif 0 < len(fields) <= _FEW:
                text += f" (fields: {', '.join(fields)})"
        expected.setdefault(path, []).append(text)
    outer = {path[:length] for path in expected for length in range(len(path))}
    return "; ".join(
        f"{'.'.join(map(str, path)) or 'input'}: {', or: '.join(dict.fromkeys(texts))}"
        for path, texts in expected.items()
        if path not in outer
    )


def _fields_at(params: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """Return the fields of the objects at a path of the input, in all their forms."""
    schema = _schema_of(params, "validation")

    def forms(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        if "$ref" in node:
            yield from forms(schema["$defs"][node["$ref"].rpartition("/")[2]])
        elif several := node.get("anyOf") or node.get("oneOf"):
            for each in several:
                yield from forms(each)
        else:
            yield node

    found = list(forms(schema))
    for step in path:
        inner = [
            each.get("items") if isinstance(step, int) else each.get("properties", {}).get(step)
            for each in found
        ]
        found = [form for node in inner if isinstance(node, dict) for form in forms(node)]
    return list(dict.fromkeys(name for each in found for name in each.get("properties", ())))


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent that offers a tool, as a broker lists it.

    The broker vouches for the id, which only the holder of the agent's key can have, and for the
    networks, which it lets the agent join. The name is what the agent calls itself.
    """

    id: str
    """Id of the agent; empty if the broker does not give it."""
    name: str = ""
    """Display name; empty if the broker does not give it."""
    networks: frozenset[str] = frozenset()
    """Networks on which the agent offers the tool; empty if the broker does not name them."""


def quoted_name(name: str) -> str:
    """Return the name of an agent for a message: in quotes, and of bounded length.

    A stranger may have chosen it, and the message may end up on a terminal.
    """
    printable = "".join(char if char.isprintable() else "?" for char in name)
    return repr(printable[:_AGENT_NAME])


def agents_of(tool: Mapping[str, Any]) -> list[Agent]:
    """Return the agents that offer a tool, as described by a broker; never empty.

    A provider that the broker does not identify is an agent without an id.
    """
    described = tool.get("providers")
    providers = described if isinstance(described, list) else []
    return [_agent(provider) for provider in providers if isinstance(provider, dict)] or [Agent("")]


def _agent(provider: Mapping[str, Any]) -> Agent:
    networks = provider.get("networks")
    return Agent(
        id=_text(provider.get("agentId")),
        name=_text(provider.get("displayName")),
        networks=frozenset(map(_text, networks if isinstance(networks, list) else [])),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
