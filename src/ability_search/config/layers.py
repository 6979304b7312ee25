"""Values by key from each source: environment, deployer, vault, config.yml."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ability_search.config.agent_card import VAULT
from ability_search.config.config_files import read_yaml, section
from ability_search.config.setting_fields import has_credentials
from ability_search.config.specs import BY_ENV, BY_KEY, SPECS, Spec
from ability_search.config.vault import is_encrypted, reveal
from ability_search.errors import ConfigurationError

SECTION = "search"
_SECRET_WORD = re.compile(
    r"(^|_)(secret|token|password|passwd|passphrase|credentials?|(api|access|private)_?key)($|_)"
)
_NEEDED_TO_ASK = ("broker", "deployment")
"""Groups of settings that the worker needs before it can reach the deployer."""
_SHOWN_CHARS = 64
_ELSEWHERE = {
    "broker": "set brokers in config.toml [broker.<name>] URL, or in agent.json brokers",
    "broker_url": "set it in config.toml [broker.<name>] URL, or as BROKER_URL",
    "networks": "set them in config.toml [broker.<name>] NETWORKS, or as BROKER_NETWORKS",
}


@dataclass(frozen=True, slots=True)
class Given:
    """A value from a source; its relative paths are resolved against ``base``."""

    value: object
    where: str
    base: Path


Layer = dict[str, Given]
"""Values by key."""

PATH_LISTS = ("paths", "named paths")
LISTS = ("list", *PATH_LISTS)


@contextmanager
def collecting(problems: MutableSequence[str]) -> Iterator[None]:
    """Append the problems of a configuration error to a list instead of raising it."""
    try:
        yield
    except ConfigurationError as exc:
        problems.extend(exc.problems)


def from_environment(environ: Mapping[str, str], cwd: Path) -> Layer:
    """Read the settings in the environment; a blank variable counts as unset.

    Lists are separated by commas, lists of paths as in ``PATH``.
    """
    layer: Layer = {}
    for spec in SPECS:
        for name in spec.env:
            text = environ.get(name, "").strip()
            if text:
                layer[spec.key] = Given(_value(spec, text), name, cwd)
                break
    return layer


def from_deployer(secrets: Mapping[str, str], cwd: Path) -> tuple[Layer, tuple[str, ...]]:
    """Return the settings among the secrets of a deployment, and warnings that name the others.

    Values are parsed as :func:`from_environment` parses variables.
    """
    late = {name for name in secrets if name in BY_ENV and BY_ENV[name].group in _NEEDED_TO_ASK}
    usable = {name: secrets[name] for name in BY_ENV if name in secrets and name not in late}
    layer = {
        key: replace(given, where=f"{given.where} from the deployer")
        for key, given in from_environment(usable, cwd).items()
    }
    problems = (
        (secrets.keys() - BY_ENV.keys(), "no setting has this name"),
        (late, "the worker needs it to reach the deployer; set it in the environment"),
    )
    return layer, tuple(
        f"ignored from the deployer: {', '.join(map(_shown, sorted(names)))}; {problem}"
        for names, problem in problems
        if names
    )


def _shown(name: str) -> str:
    """Return a foreign name in a form that is safe for a log line."""
    cut = name[:_SHOWN_CHARS]
    return cut if cut.isidentifier() else ascii(cut)


def misspelt(names: Iterable[str], place: str) -> tuple[str, ...]:
    """Return warnings for ``names`` in a ``place`` that almost match a setting."""
    return tuple(
        f"{name} in {place} is not a setting; did you mean {nearest[0]}?"
        for name in sorted(names)
        if name.startswith("SEARCH_")
        and name not in BY_ENV
        and (nearest := difflib.get_close_matches(name, BY_ENV, n=1, cutoff=0.85))
    )


def from_config(path: Path, problems: MutableSequence[str]) -> Layer:
    """Read section ``search`` of config.yml; unknown and secret keys are added to ``problems``."""
    layer: Layer = {}
    with collecting(problems):
        for key, value in section(read_yaml(path), SECTION, path).items():
            where = f"{path}: {SECTION}.{key}"
            problem = _refusal(key, value)
            if problem:
                problems.append(f"{where}: {problem}")
            else:
                layer[key] = Given(_listed(BY_KEY[key], value), where, path.parent)
    return layer


def from_vault(
    path: Path,
    stored: Mapping[str, str],
    known: Layer,
    key_file: Path,
    problems: MutableSequence[str],
) -> tuple[Layer, tuple[str, ...]]:
    """Return the settings among ``stored`` in vault ``models`` that ``known`` lacks, and warnings.

    Other names belong to other abilities and are not decrypted.
    """
    layer: Layer = {}
    warnings = [*misspelt(stored, str(path))]
    for name, text in stored.items():
        spec = BY_ENV.get(name)
        if spec is None or spec.key in known:
            continue
        with collecting(problems):
            value = reveal(text, path, VAULT, name, key_file=key_file).get_secret_value()
            layer[spec.key] = Given(_value(spec, value.strip()), f"{path}: {name}", path.parent)
        if spec.kind == "secret" and not is_encrypted(text):
            warnings.append(
                f"{path}: {name} is not encrypted; encrypt it with"
                f" `ability-search secret set {name}`"
            )
    return layer, tuple(warnings)


def located(spec: Spec, given: Given, home: Path) -> Given:
    """Return the value with absolute paths, ``~`` expanded; other kinds are unchanged."""

    def absolute(text: str) -> Path:
        return home / text[2:] if text == "~" or text.startswith("~/") else given.base / text

    def named(text: str) -> str:
        name, separator, path = text.partition("=")
        return f"{name}={absolute(path)}" if separator else str(absolute(text))

    change: Callable[[str], object] = named if spec.kind == "named paths" else absolute
    if spec.kind == "path" and isinstance(given.value, str):
        return replace(given, value=absolute(given.value))
    if spec.kind in PATH_LISTS and isinstance(given.value, list):
        items = [change(item) if isinstance(item, str) else item for item in given.value]
        return replace(given, value=items)
    return given


def _value(spec: Spec, text: str) -> object:
    if spec.kind not in LISTS:
        return text
    separator = os.pathsep if spec.kind in PATH_LISTS else ","
    return [part.strip() for part in text.split(separator) if part.strip()]


def _listed(spec: Spec, value: object) -> object:
    return [value] if spec.kind in LISTS and isinstance(value, str) else value


def _refusal(key: object, value: object) -> str | None:
    """Return why a key of config.yml is refused; ``None`` if it is valid."""
    if not isinstance(key, str):
        return "expected a string as key"
    spec = BY_KEY.get(key)
    if spec is None:
        return _unknown(key)
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


def _unknown(key: str) -> str:
    if key in _ELSEWHERE:
        return f"not a setting of this file: {_ELSEWHERE[key]}"
    plain = key.lower().replace("-", "_")
    close = difflib.get_close_matches(plain, BY_KEY, n=1, cutoff=0.85)
    if close and BY_KEY[close[0]].kind == "secret":
        return _belongs(BY_KEY[close[0]].env[0])
    if not close and _SECRET_WORD.search(plain):
        known = [spec.env[0] for spec in BY_KEY.values() if spec.kind == "secret"]
        return (
            f"secrets are not allowed in this file: remove it. Set {', '.join(known)}"
            f" with `ability-search secret set` or in the environment"
        )
    public = [name for name, spec in BY_KEY.items() if spec.kind != "secret"]
    nearest = difflib.get_close_matches(plain, public, n=1, cutoff=0.6)
    return f"unknown key; did you mean {nearest[0]}?" if nearest else "unknown key; see README"
