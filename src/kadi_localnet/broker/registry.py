"""The registered tools and the networks on which they are visible."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from kadi_client.messages import Raw
from kadi_localnet.broker.access import Access, Networks, check_name
from kadi_localnet.broker.limits import Limits
from kadi_localnet.broker.params import Discovery, Register, ToolEntry, invalid, present
from kadi_localnet.broker.session import Absent, Provider, Session

RESERVED_PREFIX = "kadi."
_ANY_INPUT = Raw(b'{"type":"object"}')
_SOURCE = "kadi-agent"


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool of one provider, and the networks on which it is visible."""

    tool: ToolEntry
    networks: tuple[str, ...]


class Registry:
    """Tools by name and provider; a tool's description comes from its earliest provider."""

    __slots__ = ("_absent", "_access", "_limits", "_networks", "_providers")

    def __init__(self, limits: Limits, access: Access) -> None:
        self._limits = limits
        self._access = access
        self._networks = Networks(limits, access)
        self._providers: dict[str, dict[Provider, Offer]] = {}
        self._absent: set[Provider] = set()

    def register(self, session: Provider, params: Register) -> dict[str, Any]:
        """Replace the tools of ``session``.

        Without ``networks`` the session stays in its networks. A tool may restrict its visibility
        to some of them.

        Raises:
            Refused: changing nothing, if a tool or a name is invalid, or the agent may not offer
                a tool.
        """
        tools = self._checked_tools(params.tools or (), session.agent_id)
        if params.display_name:
            check_name("displayName", params.display_name, self._limits)
        dropped: list[str] = []
        if params.networks is not None:
            session.networks, dropped = self._networks.admitted(params.networks, session.agent_id)
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

    def remove(self, session: Provider) -> None:
        """Remove all tools of ``session``."""
        for name in session.tools:
            providers = self._providers[name]
            del providers[session]
            if not providers:
                del self._providers[name]
        session.tools = ()
        self._absent.discard(session)

    def leave(self, session: Provider, place: Absent) -> bool:
        """Remove all tools of ``session``; return whether there is room to keep its place."""
        offers = [(name, self._providers[name][session].networks) for name in session.tools]
        self.remove(session)
        if len(self._absent) >= self._limits.places and not self._access.names(place.agent_id):
            return False
        self._absent.add(place)
        for name, networks in offers:
            self._providers.setdefault(name, {})[place] = Offer(ToolEntry(name), networks)
        return True

    def places(self, tool: str) -> list[Absent]:
        """Return the places of providers of ``tool`` that have left."""
        return [each for each in self._providers.get(tool, ()) if isinstance(each, Absent)]

    def providers(self, tool: str, caller: Session) -> dict[Provider, str]:
        """Return the providers of ``tool`` visible to the caller, in order of registration.

        Each is mapped to the first of the caller's networks on which the tool is visible. Those
        that have left are among them.
        """
        found = {}
        for session, offer in self._providers.get(tool, {}).items():
            for network in caller.networks:
                if network in offer.networks:
                    found[session] = network
                    break
        return found

    def describe(self, caller: Session, params: Discovery) -> dict[str, Any]:
        """Describe the tools visible to ``caller``, ordered by name, or only ``params.tool``."""
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
        return sum(not offers.keys() <= self._absent for offers in self._providers.values())

    def _describe(
        self, name: str, networks: Collection[str], *, with_providers: bool
    ) -> dict[str, Any] | None:
        visible = {
            session: offer
            for session, offer in self._providers.get(name, {}).items()
            if session not in self._absent
            and any(network in networks for network in offer.networks)
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

    def _checked_tools(
        self, tools: Sequence[ToolEntry], agent_id: str | None
    ) -> dict[str, ToolEntry]:
        if len(tools) > self._limits.tools:
            raise invalid(
                "tools", f"holds {len(tools)}, more than the {self._limits.tools} allowed"
            )
        named: dict[str, ToolEntry] = {}
        for position, tool in enumerate(tools):
            member = f"tools.{position}.name"
            check_name(member, tool.name, self._limits)
            if not (tool.name.isascii() and tool.name.isprintable()):
                raise invalid(member, "must be printable ASCII, so that no name looks like another")
            if tool.name.lower().strip().startswith(RESERVED_PREFIX):
                raise invalid(member, f"must not begin with {RESERVED_PREFIX!r}, which is reserved")
            reserved = self._access.reserved(tool.name, agent_id)
            if reserved is not None:
                alike = (
                    "" if fnmatchcase(tool.name, reserved) else f" looks like {reserved!r}, which"
                )
                raise invalid(
                    member,
                    f"{tool.name!r}{alike} may only be offered by listed agents, and agent"
                    f" {agent_id} is none of them: the operator of the broker can list it",
                )
            if tool.name in named:
                raise invalid(member, f"repeats {tool.name!r}: register each tool once")
            named[tool.name] = tool
        return named
