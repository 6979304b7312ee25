"""Access to networks, and to the tools that an agent may offer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from kadi_localnet.broker.limits import Limits
from kadi_localnet.broker.params import invalid

DEFAULT_NETWORKS = ("global",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The access rules of a broker. Agents are named by their ids.

    By default an agent may join any network and offer any tool.
    """

    members: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Networks that only these agents may join."""
    providers: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Tools that only these agents may offer, by name or pattern (``arcade-*``), in letters of
    either case. If several patterns match a name, the agent must be listed for each of them."""

    announced: Mapping[str, str] = field(default_factory=dict)
    """Networks among ``members`` that other agents may know of: if a tool that one calls is offered
    there, the error names the network, and this text, which says how an agent is listed."""

    def may_join(self, network: str, agent_id: str | None) -> bool:
        """Return whether an agent may join a network."""
        return network not in self.members or agent_id in self.members[network]

    def names(self, agent_id: str | None) -> bool:
        """Return whether an agent is listed as a provider."""
        return any(agent_id in agents for agents in self.providers.values())

    def reserved(self, tool: str, agent_id: str | None) -> str | None:
        """Return the pattern by which an agent may not offer a tool; ``None`` if it may."""
        name = tool.strip().lower()
        forbidden = (each for each, agents in self.providers.items() if agent_id not in agents)
        return next((pattern for pattern in forbidden if fnmatchcase(name, pattern.lower())), None)

    def admitted(
        self, asked: Sequence[str], agent_id: str | None, limits: Limits
    ) -> tuple[tuple[str, ...], list[str]]:
        """Return the networks that a session joins, and those that it may not join.

        ``agent_id`` is ``None`` for an unauthenticated session.

        Both are in the order of ``asked``, without duplicates. If ``asked`` is empty, it counts as
        the default network.

        Raises:
            Refused: if there are too many networks, or a name is invalid.
        """
        if len(asked) > limits.networks:
            raise invalid(
                "networks", f"holds {len(asked)}, more than the {limits.networks} allowed"
            )
        for position, network in enumerate(asked):
            check_name(f"networks.{position}", network, limits)
        names = list(dict.fromkeys(asked)) or list(DEFAULT_NETWORKS)
        joined = tuple(name for name in names if self.may_join(name, agent_id))
        return joined, [name for name in names if name not in joined]


def first_shared(places: Mapping[str, int], networks: Iterable[str]) -> str | None:
    """Return the one of ``networks`` with the first of ``places``; ``None`` if none has one."""
    shared = [network for network in networks if network in places]
    return min(shared, key=places.__getitem__, default=None)


def check_name(member: str, name: str, limits: Limits) -> None:
    """Check the length of a name.

    Raises:
        Refused: naming ``member``, if the name is empty or too long.
    """
    if not name:
        raise invalid(member, "is empty")
    if len(name) > limits.name_length:
        raise invalid(
            member, f"has {len(name)} characters, more than the {limits.name_length} allowed"
        )
