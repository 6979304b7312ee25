"""The command-line application: the commands, their failures and their exit codes.

====  =====================================================================
code  meaning
====  =====================================================================
0     done
1     the operation failed, entirely or in part, or the settings are wrong
2     wrong usage or invalid input
3     not found, or nothing found
130   interrupted
====  =====================================================================
"""

from __future__ import annotations

import inspect
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar, get_type_hints

import typer
from pydantic import ValidationError
from typer.core import TyperCommand, TyperGroup

from ability_search import __version__
from ability_search.errors import SearchError
from ability_search.extensions.cli import output
from kadi_client import KadiError
from kadi_client import errors as kadi
from kadi_client.tools import validation_text

F = TypeVar("F", bound=Callable[..., Any])

FAILED = 1
USAGE = 2
NOT_FOUND = 3

_CODES = {"invalid_input": USAGE, "too_large": USAGE, "not_found": NOT_FOUND}
_START = (
    "Start the stack with `ability-search up`, or set a broker with --broker or BROKER_URL;"
    " `ability-search doctor` checks every component."
)
_HINTS: tuple[tuple[type[Exception], str], ...] = (
    (kadi.NotConnected, _START),
    (kadi.CallTimeout, "Increase --timeout, or run `ability-search doctor`."),
    (kadi.RemoteError, "Correct the input, or check the network with `ability-search doctor`."),
    (kadi.AuthenticationError, "The broker refused this identity; check its address."),
    (kadi.FrameTooLarge, "Increase SEARCH_MAX_MESSAGE_BYTES on all sides, or send less."),
)

EPILOG = (
    "Exit codes: 0 done, 1 failed or wrong settings, 2 wrong usage or input,"
    " 3 not found or nothing found."
)


COMMANDS = {
    "setup": "localstack.setup",
    "trust": "localstack.setup",
    "up": "localstack.stack_commands",
    "status": "localstack.stack_commands",
    "down": "localstack.stack_commands",
    "prune": "localstack.stack_commands",
    "doctor": "localstack.diagnosis",
    "index": "cli.index",
    "watch": "cli.index",
    "search": "cli.search",
    "ask": "cli.search",
    "similar": "cli.search",
    "mark": "cli.search",
    "collections": "cli.collections",
    "info": "cli.collections",
    "delete": "cli.collections",
    "reindex": "cli.collections",
    "analyze": "notes.graph_commands",
    "consolidate": "notes.note_commands",
    "memory": "sessions.agent_memory",
    "build": "cli.index",
    "export": "artifacts.transfer",
    "import": "artifacts.transfer",
    "backup": "artifacts.transfer",
    "restore": "artifacts.transfer",
    "migrate": "artifacts.transfer",
    "eval": "evaluation.evaluation_commands",
    "call": "cli.call",
    "mcp": "mcp.mcp_command",
    "gateway": "localstack.services",
    "worker": "localstack.services",
    "broker": "localstack.services",
    "backplane": "localstack.services",
    "database": "localstack.services",
    "models": "localstack.model_commands",
    "secret": "cli.secret",
}
"""Command name -> its module, in the order of the help."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The message, the hint and the exit code of a failure."""

    text: str
    hint: str
    exit_code: int = FAILED
    unexpected: bool = False
    """Whether it is a defect of the program, to be logged with its traceback."""


def explain(exc: Exception) -> Explanation:
    """Return the message, the hint and the exit code for an exception."""
    if isinstance(exc, SearchError | kadi.ToolError):
        return Explanation(str(exc), exc.hint, _CODES.get(exc.code, FAILED))
    if isinstance(exc, ValidationError):
        return Explanation(validation_text(exc), "Correct the named fields.", USAGE)
    for kind, hint in _HINTS:
        if isinstance(exc, kind):
            return Explanation(str(exc), hint)
    if isinstance(exc, kadi.KadiError):
        return Explanation(str(exc), "Run `ability-search doctor`.")
    if isinstance(exc, OSError) and exc.strerror:
        where = f"{exc.filename}: " if exc.filename else ""
        return Explanation(f"{where}{exc.strerror}", "")
    return Explanation(
        f"internal error: {type(exc).__name__}: {exc}",
        "This is a bug; set SEARCH_LOG_LEVEL=debug to see the traceback.",
        unexpected=True,
    )


