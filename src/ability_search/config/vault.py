"""Secrets: those at rest in secrets.toml, each encrypted separately, and those of the network.

::

    [vaults.models]
    encryption = "chacha20-poly1305"

    [secrets.models]
    SEARCH_API_KEY = "ENC[as1:...]"

``ENC[as1:...]`` is URL-safe base64 of a random 96-bit nonce and the ChaCha20-Poly1305 ciphertext
with its tag (RFC 8439). Vault and key name are associated data, so a value cannot be moved to
another name. The key, 32 random bytes in base64, is a separate file with mode 0600, outside the
directory that is shared or committed. A value that is not ``ENC[...]`` is used as is.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import os
import re
import stat
import tomllib
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import tomlkit
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from pydantic import SecretStr
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Table

from ability_search.config.config_files import FileKind, read_toml
from ability_search.errors import ConfigurationError
from ability_search.ops.locks import locked, replace_file
from kadi_client.errors import KadiError

log = logging.getLogger(__name__)

SECRETS = FileKind(
    "secrets.toml",
    read_toml,
    lambda content: not content.keys().isdisjoint(("vaults", "secrets")),
    marker=re.compile(rb"^[ \t]*\[[ \t]*(vaults|secrets)\b", re.MULTILINE),
    lacks="it has no table [secrets.<vault>]; values can be set in the environment",
)
TOOLS = ("secret-get", "get")
"""Names that secret abilities in the field use for the tool ``{vault, key} -> {value}``."""

Invoke = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""``invoke(tool, input)`` on a connected session."""

_SCHEME = "as1:"
_NONCE_BYTES = 12
_KEY_BYTES = 32
_ENCRYPTED = re.compile(r"ENC\[(.*)\]|-----BEGIN AGE ENCRYPTED FILE-----.*", re.DOTALL)
_SECRET_NAME = re.compile(r"[A-Z][A-Z0-9_-]{0,127}")
_VAULT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def list_secrets(path: Path, vault: str) -> tuple[str, ...]:
    """Return the names of a vault's secrets, sorted; empty if the file or vault does not exist.

    Raises:
        ConfigurationError: if the file cannot be read.
    """
    return tuple(sorted(read_vault(path, vault)))


def get_secret(path: Path, vault: str, key: str, *, key_file: Path) -> SecretStr:
    """Return the value of a secret.

    Raises:
        ConfigurationError: if there is no secret of that name, or it cannot be decrypted.
    """
    values = read_vault(path, vault)
    if key not in values:
        known = ", ".join(sorted(values)) or "none"
        raise ConfigurationError(f"{path}: no secret {key} in vault {vault}; available: {known}")
    return reveal(values[key], path, vault, key, key_file=key_file)


def set_secret(path: Path, vault: str, key: str, value: str, *, key_file: Path) -> None:
    """Encrypt a secret and store it in the file, which is created with mode 0600 if missing.

    The rest of the file is unchanged, comments included. The key file is created on first use.

    Raises:
        ConfigurationError: if a name or the value is invalid, the file or the key cannot be read
            or written, or another process is writing the file.
    """
    _check_names(vault, key)
    if not value:
        raise ConfigurationError(f"{key}: the value is empty")
    path = path.resolve()
    cipher = ChaCha20Poly1305(_load_key(key_file, create=True))
    nonce = os.urandom(_NONCE_BYTES)
    sealed = nonce + cipher.encrypt(nonce, value.encode(), _associated(vault, key))
    text = f"ENC[{_SCHEME}{base64.urlsafe_b64encode(sealed).decode()}]"
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
    return stored_secrets(read_toml(path), path, vault) if path.exists() else {}


def stored_secrets(document: Mapping[str, Any], path: Path, vault: str) -> dict[str, str]:
    """Return the secrets of a vault as stored in a parsed file, encrypted or not.

    ``[secrets.<vault>]`` holds them; upper-case keys of ``[vaults.<vault>]`` count as well.

    Raises:
        ConfigurationError: if a value is not a string; names the file, ``path``.
    """
    found: dict[str, str] = {}
    problems: list[str] = []
    for part in ("vaults", "secrets"):
        table = _table(document, part, vault)
        for key, value in table.items():
            if not _SECRET_NAME.fullmatch(key):
                continue
            if isinstance(value, str):
                found[key] = value
            else:
                problems.append(f"{path}: [{part}.{vault}] {key}: expected a string")
    if problems:
        raise ConfigurationError(*problems)
    return found


def is_encrypted(text: str) -> bool:
    """Return whether a value is ``ENC[...]``, in any encryption scheme, or armored by age."""
    return _ENCRYPTED.fullmatch(text.strip()) is not None


