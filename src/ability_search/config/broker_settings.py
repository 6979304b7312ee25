"""Brokers to join, and the networks on each.

A broker has a name. agent.json lists brokers (``brokers.<name>``, an address or an object with
``url`` and ``networks``). config.toml (``[broker.<name>] URL, NETWORKS, MODE``) sets how this
installation reaches a broker, may add brokers, and overrides agent.json. The worker joins all of
them. Commands that use one broker take the first of ``remote``, ``default``, ``local`` and the
others in file order.

``BROKER_URL`` selects a single broker: its networks are those of the entry with that address, or of
the first entry if none has it. ``BROKER_NETWORKS`` replaces the networks of every broker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ability_search.config.agent_card import AgentCard, BrokerEntry, names
from ability_search.config.config_files import FileKind, Found, Report

ORDER = ("remote", "default", "local")
_KEYS = ("URL", "NETWORKS", "MODE")


def _names_brokers(content: Mapping[str, Any]) -> bool:
    tables = content.get("broker")
    return isinstance(tables, Mapping) and any(
        key.upper() in _KEYS
        for table in tables.values()
        if isinstance(table, Mapping)
        for key in table
    )


CONNECTIONS = FileKind(
    "config.toml",
    _names_brokers,
    marker=re.compile(rb"^[ \t]*\[[ \t]*broker\b", re.MULTILINE),
    lacks=lambda _: "it has no table [broker.<name>] with URL, NETWORKS or MODE",
)


def read_connections(found: Found, report: Report) -> dict[str, BrokerEntry]:
    """Return the entries of the ``[broker.<name>]`` tables of a config.toml.

    Keys are case-insensitive. Other tables of the file belong to other programs. Keys of the wrong
    type are problems, unknown ones warnings.
    """
    entries: dict[str, BrokerEntry] = {}
    for name, table in found.content.get("broker", {}).items():
        where = f"{found.path}: [broker.{name}]"
        if isinstance(table, Mapping):
            entries[name] = _entry(name, table, where, report)
        else:
            report.problems.append(f"{where}: expected a table with URL and NETWORKS")
    return entries


def _entry(name: str, table: Mapping[str, Any], where: str, report: Report) -> BrokerEntry:
    keys = {key.upper(): value for key, value in table.items()}
    url = keys.pop("URL", None)
    if url is not None and not isinstance(url, str):
        report.problems.append(f"{where} URL: expected an address")
        url = None
    mode = keys.pop("MODE", "native")
    if not isinstance(mode, str):
        report.problems.append(f"{where} MODE: expected a string")
    elif mode.lower() != "native":
        report.warnings.append(f"{where} MODE: {mode} is not supported; using native")
    networks = names(keys.pop("NETWORKS", None), f"{where} NETWORKS", report.problems)
    if keys:
        unknown = ", ".join(sorted(keys))
        report.warnings.append(f"{where}: {unknown} ignored; valid keys are URL, NETWORKS, MODE")
    return BrokerEntry(name, url, networks, f"{where} URL")


def choose_brokers(
    card: AgentCard, connections: Mapping[str, BrokerEntry], override: str | None
) -> tuple[BrokerEntry, ...]:
    """Return the brokers to join, from both files; single connections use the first.

    Entries with the same address are merged, with the networks of all.

    Args:
        card: The contents of agent.json.
        connections: The entries of config.toml.
        override: Address from the environment; if given, its entry is the only one.

    Returns:
        At least one entry, its address still that of the files; ``local`` without an address if
        they name none.
    """
    known: dict[str, BrokerEntry] = {}
    cards = {entry.name: entry for entry in card.brokers}
    for name in dict.fromkeys((*ORDER, *cards, *connections)):
        entry, card_entry = connections.get(name), cards.get(name)
        if entry is None or card_entry is None:
            entry = entry or card_entry
        else:  # the entry of config.toml is completed by that of agent.json
            entry = replace(entry, networks=entry.networks or card_entry.networks)
            if not entry.url:
                entry = replace(entry, url=card_entry.url, where=card_entry.where)
        if entry is not None and entry.url is not None:
            first = known.setdefault(entry.url, entry)
            networks = tuple(dict.fromkeys((*first.networks, *entry.networks)))
            known[entry.url] = replace(first, networks=networks)
    entries = tuple(known.values()) or (connections.get("local", BrokerEntry("local")),)
    return entries if override is None else (known.get(override, entries[0]),)
