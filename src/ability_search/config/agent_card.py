"""agent.json: identity of the ability on the network, and the secrets a deployment must provide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ability_search import __version__
from ability_search.config.config_files import read_json
from ability_search.errors import ConfigurationError

NAME = "ability-search"
VAULT = "models"
"""The vault with the secrets of this ability."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The parts of agent.json that are used; the defaults equal the file in the source tree."""

    name: str = NAME
    version: str = __version__
    description: str = (
        "The KADI ability that makes text findable:"
        " chunking, embedding, semantic, keyword and hybrid search."
    )
    brokers: Mapping[str, str] = field(
        default_factory=lambda: {"local": "ws://localhost:8080/kadi"}
    )
    """Broker addresses by broker name."""
    networks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Networks by broker name, where the file gives any."""
    required_secrets: tuple[str, ...] = ("SEARCH_API_KEY", "SEARCH_EMBEDDING_API_URL")
    """Keys of vault ``models`` that the deploy blocks require, in file order."""
    path: Path | None = None
    """The file; ``None`` if there is none and all values are defaults."""


def read_manifest(path: Path) -> Manifest:
    """Read an agent.json.

    The file of another agent, which is found when working in that agent's directory, contributes
    only its brokers. This ability's own file has its name or lists ``search-query`` as a tool.

    Raises:
        ConfigurationError: listing every member of the wrong type.
    """
    document = read_json(path)
    problems: list[str] = []
    brokers, networks = _brokers(document, path, problems)
    own: dict[str, Any] = {}
    if document.get("name") == NAME or "search-query" in _tool_names(document):
        own = {
            name: _text(document, name, path, problems)
            for name in ("name", "version", "description")
            if name in document
        }
        if "deploy" in document:
            own["required_secrets"] = tuple(
                dict.fromkeys(_required(document["deploy"], path, problems))
            )
    if problems:
        raise ConfigurationError(*problems)
    if brokers:
        own["brokers"] = brokers
    return Manifest(networks=networks, path=path, **own)


def _tool_names(document: Mapping[str, Any]) -> list[str]:
    tools = document.get("tools")
    if not isinstance(tools, list):
        return []
    named = (tool.get("name") if isinstance(tool, Mapping) else tool for tool in tools)
    return [name for name in named if isinstance(name, str)]


def _text(document: Mapping[str, Any], name: str, path: Path, problems: list[str]) -> str:
    value = document[name]
    if isinstance(value, str) and value.strip():
        return value
    problems.append(f"{path}: {name}: expected a string")
    return ""


def _brokers(
    document: Mapping[str, Any], path: Path, problems: list[str]
) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    entries = document.get("brokers")
    if entries is None:
        return {}, {}
    if not isinstance(entries, Mapping):
        problems.append(f"{path}: brokers: expected an object of names and addresses")
        return {}, {}
    everywhere = names(document.get("networks"), f"{path}: networks", problems)
    urls: dict[str, str] = {}
    networks: dict[str, tuple[str, ...]] = {}
    for name, entry in entries.items():
        where = f"{path}: brokers.{name}"
        url = entry.get("url") if isinstance(entry, Mapping) else entry
        if not isinstance(url, str):
            problems.append(f"{where}: expected an address, or an object with url")
            continue
        urls[name] = url
        own = entry.get("networks") if isinstance(entry, Mapping) else None
        joined = names(own, f"{where}.networks", problems) or everywhere
        if joined:
            networks[name] = joined
    return urls, networks


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
