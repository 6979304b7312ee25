"""Command lines that documents and deployment files contain, checked against the real commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from typer import TyperException
from typer.main import get_command

from ability_search.config.settings_table import all_settings
from ability_search.extensions.cli.app import DefaultGroup, all_commands

PROGRAM = "ability-search"
_VARIABLE = re.compile(r"\b(?:SEARCH|BROKER|KADI)_[A-Z][A-Z0-9_]*\b")
_OF_MAKE = {"KADI_CORE"}
_OF_OTHERS = {"KADI_DEPLOY_MODE"}
"""Variables of programs of others that a page starts."""
_ASSIGNMENT = re.compile(r"[A-Z_]+=")
_INTO = {">", "2>"}
_SEPARATORS = {"&&", "||", ";", "|", "&", "then", "fi"}


@cache
def root() -> Any:
    """The group of all commands; making it from their functions takes a tenth of a second."""
    return get_command(all_commands())


def problem(words: Sequence[str]) -> str | None:
    """What is wrong with a call of the program, given without its name; ``None`` if nothing."""
    command = root()
    names: list[str] = []
    rest = list(words)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        if rest[0] not in command.commands:
            if not isinstance(command, DefaultGroup):
                return f"no command {' '.join([*names, rest[0]])}"
            rest.insert(0, next(iter(command.commands)))
        names.append(rest.pop(0))
        command = command.commands[names[-1]]
    if rest == ["--help"]:
        return None
    try:
        command.make_context(PROGRAM, rest)
    except TyperException as exc:
        return f"{' '.join(words)}: {exc.format_message()}"
    return None


def calls(script: str) -> Iterator[list[str]]:
    """The calls of the program in a piece of shell, without assignments, files and the name."""
    for line in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word in _SEPARATORS:
                yield from _call(words)
                words = []
            else:
                words.append(word)


def _call(words: list[str]) -> Iterator[list[str]]:
    redirected = {at + n for at, word in enumerate(words) if word in _INTO for n in (0, 1)}
    plain = [
        word
        for at, word in enumerate(words)
        if at not in redirected and not _ASSIGNMENT.match(word) and word != "exec"
    ]
    if plain and plain[0] == PROGRAM:
        yield plain[1:]


def unknown_variables(text: str) -> set[str]:
    """Names of the environment that look like settings and are none."""
    known = all_settings().by_env.keys() | _OF_MAKE | _OF_OTHERS
    return set(_VARIABLE.findall(text)) - known
