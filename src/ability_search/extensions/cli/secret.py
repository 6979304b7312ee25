"""`secret`: set, check and list the secrets in secrets.toml."""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ability_search.config.vault import reveal
from ability_search.extensions.cli import output
from ability_search.extensions.cli.app import NOT_FOUND, app, command, new_group
from ability_search.extensions.cli.secret_file import locate_secrets, read_vault, set_secret

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
