"""The settings as rows, for the sources and the CLI, and as Markdown for the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from ability_search.config.plugins import added_groups
from ability_search.config.schema import CORE_GROUPS
from ability_search.config.setting_fields import KIB, MIB, Group

_HEADER = (
    "| config.yml `search.` | environment | default | allowed | meaning |\n|---|---|---|---|---|"
)
_SIGNS = ((Ge, "≥", "ge"), (Gt, ">", "gt"), (Le, "≤", "le"), (Lt, "<", "lt"))


@dataclass(frozen=True, slots=True)
class Spec:
    """One row of the settings table."""

    group: type[Group]
    attribute: str
    key: str
    """Name in section ``search`` of config.yml; not valid there if ``home`` is set."""
    env: tuple[str, ...]
    home: str | None
    unit: str
    field: FieldInfo

    @property
    def kind(self) -> Literal["secret", "path", "paths", "named paths", "list", "plain"]:
        """Kind of the value; determines how the text of a source is converted."""
        types = {self.field.annotation, *get_args(self.field.annotation)}
        if SecretStr in types:
            return "secret"
        if ... in types:
            if _extra(self.field)["named_paths"]:
                return "named paths"
            return "paths" if Path in types else "list"
        return "path" if Path in types else "plain"

    @property
    def default_text(self) -> str | None:
        """Wording of the default, if it differs from the value itself."""
        text = _extra(self.field)["default_text"]
        return None if text is None else str(text)


def _extra(field: FieldInfo) -> dict[str, Any]:
    extra = field.json_schema_extra
    return dict(extra) if isinstance(extra, dict) else {}


class SettingsTable:
    """Settings in the order of the documentation.

    Args:
        groups: Their groups.
    """

    def __init__(self, groups: Iterable[type[Group]]) -> None:
        self.groups = tuple(groups)
        self.specs = tuple(spec for group in self.groups for spec in _specs(group))
        self.by_env = {name: spec for spec in self.specs for name in spec.env}
        self.by_key = {spec.key: spec for spec in self.specs if spec.home is None}
        """Those with a key in config.yml, secrets included (so that they are refused by name)."""


@cache
def all_settings() -> SettingsTable:
    """Return the settings of the core, and those of all extensions that are installed."""
    return SettingsTable((*CORE_GROUPS, *added_groups()))


def _specs(group: type[Group]) -> Iterator[Spec]:
    for attribute, field in group.model_fields.items():
        if extra := _extra(field):
            key = extra["key"] or f"{group.prefix}{attribute}"
            env = tuple(extra["env"]) or (f"SEARCH_{key.upper()}",)
            yield Spec(group, attribute, key, env, extra["home"], extra["unit"], field)


def markdown_tables() -> str:
    """Return Markdown: one table per group of settings, in the order of the declarations."""
    parts = []
    for group in all_settings().groups:
        about = (group.__doc__ or "").splitlines()[0].rstrip(".")
        rows = map(_row, _specs(group))
        parts.append("\n".join([f"## {about}", "", _HEADER, *rows]))
    return "\n\n".join(parts) + "\n"


def _row(spec: Spec) -> str:
    environment = ", ".join(f"`{name}`" for name in spec.env)
    cells = (_home(spec), environment, _default(spec), _allowed(spec), spec.field.description or "")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _home(spec: Spec) -> str:
    if spec.home is not None:
        return spec.home
    return "secret: vault `models`" if spec.kind == "secret" else f"`{spec.key}`"


def _default(spec: Spec) -> str:
    if spec.default_text is not None:
        return spec.default_text if " " in spec.default_text else f"`{spec.default_text}`"
    value = spec.field.default
    return "none" if value in (None, ()) else f"`{_quantity(spec, value)}`"


def _quantity(spec: Spec, value: Any) -> str:
    if spec.unit == "bytes":
        return _size(value)
    if isinstance(value, tuple):
        return ", ".join(value)
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _size(value: int) -> str:
    for size, name in ((1024 * MIB, " GiB"), (MIB, " MiB"), (KIB, " KiB")):
        if value and value % size == 0:
            return f"{value // size}{name}"
    return str(value)


def _allowed(spec: Spec) -> str:
    annotation = spec.field.annotation
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(annotation))
    bounds = [
        f"{sign} {_quantity(spec, getattr(constraint, name))}"
        for constraint in spec.field.metadata
        for kind, sign, name in _SIGNS
        if isinstance(constraint, kind)
    ]
    text = ", ".join(bounds)
    unit = "" if spec.unit == "bytes" else spec.unit
    return f"{text} {unit}".strip()