def reveal(text: str, path: Path, vault: str, key: str, *, key_file: Path) -> SecretStr:
    """Decrypt a value of :func:`read_vault`; an unencrypted value is returned unchanged.

    Raises:
        ConfigurationError: naming the secret and a command that fixes it, never the value.
    """
    match = _ENCRYPTED.fullmatch(text.strip())
    if match is None:
        return SecretStr(text)
    body = (match[1] or "").strip()
    if not body.startswith(_SCHEME):
        raise _cannot_decrypt(path, vault, key, "it was encrypted by another program")
    try:
        sealed = base64.b64decode(body.removeprefix(_SCHEME), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as exc:
        raise _cannot_decrypt(path, vault, key, "it is damaged") from exc
    cipher = ChaCha20Poly1305(_load_key(key_file, create=False))
    nonce, ciphertext = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
    try:
        plain = cipher.decrypt(nonce, ciphertext, _associated(vault, key))
        return SecretStr(plain.decode())
    except (InvalidTag, ValueError) as exc:
        problem = f"it was modified, or encrypted with a key other than {key_file}"
        raise _cannot_decrypt(path, vault, key, problem) from exc


async def fetch_secrets(
    names: Collection[str], invoke: Invoke, *, vault: str, timeout: float
) -> dict[str, SecretStr]:
    """Request several secrets concurrently.

    Args:
        names: keys of the vault.
        invoke: calls a tool.
        vault: the vault.
        timeout: seconds for all of them together; secrets received in time are returned.

    Returns:
        The secrets that a provider knows; empty if there is no provider.
    """
    found: dict[str, SecretStr] = {}
    try:
        async with asyncio.timeout(timeout), asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(_fetch(name, vault, invoke, found))
    except TimeoutError:
        log.warning("secret ability: %d of %d secrets received in time", len(found), len(names))
    return found


async def _fetch(name: str, vault: str, invoke: Invoke, found: dict[str, SecretStr]) -> None:
    for tool in TOOLS:
        try:
            answer = await invoke(tool, {"vault": vault, "key": name})
        except (KadiError, OSError, TimeoutError) as exc:
            log.debug("no secret %s from %s: %s", name, tool, type(exc).__name__)
            continue
        value = answer.get("value") if isinstance(answer, Mapping) else answer
        if isinstance(value, str) and value.strip() and not is_encrypted(value):
            found[name] = SecretStr(value.strip())
            return


def _cannot_decrypt(path: Path, vault: str, key: str, problem: str) -> ConfigurationError:
    return ConfigurationError(
        f"{path}: {key} cannot be decrypted: {problem}."
        f" Set it again with `ability-search secret set {key} --vault {vault}`,"
        f" or export it with `kadi secret receive --vault {vault}`."
    )


def _check_names(vault: str, key: str) -> None:
    if not _VAULT_NAME.fullmatch(vault):
        raise ConfigurationError(f"vault {vault!r}: expected letters, digits, - and _")
    if not _SECRET_NAME.fullmatch(key):
        raise ConfigurationError(
            f"secret {key!r}: expected a name like SEARCH_API_KEY (A-Z, 0-9, _ and -)"
        )


def _associated(vault: str, key: str) -> bytes:
    return f"ability-search/secrets/1\0{vault}\0{key}".encode()


def _table(document: Mapping[str, Any], part: str, vault: str) -> Mapping[str, Any]:
    outer = document.get(part)
    inner = outer.get(vault) if isinstance(outer, Mapping) else None
    return inner if isinstance(inner, Mapping) else {}


def _load_key(path: Path, *, create: bool) -> bytes:
    try:
        if create and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            key = base64.b64encode(os.urandom(_KEY_BYTES)) + b"\n"
            # Of two processes that create it, both use the key of the first.
            replace_file(path, key, keep=True)
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = file.read(4096)
    except FileNotFoundError as exc:
        raise ConfigurationError(
            f"{path}: the encryption key of secrets.toml is missing."
            f" Restore it, or set SEARCH_SECRET_KEY_FILE to its path."
        ) from exc
    except OSError as exc:
        raise ConfigurationError(
            f"{path}: the key cannot be read or created: {exc.strerror}"
        ) from exc
    if os.name == "posix" and mode & 0o077:
        raise ConfigurationError(
            f"{path}: other users can read this key (mode {mode:04o}). Run `chmod 600 {path}`."
        )
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError) as exc:
        raise ConfigurationError(f"{path}: not a key, expected base64") from exc
    if len(key) != _KEY_BYTES:
        raise ConfigurationError(f"{path}: not a key, expected {_KEY_BYTES} bytes in base64")
    return key


def _with_secret(path: Path, vault: str, key: str, text: str) -> str:
    try:
        old = path.read_text(encoding="utf-8-sig") if path.exists() else ""
        document = tomlkit.parse(old)
        if not _table(document, "vaults", vault):
            _descend(document, "vaults", vault)["encryption"] = "chacha20-poly1305"
        _descend(document, "secrets", vault)[key] = text
        stray = _descend(document, "vaults", vault)
        if key in stray:
            del stray[key]
        written = tomlkit.dumps(document)
        if tomllib.loads(written)["secrets"][vault][key] != text:
            raise ValueError(key)
        return written
    except (TOMLKitError, TypeError, ValueError, KeyError) as exc:
        raise ConfigurationError(
            f"{path}: [secrets.{vault}] cannot be edited; nothing was written"
        ) from exc


def _descend(document: tomlkit.TOMLDocument, part: str, vault: str) -> Table:
    if part not in document:
        document[part] = tomlkit.table(is_super_table=True)
    outer = document[part]
    if not isinstance(outer, Mapping):
        raise TypeError(part)
    if vault not in outer:
        outer[vault] = tomlkit.table()  # type: ignore[index]
    inner = outer[vault]
    if not isinstance(inner, Mapping):
        raise TypeError(vault)
    return inner  # type: ignore[return-value]
