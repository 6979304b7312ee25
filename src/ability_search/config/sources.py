"""Settings by key from each source: environment, deployer, vault, config.yml."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Collection, Iterable, Mapping
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
VARIABLE_PREFIX = "SEARCH_"
_SERVICE_VARIABLE = re.compile(
    r"SEARCH_(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://")
_MISSPELT = 0.85
"""Similarity from which a key of config.yml counts as a misspelt setting."""
_SHOWN_KEYS = 5
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
    """Names of the secrets that it holds, without blank ones and those that cannot be decrypted."""
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
    """Read the settings in the environment.

    Lists are separated by commas, lists of paths as in ``PATH``. A blank variable sets the empty
    value of its setting, see :attr:`.Spec.empty_values`; if there is none, it counts as unset. A
    setting with several variables takes the first that is not blank.
    """
    layer: Layer = {}
    for spec in all_settings().specs:
        variables = [name for name in spec.env if name in environ]
        variables.sort(key=lambda name: not environ[name].strip())
        for name in variables[:1]:
            given = _of_text(spec, environ[name], base, name)
            if given is not None:
                layer[spec.key] = given
    return layer


def set_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without blank ones that count as unset."""
    settings = all_settings().by_env
    return {
        name: text
        for name, text in environ.items()
        if text.strip() or name not in settings or settings[name].empty_values
    }


def unknown_variables(environ: Mapping[str, str], further: Collection[str]) -> list[str]:
    """Return a warning for each variable ``SEARCH_...`` that no setting has.

    Left out are the ``further`` names that this program uses, and the variables by which Kubernetes
    describes a service named ``search`` or ``search-...``.
    """
    settings = all_settings().by_env
    warnings: list[str] = []
    for name in sorted(environ):
        if not name.startswith(VARIABLE_PREFIX) or name in settings or name in further:
            continue
        if _describes_service(name, environ[name]):
            continue
        shown = _safe_name(name)
        nearest = _nearest(name.removeprefix(VARIABLE_PREFIX), settings, VARIABLE_PREFIX)
        remedy = f"did you mean {nearest}?" if nearest else "docs/settings.md lists all of them"
        warnings.append(f"{shown} is ignored: no setting has this variable; {remedy}")
    return warnings


def _describes_service(name: str, value: str) -> bool:
    """Return whether Kubernetes sets a variable, to describe a service to its containers."""
    if _SERVICE_VARIABLE.fullmatch(name):
        return True
    return name.endswith("_PORT") and _SERVICE_ADDRESS.match(value) is not None


def _safe_name(name: str) -> str:
    """Return a foreign name in a form that is safe for a log line."""
    cut = name[:_SHOWN_CHARS]
    return cut if cut.isidentifier() else ascii(cut)


def _nearest(
    name: str, names: Iterable[str], prefix: str = "", *, cutoff: float = 0.6
) -> str | None:
    """Return the name that is most like another one; ``None`` if none is like it.

    Of ``names``, those with the ``prefix`` are compared, without it.
    """
    bare = {
        setting.removeprefix(prefix): setting for setting in names if setting.startswith(prefix)
    }
    nearest = difflib.get_close_matches(name, bare, n=1, cutoff=cutoff)
    return bare[nearest[0]] if nearest else None


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
            shown = ", ".join(map(_safe_name, sorted(names)))
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
    blank: set[str] = set()
    for name, text in stored.items():
        spec = all_settings().by_env.get(name)
        if spec is None or spec.key in known:
            continue
        try:
            value = reveal(text, path, VAULT, name, key_file=key).get_secret_value()
        except ConfigurationError as exc:
            undecrypted[name] = "; ".join(exc.problems)
            continue
        if not value.strip():
            blank.add(name)
        given = _of_text(spec, value, replace(base, directory=path.parent), f"{path}: {name}")
        if given is None:
            continue
        layer[spec.key] = given
        if spec.kind == "secret" and not is_encrypted(text):
            report.warnings.append(
                f"{path}: {name} is not encrypted; encrypt it with"
                f" `ability-search secret set {name}`"
            )
    report.warnings += undecrypted.values()
    return Vault(layer, frozenset(stored) - undecrypted.keys() - blank, undecrypted)


def _holds_settings(content: Mapping[str, Any]) -> bool:
    """Return whether most keys of section ``search`` are settings of this program, or misspelt."""
    section = content.get(SECTION)
    if not isinstance(section, Mapping):
        return False
    foreign = [key for key in section if not _is_like_setting(key)]
    return 2 * len(foreign) < len(section)


def _is_like_setting(key: object) -> bool:
    """Return whether a key is that of a setting, or so like one that it is probably misspelt."""
    if not isinstance(key, str):
        return False
    settings = all_settings().by_key
    if key in settings or key in _ELSEWHERE:
        return True
    return _nearest(key, settings, cutoff=_MISSPELT) is not None


def _why_foreign(content: Mapping[str, Any]) -> str:
    """Return why a config.yml does not count as a file of this program."""
    section = content.get(SECTION)
    if not isinstance(section, Mapping) or not section:
        return f"it has no section `{SECTION}` with settings of this program"
    foreign = [_safe_name(str(key)) for key in section if not _is_like_setting(key)]
    shown = ", ".join(foreign[:_SHOWN_KEYS])
    more = f" and {len(foreign) - _SHOWN_KEYS} more" if len(foreign) > _SHOWN_KEYS else ""
    return f"most keys of its section `{SECTION}` are no settings of this program: {shown}{more}"


CONFIG = FileKind(
    "config.yml",
    _holds_settings,
    marker=re.compile(rf"^{SECTION}[ \t]*:".encode(), re.MULTILINE),
    lacks=_why_foreign,
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
        problem = _refusal(key, value)
        if problem is not None:
            report.problems.append(f"{where}: {problem}")
            continue
        spec = all_settings().by_key[key]
        if not _is_blank(value):
            value = _located(spec, value, base)
        elif value is not None or None not in spec.empty_values:
            value = spec.empty_values[0]
        layer[key] = Given(value, where)
    return layer


def _is_blank(value: object) -> bool:
    """Return whether a value of config.yml is missing, or a text without characters."""
    return value is None or (isinstance(value, str) and not value.strip())


def _of_text(spec: Spec, text: str, base: Base, where: str) -> Given | None:
    """Return the value in a text; ``None`` if that is blank and the setting has no empty value."""
    text = text.strip()
    if text:
        return Given(_parsed(spec, text, base), where)
    return Given(spec.empty_values[0], where) if spec.empty_values else None


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
        nearest = _nearest(key, all_settings().by_key)
        remedy = f"did you mean {nearest}?" if nearest else "docs/settings.md lists all of them"
        return f"unknown key; {remedy}"
    if spec.kind == "secret":
        return _belongs(spec.env[0])
    if _is_blank(value) and not spec.empty_values:
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