class Root(TyperGroup):
    """The top-level group: reports an expected failure as two lines and an exit code."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in the order of :data:`COMMANDS`."""
        return sorted(super().list_commands(ctx), key=tuple(COMMANDS).index)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; exit with the code of its failure."""
        try:
            return super().invoke(ctx)
        except (SearchError, KadiError, ValidationError) as exc:
            report = explain(exc)
            output.fail(report.text, report.hint)
            logging.getLogger(__name__).debug("traceback of the failure", exc_info=exc)
            raise typer.Exit(report.exit_code) from exc


class Command(TyperCommand):
    """A command whose help names parameters as docs/cli.md does, without types of Python."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage after the name of the command."""
        arguments = [each for each in self.params if each.param_type_name == "argument"]
        return ["[OPTIONS]", *map(argument_name, arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options."""
        titles = {"argument": "Arguments", "option": "Options"}
        rows: dict[str, list[tuple[str, str]]] = {title: [] for title in titles.values()}
        for param in self.get_params(ctx):
            if record := param.get_help_record(ctx):
                rows[titles[param.param_type_name]].append((_shown(param, record[0]), record[1]))
        for title, found in rows.items():
            if found:
                with formatter.section(title):
                    formatter.write_dl(found)


def argument_name(param: Any) -> str:
    """Return an argument as the usage shows it: brackets if it is optional, dots if repeatable."""
    name = param.metavar or param.name.upper()
    if param.nargs != 1 and not name.endswith("..."):
        name += "..."
    return name if param.required or name.startswith("[") else f"[{name}]"


def _shown(param: Any, name: str) -> str:
    """Return the name of a parameter in the help; its choices, or its name, instead of a type."""
    if param.param_type_name == "argument":
        return argument_name(param)
    options, _, kind = name.partition(" <")
    if not kind:
        return name
    return f"{options} {kind.rstrip('>') if '|' in kind else param.name.upper()}"


class DefaultGroup(TyperGroup):
    """A command group whose first command is the default."""

    @property
    def default_command(self) -> str:
        """Return the name of the default command."""
        return next(iter(self.commands))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default command unless the first argument names a command."""
        known = (*self.commands, *ctx.help_option_names)
        return super().parse_args(
            ctx, args if not args or args[0] in known else [self.default_command, *args]
        )


def new_group(help: str, *, cls: type[TyperGroup] = TyperGroup, **options: Any) -> typer.Typer:
    """Return a new command group."""
    return typer.Typer(
        cls=cls,
        help=help,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        **options,
    )


app = new_group(
    "Make text findable: chunking, embedding, semantic, keyword and hybrid search.",
    cls=Root,
    name="ability-search",
    epilog=EPILOG,
    context_settings={"max_content_width": 100, "help_option_names": ["--help", "-h"]},
)


def command(group: typer.Typer, name: str) -> Callable[[F], F]:
    """Add a function to a group; its docstring is the help, the example keeps its layout.

    A parameter whose type is a dataclass stands for one option for each of its fields.
    """

    def add(function: F) -> F:
        help = inspect.cleandoc(function.__doc__ or "").replace("\n\nExample", "\n\n\b\nExample")
        group.command(name, help=help, cls=Command)(_expanded(function))
        return function

    return add


def _expanded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes the fields of dataclasses instead of these."""
    own: list[inspect.Parameter] = []
    bundles: dict[str, Any] = {}
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        if not is_dataclass(parameter.annotation):
            own.append(parameter)
            continue
        bundles[parameter.name] = parameter.annotation
        hints = get_type_hints(parameter.annotation, include_extras=True)
        own += [
            inspect.Parameter(
                each.name, parameter.kind, default=each.default, annotation=hints[each.name]
            )
            for each in fields(parameter.annotation)
        ]

    @wraps(function)
    def run(**values: Any) -> Any:
        for name, bundle in bundles.items():
            values[name] = bundle(**{each.name: values.pop(each.name) for each in fields(bundle)})
        return function(**values)

    run.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    return run


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ability-search {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", help="Print the version.", callback=_version, is_eager=True
    ),
) -> None:
    """Make text findable: chunking, embedding, semantic, keyword and hybrid search."""


def all_commands() -> typer.Typer:
    """Import the modules of all commands and return the application."""
    for name in dict.fromkeys(COMMANDS.values()):
        _import_module(name)
    return app


def _import_module(name: str) -> None:
    import_module(f"ability_search.extensions.{name}")


def main() -> None:
    """Run the command line; report unexpected exceptions as errors, too.

    Only the module of the named command is imported, to keep short commands fast.
    """
    named = sys.argv[1] if len(sys.argv) > 1 else ""
    try:
        if named in COMMANDS:
            _import_module(COMMANDS[named])
        else:
            all_commands()
        app(prog_name="ability-search")
    except Exception as exc:
        report = explain(exc)
        output.fail(report.text, report.hint)
        if os.environ.get("SEARCH_LOG_LEVEL", "").lower() == "debug":
            raise
        sys.exit(report.exit_code)
