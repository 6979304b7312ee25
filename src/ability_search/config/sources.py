"""Settings by key from each source: environment, deployer, vault, config.yml."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from ability_search.config.agent_card import VAULT
from ability_search.config.config_files import FileKind, Report, find_own
from ability_search.config.setting_fields import has_credentials
from ability_search.config.settings_table import Spec, all_settings
from ability_search.config.vault import SECRETS, is_encrypted, reveal, stored_secrets
from ability_search.errors import ConfigurationError

SECTION = "search"
_SHOWN_CHARS = 64
_ELSEWHERE = {
    "broker": "set brokers in config.toml [broker.<name>] URL, or in agent.json brokers",
    "broker_url": "set it in config.toml [broker.<name>] URL, or as BROKER_URL",
    "networks": "set them in config.toml [broker.<name>] NETWORKS, or as BROKER_NETWORKS",
}
_BASES = {
    "$XDG_DATA_HOME": ".local/share",
    "$XDG_CACHE_HOME": ".cache",
    "$XDG_CONFIG_HOME": ".config",
}
"""XDG base directories and their defaults in the home directory."""
_PATH_LISTS = ("paths", "named paths")
_LISTS = ("list", *_PATH_LISTS)


@dataclass(frozen=True, slots=True)
class Given:
    """A value from a source, paths in it absolute."""

    value: object
    where: str


Layer = dict[str, Given]
"""Values by key."""


class Vault(NamedTuple):
    """The contents of vault ``models``."""

    layer: Layer
    names: frozenset[str]
    """Names of the secrets that it holds, without those that cannot be decrypted."""
    undecrypted: Mapping[str, str]
    """Names of settings that cannot be decrypted, and the problem of each."""


@dataclass(frozen=True, slots=True)
class Base:
    """The directories in which relative paths, and paths with ``~``, begin."""

    directory: Path
    home: Path

    def absolute(self, path: str) -> Path:
        """Return an absolute path."""
        home = path == "~" or path.startswith("~/")
        return self.home / path[2:] if home else self.directory / path


def base_of(environ: Mapping[str, str], cwd: Path) -> Base:
    """Return the base of paths in the environment: the working directory and the user's home."""
    return Base(cwd, cwd / environ["HOME"] if environ.get("HOME") else cwd)


def from_defaults(environ: Mapping[str, str], base: Base) -> Layer:
    """Return the defaults that depend on the user and the working directory."""
    layer: Layer = {"allowed_roots": Given([base.directory], "default")}
    for spec in all_settings().specs:
        text = spec.default_text or ""
        if text.partition("/")[0] in _BASES:
            layer[spec.key] = Given(in_base_directory(text, environ, base), "default")
    return layer


def in_base_directory(text: str, environ: Mapping[str, str], base: Base) -> Path:
    """Return the path of a text like ``$XDG_CONFIG_HOME/ability-search/secrets.key``."""
    variable, _, rest = text.partition("/")
    root = Path(environ.get(variable[1:], ""))
    return (root if root.is_absolute() else base.home / _BASES[variable]) / rest


def from_environment(environ: Mapping[str, str], base: Base) -> Layer:
    """Read the settings in the environment; a blank variable counts as unset.

    Lists are separated by commas, lists of paths as in ``PATH``.
    """
    layer: Layer = {}
    for spec in all_settings().specs:
        name = next((name for name in spec.env if environ.get(name, "").strip()), None)
        if name is not None:
            layer[spec.key] = Given(_parsed(spec, environ[name].strip(), base), name)
    return layer


def from_deployer(secrets: Mapping[str, str], base: Base, report: Report) -> Layer:
    """Return the settings among the secrets of a deployment; the others are warnings.

    Values are parsed as :func:`from_environment` parses variables.
    """
    known = all_settings().by_env
    # Those of the broker, and of the deployment itself.
    asking = {spec.group for spec in all_settings().specs if spec.home is not None}
    late = {name for name in secrets.keys() & known if known[name].group in asking}
    for names, problem in (
        (secrets.keys() - known.keys(), "no setting has this name"),
        (late, "the worker needs it to reach the deployer; set it in the environment"),
    ):
        if names:
            # Foreign names in a form that is safe for a log line.
            cut = [name[:_SHOWN_CHARS] for name in sorted(names)]
            shown = ", ".join(each if each.isidentifier() else ascii(each) for each in cut)
            report.warnings.append(f"ignored from the deployer: {shown}; {problem}")
    usable = {name: secrets[name] for name in known if name in secrets and name not in late}
    return {
        key: replace(given, where=f"{given.where} from the deployer")
        for key, given in from_environment(usable, base).items()
    }


def key_file(layer: Layer) -> Path:
    """Return the path of the encryption key of secrets.toml.

    Raises:
        ConfigurationError: if the setting is not a path.
    """
    given = layer["secret_key_file"]
    if not isinstance(given.value, Path):
        raise ConfigurationError(f"{given.where}: expected a path")
    return given.value


