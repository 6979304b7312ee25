"""Who on the network offers which tool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_PROVIDER = {"agentId": "agentId", "displayName": "name"}
"""What is told of a provider, and how it is called."""


def offers_of(tools: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The tools by name, each with its description and its providers, as a broker lists them.

    Some brokers do not tell who provides a tool: nobody is listed then.
    """
    told = ((str(tool.get("name") or ""), tool) for tool in tools)
    return [
        {
            "name": name,
            "description": str(tool.get("description") or ""),
            "providers": [_provider(each) for each in tool.get("providers") or ()],
        }
        for name, tool in sorted(told, key=lambda pair: pair[0])
    ]


def _provider(told: Any) -> dict[str, str]:
    if not isinstance(told, dict):
        return {}
    return {name: str(told[key]) for key, name in _PROVIDER.items() if told.get(key)}
