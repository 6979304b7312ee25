"""Configuration files, found by walking up from a directory.

Other programs use the same file names. Only a file with contents of this program counts; others
are passed over, with a warning.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ability_search.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of configuration file, and how a file of this program is recognised."""

    name: str
    is_own: Callable[[Mapping[str, Any]], bool]
    marker: re.Pattern[bytes]
    """Regular expression of a line that marks an own file that cannot be parsed."""
    lacks: Callable[[Mapping[str, Any]], str]
    """Returns what a file of another program lacks, for the warning."""


class Found(NamedTuple):
    """The nearest own file of a kind; no path and no content if there is none."""

    path: Path | None
    content: Mapping[str, Any]


@dataclass(slots=True)
class Report:
    """The problems of the sources of settings, and the warnings."""

    problems: list[str] = field(default_factory=list)
    """Each prevents the start."""
    warnings: list[str] = field(default_factory=list)
    """Ignored values and files, and the reasons."""


def find_own(kind: FileKind, start: Path, report: Report) -> Found:
    """Return the nearest own file of a kind in ``start`` or a directory above it.

    One that cannot be read or parsed is a problem and not returned; each nearer file of another
    program is a warning, unless it is empty.
    """
    for directory in (start, *start.parents):
        path = directory / kind.name
        if not os.path.isfile(path):
            continue
        content: Mapping[str, Any] = {}
        try:
            content = read_file(path)
        except ConfigurationError as exc:
            try:
                marked = kind.marker.search(path.read_bytes()) is not None
            except OSError:
                marked = True
            if marked:
                report.problems += exc.problems
                break
        else:
            if kind.is_own(content):
                return Found(path, content)
            if not content:
                continue
        report.warnings.append(f"{path} is ignored: {kind.lacks(content)}")
    return Found(None, {})


def read_file(path: Path) -> dict[str, Any]:
    """Return the mapping in a file, by the suffix of its name; an empty YAML file is an empty one.

    Raises:
        ConfigurationError: if it cannot be read, or if YAML contains a duplicate key.
    """
    notation, parse = _NOTATIONS[path.suffix]
    try:
        document = parse(path.read_text(encoding="utf-8-sig"))
    except OSError as exc:
        raise ConfigurationError(f"{path}: cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise ConfigurationError(f"{path}: not UTF-8 (byte {exc.start})") from exc
    except (yaml.YAMLError, ValueError) as exc:
        raise ConfigurationError(f"{path}: not valid {notation}{_problem(exc)}") from exc
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path}: expected a mapping at the top level")
    return document


def _problem(exc: yaml.YAMLError | ValueError) -> str:
    """Return the place and the text of an error, without what the file contains there."""
    match exc:
        case yaml.MarkedYAMLError(problem_mark=mark, problem=problem):
            place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
            return f"{place}: {problem}"
        case json.JSONDecodeError():
            return f" (line {exc.lineno}, column {exc.colno}): {exc.msg}"
        case tomllib.TOMLDecodeError():
            return f": {exc}"
        case _:
            return ""


class _UniqueKeyLoader(yaml.SafeLoader):
    """A YAML loader that rejects duplicate keys; PyYAML itself keeps the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag.endswith(":merge"):
                continue
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"duplicate key {key.value}", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _from_yaml(text: str) -> Any:
    document = yaml.load(text, Loader=_UniqueKeyLoader)
    return {} if document is None else document


_NOTATIONS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    ".yml": ("YAML", _from_yaml),
    ".toml": ("TOML", tomllib.loads),
    ".json": ("JSON", json.loads),
}
