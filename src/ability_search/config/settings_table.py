"""Settings tables of the documentation, generated from the declarations."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt

from ability_search.config.schema import GROUPS
from ability_search.config.setting_fields import KIB, MIB
from ability_search.config.specs import SPECS, Spec

_HEADER = (
    "| config.yml `search.` | environment | default | allowed | meaning |\n|---|---|---|---|---|"
)
_SIGNS = ((Ge, "≥", "ge"), (Gt, ">", "gt"), (Le, "≤", "le"), (Lt, "<", "lt"))


def settings_table() -> str:
    """Return Markdown: one table per group of settings, in the order of the declarations."""
    parts = []
    for group, model in GROUPS.items():
        about = (model.__doc__ or "").splitlines()[0].rstrip(".")
        rows = [_row(spec) for spec in SPECS if spec.group == group]
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
        if value % size == 0:
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
