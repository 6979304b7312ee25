"""The checks of `doctor` of the agents that offer models, and of those that receive a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from ability_search.config.model_settings import ModelServer
from ability_search.config.schema import Settings
from ability_search.config.settings_table import all_settings
from ability_search.providers.chat import CHAT
from ability_search.providers.embedder import EMBEDDINGS
from ability_search.providers.model_agents import NoAgent, choose_agent, shown_agents
from ability_search.providers.reranker import RERANK
from ability_search.providers.transports import Service
from kadi_client import Agent

_FIRST = (
    "A worker keeps the agent that it found first: after that agent has restarted under another id,"
    " restart the worker, or name the agent in {setting}."
)


class AgentCheck(NamedTuple):
    """The state, the text and the remedy of a check."""

    state: Literal["ok", "warn", "fail"]
    text: str
    remedy: str = ""


MODEL_TOOLS = (EMBEDDINGS.tool, RERANK.tool, CHAT.tool)
"""The tools of model managers."""


def check_model_agents(
    settings: Settings, offers: Mapping[str, Sequence[Agent]]
) -> list[AgentCheck]:
    """Return for each service over the broker the agents that offer it, and who gets the key.

    A service that nobody offers is left out, unless the settings have a key or an agent for it.

    Args:
        settings: The settings.
        offers: The agents by tool, from all brokers of the worker.
    """
    services: Sequence[tuple[Service, ModelServer]] = (
        (EMBEDDINGS, settings.embedding),
        (RERANK, settings.reranker),
        (CHAT, settings.expansion),
    )
    return [
        _check(service, chosen, offers.get(service.tool, ()))
        for service, chosen in services
        if chosen.transport == "broker"
        and (offers.get(service.tool) or chosen.api_key or chosen.agent)
    ]


def _check(service: Service, chosen: ModelServer, offers: Sequence[Agent]) -> AgentCheck:
    offered = f"{service.tool}: {shown_agents(offers) or 'no agent'}"
    if chosen.api_key is None and chosen.agent is None:
        return AgentCheck("ok", f"{offered}; no API key is set")
    try:
        agent = choose_agent(offers, service, trusted=chosen.agent)
    except NoAgent as exc:
        # Without an embedder nothing is indexed; the other services are options of a query.
        state: Literal["warn", "fail"] = "fail" if service is EMBEDDINGS else "warn"
        return AgentCheck(
            state, str(exc), exc.hint or f"Start an agent that offers {service.tool}."
        )
    if agent is None:
        text = f"{offered}; the API key is sent to nobody, as the broker does not name the agents"
        return AgentCheck("warn", text, "Use an API over HTTP, or a broker that names them.")
    receiver = f"go to {shown_agents([agent])}"
    if chosen.agent is not None:
        receiver += f", as {service.agent_setting}={chosen.agent} demands"
    what = "requests" if chosen.api_key is None else f"requests and {_key_name(chosen)}"
    remedy = "" if chosen.agent is not None else _FIRST.format(setting=service.agent_setting)
    return AgentCheck("ok", f"{offered}; {what} {receiver}", remedy)


def _key_name(chosen: ModelServer) -> str:
    """Return the name of the key of a group of settings."""
    group = type(chosen)
    specs = all_settings().specs
    return next(
        spec.env[0] for spec in specs if spec.group is group and spec.attribute == "api_key"
    )
