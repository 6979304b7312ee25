"""Who offers which tool to whom."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from kadi_client.messages import Raw
from kadi_localnet.broker.limits import Limits
from kadi_localnet.broker.params import Discovery, Register, ToolEntry, invalid, present
from kadi_localnet.broker.session import DEFAULT_NETWORKS, Session

RESERVED_PREFIX = "kadi."
_ANY_INPUT = Raw(b'{"type":"object"}')
_SOURCE = "websocket"


class Registry:
    """Tools by name and provider; of two providers of one tool the earlier describes it."""

    __slots__ = ("_limits", "_providers")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._providers: dict[str, dict[Session, ToolEntry]] = {}

    def register(self, session: Session, params: Register) -> dict[str, Any]:
        """Give ``session`` this tool set in place of the one it had.

        Networks that are not named stay as they are.

        Raises:
            Refused: leaving everything as it was, if a tool or network cannot be accepted.
        """
        tools = self._checked_tools(params.tools or ())
        if params.networks is not None:
            session.networks = checked_networks(params.networks, self._limits)
        self.remove(session)
        session.tools = tools
        session.display_name = params.display_name or session.display_name
        for name, tool in tools.items():
            self._providers.setdefault(name, {})[session] = tool
        return {
            "status": "registered",
            "agentId": session.agent_id,
            "networks": session.networks,
            "tools": list(tools),
        }

    def remove(self, session: Session) -> None:
        """Withdraw every tool of ``session``."""
        for name in session.tools:
            providers = self._providers[name]
            del providers[session]
            if not providers:
                del self._providers[name]
        session.tools = {}

    def providers(self, tool: str, caller: Session) -> list[Session]:
        """Sessions offering ``tool`` that ``caller`` may see, in order of registration."""
        return [
            session for session in self._providers.get(tool, ()) if session.shares_network(caller)
        ]

    def describe(self, caller: Session, params: Discovery) -> dict[str, Any]:
        """The tools ``caller`` may see, ordered by name; only those named, if any is."""
        names: Iterable[str] = sorted(self._providers) if params.tool is None else [params.tool]
        networks = set(caller.networks)
        if params.networks is not None:
            networks &= set(params.networks)
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
            session: tool
            for session, tool in self._providers.get(name, {}).items()
            if any(network in networks for network in session.networks)
        }
        if not visible:
            return None
        tool = next(iter(visible.values()))
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
                }
                for session in visible
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


def checked_networks(networks: Sequence[str], limits: Limits) -> tuple[str, ...]:
    """Networks as a session joins them: in order, each once, the default one if there are none.

    Raises:
        Refused: if there are too many, or a name cannot be used.
    """
    if len(networks) > limits.networks:
        raise invalid("networks", f"holds {len(networks)}, more than the {limits.networks} allowed")
    for position, network in enumerate(networks):
        check_name(f"networks.{position}", network, limits)
    return tuple(dict.fromkeys(networks)) or DEFAULT_NETWORKS


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
