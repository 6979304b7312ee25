"""Options and arguments that several commands share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel

from ability_search.collection import is_collection_name, proposed_name

BrokerOption = Annotated[
    str | None,
    typer.Option(
        "--broker",
        metavar="URL",
        help="Broker to use instead of the running stack or the configured one.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="Timeout of a call.")
]
DataDirOption = Annotated[
    Path | None, typer.Option("--data-dir", help="Data directory.  [default: data_dir]")
]


def _collection_name(name: str | None) -> str | None:
    """Refuse what is not a collection name, with a proposal, which no tool repeats."""
    if name is None or is_collection_name(name):
        return name
    proposal = proposed_name(name).strip("-._")
    raise typer.BadParameter(
        "use 1 to 64 letters, digits, . _ - and begin with a letter or a digit"
        + (f", for example {proposal}" if proposal else "")
    )


CollectionArgument = Annotated[
    str, typer.Argument(callback=_collection_name, help="Name of the collection.")
]
CollectionOption = Annotated[
    str | None,
    typer.Option(
        "--collection",
        "-c",
        callback=_collection_name,
        help="Collection.  [default: the directory's name]",
    ),
]
CollectionsOption = Annotated[
    list[str] | None, typer.Option("--collection", "-c", help="Only this collection; repeatable.")
]
AllCollectionsOption = Annotated[
    list[str] | None,
    typer.Option("--collection", "-c", help="Collection, repeatable.  [default: all]"),
]
FilterOption = Annotated[
    str | None,
    typer.Option("--filter", metavar="JSON", help='Filter, such as {"metadata.lang": "en"}.'),
]
IncludeOption = Annotated[
    list[str] | None,
    typer.Option(metavar="PATTERN", help="Include only these files (gitignore syntax)."),
]
ExcludeOption = Annotated[
    list[str] | None, typer.Option(metavar="PATTERN", help="Skip these files.")
]
ModelOption = Annotated[str | None, typer.Option(help="Embedding model.")]
RevisionOption = Annotated[
    str | None, typer.Option(help="Revision of the sources.  [default: a hash of their texts]")
]

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
SupervisedOption = Annotated[bool, typer.Option("--supervised", hidden=True)]
WaitOption = Annotated[
    float, typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait for the broker.")
]


@dataclass(frozen=True, slots=True)
class Patterns:
    """The choice of files, and the names of their sources."""

    root: Annotated[
        Path | None,
        "Make sources relative to this directory.  [default: that of the sources in the"
        " collection, or else the working directory if it is above PATH, or else PATH's parent]",
    ] = None
    include: IncludeOption = None
    exclude: ExcludeOption = None


def host_option(setting: str, about: str = "Address to listen on.") -> Any:
    """Return the option for the address that a component listens on."""
    return typer.Option("--host", help=f"{about}  [default: {setting}]")


def port_option(flag: str, about: str) -> Any:
    """Return an option for a port number; 0 chooses a free port."""
    return typer.Option(flag, min=0, max=65535, help=about)


def json_object(text: str, option: str) -> dict[str, Any]:
    """Return the JSON object that an option or argument holds.

    Raises:
        typer.BadParameter: if it is not one.
    """
    try:
        value = json.loads(text)
    except ValueError as exc:
        raise typer.BadParameter(f"not JSON: {exc}", param_hint=option) from exc
    if not isinstance(value, dict):
        raise typer.BadParameter("expected a JSON object", param_hint=option)
    return value


def tool_fields(options: BaseModel) -> dict[str, Any]:
    """Return the options of a command that were given, as fields of the tool."""
    return options.model_dump(mode="json", by_alias=True, exclude_unset=True)


def given(**values: Any) -> dict[str, Any]:
    """Return a tool's input from command options, without ``None``, ``False`` and ``[]``."""
    return {
        name: value
        for name, value in values.items()
        if value is not None and value is not False and value != []
    }


def all_or_named(names: Sequence[str] | None) -> str | list[str]:
    """Return the collections of a query; ``*`` if none is named."""
    if not names:
        return "*"
    return names[0] if len(names) == 1 else list(names)
