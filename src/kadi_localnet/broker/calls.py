"""Calls: routing a request to a provider of the tool, and its answer back to the caller."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import count
from typing import Any

from kadi_client import messages
from kadi_client.context import LOG_FIELD, usable_id
from kadi_client.errors import ProtocolError
from kadi_client.messages import request as request_frame
from kadi_client.params import CALLER_LOST
from kadi_localnet.broker.access import Access
from kadi_localnet.broker.deadlines import Actions
from kadi_localnet.broker.limits import Limits
from kadi_localnet.broker.outbox import Memory, text_bytes
from kadi_localnet.broker.params import (
    AbilityRequest,
    Cancel,
    Hints,
    call_context,
    invalid,
    take_hints,
)
from kadi_localnet.broker.registry import Registry
from kadi_localnet.broker.session import Absent, Call, Provider, Refused, Session

log = logging.getLogger(__name__)

_MILLISECONDS = 1000
_ERROR_BYTES = 64 * 1024
"""Size up to which a provider's error is read."""
_CALL_BYTES = 2048
"""Bytes of a call in flight besides its request id, above the measured ones."""
_TOOLS = 512
"""Maximum number of tools with separate counts; the calls of all others are counted together."""
_SHOWN_NETWORKS = 3
"""Networks that the refusal of a call names, at most."""
OTHER_TOOLS = "other"


@dataclass(slots=True)
class CallCounts:
    """Counts of calls by outcome; a call counts as started, and later in one other field."""

    started: int = 0
    completed: int = 0
    failed: int = 0
    timed_out: int = 0
    cancelled: int = 0
    provider_lost: int = 0


FATES = tuple(each.name for each in fields(CallCounts))


