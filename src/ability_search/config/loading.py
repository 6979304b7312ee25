"""Loading of settings: read once, validated together, immutable.

Precedence: environment > deployer > vault ``models`` > config.yml > default. Files are found by
walking up from the working directory. The broker's address and networks come from config.toml and
agent.json (:mod:`ability_search.config.broker_settings`), the ability's identity from agent.json.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import SecretStr, ValidationError

from ability_search.config.agent_card import VAULT, Manifest, read_manifest
from ability_search.config.broker_settings import BrokerEntry, choose_brokers, read_connections
from ability_search.config.config_files import find_upward
from ability_search.config.layers import (
    Given,
    Layer,
    collecting,
    from_config,
    from_deployer,
    from_environment,
    from_vault,
    located,
    misspelt,
)
from ability_search.config.schema import (
    GROUPS,
    Broker,
    Chunking,
    Database,
    Embedding,
    Expansion,
    Files,
    Limits,
    Logging,
    Ranking,
    Reranker,
)
from ability_search.config.schema_deployment import Deployment
from ability_search.config.schema_edges import Gateway, Metrics, Tracing
from ability_search.config.schema_jobs import JobSettings
from ability_search.config.schema_kinds import Aspects
from ability_search.config.schema_local import Arcadedb, LocalBroker, Models
from ability_search.config.secret_ability import Invoke, fetch_secrets
from ability_search.config.setting_fields import Group
from ability_search.config.specs import BY_ENV, SPECS
from ability_search.config.vault import FILE as SECRETS_FILE
from ability_search.config.vault import read_vault
from ability_search.errors import ConfigurationError

API_URL = "SEARCH_EMBEDDING_API_URL"
RERANKER_API_URL = "SEARCH_RERANKER_API_URL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings by group; its ``repr`` never shows a credential."""

    chunking: Chunking
    embedding: Embedding
    reranker: Reranker
    expansion: Expansion
    aspects: Aspects
    database: Database
    jobs: JobSettings
    limits: Limits
    ranking: Ranking
    files: Files
    logging: Logging
    metrics: Metrics
    tracing: Tracing
    brokers: tuple[Broker, ...]
    """The brokers that the worker joins, at least one."""
    deployment: Deployment
    local_broker: LocalBroker
    models: Models
    arcadedb: Arcadedb
    gateway: Gateway
    agent: Manifest
    """Identity, from agent.json."""
    missing_secrets: tuple[str, ...] = ()
    """Required secrets that were not found on this machine."""
    warnings: tuple[str, ...] = ()
    """Ignored values and the reasons, for the log."""

    @property
    def broker(self) -> Broker:
        """The broker for commands that use a single connection."""
        return self.brokers[0]


class SecretFiles(NamedTuple):
    """Paths of the secrets file and its key."""

    path: Path
    """The secrets.toml found by walking up, else the one to create in the working directory."""
    key_file: Path


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
    cwd = cwd.absolute()
    environment = from_environment(environ, cwd)
    deployed = {name: text for name, text in (deployed or {}).items() if text.strip()}
    handed, unused = from_deployer(deployed, cwd)
    given = handed | environment
    base = _default_paths(environ, cwd) | _config(cwd, problems)
    home = _home(environ, cwd)
    vault, stored, remarks = _vault(cwd, base, given, home, problems)
    agent, connections, notes = _connections(cwd, problems)
    layer = base | vault | given
    groups: dict[str, Any] = {
        name: _group(name, layer, home, problems) for name in GROUPS if name != "broker"
    }
    brokers = [
        _broker(each, layer, cwd, home, problems)
        for each in choose_brokers(agent, connections, _text(layer.get("url")))
    ]
    if problems:
        lines = dict.fromkeys(problems)
        raise ConfigurationError(*lines, hint="Fix every problem above and start again.")
    settings = Settings(
        **groups,
        brokers=tuple(broker for broker in brokers if broker is not None),
        agent=agent,
        warnings=(*notes, *remarks, *unused, *misspelt(environ, "the environment")),
    )
    present = {name for name, value in environ.items() if value.strip()} | stored | deployed.keys()
    return replace(settings, missing_secrets=_missing(settings, present))


def locate_secrets(environ: Mapping[str, str], cwd: Path) -> SecretFiles:
    """Return the files that `secret set|get|list` use, without reading any secret.

    Raises:
        ConfigurationError: if config.yml is invalid.
    """
    problems: list[str] = []
    cwd = cwd.absolute()
    layer = _default_paths(environ, cwd) | _config(cwd, problems) | from_environment(environ, cwd)
    if problems:
        raise ConfigurationError(*problems)
    path = find_upward(SECRETS_FILE, cwd) or cwd / SECRETS_FILE
    return SecretFiles(path, _key_file(layer, _home(environ, cwd)))


def require_secrets(settings: Settings) -> None:
    """Check that every required secret was found.

    With ``embedding_transport`` ``api``, the secrets that the deploy blocks of agent.json list for
    vault ``models`` and the address of the API are required; with ``reranker_transport`` ``api``
    the address of the reranker API.

    Raises:
        ConfigurationError: naming each missing secret and the three places to set it.
    """
    if settings.missing_secrets:
        source = settings.agent.path or "agent.json"
        raise ConfigurationError(
            *(
                f"{name} is missing, {_reason(name, source)}:"
                f" set it in the environment (`kadi secret receive --vault {VAULT}`),"
                f" or in secrets.toml (`ability-search secret set {name}`),"
                f" or provide it in vault {VAULT} of a secret ability on the network"
                for name in settings.missing_secrets
            )
        )


def _reason(name: str, source: Path | str) -> str:
    if name == RERANKER_API_URL:
        return "required because reranker_transport is api"
    return f"required by {source} because embedding_transport is api"


