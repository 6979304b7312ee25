"""Loading of settings: read once, validated together, immutable.

Precedence: environment > deployer > vault ``models`` > config.yml > default. Files are found by
walking up from the working directory. The broker's address and networks come from config.toml and
agent.json (:mod:`ability_search.config.broker_settings`), the ability's identity from agent.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ability_search.config.agent_card import CARD, BrokerEntry, read_agent_card
from ability_search.config.broker_settings import CONNECTIONS, choose_brokers, read_connections
from ability_search.config.config_files import Report, find_own
from ability_search.config.schema import CORE_GROUPS, Broker, G, Loading, Settings
from ability_search.config.setting_fields import Group
from ability_search.config.settings_table import all_settings
from ability_search.config.sources import (
    CONFIG,
    Given,
    Layer,
    base_of,
    from_config,
    from_defaults,
    from_deployer,
    from_environment,
    from_vault,
    unknown_variables,
)
from ability_search.config.vault import SECRETS
from ability_search.errors import ConfigurationError


def own_files(cwd: Path) -> list[Path]:
    """Return the configuration files that :func:`load_settings` reads.

    Raises:
        ConfigurationError: if one of them cannot be read.
    """
    report = Report()
    kinds = (CONFIG, CONNECTIONS, CARD, SECRETS)
    found = [find_own(kind, cwd, report).path for kind in kinds]
    if report.problems:
        raise ConfigurationError(*report.problems)
    return [path for path in found if path is not None]


def load_settings(
    environ: Mapping[str, str], cwd: Path, *, deployed: Mapping[str, str] | None = None
) -> Settings:
    """Read the settings from the arguments and the files only.

    A missing required secret is no error, because the network may provide it.

    Args:
        environ: The environment.
        cwd: The working directory.
        deployed: Secrets that the deployer sent, if any.

    Raises:
        ConfigurationError: listing every problem, each with file and key.
    """
    report = Report()
    base = base_of(environ, cwd.absolute())
    given = from_deployer(deployed or {}, base, report) | from_environment(environ, base)
    configured = from_config(base, report)
    files = from_defaults(environ, base) | configured
    agent = read_agent_card(find_own(CARD, base.directory, report), report.problems)
    connections = read_connections(find_own(CONNECTIONS, base.directory, report), report)
    vault = from_vault(given, files, base, report)
    layer = files | vault.layer | given
    kinds = [kind for kind in all_settings().groups if kind is not Broker]
    groups: dict[type[Group], Any] = {kind: _group(kind, layer, report.problems) for kind in kinds}
    url = layer["url"].value if "url" in layer else None
    entries = choose_brokers(agent, connections, url if isinstance(url, str) else None)
    brokers = [_broker(entry, layer, report.problems) for entry in entries]
    if report.problems:
        lines = dict.fromkeys(report.problems)
        raise ConfigurationError(*lines, hint="Fix every problem above and start again.")
    report.warnings += unknown_variables(environ, agent.required_secrets)
    return Settings(
        **{CORE_GROUPS[kind]: groups.pop(kind) for kind in kinds if kind in CORE_GROUPS},
        added=groups,
        brokers=tuple(broker for broker in brokers if broker is not None),
        agent=agent,
        present_secrets=vault.names.union(_not_blank(environ), _not_blank(deployed or {})),
        undecrypted_secrets=vault.undecrypted,
        found_addresses=_found_addresses(entries[0], vault.layer | configured, given),
        warnings=tuple(report.warnings),
    )


def _not_blank(texts: Mapping[str, str]) -> set[str]:
    return {name for name, text in texts.items() if text.strip()}


def chosen_extensions(environ: Mapping[str, str], cwd: Path) -> tuple[str, ...]:
    """Return the setting ``extensions``, which is needed before all others.

    It is empty if the files are invalid, which :func:`load_settings` then reports.
    """
    base = base_of(environ, cwd.absolute())
    layer = from_config(base, Report()) | from_environment(environ, base)
    chosen = _group(Loading, layer, [])
    return chosen.extensions if chosen is not None else ()


def _broker(entry: BrokerEntry, layer: Layer, problems: list[str]) -> Broker | None:
    own: Layer = {}
    if entry.url is not None:
        own["url"] = Given(entry.url, entry.where)
    if entry.networks:
        own["networks"] = Given(list(entry.networks), entry.where)
    return _group(Broker, own | layer, problems, name=entry.name)


def _found_addresses(first: BrokerEntry, found: Layer, given: Layer) -> dict[type[Group], str]:
    """Return file and key of the addresses that ``given`` does not replace."""
    specs = all_settings().specs
    keys = {spec.key: spec.group for spec in specs if spec.attribute in ("url", "api_url")}
    places = {group: found[key].where for key, group in keys.items() if key in found}
    if first.url is not None:
        places[Broker] = first.where
    replaced = {keys[key] for key in given if key in keys}
    return {group: where for group, where in places.items() if group not in replaced}


def _group(kind: type[G], layer: Layer, problems: list[str], /, **further: object) -> G | None:
    """Return the settings of a group; ``None`` if invalid, with the problems by source."""
    given = {
        spec.attribute: layer[spec.key]
        for spec in all_settings().specs
        if spec.group is kind and spec.key in layer
    }
    values = {attribute: item.value for attribute, item in given.items()}
    try:
        return kind.model_validate(values | further)
    except ValidationError as exc:
        for loc, message in errors_of(exc):
            # A rule about several values names all sources.
            where = ", ".join(item.where for item in given.values() if item.where != "default")
            if loc:
                where = ".".join([given[str(loc[0])].where, *map(str, loc[1:])])
            problems.append(f"{where}: {message}")
        return None


def errors_of(exc: ValidationError) -> list[tuple[tuple[int | str, ...], str]]:
    """Return the place and the text of each error, without the invalid values."""
    errors = exc.errors(include_url=False, include_input=False, include_context=False)
    return [(error["loc"], error["msg"].removeprefix("Value error, ")) for error in errors]
