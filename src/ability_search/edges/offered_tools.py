"""The tools on the network and their providers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_PROVIDER = {"agentId": "agentId", "displayName": "name"}
"""Field of a provider in the broker's listing -> its name in the answer."""


def offers_of(tools: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the tools in order of their names, each with its description and providers.

    ``providers`` is empty if the broker does not list them.
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