async def complete_secrets(settings: Settings, invoke: Invoke, *, timeout: float = 5.0) -> Settings:
    """Fetch the missing required secrets from a secret ability on the network.

    Makes no call if none is missing. ``timeout`` is in seconds, for all of them together.

    Raises:
        ConfigurationError: if a secret is still missing, or invalid.
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
    spec = BY_ENV.get(name)
    if spec is None:
        return settings
    group: Group = getattr(settings, spec.group)
    values = dict(group) | {spec.attribute: secret.get_secret_value()}
    try:
        changed = type(group).model_validate(values)
    except ValidationError as exc:
        raise ConfigurationError(f"{name} from the secret ability: {_message(exc)}") from exc
    changes: dict[str, Any] = {spec.group: changed}
    return replace(settings, **changes)


def _missing(settings: Settings, present: Collection[str]) -> tuple[str, ...]:
    names: dict[str, None] = {}
    if settings.embedding.transport == "api":
        required = settings.agent.required_secrets
        names = dict.fromkeys(name for name in required if name not in present)
        if settings.embedding.api_url is not None:
            names.pop(API_URL, None)
        else:
            names[API_URL] = None
    if settings.reranker.transport == "api" and settings.reranker.api_url is None:
        names[RERANKER_API_URL] = None
    return tuple(names)


def _home(environ: Mapping[str, str], cwd: Path) -> Path:
    return cwd / environ["HOME"] if environ.get("HOME") else cwd


def _default_paths(environ: Mapping[str, str], cwd: Path) -> Layer:
    """Return defaults that depend on the user and the working directory (XDG base directories)."""
    bases = {
        "$XDG_DATA_HOME": ".local/share",
        "$XDG_CACHE_HOME": ".cache",
        "$XDG_CONFIG_HOME": ".config",
    }
    layer: Layer = {"allowed_roots": Given([str(cwd)], "default", cwd)}
    for spec in SPECS:
        variable, _, rest = (spec.default_text or "").partition("/")
        if variable in bases:
            given = Path(environ.get(variable[1:], ""))
            base = given if given.is_absolute() else _home(environ, cwd) / bases[variable]
            layer[spec.key] = Given(str(base / rest), "default", cwd)
    return layer


def _config(cwd: Path, problems: list[str]) -> Layer:
    path = find_upward("config.yml", cwd)
    return from_config(path, problems) if path else {}


def _key_file(layer: Layer, home: Path) -> Path:
    spec = BY_ENV["SEARCH_SECRET_KEY_FILE"]
    given = located(spec, layer[spec.key], home)
    if not isinstance(given.value, Path):
        raise ConfigurationError(f"{given.where}: expected a path")
    return given.value


def _vault(
    cwd: Path, base: Layer, environment: Layer, home: Path, problems: list[str]
) -> tuple[Layer, set[str], tuple[str, ...]]:
    """Return the settings that vault ``models`` adds, the names it holds, and warnings."""
    path = find_upward(SECRETS_FILE, cwd)
    if path is None:
        return {}, set(), ()
    with collecting(problems):
        key_file = _key_file(base | environment, home)
        stored = read_vault(path, VAULT)
        layer, warnings = from_vault(path, stored, environment, key_file, problems)
        return layer, set(stored), warnings
    return {}, set(), ()


def _connections(
    cwd: Path, problems: list[str]
) -> tuple[Manifest, dict[str, BrokerEntry], tuple[str, ...]]:
    """Return the manifest, the brokers of config.toml, and warnings."""
    agent = Manifest()
    connections: dict[str, BrokerEntry] = {}
    warnings: tuple[str, ...] = ()
    with collecting(problems):
        path = find_upward("agent.json", cwd)
        agent = read_manifest(path) if path else agent
    with collecting(problems):
        path = find_upward("config.toml", cwd)
        connections, warnings = read_connections(path) if path else (connections, warnings)
    return agent, connections, warnings


def _broker(
    entry: BrokerEntry, layer: Layer, cwd: Path, home: Path, problems: list[str]
) -> Broker | None:
    own = _of_entry(entry, cwd) | layer
    group = _group("broker", own, home, problems, name=entry.name, mode=entry.mode)
    return group if isinstance(group, Broker) else None


def _of_entry(entry: BrokerEntry, cwd: Path) -> Layer:
    layer: Layer = {}
    if entry.url is not None:
        layer["url"] = Given(entry.url, entry.where, cwd)
    if entry.networks:
        layer["networks"] = Given(list(entry.networks), entry.where, cwd)
    return layer


def _text(given: Given | None) -> str | None:
    return given.value if given is not None and isinstance(given.value, str) else None


def _group(
    name: str, layer: Layer, home: Path, problems: list[str], /, **further: object
) -> Group | None:
    """Return the settings of a group; ``None`` if invalid, with the problems by source."""
    given = {
        spec.attribute: located(spec, layer[spec.key], home)
        for spec in SPECS
        if spec.group == name and spec.key in layer
    }
    values = {attribute: item.value for attribute, item in given.items()}
    try:
        return GROUPS[name].model_validate(values | further)
    except ValidationError as exc:
        for error in exc.errors(include_url=False, include_input=False, include_context=False):
            where = _where(error["loc"], given)
            problems.append(f"{where}: {error['msg'].removeprefix('Value error, ')}")
        return None


def _where(loc: tuple[int | str, ...], given: Mapping[str, Given]) -> str:
    """Return the source of an invalid value; for a rule about several values, all sources."""
    if loc:
        return ".".join([given[str(loc[0])].where, *map(str, loc[1:])])
    return ", ".join(item.where for item in given.values() if item.where != "default")


def _message(exc: ValidationError) -> str:
    errors = exc.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(error["msg"].removeprefix("Value error, ") for error in errors)
