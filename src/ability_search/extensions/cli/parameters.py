"""Options and arguments that several commands share."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from ability_search.collection import is_collection_name, proposed_name
from kadi_client.tools import validation_text

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


def _path(text: str) -> Path:
    """Refuse an empty path, which would be the working directory."""
    if not text.strip():
        raise typer.BadParameter("expected a path; leave the option out to use the default")
    return Path(text)


DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", parser=_path, metavar="PATH", help="Data directory.  [default: data_dir]"
    ),
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
ModelOption = Annotated[str | None, "Embedding model."]
RevisionOption = Annotated[str | None, "Revision of the sources.  [default: a hash of their texts]"]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
SupervisedOption = Annotated[bool, typer.Option("--supervised", hidden=True)]
OfferOption = Annotated[
    list[str] | None,
    typer.Option(
        "--offer",
        metavar="FAMILY",
        help="Offer the tools of a family of extensions, too, such as memory; repeatable, or"
        " separated by commas; all for all of them.  [default: offer]",
    ),
]


def named_families(values: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the families in the values of ``--offer``; ``None`` if it is not given."""
    if values is None:
        return None
    names = [name.strip() for name in ",".join(values).split(",")]
    return tuple(dict.fromkeys(filter(None, names)))


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
    include: Annotated[
        list[str] | None, "Include only these files (gitignore syntax).", "PATTERN"
    ] = None
    exclude: Annotated[list[str] | None, "Skip these files.", "PATTERN"] = None


def host_option(setting: str, about: str = "Address to listen on.") -> Any:
    """Return the option for the address that a component listens on."""
    return typer.Option("--host", callback=_host, help=f"{about}  [default: {setting}]")


def _host(address: str | None) -> str | None:
    """Refuse an empty address, on which a server would listen on all interfaces."""
    if address is not None and not address.strip():
        raise typer.BadParameter("expected an address, such as 127.0.0.1; 0.0.0.0 for all of them")
    return address


def port_option(default: str, about: str = "Port to listen on, 0 for a free one.") -> Any:
    """Return an option for a port number; 0 chooses a free port."""
    return typer.Option(min=0, max=65535, help=f"{about}  [default: {default}]")


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


_NONE = "none"
"""No names, where that is not the same as none given."""
_SENTENCE_END = re.compile(r"(?<!\.)\. ")
_METAVARS = {dict: "JSON", float: "NUMBER", int: "INTEGER"}


def derived_options(
    model: type[BaseModel],
    *,
    declared: Collection[str] = (),
    flags: Mapping[str, str] | None = None,
    required: Mapping[str, Any] | None = None,
) -> Iterator[inspect.Parameter]:
    """Yield a parameter of a command for each field of a model.

    Args:
        model: The model.
        declared: Fields that the command declares itself.
        flags: Options that are not named like their field, by field.
        required: Values of the fields without a default, so that another one is checked alone.
    """
    for name, field in model.model_fields.items():
        if name not in declared:
            flag = (flags or {}).get(name, f"--{name.replace('_', '-')}")
            yield inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=False if field.annotation is bool else None,
                annotation=_option(flag, field, _parser(model, name, required or {})),
            )


def _option(flag: str, field: FieldInfo, parser: Callable[[str], Any]) -> Any:
    """Return the annotation of the option for a field; a value that is not a text is JSON."""
    about = _SENTENCE_END.split(str(field.description))[0].removesuffix(".")
    forms = list(_forms(field.annotation))
    choices = [name for form in forms if get_origin(form) is Literal for name in get_args(form)]
    if field.annotation is bool:
        return Annotated[bool, typer.Option(flag, help=f"{about}.")]
    if names := _names(field):
        metavar, shown = "NAME,...", f": {', '.join(names)}; or {_NONE}."
    elif any(get_origin(form) is list for form in forms):
        return Annotated[list[str] | None, typer.Option(flag, help=f"{about}; repeatable.")]
    else:
        example = field.examples[-1] if field.examples else field.default
        kinds = [type(example), *forms] if type(example) in _METAVARS else forms
        metavar = next((_METAVARS[kind] for kind in kinds if kind in _METAVARS), "TEXT")
        shown = f". Example: {json.dumps(example)}" if metavar == "JSON" else "."
        if choices and metavar != "JSON":
            metavar = "|".join([*("N" for form in forms if form is int), *choices])
    return Annotated[
        str | None, typer.Option(flag, parser=parser, metavar=metavar, help=about + shown)
    ]


def _forms(annotation: Any) -> Iterator[Any]:
    """Yield the types that a value may have, without their conditions."""
    if get_origin(annotation) in (Union, UnionType):
        for form in get_args(annotation):
            yield from _forms(form)
    elif get_origin(annotation) is Annotated:
        yield from _forms(get_args(annotation)[0])
    else:
        yield annotation


def _names(field: FieldInfo) -> Sequence[str]:
    """Return the names that a field lists, if none of them is not the same as no list."""
    lists = [form for form in _forms(field.annotation) if get_origin(form) is list]
    items = get_args(lists[0]) if lists and field.default is None else ()
    return get_args(items[0]) if items and get_origin(items[0]) is Literal else ()


def _parser(model: type[BaseModel], name: str, required: Mapping[str, Any]) -> Callable[[str], Any]:
    """Return a function that reads the value of an option: a text, or JSON."""
    field = model.model_fields[name]
    alias, names = field.alias or name, _names(field)

    def checked(value: Any) -> Any:
        return getattr(model.model_validate({**required, alias: value}), name)

    def parse(text: str) -> Any:
        if names:
            value: Any = [] if text.strip() == _NONE else [part.strip() for part in text.split(",")]
        else:
            value = text
        try:
            return checked(value)
        except ValidationError as exc:
            problem = exc
        try:
            return checked(json.loads(text))
        except json.JSONDecodeError as exc:
            if text.lstrip()[:1] in ("{", "["):
                raise typer.BadParameter(f"not JSON: {exc}") from exc
        except ValidationError as exc:
            problem = exc
        example = field.examples[-1] if field.examples else None
        shown = f" Example: {json.dumps(example)}" if isinstance(example, dict) else ""
        raise typer.BadParameter(f"{validation_text(problem, model)}.{shown}") from problem

    return parse
