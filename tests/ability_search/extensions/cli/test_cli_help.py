from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.command_lines import problem, root
from typer.testing import CliRunner

import ability_search
from ability_search.extension import loaded
from ability_search.extensions.cli.app import all_commands


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    children = getattr(command, "commands", {})
    if not children:
        yield path, command
    for name, child in children.items():
        yield from walk(child, (*path, name))


COMMANDS = dict(walk(root()))


def examples(command: Any) -> list[str]:
    _, found, block = command.help.partition("Example:\n")
    assert found, "no example"
    lines = [line.strip() for line in block.splitlines() if line.strip()]
    return [line[line.index("ability-search ") :].split(" || ")[0] for line in lines]


def test_all_commands_are_there() -> None:
    groups = {path[0] for path in COMMANDS}
    assert groups == {
        *("up", "down", "status", "doctor", "worker", "broker", "database", "models", "index"),
        *(
            "search",
            "ask",
            "similar",
            "collections",
            "info",
            "delete",
            "reindex",
            "analyze",
            "consolidate",
            "call",
            "secret",
        ),
        *("eval", "watch", "build", "export", "import", "backup", "restore", "gateway", "mcp"),
        *(
            "extensions",
            "migrate",
            "prune",
            "setup",
            "trust",
            "mark",
            "memory",
            "paths",
            "backplane",
        ),
    }


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_names_parameters_and_no_types_of_python(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(all_commands(), [*path, "--help"]).stdout
    assert re.search(r"^Usage: [^{}<>]*$", shown.partition("\n\n")[0], re.MULTILINE)
    assert not re.search(r"<(str|int|float|path|list|uuid)|\{\w", shown)


def test_every_command_is_in_the_module_that_is_imported_for_it() -> None:
    found = {path[0]: command.callback.__module__ for path, command in COMMANDS.items()}
    assert found == {name: each.module for name, each in loaded().commands.items()}


def test_a_command_is_imported_without_what_others_need() -> None:
    script = (
        "import atexit, sys; from ability_search.extensions.cli import main;"
        " atexit.register(lambda: print(*sys.modules)); main()"
    )
    shown = subprocess.check_output(
        [sys.executable, "-c", script, "search", "--help"], text=True, timeout=60
    )
    assert shown.startswith("Usage: ability-search search")
    imported = set(shown.splitlines()[-1].split())
    assert {"typer", "ability_search.extensions.cli.search_commands"} <= imported
    assert not {"markdown_it", "numpy", "pathspec", "snowballstemmer"} & imported


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_help_and_examples_that_parse(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    summary = command.help.split("\n\n")[0]
    assert summary.endswith((".", "found."))
    for line in examples(command):
        words = shlex.split(line)
        assert words[1] == path[0]
        assert problem(words[1:]) is None


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_visible_option_and_argument_is_explained(path: tuple[str, ...]) -> None:
    for param in COMMANDS[path].params:
        if not getattr(param, "hidden", False):
            assert param.help, f"{' '.join(path)}: {param.name}"


def test_examples_are_shown_as_they_are_laid_out() -> None:
    shown = CliRunner().invoke(all_commands(), ["search", "--help"], env={"COLUMNS": "60"})
    assert shown.exit_code == 0
    assert re.search(
        r'\n +ability-search search "how do I back it up" -c docs -k 5\n', shown.output
    )


def test_the_second_text_of_an_annotation_is_the_metavar() -> None:
    params = {each.name: each for each in COMMANDS["memory", "erase"].params}
    before, dry_run = params["before"], params["dry_run"]
    assert (before.opts, before.metavar) == (["--before"], "DATE")
    assert before.help == "Delete only what is older."
    assert (dry_run.opts, dry_run.metavar) == (["--dry-run"], None)


def test_help_lists_the_exit_codes() -> None:
    shown = CliRunner().invoke(all_commands(), ["--help"])
    assert "Exit codes: 0 done, 1 failed" in " ".join(shown.output.split())


def test_version() -> None:
    shown = CliRunner().invoke(all_commands(), ["--version"])
    assert shown.output == f"ability-search {ability_search.__version__}\n"