def from_vault(known: Layer, files: Layer, base: Base, report: Report) -> Vault:
    """Return the settings that vault ``models`` adds.

    Names of other abilities, and settings that are already ``known``, are not decrypted.
    ``files`` holds the settings of config.yml and the defaults.
    """
    path, content = find_own(SECRETS, base.directory, report)
    if path is None:
        return Vault({}, frozenset(), {})
    try:
        key = key_file(files | known)
        stored = stored_secrets(content, path, VAULT)
    except ConfigurationError as exc:
        report.problems += exc.problems
        return Vault({}, frozenset(), {})
    layer: Layer = {}
    undecrypted: dict[str, str] = {}
    for name, text in stored.items():
        spec = all_settings().by_env.get(name)
        if spec is None or spec.key in known:
            continue
        try:
            value = reveal(text, path, VAULT, name, key_file=key).get_secret_value().strip()
        except ConfigurationError as exc:
            undecrypted[name] = "; ".join(exc.problems)
            continue
        parsed = _parsed(spec, value, replace(base, directory=path.parent))
        layer[spec.key] = Given(parsed, f"{path}: {name}")
        if spec.kind == "secret" and not is_encrypted(text):
            report.warnings.append(
                f"{path}: {name} is not encrypted; encrypt it with"
                f" `ability-search secret set {name}`"
            )
    report.warnings += undecrypted.values()
    return Vault(layer, frozenset(stored) - undecrypted.keys(), undecrypted)


def _holds_settings(content: Mapping[str, Any]) -> bool:
    """Return whether most keys of section ``search`` are settings of this program."""
    section = content.get(SECTION)
    if not isinstance(section, Mapping):
        return False
    settings = all_settings().by_key
    known = [key for key in section if key in settings or key in _ELSEWHERE]
    return 2 * len(known) > len(section)


CONFIG = FileKind(
    "config.yml",
    _holds_settings,
    marker=re.compile(rf"^{SECTION}[ \t]*:".encode(), re.MULTILINE),
    lacks=f"it has no section `{SECTION}` with settings of this program",
)


def from_config(base: Base, report: Report) -> Layer:
    """Return section ``search`` of config.yml; unknown and secret keys are problems."""
    path, content = find_own(CONFIG, base.directory, report)
    if path is None:
        return {}
    layer: Layer = {}
    base = replace(base, directory=path.parent)
    for key, value in content[SECTION].items():
        where = f"{path}: {SECTION}.{key}"
        if problem := _refusal(key, value):
            report.problems.append(f"{where}: {problem}")
        else:
            layer[key] = Given(_located(all_settings().by_key[key], value, base), where)
    return layer


def _parsed(spec: Spec, text: str, base: Base) -> object:
    """Return the value of a text; lists are separated as in the environment."""
    if spec.kind not in _LISTS:
        return _located(spec, text, base)
    separator = os.pathsep if spec.kind in _PATH_LISTS else ","
    items = [part.strip() for part in text.split(separator) if part.strip()]
    return _located(spec, items, base)


def _located(spec: Spec, value: object, base: Base) -> object:
    """Return a value with absolute paths, ``~`` expanded; one item of a list becomes a list."""
    if spec.kind == "path":
        return base.absolute(value) if isinstance(value, str) else value
    if spec.kind in _LISTS and isinstance(value, str):
        value = [value]
    if spec.kind not in _PATH_LISTS or not isinstance(value, list):
        return value

    def located(item: object) -> object:
        name, separator, path = item.partition("=") if isinstance(item, str) else ("", "", "")
        if separator and spec.kind == "named paths":
            return f"{name}={base.absolute(path)}"
        return str(base.absolute(item)) if isinstance(item, str) else item

    return list(map(located, value))


def _refusal(key: object, value: object) -> str | None:
    """Return why a key of config.yml is refused; ``None`` if it is valid."""
    if not isinstance(key, str):
        return "expected a string as key"
    spec = all_settings().by_key.get(key)
    if spec is None:
        if key in _ELSEWHERE:
            return f"not a setting of this file: {_ELSEWHERE[key]}"
        nearest = difflib.get_close_matches(key, all_settings().by_key, n=1)
        return f"unknown key; did you mean {nearest[0]}?" if nearest else "unknown key; see README"
    if spec.kind == "secret":
        return _belongs(spec.env[0])
    if value is None:
        return "has no value; remove the line to use the default"
    if isinstance(value, bool):
        return "expected a number or a string, not true, false, yes, no, on or off"
    if any(_carries_secret(item) for item in (value if isinstance(value, list) else [value])):
        return _belongs(spec.env[0])
    return None


def _carries_secret(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        return is_encrypted(value) or ("://" in value and has_credentials(value))
    except ValueError:
        return False


def _belongs(env: str) -> str:
    return (
        f"secrets are not allowed in this file: remove it, and set it with"
        f" `ability-search secret set {env}` or as {env} in the environment"
    )
