"""`setup` writes the most important settings to files; `trust` allows an address in them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import tomlkit
import typer
import yaml

from ability_search.client.trust import trust as add_trusted
from ability_search.config.broker_settings import CONNECTIONS
from ability_search.config.loader import load_settings
from ability_search.config.sources import CONFIG, SECTION
from ability_search.errors import ConfigurationError, InvalidInput
from ability_search.extensions.cli import output
from ability_search.extensions.cli.app import app, command
from ability_search.extensions.localstack.served_models import served_names
from kadi_client.addresses import split_addresses

_OWN_MODEL = "all-MiniLM-L6-v2"
_AGAIN = "Nothing was written. Run the command again."


@command(app, "trust")
def trust(
    addresses: Annotated[
        list[str],
        typer.Argument(
            metavar="ADDRESS...",
            show_default=False,
            help="Addresses to trust; only scheme, host and port of each count.",
        ),
    ],
) -> None:
    """Trust addresses of brokers and APIs that configuration files name.

    Commands such as search, ask, index and mcp send nothing to an address on another
    machine that only a file in the working directory or above it names: the file may
    come with a repository that you cloned. They do once you trust the address.
    BROKER_URL and --broker need no trust, nor do addresses that you entered in setup.
    The addresses are stored in ability-search/trusted_addresses in
    $XDG_CONFIG_HOME (~/.config); delete a line to withdraw it.

    Example:
        ability-search trust wss://broker.example
    """
    for address in add_trusted(addresses, os.environ):
        output.stdout().print(f"trusted {output.plain(address)}")


@command(app, "setup")
def setup() -> None:
    """Ask for the most important settings and write config.yml and config.toml.

    The files are written to the working directory; commands find them there and in
    the directories below it. Existing files are never changed. Each question has a
    default, and each answer is checked at once; answers can also be piped, one per
    line. `ability-search doctor`
    checks the result; docs/settings.md lists all settings.

    Example:
        ability-search setup
    """
    directory = Path.cwd()
    for name in (CONFIG.name, CONNECTIONS.name):
        if (directory / name).exists():
            hint = "Edit it, or run the command in another directory."
            raise InvalidInput(name, "exists already in this directory", hint=hint)
    answers = _SetupAnswers()
    remarks = _ask(answers)
    for name, text in answers.files().items():
        (directory / name).write_text(text, encoding="utf-8")
        output.stdout().print(f"wrote {output.plain(directory / name)}")
    entered = [answers.broker.get("URL"), answers.search.get("embedding_api_url")]
    add_trusted([each for url in entered if url for each in split_addresses(url)], os.environ)
    for remark in remarks:
        output.stdout().print(output.plain(remark))


@dataclass(frozen=True, slots=True)
class _SetupAnswers:
    """The settings so far: of the broker, and of the search."""

    broker: dict[str, Any] = field(default_factory=dict)
    search: dict[str, Any] = field(default_factory=dict)

    def files(self) -> dict[str, str]:
        """Return the contents of the files by name."""
        search = yaml.safe_dump({SECTION: self.search}, sort_keys=False, allow_unicode=True)
        files = {CONFIG.name: search} if self.search else {}
        if self.broker:
            files[CONNECTIONS.name] = tomlkit.dumps({"broker": {"default": self.broker}})
        return files

    def ask(self, question: str, default: str, read: Callable[[str], _SetupAnswers]) -> str:
        """Add the settings of an answer, and return it.

        A person is asked again after an invalid answer.

        Raises:
            ConfigurationError: if a piped answer is invalid.
        """
        while True:
            text = typer.prompt(question, default=default, show_default=bool(default), err=True)
            answer = str(text).strip()
            added = read(answer)
            tried = _SetupAnswers({**self.broker, **added.broker}, {**self.search, **added.search})
            try:
                _check(tried)
            except ConfigurationError as exc:
                if not _is_person():
                    raise
                output.fail(str(exc))
                continue
            self.broker.update(tried.broker)
            self.search.update(tried.search)
            return answer


def _is_person() -> bool:
    return sys.stdin.isatty()


def _ask(answers: _SetupAnswers) -> list[str]:
    """Ask all questions; return what to do next."""
    remarks = []
    broker = answers.ask(
        "Address of a KADI broker; empty for a stack on this machine",
        "",
        lambda url: _SetupAnswers({"URL": url} if url else {}),
    )
    if broker:
        answers.ask(
            "Networks to join, separated by commas",
            "global",
            lambda names: _SetupAnswers({"NETWORKS": [each.strip() for each in names.split(",")]}),
        )
    else:
        remarks.append("start the stack: ability-search up")
    api = answers.ask(
        "Address of an OpenAI-compatible embedding API; empty for a model manager",
        "",
        lambda url: _SetupAnswers(
            {}, {"embedding_transport": "api", "embedding_api_url": url} if url else {}
        ),
    )
    if api:
        remarks.append(
            "store the key of the API, if it needs one: ability-search secret set SEARCH_API_KEY"
        )
    local = set() if api or broker else served_names(load_settings(os.environ, Path.cwd()))
    choice = f" ({', '.join(sorted(local))})" if local else ""
    default = _OWN_MODEL if _OWN_MODEL in local else next(iter(sorted(local)), "nomic-embed-text")
    answers.ask(
        f"Embedding model of new collections{choice}",
        default,
        lambda name: _SetupAnswers({}, {"embedding_model": name}),
    )
    answers.ask(
        f"Directories that agents may index, separated by {os.pathsep!r}",
        ".",
        lambda roots: _SetupAnswers({}, {"allowed_roots": roots.split(os.pathsep)}),
    )
    return [*remarks, "check everything: ability-search doctor"]


def _check(answers: _SetupAnswers) -> None:
    """Check that the files can be loaded, and that the directories exist.

    Raises:
        ConfigurationError: naming every problem.
    """
    roots = [each for each in answers.search.get("allowed_roots", ()) if each.strip()]
    for root in roots:
        if not Path(root).expanduser().is_dir():
            raise ConfigurationError(f"allowed_roots: no such directory: {root}", hint=_AGAIN)
    with TemporaryDirectory() as place:
        for name, text in answers.files().items():
            (Path(place) / name).write_text(text, encoding="utf-8")
        try:
            load_settings({"HOME": place}, Path(place))
        except ConfigurationError as exc:
            problems = (each.replace(f"{place}{os.sep}", "") for each in exc.problems)
            raise ConfigurationError(*problems, hint=_AGAIN) from exc