@dataclass(slots=True, eq=False)
class Calls:
    """The calls in flight.

    Every request id starts with ``prefix``, so that ids of an earlier broker process are unknown.
    """

    limits: Limits
    access: Access
    registry: Registry
    deadlines: Actions
    memory: Memory
    prefix: str
    by_tool: dict[str, CallCounts] = field(default_factory=dict)
    discarded: int = 0
    """Number of answers that arrived after their call had ended."""
    _serial: Iterator[int] = field(default_factory=lambda: count(1))
    _number: int = 0
    _waiting: dict[str, bytes] = field(default_factory=dict)
    """The room that all places of agents that are not listed share."""

    def start(self, caller: Session, params: AbilityRequest, *, direct: messages.Raw) -> Call:
        """Forward a call to a provider.

        The answer follows as a notification, or as the response to the request with the JSON-RPC
        id ``direct``, unless that is absent. The call waits while the providers of the tool are
        those that have left a short time ago.

        Raises:
            Refused: if the request is invalid, no provider is found, or there is no room.
        """
        if len(caller.calling) >= self.limits.outstanding:
            raise Refused(
                f"too many outstanding calls: {self.limits.outstanding} are allowed per session,"
                " wait for some of the answers"
            )
        if len(direct) > self.limits.name_length:
            raise invalid("id", f"has more than {self.limits.name_length} characters")
        timeout = self._timeout(params.timeout)
        tool, (tool_input, hints) = params.tool, take_hints(params.input)
        agents = _named(params, hints)
        candidates = self._candidates(caller, tool, agents)
        serial = next(self._serial)
        id_ = f"{self.prefix}-{serial}"
        request_id = self.request_id(caller, params, otherwise=id_)
        context = call_context(params.meta, hints)
        meta = {"callerProtocol": "kadi", "kadi_caller": caller.credentials, **context}
        message = {
            "toolName": tool,
            "toolInput": tool_input,
            "requestId": id_,
            "timeout": max(1, int(timeout * _MILLISECONDS)),
        }

        def frame_for(network: str) -> bytes:
            params = {**message, "_meta": {**meta, "network": network}}
            return request_frame(id_, "kadi.ability.request", params)

        provider, frame = self._choose(tool, caller, candidates, frame_for)
        call = Call(
            id=id_,
            request_id=request_id,
            tool=tool,
            follows=usable_id(text_of(context.get("callId", messages.ABSENT))) or id_,
            caller=caller,
            agents=agents,
            provider=provider,
            network=candidates[provider],
            started=caller.last_seen,
            timeout=timeout,
            direct=direct.copy(),  # a slice would keep the whole frame in memory
            size=_CALL_BYTES + text_bytes(str(request_id)) + len(direct),
        )
        caller.calling[request_id] = provider.serving[id_] = call
        caller.keep("calls", caller.kept("calls") + call.size)
        provider.last_routed = serial
        self._counts(call).started += 1
        self._number += 1
        self.deadlines.set((self._time_out, call), call.started + timeout)
        provider.begin(call, frame)
        return call

    def request_id(self, caller: Session, params: AbilityRequest, *, otherwise: str) -> str | int:
        """Return the id under which ``caller`` expects the answer to a request.

        Raises:
            Refused: if another call of this caller in flight has this id, or the id is too long.
        """
        request_id = otherwise if params.own_request_id is None else params.own_request_id
        if len(str(request_id)) > self.limits.name_length:
            raise invalid("requestId", f"has more than {self.limits.name_length} characters")
        if request_id in caller.calling:
            raise invalid("requestId", "is in use by a call in flight: choose another one")
        return request_id

    def answer(self, provider: Provider, frame: messages.Frame, now: float) -> None:
        """Forward a provider's answer to the caller; discard it if the call has ended."""
        call = provider.serving.get(text_of(frame.id))
        if call is None:
            self.discarded += 1
            return
        self._forget(call)
        if messages.present(frame.error):
            self._counts(call).failed += 1
            most = min(_ERROR_BYTES, self.limits.control_bytes)
            call.fail(_error_message(frame.error, most))
        else:
            self._counts(call).completed += 1
            self._reply(call, frame.result if messages.present(frame.result) else messages.NULL)
        took = (now - call.started) * 1e3
        log.debug(
            "call %s of %s took %.1f ms", call.id, call.tool, took, extra={LOG_FIELD: call.follows}
        )

    def cancel(self, caller: Session, params: Cancel) -> dict[str, Any]:
        """Cancel a call of ``caller`` and notify its provider; no answer follows."""
        named: dict[str, Any] = {"requestId": params.request_id}
        call = caller.calling.get(params.request_id) if params.request_id is not None else None
        if params.request_id is None:
            if not messages.present(params.id):
                raise invalid("requestId", "is missing: name the call to cancel")
            named = {"id": params.id}
            call = next(
                (each for each in caller.calling.values() if each.direct == params.id), None
            )
        if call is None:
            return {"status": "unknown", **named}
        self._abandon(call)
        self._counts(call).cancelled += 1
        return {"status": "cancelled", **named}

    def remove(self, session: Session) -> None:
        """End all calls that a disconnected session made or served."""
        self.remove_provider(session)
        for call in list(session.calling.values()):
            self._abandon(call, reason=CALLER_LOST)
            self._counts(call).cancelled += 1

    def remove_provider(self, provider: Provider, lost: Collection[str] | None = None) -> None:
        """Remove a provider and its tools, and end the calls that it served.

        Further calls wait in its place for some time, see :class:`Absent`.

        Args:
            provider: The provider.
            lost: Ids of the calls that it received, if it did not receive all.
        """
        for call in list(provider.serving.values()):
            if lost is not None and call.id not in lost:
                continue
            self._forget(call)
            self._counts(call).provider_lost += 1
            call.fail(f"the provider of {call.tool!r} disconnected before answering")
        if provider.tools:
            listed = self.registry.listed(provider)
            room = {} if listed else self._waiting
            place = Absent(provider, self.limits, self.memory, room)
            if self.registry.leave(provider, place):
                self.deadlines.set((self._await, place), 0.0)

    def forward_again(self, call: Call, frame: bytes) -> None:
        """Forward a call that its provider did not receive; it may have to wait, as a new one."""
        try:
            candidates = self._candidates(call.caller, call.tool, call.agents)
            fitting = {each: n for each, n in candidates.items() if n == call.network}
            provider, _ = self._choose(call.tool, call.caller, fitting, lambda _network: frame)
        except Refused as exc:
            self._forget(call)
            self._counts(call).provider_lost += 1
            call.fail(str(exc))
        else:
            self._take(call, provider, frame)

    def resume(self, provider: Provider) -> None:
        """Forward to a provider the calls that wait for its tools.

        Those that name another agent, which has left, end: they would not have begun to wait with
        this provider present, and their callers may prefer it.
        """
        for place in self.registry.absent:
            for call in list(place.serving.values()):
                frame = place.frames[call.id]
                network = self.registry.providers(call.tool, call.caller).get(provider)
                if network is None:
                    continue
                if not _is(provider, call.agents):
                    self._end(call)
                elif network == call.network and provider.has_room(len(frame), call.caller):
                    self._take(call, provider, frame)

    def _take(self, call: Call, provider: Provider, frame: bytes) -> None:
        """Forward a call that has waited."""
        del call.provider.serving[call.id]
        call.provider.abandon(call)
        call.provider = provider
        provider.serving[call.id] = call
        provider.begin(call, frame)

    def _await(self, place: Absent, now: float) -> None:
        """Begin the time of a place, at the first tick after its provider has left."""
        self.deadlines.set((self._give_up, place), now + self.limits.absence)

    def _give_up(self, place: Absent, _now: float) -> None:
        """End the calls that wait in a place, and remove it."""
        self.registry.remove(place)
        for call in list(place.serving.values()):
            self._end(call)

    def _end(self, call: Call) -> None:
        """End a call that waits for a provider that does not come."""
        self._abandon(call)
        self._counts(call).provider_lost += 1
        call.fail(str(self._no_provider(call.caller, call.tool, call.agents)))

    def _time_out(self, call: Call, _now: float) -> None:
        self._abandon(call)
        self._counts(call).timed_out += 1
        call.fail(f"no answer from {call.tool!r} within {call.timeout:g} s")
        text = "call %s of %s timed out after %g s"
        log.info(text, call.id, call.tool, call.timeout, extra={LOG_FIELD: call.follows})

    def __len__(self) -> int:
        return self._number

    def _counts(self, call: Call) -> CallCounts:
        name = call.tool
        if name not in self.by_tool and len(self.by_tool) >= _TOOLS:
            name = OTHER_TOOLS
        return self.by_tool.get(name) or self.by_tool.setdefault(name, CallCounts())

    def _timeout(self, milliseconds: float | None) -> float:
        if milliseconds is None:
            return self.limits.default_timeout
        if not milliseconds > 0:
            raise invalid("timeout", "must be a positive number of milliseconds")
        return min(milliseconds / _MILLISECONDS, self.limits.max_timeout)

    def _candidates(
        self, caller: Session, tool: str, agents: tuple[str, ...]
    ) -> dict[Provider, str]:
        """Return the eligible providers, each with the network through which it is reached.

        Those that have left are eligible if no other offers the tool: whoever names an agent may
        prefer another one.

        Raises:
            Refused: if there are none.
        """
        offering = self.registry.providers(tool, caller)
        there = {each: offering[each] for each in offering if not isinstance(each, Absent)}
        eligible = {
            provider: network
            for provider, network in (there or offering).items()
            if _is(provider, agents)
        }
        if not eligible:
            raise self._no_provider(caller, tool, agents)
        return eligible

    def _no_provider(self, caller: Session, tool: str, agents: tuple[str, ...]) -> Refused:
        """Return the refusal of a call without a provider.

        It begins with the words by which clients recognise it. It names the networks where the
        tool is offered, as far as the caller may know of them: those that it may join, where it
        could list the tools itself, and those that the access rules announce.
        """
        by = f" of agent {' and '.join(map(repr, agents))}" if agents else ""
        searched = ", ".join(caller.networks)
        sentences = [f"no provider{by} for tool {tool!r} on the networks searched: {searched}"]
        elsewhere: set[str] = set()
        for provider, networks in self.registry.offers(tool).items():
            if _is(provider, agents):
                elsewhere.update(networks)
        elsewhere.difference_update(caller.networks)
        open_to_caller = sorted(
            network for network in elsewhere if self.access.may_join(network, caller.agent_id)
        )
        if open_to_caller:
            sentences.append(
                f"it is offered on {_listed(open_to_caller)}, which this agent may join and has"
                f" not joined: add {open_to_caller[0]!r} to the networks that it registers with"
            )
        announced = elsewhere.intersection(self.access.announced).difference(open_to_caller)
        sentences += [
            f"it is offered on network {network!r}, which only listed agents may join, and"
            f" agent {caller.agent_id} is none of them: {self.access.announced[network]}"
            for network in sorted(announced)
        ]
        return Refused("; ".join(sentences))

    def _choose(
        self,
        tool: str,
        caller: Session,
        candidates: Mapping[Provider, str],
        encoded: Callable[[str], bytes],
    ) -> tuple[Provider, bytes]:
        """Return the candidate with the fewest outstanding calls, and the frame for it.

        Ties go to the candidate chosen longest ago; a candidate without room in its outbox is
        skipped. ``encoded`` returns the frame for a network.
        """
        frames: dict[str, bytes] = {}
        for session in sorted(candidates, key=lambda each: (each.load, each.last_routed)):
            network = candidates[session]
            frame = frames.get(network) or frames.setdefault(network, encoded(network))
            if len(frame) > self.limits.max_message_bytes:
                raise invalid(
                    "toolInput",
                    f"results in a message of {len(frame)} bytes,"
                    f" more than the {self.limits.max_message_bytes} allowed",
                )
            if session.has_room(len(frame), caller):
                return session, frame
        raise Refused(f"all providers of {tool!r} are overloaded: try again in a moment")

    def _forget(self, call: Call) -> None:
        del call.caller.calling[call.request_id]
        del call.provider.serving[call.id]
        self.deadlines.discard((self._time_out, call))
        self._number -= 1
        call.caller.keep("calls", call.caller.kept("calls") - call.size)

    def _abandon(self, call: Call, **why: str) -> None:
        """Forget a call and cancel it at its provider."""
        self._forget(call)
        call.provider.abandon(call, **why)

    def _reply(self, call: Call, result: messages.Raw) -> None:
        frame = call.completed(result)
        if len(frame) > self.limits.max_message_bytes:
            call.fail(
                f"the answer of {call.tool!r} results in a message of {len(frame)} bytes,"
                f" more than the {self.limits.max_message_bytes} allowed"
            )
            return
        call.caller.send(frame)


