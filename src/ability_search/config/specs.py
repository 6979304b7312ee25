"""The settings as rows, for the loader, the README and the CLI."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from ability_search.config.schema import GROUPS


@dataclass(frozen=True, slots=True)
class Spec:
    """One row of the settings table."""

    group: str
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


def _specs() -> Iterator[Spec]:
    for group, model in GROUPS.items():
        for attribute, field in model.model_fields.items():
            extra = _extra(field)
            if not extra:
                continue
            key = extra["key"] or f"{model.prefix}{attribute}"
            env = tuple(extra["env"]) or (f"SEARCH_{key.upper()}",)
            yield Spec(group, attribute, key, env, extra["home"], extra["unit"], field)


SPECS: tuple[Spec, ...] = tuple(_specs())
"""All settings, in the order of the README."""

BY_ENV: dict[str, Spec] = {name: spec for spec in SPECS for name in spec.env}
BY_KEY: dict[str, Spec] = {spec.key: spec for spec in SPECS if spec.home is None}
"""Settings with a key in config.yml, including secrets (so that they are refused by name)."""
