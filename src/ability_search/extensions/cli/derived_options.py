"""Options of commands that are derived from the fields of a tool."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from kadi_client.tools import validation_text

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