def _named(params: AbilityRequest, hints: Hints) -> tuple[str, ...]:
    """Return the agents that a caller names as the provider.

    An empty name is one that its caller does not know: it must not reach anybody.
    """
    named = (params.target_agent or None, hints.require_provider, hints.require_agent)
    return tuple(dict.fromkeys(agent for agent in named if agent is not None))


def _is(provider: Provider, agents: tuple[str, ...]) -> bool:
    return all(agent in (provider.agent_id, provider.id) for agent in agents)


def _listed(networks: Sequence[str]) -> str:
    """Return the names of networks for a message, not more than fit into it."""
    shown = ", ".join(map(repr, networks[:_SHOWN_NETWORKS]))
    more = len(networks) - _SHOWN_NETWORKS
    if more > 0:
        return f"networks {shown} and {more} more"
    return f"network {shown}" if len(networks) == 1 else f"networks {shown}"


def text_of(raw: messages.Raw) -> str:
    """Return the string in a raw member; empty if it is not a string."""
    if memoryview(raw)[:1].tobytes() != b'"':
        return ""
    try:
        return str(messages.decode(raw))
    except ProtocolError:
        return ""


def _error_message(error: messages.Raw, most: int) -> str:
    """Return the text of a provider's error, never empty: clients take empty for no error.

    An error of more than ``most`` bytes is not read.
    """
    if len(error) > most:
        return f"the tool failed with an error of {len(error)} bytes, more than the {most} allowed"
    try:
        return messages.error_text(messages.decode(error))[1] or "the tool failed without a message"
    except ProtocolError:  # well-formed, but not representable in Python: a number like 1e400
        return bytes(error).decode()
