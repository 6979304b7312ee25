"""The registered tools and the networks on which they are visible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any

from kadi_client.messages import Raw, encode, present
from kadi_localnet.broker.access import Access, check_name, first_shared
from kadi_localnet.broker.limits import Limits
from kadi_localnet.broker.params import Discovery, Register, ToolEntry, invalid
from kadi_localnet.broker.session import Absent, Provider, Session

RESERVED_PREFIX = "kadi."
_ANY_INPUT = Raw(b'{"type":"object"}')
_NO_TEXT = Raw(b'""')
TOOL_BYTES = 1024
"""Bytes of a registered tool, at most, besides what was sent of it; above the measured ones."""
_LISTED = 4096
"""Maximum number of tools in a list, and of their providers."""
_SOURCE = "kadi-agent"


class Registry:
    """Tools by name and provider; a tool's description comes from its earliest provider."""

    def __init__(self, limits: Limits, access: Access) -> None:
        self._limits = limits
        self._access = access
        self._providers: dict[str, dict[Provider, ToolEntry]] = {}
        """The networks of a tool are those on which it is visible."""
        self._present: dict[Provider, None] = {}
        self.absent: dict[Absent, None] = {}
        """The places of providers that have left, in the order in which they left."""

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
            session.networks, dropped = self._access.admitted(
                params.networks, session.agent_id, self._limits
            )
        self.remove(session)
        joined = frozenset(session.networks)
        for name, tool in tools.items():
            asked = dict.fromkeys(tool.networks or session.networks)
            tool.networks = tuple(network for network in session.networks if network in asked)
            dropped += [network for network in asked if network not in joined]
            self._providers.setdefault(name, {})[session] = tool
        session.tools = tuple(tools)
        if tools:
            self._present[session] = None
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
        self._present.pop(session, None)
        if isinstance(session, Absent):
            self.absent.pop(session, None)

    def leave(self, session: Provider, place: Absent) -> bool:
        """Remove all tools of ``session``; return whether there is room to keep its place."""
        offers = [(name, self._providers[name][session].networks) for name in session.tools]
        self.remove(session)
        if len(self.absent) >= self._limits.places and not self.listed(place):
            return False
        self.absent[place] = None
        for name, networks in offers:
            self._providers.setdefault(name, {})[place] = ToolEntry(name, networks=networks)
        return True

    def listed(self, provider: Provider) -> bool:
        """Return whether the access rules name a provider."""
        return self._access.names(provider.agent_id)

    def providers(self, tool: str, caller: Session) -> dict[Provider, str]:
        """Return the providers of ``tool`` visible to the caller, in order of registration.

        Each is mapped to the first of the caller's networks on which the tool is visible. Those
        that have left are among them.
        """
        places = {network: place for place, network in enumerate(caller.networks)}
        found: dict[Provider, str] = {}
        for session, offer in self._providers.get(tool, {}).items():
            network = first_shared(places, offer.networks or ())
            if network is not None:
                found[session] = network
        return found

    def offers(self, tool: str) -> dict[Provider, tuple[str, ...]]:
        """Return the networks on which each provider of a tool offers it, whoever may join them.

        Those that have left are not among them.
        """
        return {
            provider: tuple(offer.networks or ())
            for provider, offer in self._providers.get(tool, {}).items()
            if not isinstance(provider, Absent)
        }

    def describe(self, caller: Session, params: Discovery) -> dict[str, Any]:
        """Describe the tools visible to ``caller``, ordered by name, or only ``params.tool``.

        If they are too many, or too large for a quarter of a message, ``truncated`` is true, and
        those of the agents with the most tools are left out.
        """
        networks = frozenset(caller.networks)
        if params.networks is not None:
            networks &= frozenset(params.networks)
        names = self._fewest_first(networks) if params.tool is None else [params.tool]
        described: dict[str, Raw] = {}
        bytes_left, entries_left = self._limits.max_message_bytes // 4, _LISTED
        for name in names:
            offers = self._visible(name, networks, entries_left)
            if not offers or name in described:
                continue
            entry = _described(name, offers, networks if params.include_providers else None)
            bytes_left -= len(entry)
            entries_left -= len(offers)
            if bytes_left < 0:
                break
            described[name] = entry
            if entries_left <= 0:
                break
        tools = [described[name] for name in sorted(described)]
        left_out = bytes_left < 0 or entries_left <= 0
        return {"tools": tools, "truncated": True} if left_out else {"tools": tools}

    @property
    def tool_count(self) -> int:
        """Number of distinct tool names."""
        left = {name for place in self.absent for name in place.tools}
        gone = self.absent.keys()
        return len(self._providers) - sum(self._providers[name].keys() <= gone for name in left)

    def _fewest_first(self, networks: AbstractSet[str]) -> Iterable[str]:
        """Return the names of tools, those of the providers with the fewest tools first."""
        for provider in sorted(self._present, key=lambda each: len(each.tools)):
            if not networks.isdisjoint(provider.networks):
                yield from provider.tools

    def _visible(
        self, name: str, networks: AbstractSet[str], most: int
    ) -> dict[Provider, ToolEntry]:
        """Return the offers of a tool on some networks, at most ``most``."""
        offers = (
            (provider, offer)
            for provider, offer in self._providers.get(name, {}).items()
            if not isinstance(provider, Absent) and not networks.isdisjoint(offer.networks or ())
        )
        return dict(islice(offers, most))

    def _checked_tools(
        self, tools: Sequence[ToolEntry], agent_id: str | None
    ) -> dict[str, ToolEntry]:
        """Return the tools of a registration by name.

        Raises:
            Refused: if one is invalid, or the agent may not offer it.
        """
        if len(tools) > self._limits.tools:
            problem = f"holds {len(tools)}, more than the {self._limits.tools} allowed"
            raise invalid("tools", problem)
        named: dict[str, ToolEntry] = {}
        for position, tool in enumerate(tools):
            member = f"tools.{position}.name"
            check_name(member, tool.name, self._limits)
            if not (tool.name.isascii() and tool.name.isprintable()):
                raise invalid(member, "must be printable ASCII, so that no name looks like another")
            if tool.name.lower().strip().startswith(RESERVED_PREFIX):
                raise invalid(member, f"must not begin with {RESERVED_PREFIX!r}, which is reserved")
            if self._access.reserved(tool.name, agent_id) is not None:
                raise invalid(
                    member,
                    f"{tool.name!r} may only be offered by listed agents, and agent"
                    f" {agent_id} is none of them: the operator of the broker can list it",
                )
            if tool.name in named:
                raise invalid(member, f"repeats {tool.name!r}: register each tool once")
            for of_tool, raw, first in (
                ("description", tool.description, b'"'),
                ("tags", tool.tags, b"["),
            ):
                if present(raw) and bytes(memoryview(raw)[:1]) != first:
                    kind = "a string" if first == b'"' else "a list"
                    raise invalid(f"tools.{position}.{of_tool}", f"must be {kind}")
            if len(tool.networks or ()) > self._limits.networks:
                problem = f"holds more than the {self._limits.networks} networks allowed"
                raise invalid(f"tools.{position}.networks", problem)
            named[tool.name] = tool
        return named


def _described(
    name: str, offers: Mapping[Provider, ToolEntry], listed: AbstractSet[str] | None
) -> Raw:
    """Encode the description of a tool; with its providers if ``listed`` names networks."""
    tool = next(iter(offers.values()))
    description: dict[str, Any] = {
        "name": name,
        "description": tool.description if present(tool.description) else _NO_TEXT,
        "inputSchema": tool.input_schema if present(tool.input_schema) else _ANY_INPUT,
    }
    if present(tool.output_schema):
        description["outputSchema"] = tool.output_schema
    if present(tool.tags):
        description["tags"] = tool.tags
    if listed is not None:
        description["providers"] = [
            {
                "sessionId": session.id,
                "source": _SOURCE,
                "displayName": session.display_name or session.agent_id,
                "agentId": session.agent_id,
                "networks": [each for each in offer.networks or () if each in listed],
            }
            for session, offer in offers.items()
        ]
    return Raw(encode(description))
