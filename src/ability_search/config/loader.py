"""Loading of settings: read once, validated together, immutable.

Precedence: environment > deployer > vault ``models`` > config.yml > default. Files are found by
walking up from the working directory. The broker's address and networks come from config.toml and
agent.json (:mod:`ability_search.config.broker_settings`), the ability's identity from agent.json.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import SecretStr, ValidationError

from ability_search.config.agent_card import CARD, VAULT, AgentCard, BrokerEntry, read_agent_card
from ability_search.config.broker_settings import CONNECTIONS, choose_brokers, read_connections
from ability_search.config.config_files import find_own
from ability_search.config.model_settings import Expansion, ModelServer, Reranker
from ability_search.config.schema import CORE_GROUPS, Broker, G, Loading, Settings
from ability_search.config.setting_fields import Group
from ability_search.config.settings_table import all_settings
from ability_search.config.sources import (
    CONFIG,
    Given,
    Layer,
    base_of,
    collecting,
    from_config,
    from_defaults,
    from_deployer,
    from_environment,
    from_vault,
    key_file,
)
from ability_search.config.vault import SECRETS, Invoke, fetch_secrets
from ability_search.errors import ConfigurationError

API_KEY = "SEARCH_API_KEY"
API_URL = "SEARCH_EMBEDDING_API_URL"
_API_URLS: dict[str, type[ModelServer]] = {
    "SEARCH_RERANKER_API_URL": Reranker,
    "SEARCH_EXPANSION_API_URL": Expansion,
}
"""Addresses of APIs that are required if a group of settings chooses the API."""


class SecretFiles(NamedTuple):
    """Paths of the secrets file and its key."""

    path: Path
    """The secrets.toml found by walking up, else the one to create in the working directory."""
    key_file: Path


def own_files(cwd: Path) -> list[Path]:
    """Return the configuration files that :func:`load_settings` reads.

    Raises:
        ConfigurationError: if one of them cannot be read.
    """
    found = (find_own(kind, cwd).path for kind in (CONFIG, CONNECTIONS, CARD, SECRETS))
    return [path for path in found if path is not None]


def load_settings(
    environ: Mapping[str, str], cwd: Path, *, deployed: Mapping[str, str] | None = None
) -> Settings:
    """Read the settings from the arguments and the files only.

    A missing required secret is not an error yet, because the network may provide it:
    see :func:`complete_secrets` and :func:`require_secrets`.

    Args:
        environ: The environment.
        cwd: The working directory.
        deployed: Secrets that the deployer sent, if any.

    Raises:
        ConfigurationError: listing every problem, each with file and key.
    """
    problems: list[str] = []
    base = base_of(environ, cwd.absolute())
    deployed = {name: text for name, text in (deployed or {}).items() if text.strip()}
    from_deploy, unused = from_deployer(deployed, base)
    given = from_deploy | from_environment(environ, base)
    configured, passed_over = from_config(base, problems)
    files = from_defaults(environ, base) | configured
    vault = from_vault(given, files, base, problems)
    agent, connections, notes = _connections(base.directory, problems)
    layer = files | vault.layer | given
    kinds = [kind for kind in all_settings().groups if kind is not Broker]
    groups: dict[type[Group], Any] = {kind: _group(kind, layer, problems) for kind in kinds}
    entries = choose_brokers(agent, connections, _text(layer.get("url")))
    brokers = [_broker(entry, layer, problems) for entry in entries]
    if problems:
        lines = dict.fromkeys(problems)
        raise ConfigurationError(*lines, hint="Fix every problem above and start again.")
    settings = Settings(
        **{CORE_GROUPS[kind]: groups.pop(kind) for kind in kinds if kind in CORE_GROUPS},
        added=groups,
        brokers=tuple(broker for broker in brokers if broker is not None),
        agent=agent,
        undecrypted_secrets=vault.undecrypted,
        found_addresses=_found_addresses(entries[0], vault.layer | configured, given),
        warnings=(*passed_over, *notes, *vault.warnings, *unused),
    )
    present = {name for name, value in environ.items() if value.strip()}
    missing = _missing(settings, present.union(vault.names, deployed))
    return replace(settings, missing_secrets=missing)


def chosen_extensions(environ: Mapping[str, str], cwd: Path) -> tuple[str, ...]:
    """Return the setting ``extensions``, which is needed before all others.

    It is empty if the files are invalid, which :func:`load_settings` then reports.
    """
    base = base_of(environ, cwd.absolute())
    layer = from_config(base, [])[0] | from_environment(environ, base)
    chosen = _group(Loading, layer, [])
    return chosen.extensions if chosen is not None else ()


def locate_secrets(environ: Mapping[str, str], cwd: Path) -> SecretFiles:
    """Return the files that `secret set|get|list` use, without reading any secret.

    Raises:
        ConfigurationError: if config.yml is invalid.
    """
    problems: list[str] = []
    base = base_of(environ, cwd.absolute())
    configured, _ = from_config(base, problems)
    layer = from_defaults(environ, base) | configured
    if problems:
        raise ConfigurationError(*problems)
    path = find_own(SECRETS, base.directory).path or base.directory / SECRETS.name
    return SecretFiles(path, key_file(layer | from_environment(environ, base)))


def require_secrets(settings: Settings) -> None:
    """Check that every required secret was found.

    With ``embedding_transport`` ``api``, the secrets that the deploy blocks of agent.json list for
    vault ``models`` and the address of the API are required; with ``reranker_transport`` or
    ``expansion_transport`` ``api`` the address of that API. The key of the API is required only if
    agent.json lists it, or if secrets.toml has one that cannot be decrypted.

    Raises:
        ConfigurationError: naming each missing secret and the three places to set it.
    """
    missing = [name for name in settings.missing_secrets if is_required(settings, name)]
    if missing:
        source = settings.agent.path or "agent.json"
        raise ConfigurationError(
            *(
                settings.undecrypted_secrets.get(name)
                or f"{name} is missing, {_reason(name, source)}:"
                f" set it in the environment (`kadi secret receive --vault {VAULT}`),"
                f" or in secrets.toml (`ability-search secret set {name}`),"
                f" or provide it in vault {VAULT} of a secret ability on the network"
                for name in missing
            ),
            hint=f"For an API that needs no key, remove {API_KEY} from the required secrets in"
            f" {source}."
            if API_KEY in missing and API_KEY in settings.agent.required_secrets
            else None,
        )


def is_required(settings: Settings, name: str) -> bool:
    """Return False for the key of the embedding API, if nothing says that the API needs one."""
    return (
        name != API_KEY
        or name in settings.agent.required_secrets
        or name in settings.undecrypted_secrets
    )


def require_decrypted(settings: Settings) -> None:
    """Check that every secret of secrets.toml was decrypted, except those that a network provides.

    Clients need no secrets; a component without its token would admit everyone.

    Raises:
        ConfigurationError: naming each secret that was not.
    """
    problems = [
        problem
        for name, problem in settings.undecrypted_secrets.items()
        if name not in (API_KEY, *settings.agent.required_secrets)
    ]
    if problems:
        raise ConfigurationError(*problems)


def _reason(name: str, source: Path | str) -> str:
    group = _API_URLS.get(name)
    if group is not None:
        return f"required because {group.prefix}transport is api"
    return f"required by {source} because embedding_transport is api"


async def complete_secrets(settings: Settings, invoke: Invoke, *, timeout: float = 5.0) -> Settings:
    """Fetch the missing secrets from a secret ability on the network.

    Makes no call if none is missing. ``timeout`` is in seconds, for all of them together.

    Raises:
        ConfigurationError: if a required secret is still missing, or one is invalid.
    """
    if not settings.missing_secrets:
        return settings
    found = await fetch_secrets(settings.missing_secrets, invoke, vault=VAULT, timeout=timeout)
    for name, secret in found.items():
        settings = _with_secret(settings, name, secret)
    missing = tuple(name for name in settings.missing_secrets if name not in found)
    settings = replace(settings, missing_secrets=missing)
    require_secrets(settings)
    return settings


def _with_secret(settings: Settings, name: str, secret: SecretStr) -> Settings:
    spec = all_settings().by_env.get(name)
    if spec is None:
        return settings
    group = settings.of(spec.group)
    values = dict(group) | {spec.attribute: secret.get_secret_value()}
    try:
        changed = type(group).model_validate(values)
    except ValidationError as exc:
        text = "; ".join(message for _, message in _errors(exc))
        raise ConfigurationError(f"{name} from the secret ability: {text}") from exc
    return settings.with_group(changed)


def _missing(settings: Settings, present: Collection[str]) -> tuple[str, ...]:
    names: dict[str, None] = {}
    if settings.embedding.transport == "api":
        required = (API_KEY, *settings.agent.required_secrets)
        names = dict.fromkeys(name for name in required if name not in present)
        if settings.embedding.api_url is not None:
            names.pop(API_URL, None)
        else:
            names[API_URL] = None
    for name, group in _API_URLS.items():
        chosen = settings.of(group)
        if chosen.transport == "api" and chosen.api_url is None:
            names[name] = None
    return tuple(names)


def _connections(
    cwd: Path, problems: list[str]
) -> tuple[AgentCard, dict[str, BrokerEntry], tuple[str, ...]]:
    """Return the contents of agent.json, the brokers of config.toml, and warnings."""
    agent = AgentCard()
    connections: dict[str, BrokerEntry] = {}
    warnings: tuple[str, ...] = ()
    with collecting(problems):
        card = find_own(CARD, cwd)
        warnings += card.warnings
        agent = read_agent_card(card)
    with collecting(problems):
        table = find_own(CONNECTIONS, cwd)
        connections, notes = read_connections(table)
        warnings += (*table.warnings, *notes)
    return agent, connections, warnings


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


def _text(given: Given | None) -> str | None:
    return given.value if given is not None and isinstance(given.value, str) else None


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
        for loc, message in _errors(exc):
            problems.append(f"{_where(loc, given)}: {message}")
        return None


def _where(loc: tuple[int | str, ...], given: Mapping[str, Given]) -> str:
    """Return the source of an invalid value; for a rule about several values, all sources."""
    if loc:
        return ".".join([given[str(loc[0])].where, *map(str, loc[1:])])
    return ", ".join(item.where for item in given.values() if item.where != "default")


def _errors(exc: ValidationError) -> list[tuple[tuple[int | str, ...], str]]:
    """Return the place and the text of each error, without the invalid values."""
    errors = exc.errors(include_url=False, include_input=False, include_context=False)
    return [(error["loc"], error["msg"].removeprefix("Value error, ")) for error in errors]
