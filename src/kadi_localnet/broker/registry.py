"""Who offers which tool to whom."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kadi_client.messages import Raw
from kadi_localnet.broker.limits import Limits
from kadi_localnet.broker.params import Discovery, Register, ToolEntry, invalid, present
from kadi_localnet.broker.session import Session

DEFAULT_NETWORKS = ("global",)
RESERVED_PREFIX = "kadi."
_ANY_INPUT = Raw(b'{"type":"object"}')
_SOURCE = "kadi-agent"


class Networks:
    """The networks of a broker: those that agents ask for, or a fixed set.

    Args:
        limits: How many of them one session may join.
        known: The only ones there are; empty for any.
    """

    __slots__ = ("_known", "_limits")

    def __init__(self, limits: Limits, known: Collection[str] = ()) -> None:
        self._limits = limits
        self._known = frozenset(known)

    def admitted(self, asked: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
        """Return the networks that a session joins, and those that it cannot join.

        Both in the order asked for, each once; without any the default network is asked for.

        Raises:
            Refused: if there are too many, or a name cannot be used.
        """
        if len(asked) > self._limits.networks:
            raise invalid(
                "networks", f"holds {len(asked)}, more than the {self._limits.networks} allowed"
            )
        for position, network in enumerate(asked):
            check_name(f"networks.{position}", network, self._limits)
        names = list(dict.fromkeys(asked)) or list(DEFAULT_NETWORKS)
        if not self._known:
            return tuple(names), []
        joined = tuple(name for name in names if name in self._known)
        return joined, [name for name in names if name not in self._known]


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool as one provider offers it, and the networks that it is visible on."""

    tool: ToolEntry
    networks: tuple[str, ...]


class Registry:
    """Tools by name and provider; of two providers of one tool the earlier describes it."""

    __slots__ = ("_limits", "_networks", "_providers")

    def __init__(self, limits: Limits, networks: Networks) -> None:
        self._limits = limits
        self._networks = networks
        self._providers: dict[str, dict[Session, Offer]] = {}

    def register(self, session: Session, params: Register) -> dict[str, Any]:
        """Give ``session`` this tool set in place of the one it had.

        Networks that are not named stay as they are. A tool may name the networks of its session
        that it is visible on.

        Raises:
            Refused: leaving everything as it was, if a tool or network cannot be accepted.
        """
        tools = self._checked_tools(params.tools or ())
        dropped: list[str] = []
        if params.networks is not None:
            session.networks, dropped = self._networks.admitted(params.networks)
        self.remove(session)
        for name, tool in tools.items():
            asked = tool.networks or session.networks
            visible = tuple(network for network in asked if network in session.networks)
            dropped += [network for network in asked if network not in session.networks]
            self._providers.setdefault(name, {})[session] = Offer(tool, visible)
        session.tools = tuple(tools)
        session.display_name = params.display_name or session.display_name
        answer = {
            "status": "registered",
            "agentId": session.agent_id,
            "networks": session.networks,
            "tools": list(tools),
        }
        if dropped:
            answer["droppedNetworks"] = list(dict.fromkeys(dropped))
        return answer

    def remove(self, session: Session) -> None:
        """Withdraw every tool of ``session``."""
        for name in session.tools:
            providers = self._providers[name]
            del providers[session]
            if not providers:
                del self._providers[name]
        session.tools = ()

    def providers(self, tool: str, caller: Session) -> dict[Session, str]:
        """Return the sessions whose ``tool`` the caller may see, in order of registration.

        Each comes with the first of the caller's networks that the tool is visible on.
        """
        found = {}
        for session, offer in self._providers.get(tool, {}).items():
            for network in caller.networks:
                if network in offer.networks:
                    found[session] = network
                    break
        return found

    def describe(self, caller: Session, params: Discovery) -> dict[str, Any]:
        """Describe the tools ``caller`` may see, ordered by name; only the one named, if any."""
        names: Iterable[str] = sorted(self._providers) if params.tool is None else [params.tool]
        networks = caller.networks
        if params.networks is not None:
            networks = tuple(each for each in networks if each in params.networks)
        described = (
            self._describe(name, networks, with_providers=bool(params.include_providers))
            for name in names
        )
        return {"tools": [tool for tool in described if tool is not None]}

    @property
    def tool_count(self) -> int:
        """Number of distinct tool names."""
        return len(self._providers)

    def _describe(
        self, name: str, networks: Collection[str], *, with_providers: bool
    ) -> dict[str, Any] | None:
        visible = {
            session: offer
            for session, offer in self._providers.get(name, {}).items()
            if any(network in networks for network in offer.networks)
        }
        if not visible:
            return None
        tool = next(iter(visible.values())).tool
        description: dict[str, Any] = {
            "name": name,
            "description": tool.description or "",
            "inputSchema": tool.input_schema if present(tool.input_schema) else _ANY_INPUT,
        }
        if present(tool.output_schema):
            description["outputSchema"] = tool.output_schema
        if tool.tags:
            description["tags"] = tool.tags
        if with_providers:
            description["providers"] = [
                {
                    "sessionId": session.id,
                    "source": _SOURCE,
                    "displayName": session.display_name or session.agent_id,
                    "agentId": session.agent_id,
                    "networks": [each for each in offer.networks if each in networks],
                }
                for session, offer in visible.items()
            ]
        return description

    def _checked_tools(self, tools: Sequence[ToolEntry]) -> dict[str, ToolEntry]:
        if len(tools) > self._limits.tools:
            raise invalid(
                "tools", f"holds {len(tools)}, more than the {self._limits.tools} allowed"
            )
        named: dict[str, ToolEntry] = {}
        for position, tool in enumerate(tools):
            member = f"tools.{position}.name"
            check_name(member, tool.name, self._limits)
            if tool.name.startswith(RESERVED_PREFIX):
                raise invalid(member, f"must not begin with {RESERVED_PREFIX!r}, which is reserved")
            if tool.name in named:
                raise invalid(member, f"repeats {tool.name!r}: register each tool once")
            named[tool.name] = tool
        return named


def check_name(member: str, name: str, limits: Limits) -> None:
    """Refuse an empty or overlong name.

    Raises:
        Refused: naming ``member``.
    """
    if not name:
        raise invalid(member, "is empty")
    if len(name) > limits.name_length:
        raise invalid(
            member, f"has {len(name)} characters, more than the {limits.name_length} allowed"
        )
