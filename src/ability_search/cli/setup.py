"""`setup`: ask for the most important settings and write them to files."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tomlkit
import typer
import yaml

from ability_search.cli import output
from ability_search.cli.app import app, command
from ability_search.components.served_models import served_names
from ability_search.config.broker_settings import CONNECTIONS
from ability_search.config.loader import load_settings
from ability_search.config.sources import CONFIG, SECTION
from ability_search.errors import ConfigurationError, InvalidInput

_OWN_MODEL = "all-MiniLM-L6-v2"


@command(app, "setup")
def setup() -> None:
    """Ask for the most important settings and write config.yml and config.toml.

    The files are written to the working directory; commands find them there and in
    the directories below it. Existing files are never changed. Each question has a
    default, and answers can also be piped, one per line. `ability-search doctor`
    checks the result; docs/settings.md lists all settings.

    Example:
        ability-search setup
    """
    directory = Path.cwd()
    for name in (CONFIG.name, CONNECTIONS.name):
        if (directory / name).exists():
            hint = "Edit it, or run the command in another directory."
            raise InvalidInput(name, "exists already in this directory", hint=hint)
    files, remarks = _ask()
    _check(files)
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
        output.stdout().print(f"wrote {output.plain(directory / name)}")
    for remark in remarks:
        output.stdout().print(output.plain(remark))


def _ask() -> tuple[dict[str, str], list[str]]:
    """Return the contents of the files by name, and what to do next."""
    remarks = []
    files = {}
    broker = _answer("Address of a KADI broker; empty for a stack on this machine", "")
    if broker:
        networks = _answer("Networks to join, separated by commas", "global")
        entry = {"URL": broker, "NETWORKS": [each.strip() for each in networks.split(",")]}
        files[CONNECTIONS.name] = tomlkit.dumps({"broker": {"default": entry}})
    else:
        remarks.append("start the stack: ability-search up")
    search: dict[str, Any] = {}
    api = _answer("Address of an OpenAI-compatible embedding API; empty for a model manager", "")
    if api:
        search |= {"embedding_transport": "api", "embedding_api_url": api}
        remarks.append("store the key of the API: ability-search secret set SEARCH_API_KEY")
    local = set() if api or broker else served_names(load_settings(os.environ, Path.cwd()))
    choice = f" ({', '.join(sorted(local))})" if local else ""
    default = _OWN_MODEL if _OWN_MODEL in local else next(iter(sorted(local)), "nomic-embed-text")
    search["embedding_model"] = _answer(f"Embedding model of new collections{choice}", default)
    roots = _answer(f"Directories that agents may index, separated by {os.pathsep!r}", ".")
    search["allowed_roots"] = roots.split(os.pathsep)
    files[CONFIG.name] = yaml.safe_dump({SECTION: search}, sort_keys=False, allow_unicode=True)
    return files, [*remarks, "check everything: ability-search doctor"]


def _answer(question: str, default: str) -> str:
    return str(
        typer.prompt(question, default=default, show_default=bool(default), err=True)
    ).strip()


def _check(files: dict[str, str]) -> None:
    """Check that the files can be loaded.

    Raises:
        ConfigurationError: naming every problem.
    """
    with TemporaryDirectory() as place:
        for name, text in files.items():
            (Path(place) / name).write_text(text, encoding="utf-8")
        try:
            load_settings({"HOME": place}, Path(place))
        except ConfigurationError as exc:
            problems = (each.replace(f"{place}{os.sep}", "") for each in exc.problems)
            hint = "Nothing was written. Run the command again."
            raise ConfigurationError(*problems, hint=hint) from exc
