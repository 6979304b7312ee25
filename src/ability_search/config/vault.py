"""Secrets at rest in secrets.toml, each encrypted separately.

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

import base64
import binascii
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from pydantic import SecretStr

from ability_search.config.config_files import FileKind
from ability_search.errors import ConfigurationError

SECRETS = FileKind(
    "secrets.toml",
    lambda content: not content.keys().isdisjoint(("vaults", "secrets")),
    marker=re.compile(rb"^[ \t]*\[[ \t]*(vaults|secrets)\b", re.MULTILINE),
    lacks=lambda _: "it has no table [secrets.<vault>]; values can be set in the environment",
)
SCHEME = "as1:"
NONCE_BYTES = 12
KEY_BYTES = 32
_ENCRYPTED = re.compile(r"ENC\[(.*)\]|-----BEGIN AGE ENCRYPTED FILE-----.*", re.DOTALL)
SECRET_NAME = re.compile(r"[A-Z][A-Z0-9_-]{0,127}")


def stored_secrets(document: Mapping[str, Any], path: Path, vault: str) -> dict[str, str]:
    """Return the secrets of a vault as stored in a parsed file, encrypted or not.

    ``[secrets.<vault>]`` holds them; upper-case keys of ``[vaults.<vault>]`` count as well.

    Raises:
        ConfigurationError: if a value is not a string; names the file, ``path``.
    """
    found: dict[str, str] = {}
    problems: list[str] = []
    for part in ("vaults", "secrets"):
        outer = document.get(part)
        table = outer.get(vault) if isinstance(outer, Mapping) else None
        for key, value in table.items() if isinstance(table, Mapping) else ():
            if not SECRET_NAME.fullmatch(key):
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
    """Decrypt a value of :func:`stored_secrets`; an unencrypted value is returned unchanged.

    Raises:
        ConfigurationError: naming the secret and a command that fixes it, never the value.
    """
    match = _ENCRYPTED.fullmatch(text.strip())
    if match is None:
        return SecretStr(text)
    body = (match[1] or "").strip()
    if not body.startswith(SCHEME):
        raise _cannot_decrypt(path, vault, key, "it was encrypted by another program")
    try:
        sealed = base64.b64decode(body.removeprefix(SCHEME), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as exc:
        raise _cannot_decrypt(path, vault, key, "it is damaged") from exc
    cipher = ChaCha20Poly1305(load_key(key_file))
    nonce, ciphertext = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
    try:
        plain = cipher.decrypt(nonce, ciphertext, associated(vault, key))
        return SecretStr(plain.decode())
    except (InvalidTag, ValueError) as exc:
        problem = f"it was modified, or encrypted with a key other than {key_file}"
        raise _cannot_decrypt(path, vault, key, problem) from exc


def _cannot_decrypt(path: Path, vault: str, key: str, problem: str) -> ConfigurationError:
    return ConfigurationError(
        f"{path}: {key} cannot be decrypted: {problem}."
        f" Set it again with `ability-search secret set {key} --vault {vault}`,"
        f" or export it with `kadi secret receive --vault {vault}`."
    )


def associated(vault: str, key: str) -> bytes:
    """Return the associated data of a secret."""
    return f"ability-search/secrets/1\0{vault}\0{key}".encode()


def load_key(path: Path) -> bytes:
    """Return the key in a file that only its owner can read.

    Raises:
        ConfigurationError: if it cannot be read, is not a key, or others can read it.
    """
    try:
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
    if len(key) != KEY_BYTES:
        raise ConfigurationError(f"{path}: not a key, expected {KEY_BYTES} bytes in base64")
    return key
