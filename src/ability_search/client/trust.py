"""Addresses in configuration files that a client may send queries and texts to.

Files are searched for in the working directory and above it, so they may come from somebody else,
such as the author of a cloned repository. A component that the user starts there follows them; a
client command does not, unless the address is on this machine or the user trusted it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from ability_search.config.model_settings import Embedding, Expansion, ModelServer, RerankerSettings
from ability_search.config.schema import Broker, Settings
from ability_search.config.sources import base_of, in_base_directory
from ability_search.errors import ConfigurationError, InvalidInput
from kadi_client.addresses import is_loopback, split_addresses

_FILE = "$XDG_CONFIG_HOME/ability-search/trusted_addresses"
MODEL_APIS = (Embedding, RerankerSettings, Expansion)
"""Groups of settings that may choose an API over HTTP."""
_SCHEMES = ("ws", "wss", "http", "https")


def require_trusted(
    settings: Settings, environ: Mapping[str, str], *groups: type[Broker | ModelServer]
) -> None:
    """Check the addresses of groups of settings that stand in found files.

    An API that its group does not choose is not checked.

    Args:
        settings: The settings of a client.
        environ: The environment.
        groups: Groups among :class:`.Broker` and :data:`MODEL_APIS`.

    Raises:
        ConfigurationError: naming each file and address that is neither on this machine nor
            trusted, and how to allow it.
    """
    trusted = _trusted(environ)
    problems: list[str] = []
    remedies: list[str] = []
    for group in groups:
        where = settings.found_addresses.get(group)
        chosen, url = settings.of(group), None
        if isinstance(chosen, Broker):
            url = chosen.url
        elif chosen.transport == "api":
            url = chosen.api_url
        if where is None or url is None:
            continue
        origins = list(map(_origin, split_addresses(url.get_secret_value())))
        unknown = [
            each
            for each in origins
            if each not in trusted and not is_loopback(urlsplit(each).hostname or "")
        ]
        if unknown:
            problems.append(f"{where}: {', '.join(unknown)} is not an address that you trust")
            remedies += unknown
    if problems:
        commands = " ".join(dict.fromkeys(remedies))
        raise ConfigurationError(
            *problems,
            hint=f"Nothing was sent. If the file is yours: ability-search trust {commands}",
        )


def trust(addresses: Iterable[str], environ: Mapping[str, str]) -> list[str]:
    """Add addresses to those that the user trusts; return them without their paths.

    Raises:
        InvalidInput: if one is not an address of a broker or an API.
        ConfigurationError: if the file of trusted addresses cannot be written.
    """
    added = list(map(_origin, addresses))
    path = _path(environ)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{each}\n" for each in added if each not in _trusted(environ))
    except OSError as exc:
        raise ConfigurationError(f"{path}: cannot be written: {exc.strerror}") from exc
    return added


def _path(environ: Mapping[str, str]) -> Path:
    return in_base_directory(_FILE, environ, base_of(environ, Path.cwd()))


def _trusted(environ: Mapping[str, str]) -> frozenset[str]:
    path = _path(environ)
    try:
        return frozenset(path.read_text(encoding="utf-8").split())
    except FileNotFoundError:
        return frozenset()
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigurationError(f"{path}: cannot be read") from exc


def _origin(address: str) -> str:
    """Return scheme, host and port of an address, without credentials and path."""
    try:
        parts = urlsplit(address)
        if parts.scheme in _SCHEMES and parts.hostname:
            port = "" if parts.port is None else f":{parts.port}"
            host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
            return f"{parts.scheme}://{host}{port}"
    except ValueError:
        pass
    raise InvalidInput("ADDRESS", "expected an address like wss://broker.example")
