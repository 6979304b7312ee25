"""agent.json: identity of the ability on the network, and the secrets a deployment must provide."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ability_search import __version__
from ability_search.config.config_files import FileKind, Found

NAME = "ability-search"
VAULT = "models"
"""The vault with the secrets of this ability."""
API_KEY = "SEARCH_API_KEY"
"""The key of the embedding API."""


@dataclass(frozen=True, slots=True)
class BrokerEntry:
    """One broker as a file gives it; ``url`` is unchecked, ``None`` if it is missing."""

    name: str
    url: str | None = None
    networks: tuple[str, ...] = ()
    where: str = ""
    """File and key of the address."""


@dataclass(frozen=True, slots=True)
class AgentCard:
    """The parts of agent.json that are used; the defaults equal the file in the source tree."""

    name: str = NAME
    version: str = __version__
    brokers: tuple[BrokerEntry, ...] = (BrokerEntry("local", "ws://localhost:8080/kadi"),)
    required_secrets: tuple[str, ...] = ("SEARCH_EMBEDDING_API_URL",)
    """Keys of vault ``models`` that the deploy blocks require, in file order."""
    path: Path | None = None
    """The file; ``None`` if there is none and all values are defaults."""


def _is_own(content: Mapping[str, Any]) -> bool:
    tools = content.get("tools")
    return content.get("name") == NAME or any(
        (tool.get("name") if isinstance(tool, Mapping) else tool) == "search-query"
        for tool in (tools if isinstance(tools, list) else ())
    )


CARD = FileKind(
    "agent.json",
    lambda content: _is_own(content) or isinstance(content.get("brokers"), Mapping),
    marker=re.compile(rb'"(brokers|search-query|ability-search)"'),
    lacks=lambda _: "it names no brokers and is not the card of this ability",
)


def read_agent_card(found: Found, problems: list[str]) -> AgentCard:
    """Return the card in an agent.json; the defaults if there is none.

    The file of another agent, which is found when working in that agent's directory, contributes
    only its brokers. This ability's own file has its name or lists ``search-query`` as a tool.
    Members of the wrong type add to ``problems``.
    """
    path, document = found
    if path is None:
        return AgentCard()
    own: dict[str, Any] = {}
    if brokers := tuple(_brokers(document, path, problems)):
        own["brokers"] = brokers
    if _is_own(document):
        for name in document.keys() & {"name", "version"}:
            own[name] = document[name]
            if not isinstance(own[name], str) or not own[name].strip():
                problems.append(f"{path}: {name}: expected a string")
        if "deploy" in document:
            required = _required(document["deploy"], path, problems)
            own["required_secrets"] = tuple(dict.fromkeys(required))
    return AgentCard(path=path, **own)


def _brokers(document: Mapping[str, Any], path: Path, problems: list[str]) -> Iterator[BrokerEntry]:
    entries = document.get("brokers")
    if entries is None:
        return
    if not isinstance(entries, Mapping):
        problems.append(f"{path}: brokers: expected an object of names and addresses")
        return
    everywhere = names(document.get("networks"), f"{path}: networks", problems)
    for name, entry in entries.items():
        where = f"{path}: brokers.{name}"
        given = entry if isinstance(entry, Mapping) else {"url": entry}
        if not isinstance(given.get("url"), str):
            problems.append(f"{where}: expected an address, or an object with url")
            continue
        networks = names(given.get("networks"), f"{where}.networks", problems) or everywhere
        yield BrokerEntry(name, given["url"], networks, where)


def names(value: object, where: str, problems: list[str]) -> tuple[str, ...]:
    """Return a list of names as a tuple, empty for ``None``; other values add to ``problems``."""
    if value is None:
        return ()
    if isinstance(value, list) and value and all(isinstance(n, str) and n.strip() for n in value):
        return tuple(value)
    problems.append(f"{where}: expected a list of names")
    return ()


def _required(deploy: object, path: Path, problems: list[str]) -> Iterator[str]:
    if not isinstance(deploy, Mapping):
        problems.append(f"{path}: deploy: expected an object")
        return
    for name, block in deploy.items():
        secrets = block.get("secrets") if isinstance(block, Mapping) else None
        if not isinstance(secrets, Mapping):
            continue
        vaults = secrets.get("vaults", [secrets])
        for vault in vaults if isinstance(vaults, list) else []:
            if isinstance(vault, Mapping) and vault.get("vault") == VAULT:
                where = f"{path}: deploy.{name}.secrets.required"
                yield from names(vault.get("required") or None, where, problems)
