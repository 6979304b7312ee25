"""The agent of a model manager that requests with an API key go to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ability_search.config.trusted_agent import TrustedAgent
from ability_search.ports import Agents
from kadi_client.errors import NoProvider
from kadi_client.tools import Agent, quoted_name

ABSENT_SECONDS = 0.5
"""Seconds after which a request is repeated for which there was no agent: one that restarts is
listed again within seconds, and to ask the broker costs little."""
_UNTRUSTED_SECONDS = 10.0
"""Seconds after which a request is repeated for which there were agents, but none to trust.
Somebody has to decide about that, so a query does not wait for it."""


class ModelService(Protocol):
    """A service that agents offer, see :class:`.transports.Service`."""

    @property
    def tool(self) -> str:
        """Name of the tool."""

    @property
    def agent_setting(self) -> str:
        """Name of the setting of the agent that requests go to."""


class NoAgent(NoProvider):
    """There is no agent that requests may go to.

    Attributes:
        hint: What to do about it; ``None`` for the usual hint of the service.
        away: Whether the agent is away, so that it may come back by itself.
    """

    def __init__(self, message: str, hint: str | None = None, *, away: bool = False) -> None:
        super().__init__(message)
        self.hint = hint
        self.away = away

    @property
    def retry_after(self) -> float:
        """Seconds after which a request may be repeated."""
        return ABSENT_SECONDS if self.away else _UNTRUSTED_SECONDS


def shown_agents(agents: Iterable[Agent]) -> str:
    """Return the names, ids and networks of agents for a message, each agent once."""
    by_id: dict[str, Agent] = {}
    for agent in agents:
        listed = by_id.get(agent.id, agent)
        by_id[agent.id] = Agent(agent.id, listed.name, listed.networks | agent.networks)
    return "; ".join(_shown(by_id[id_]) for id_ in sorted(by_id))


def _shown(agent: Agent) -> str:
    """Return the name, id and networks of an agent."""
    if not agent.id:
        return "an agent that the broker does not identify"
    text = agent.id
    if agent.name not in ("", agent.id):
        text = f"{quoted_name(agent.name)} ({agent.id})"
    networks = ", ".join(sorted(agent.networks))
    return f"{text} on {networks}" if networks else text


def choose_agent(
    offers: Sequence[Agent],
    service: ModelService,
    *,
    trusted: TrustedAgent | None = None,
    before: Agent | None = None,
) -> Agent | None:
    """Return the agent that requests go to, of those that offer the tool of a service.

    That is the agent that the settings name; else the one that the key went to before; else the
    only one that there is. It is ``None`` if the broker does not say which agents there are: such
    requests have no key.

    Args:
        offers: The agents that offer the tool.
        service: The service.
        trusted: The agent that the settings name.
        before: The agent that the key went to before.

    Raises:
        NoAgent: if there is no such agent, or if several agents fit.
    """
    agents = {agent.id: agent for agent in offers if agent.id}
    if trusted is not None:
        agents = {agent.id: agent for agent in offers if trusted.fits(agent)}
    if before is not None and before.id in agents:
        return agents[before.id]
    if trusted is not None and not agents:
        raise _no_trusted(offers, service, trusted)
    if trusted is None and before is not None:
        raise _replaced(offers, service, before)
    if len(agents) > 1:
        raise _several(agents, service, trusted)
    if not offers:
        problem = f"no agent on the networks of this worker offers {service.tool}"
        raise NoAgent(problem, away=True)
    return next(iter(agents.values()), None)


def _no_trusted(offers: Sequence[Agent], service: ModelService, trusted: TrustedAgent) -> NoAgent:
    setting = service.agent_setting
    problem = f"{trusted.described} ({setting}) does not offer {service.tool}"
    others = f"offered by {shown_agents(offers)}" if offers else "nobody else does, either"
    hint = f"Start that agent, or correct {setting}."
    if trusted.network:
        hint += f" This worker and the agent must have joined the network {trusted.network!r}."
    return NoAgent(f"{problem}; {others}", hint, away=True)


def _replaced(offers: Sequence[Agent], service: ModelService, before: Agent) -> NoAgent:
    problem = f"the API key went to {_shown(before)}, which does not offer {service.tool} any more"
    if not offers:
        problem += ", and nobody else does"
        return NoAgent(problem, away=True)
    hint = (
        "If the agent that offers it now is the right one, restart the worker, or name the agent"
        f" in {service.agent_setting}: NAME@NETWORK on a network that only your agents can join,"
        " or its id."
    )
    problem += f"; it is now offered by {shown_agents(offers)}, to whom the key is not sent"
    return NoAgent(problem, hint)


def _several(
    agents: Mapping[str, Agent], service: ModelService, trusted: TrustedAgent | None
) -> NoAgent:
    listed = shown_agents(agents.values())
    setting = service.agent_setting
    if trusted is None:
        problem = (
            f"several agents offer {service.tool} ({listed}), and the API key goes to one only"
        )
        hint = (
            f"Name the right one in {setting}, NAME@NETWORK or its id, or keep the others out of"
            " the networks of this worker."
        )
    else:
        problem = (
            f"{service.tool} is offered by several agents that fit {setting} ({listed}), so that"
            " requests go to none of them"
        )
        hint = f"Stop all but one of them, or name one by its id in {setting}."
    return NoAgent(problem, hint)


@dataclass(slots=True, eq=False)
class Receiver:
    """The agent that requests go to, chosen by :func:`choose_agent` when it is first needed.

    It is chosen again when it has left. Without a :class:`TrustedAgent` it is then the same agent
    or none, until the worker is restarted.

    Args:
        service: The service.
        agents: Lists the agents.
        trusted: The agent that the settings name.
    """

    service: ModelService
    agents: Agents
    trusted: TrustedAgent | None = None
    _agent: Agent | None = None
    _present: bool = False
    """Whether the agent may be called without listing the agents again."""
    _offers: Sequence[Agent] = ()
    _listed_at: float = float("-inf")
    _listing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def agent(self) -> str | None:
        """Id of the agent that was chosen last."""
        return None if self._agent is None else self._agent.id

    async def choose(self) -> str | None:
        """Return the id of the agent; ``None`` if the broker does not say which agents there are.

        Raises:
            NoAgent: as :func:`choose_agent`.
            KadiError: if the broker does not list its tools.
        """
        called_at = time.monotonic()
        if not self._present:
            async with self._listing:
                await self._choose(called_at)
        return self.agent

    async def _choose(self, called_at: float) -> None:
        """Choose the agent; a listing is used that was requested after the caller came."""
        if self._present:
            return
        if self._listed_at < called_at:
            started = time.monotonic()
            self._offers = await self.agents(self.service.tool)
            self._listed_at = started
        agent = choose_agent(self._offers, self.service, trusted=self.trusted, before=self._agent)
        if agent is not None:
            self._agent, self._present = agent, True

    def lost(self, agent: str | None) -> None:
        """Choose again before the next request, as that agent has left, or may have."""
        if self.agent == agent:
            self._present = False
