"""The agent of a model manager that the settings name."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kadi_client.tools import Agent

_AGENT_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class TrustedAgent:
    """The agent that the settings name: by its id, or by its name on a network.

    An id belongs to the holder of a key. A name is what an agent calls itself, so every agent that
    may join the network can have it.
    """

    id: str = ""
    name: str = ""
    network: str = ""

    @classmethod
    def parse(cls, value: object) -> TrustedAgent:
        """Return the agent for ``NAME@NETWORK`` or an agent id of 16 hexadecimal digits.

        Raises:
            ValueError: if it is neither, such as an id that YAML reads as a number.
        """
        if isinstance(value, cls):
            return value
        text = value.strip() if isinstance(value, str) else ""
        if _AGENT_ID.fullmatch(text.lower()):
            return cls(id=text.lower())
        name, _, network = (part.strip() for part in text.rpartition("@"))
        if not (name and network):
            raise ValueError(
                "expected NAME@NETWORK, such as model-manager@models, or an agent id of 16"
                " hexadecimal digits, in quotes if it has digits only"
            )
        return cls(name=name, network=network)

    def fits(self, agent: Agent) -> bool:
        """Return whether an agent, as its broker lists it, is this one."""
        if self.id:
            return agent.id == self.id
        return bool(agent.id) and agent.name == self.name and self.network in agent.networks

    @property
    def described(self) -> str:
        """The agent in words."""
        if self.id:
            return f"agent {self.id}"
        return f"an agent named {self.name!r} on network {self.network!r}"

    def __str__(self) -> str:
        return self.id or f"{self.name}@{self.network}"
