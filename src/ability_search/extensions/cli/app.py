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
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer
from pydantic import BaseModel, ValidationError
from typer.core import TyperCommand, TyperGroup

from ability_search import __version__
from ability_search.config.loader import chosen_extensions
from ability_search.errors import ConfigurationError, SearchError
from ability_search.extension import load, loaded
from ability_search.extensions.cli import output
from ability_search.extensions.cli.parameters import JsonOption, derived_options
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
    (
        kadi.NoProvider,
        "Start the component that offers it, on a network that this client joins;"
        " `ability-search doctor` checks every component.",
    ),
    (kadi.ProviderLost, "Call again; the log of the component says why it disconnected."),
    (kadi.RemoteError, "Correct the input, or check the network with `ability-search doctor`."),
    (kadi.AuthenticationError, "The broker refused this identity; check its address."),
    (kadi.FrameTooLarge, "Increase SEARCH_MAX_MESSAGE_BYTES on all sides, or send less."),
)

EPILOG = (
    "Exit codes: 0 done, 1 failed or wrong settings, 2 wrong usage or input,"
    " 3 not found or nothing found."
)


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


class RootGroup(TyperGroup):
    """The top-level group: reports an expected failure as two lines and an exit code."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in the order of their places."""
        return sorted(super().list_commands(ctx), key=tuple(loaded().commands).index)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; exit with the code of its failure."""
        try:
            return super().invoke(ctx)
        except (SearchError, KadiError, ValidationError) as exc:
            report = explain(exc)
            output.fail(report.text, report.hint)
            logging.getLogger(__name__).debug("traceback of the failure", exc_info=exc)
            raise typer.Exit(report.exit_code) from exc


class PlainCommand(TyperCommand):
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
                # Choices, or the name of the parameter, instead of a type.
                name, _, kind = record[0].partition(" <")
                if param.param_type_name == "argument":
                    name = argument_name(param)
                elif kind:
                    name += f" {kind.rstrip('>') if '|' in kind else str(param.name).upper()}"
                rows[titles[param.param_type_name]].append((name, record[1]))
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


class DefaultGroup(TyperGroup):
    """A command group whose first command is the default."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default command unless the first argument names a command."""
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)


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
    cls=RootGroup,
    name="ability-search",
    epilog=EPILOG,
    context_settings={"max_content_width": 100, "help_option_names": ["--help", "-h"]},
)


def command(group: typer.Typer, name: str) -> Callable[[F], F]:
    """Add a function to a group; its docstring is the help, the example keeps its layout.

    A parameter whose type is annotated with a text is an option with this help, or an argument if
    it has no default; a second text is its metavar. One whose type is a dataclass stands for one
    option for each of its fields; so does one whose type is a model of fields of a tool, whose
    options are derived from these.
    """

    def add(function: F) -> F:
        help = inspect.cleandoc(function.__doc__ or "").replace("\n\nExample", "\n\n\b\nExample")
        group.command(name, help=help, cls=PlainCommand)(_expanded(function))
        return function

    return add


def _expanded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes the fields of dataclasses and models instead of these."""
    own: list[inspect.Parameter] = []
    bundles: dict[str, tuple[type, list[str]]] = {}
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        options = bundled(parameter.annotation, parameter.default)
        if options:
            bundles[parameter.name] = parameter.annotation, [each.name for each in options]
        own += options or [_described(parameter)]

    @wraps(function)
    def run(**values: Any) -> Any:
        for parameter, (bundle, names) in bundles.items():
            given = {name: values.pop(name) for name in names}
            if not is_dataclass(bundle):
                given = {k: value for k, value in given.items() if value not in (None, False)}
            values[parameter] = bundle(**given)
        return function(**values)

    run.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    return run


def bundled(bundle: Any, usual: Any = None) -> list[inspect.Parameter]:
    """Return the options that a parameter of a type stands for; none if it is one itself.

    Their defaults are those of ``usual``, if that is of the type.
    """
    if is_dataclass(bundle):
        hints = get_type_hints(bundle, include_extras=True)
        return [
            _described(
                inspect.Parameter(
                    each.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=getattr(usual, each.name, each.default),
                    annotation=hints[each.name],
                )
            )
            for each in fields(bundle)
        ]
    if isinstance(bundle, type) and issubclass(bundle, BaseModel):
        return list(derived_options(bundle))
    return []


def _described(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return a parameter with an option or an argument in place of a text in its annotation."""
    kind, *about = get_args(parameter.annotation) or [None]
    if get_origin(parameter.annotation) is not Annotated or not isinstance(about[0], str):
        return parameter
    shown: dict[str, Any] = dict(zip(("help", "metavar"), about, strict=False))
    if parameter.default is parameter.empty:
        info: Any = typer.Argument(**shown)
    else:
        info = typer.Option(f"--{parameter.name.replace('_', '-')}", **shown)
    annotated: Any = Annotated
    return parameter.replace(annotation=annotated[kind, info])


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


@command(app, "extensions")
def extensions(as_json: JsonOption = False) -> None:
    """List the extensions that are loaded, where each comes from, and what it adds.

    The setting `extensions` leaves one out, or loads one that is off by default.

    Example:
        ability-search extensions
        SEARCH_EXTENSIONS=-evaluation ability-search extensions --json
    """
    found = loaded().extensions
    if as_json:
        output.print_json(
            [{"name": each.name, "origin": each.origin, "adds": each.added} for each in found]
        )
        return
    rows = [(each.name, each.origin, ", ".join(each.added) or "modules") for each in found]
    output.print_table(("extension", "origin", "adds"), rows)


def all_commands() -> typer.Typer:
    """Import the modules of all commands and return the application."""
    for module in dict.fromkeys(each.module for each in loaded().commands.values()):
        import_module(module)
    return app


def main() -> None:
    """Run the command line; report unexpected exceptions as errors, too.

    Only the module of the named command is imported, to keep short commands fast.
    """
    named = sys.argv[1] if len(sys.argv) > 1 else ""
    try:
        extensions = load(chosen_extensions(os.environ, Path.cwd())).extensions
        if "cli" not in {each.name for each in extensions}:
            raise ConfigurationError(
                "extensions: the extension cli, which this command belongs to, is left out",
                hint="Take -cli out of SEARCH_EXTENSIONS, or of `extensions` in config.yml.",
            )
        if command := loaded().commands.get(named):
            import_module(command.module)
        else:
            all_commands()
        app(prog_name="ability-search")
    except Exception as exc:
        report = explain(exc)
        output.fail(report.text, report.hint)
        if os.environ.get("SEARCH_LOG_LEVEL", "").lower() == "debug":
            raise
        sys.exit(report.exit_code)
