"""The settings as rows, for the sources, the environment of components and the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import SecretStr, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from ability_search.config.plugins import added_groups
from ability_search.config.schema import CORE_GROUPS
from ability_search.config.setting_fields import Group


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
        alternatives = get_args(self.field.annotation)
        types = {self.field.annotation, *alternatives, *chain(*map(get_args, alternatives))}
        if SecretStr in types:
            return "secret"
        if ... in types:
            if _extra(self.field)["named_paths"]:
                return "named paths"
            return "paths" if Path in types else "list"
        return "path" if Path in types else "plain"

    @property
    def empty_values(self) -> tuple[object, ...]:
        """The values that stand for nothing; the first is that of a blank text.

        They are an empty list, an empty text, and ``None`` where the setting is optional. Numbers
        and choices have none, and neither has what must not be empty. A secret has none, so that
        a blank variable does not hide the one of the vault.
        """
        candidates: tuple[object, ...] = ("", None)
        if self.kind == "secret":
            candidates = ()
        elif self.kind == "path":
            candidates = (None,)
        elif self.kind != "plain":
            candidates = ([], None)
        return tuple(value for value in candidates if self._accepts(value))

    def _accepts(self, value: object) -> bool:
        """Return whether the setting may have a value."""
        kind: Any = self.field.annotation
        if self.field.metadata:
            kind = Annotated[(kind, *self.field.metadata)]
        try:
            TypeAdapter(kind).validate_python(value)
        except ValidationError:
            return False
        return True

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
