"""`secret`: set, check and list the secrets in secrets.toml."""

from __future__ import annotations

import base64
import getpass
import os
import re
import sys
import tomllib
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tomlkit
import typer
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from tomlkit.exceptions import TOMLKitError

from ability_search.config.config_files import Report, find_own, read_file
from ability_search.config.sources import (
    base_of,
    from_config,
    from_defaults,
    from_environment,
    key_file,
)
from ability_search.config.vault import (
    KEY_BYTES,
    NONCE_BYTES,
    SCHEME,
    SECRET_NAME,
    SECRETS,
    associated,
    load_key,
    reveal,
    stored_secrets,
)
from ability_search.errors import ConfigurationError
from ability_search.extensions.cli import output
from ability_search.extensions.cli.app import NOT_FOUND, app, command, new_group
from ability_search.ops.locks import locked, replace_file

_VAULT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class SecretFiles(NamedTuple):
    """Paths of the secrets file and its key."""

    path: Path
    """The secrets.toml found by walking up, else the one to create in the working directory."""
    key_file: Path


def locate_secrets(environ: Mapping[str, str], cwd: Path) -> SecretFiles:
    """Return the files that `secret set|get|list` use, without reading any secret.

    Raises:
        ConfigurationError: if config.yml is invalid.
    """
    report = Report()
    base = base_of(environ, cwd.absolute())
    layer = from_defaults(environ, base) | from_config(base, report)
    if report.problems:
        raise ConfigurationError(*report.problems)
    path = find_own(SECRETS, base.directory, report).path or base.directory / SECRETS.name
    return SecretFiles(path, key_file(layer | from_environment(environ, base)))


def set_secret(path: Path, vault: str, key: str, value: str, *, key_file: Path) -> None:
    """Encrypt a secret and store it in the file, which is created with mode 0600 if missing.

    The rest of the file is unchanged, comments included. The key file is created on first use.

    Raises:
        ConfigurationError: if a name or the value is invalid, the file or the key cannot be read
            or written, or another process is writing the file.
    """
    if not _VAULT_NAME.fullmatch(vault):
        raise ConfigurationError(f"vault {vault!r}: expected letters, digits, - and _")
    if not SECRET_NAME.fullmatch(key):
        raise ConfigurationError(
            f"secret {key!r}: expected a name like SEARCH_API_KEY (A-Z, 0-9, _ and -)"
        )
    if not value:
        raise ConfigurationError(f"{key}: the value is empty")
    path = path.resolve()
    _create_key(key_file)
    cipher = ChaCha20Poly1305(load_key(key_file))
    nonce = os.urandom(NONCE_BYTES)
    sealed = nonce + cipher.encrypt(nonce, value.encode(), associated(vault, key))
    text = f"ENC[{SCHEME}{base64.urlsafe_b64encode(sealed).decode()}]"
    busy = ConfigurationError(
        f"{path.parent / SECRETS.name}: another process is writing this file."
        " Run the command again."
    )
    try:
        # Without the lock, two writers could overwrite each other's secret.
        with locked(path.parent, busy):
            replace_file(path, _with_secret(path, vault, key, text).encode())
    except OSError as exc:
        raise ConfigurationError(f"{path}: cannot be written: {exc.strerror}") from exc


def read_vault(path: Path, vault: str) -> dict[str, str]:
    """Return the secrets of a vault as stored in a file, if it exists; see :func:`stored_secrets`.

    Raises:
        ConfigurationError: if the file cannot be read, or a value is not a string.
    """
    return stored_secrets(read_file(path), path, vault) if path.exists() else {}


def _create_key(path: Path) -> None:
    """Create the key file, unless it exists."""
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            key = base64.b64encode(os.urandom(KEY_BYTES)) + b"\n"
            # Of two processes that create it, both use the key of the first.
            replace_file(path, key, keep=True)
    except OSError as exc:
        raise ConfigurationError(
            f"{path}: the key cannot be read or created: {exc.strerror}"
        ) from exc


def _with_secret(path: Path, vault: str, key: str, text: str) -> str:
    try:
        old = path.read_text(encoding="utf-8-sig") if path.exists() else ""
        document = tomlkit.parse(old)
        about = _descend(document, "vaults", vault)
        if not about:
            about["encryption"] = "chacha20-poly1305"
        about.pop(key, None)
        _descend(document, "secrets", vault)[key] = text
        written = tomlkit.dumps(document)
        if tomllib.loads(written)["secrets"][vault][key] != text:
            raise ValueError(key)
        return written
    except (TOMLKitError, AttributeError, TypeError, ValueError, KeyError) as exc:
        raise ConfigurationError(
            f"{path}: [secrets.{vault}] cannot be edited; nothing was written"
        ) from exc


def _descend(document: tomlkit.TOMLDocument, part: str, vault: str) -> MutableMapping[str, Any]:
    inner = document.setdefault(part, tomlkit.table(is_super_table=True))
    table = inner.setdefault(vault, tomlkit.table())
    if not isinstance(table, MutableMapping):
        raise TypeError(vault)
    return table


group = new_group("Set, check and list the encrypted secrets in secrets.toml.")
app.add_typer(group, name="secret")

NameArgument = Annotated[str, typer.Argument(help="Name, such as SEARCH_API_KEY.")]
VaultOption = Annotated[str, typer.Option("--vault", help="Vault of the secret.")]


@command(group, "set")
def set_(name: NameArgument, vault: VaultOption = "models") -> None:
    """Encrypt a secret and store it in secrets.toml.

    The value is read from standard input, or prompted for without echo. It is not
    an argument, because other users of the machine can read command lines.

    Example:
        ability-search secret set SEARCH_API_KEY
        pass show openai | ability-search secret set SEARCH_API_KEY
    """
    files = locate_secrets(os.environ, Path.cwd())
    set_secret(files.path, vault, name, _value(name), key_file=files.key_file)
    output.stderr().print(f"{name} is set in {output.plain(files.path)}")


def _value(name: str) -> str:
    if sys.stdin.isatty():
        return getpass.getpass(f"{name}: ", stream=sys.stderr)
    return sys.stdin.read().rstrip("\r\n")


@command(group, "get")
def get(
    name: NameArgument,
    vault: VaultOption = "models",
    shown: Annotated[bool, typer.Option("--reveal", help="Print the value.")] = False,
) -> None:
    """Check that a secret is set and can be decrypted; print it only with --reveal.

    Example:
        ability-search secret get SEARCH_API_KEY
        ability-search secret get SEARCH_API_KEY --reveal
    """
    files = locate_secrets(os.environ, Path.cwd())
    known = read_vault(files.path, vault)
    if name not in known:
        names = ", ".join(sorted(known)) or "none"
        output.fail(
            f"no secret {name} in vault {vault} of {files.path}",
            f"Names: {names}. Set it with `ability-search secret set {name}`.",
        )
        raise typer.Exit(NOT_FOUND)
    revealed = reveal(known[name], files.path, vault, name, key_file=files.key_file)
    secret = revealed.get_secret_value()
    if shown:
        typer.echo(secret)
    else:
        output.stdout().print(f"{name} is set, {len(secret)} characters; --reveal prints it")


@command(group, "list")
def list_(vault: VaultOption = "models") -> None:
    """List the names of the secrets in a vault.

    Example:
        ability-search secret list --vault models
    """
    files = locate_secrets(os.environ, Path.cwd())
    for name in sorted(read_vault(files.path, vault)):
        typer.echo(name)
