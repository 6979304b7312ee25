"""Write the parts of the documentation that follow from the code.

A part stands between ``<!-- NAME:begin -->`` and ``<!-- NAME:end -->`` in its file. With
``--check`` nothing is written: files that are out of date are named, and make the exit code 1.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ability_search import errors
from ability_search.configuration import settings_table
from ability_search.metrics.table import METRICS, PARTS, PROCESS, Metric
from ability_search.wire.table import TOOLS

ROOT = Path(__file__).resolve().parent.parent
_BOUNDS = (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))


def tool_list() -> str:
    """A table: each tool and what it does."""
    rows = [f"| [`{row.name}`](docs/tools.md#{row.name}) | {row.summary} |" for row in TOOLS]
    return "\n".join(["| tool | what it does |", "|---|---|", *rows]) + "\n"


def tool_reference() -> str:
    """A section for each tool, and one for each object that inputs or results contain."""
    parts: list[str] = []
    objects: dict[str, Mapping[str, Any]] = {}
    for row in TOOLS:
        given, answered = row.input_schema, row.output_schema
        parts += [f"### {row.name}", row.description]
        parts += ["Input:", _inputs(given)]
        parts += ["Result:", _results(answered)]
        for schema in (given, answered):
            objects |= schema.get("$defs", {})
    parts.append("## Objects")
    for name, schema in sorted(objects.items()):
        table = _inputs(schema) if schema.get("additionalProperties") is False else _results(schema)
        parts += [f"### {name}", schema["description"], table]
    return "\n\n".join(parts) + "\n"


def error_codes() -> str:
    """A table: each code that a failure can carry, and whether calling again makes sense."""
    rows = {
        error.code: f"| `{error.code}` | {'yes' if error.retryable else 'no'} | {_meaning(error)} |"
        for error in _tree(errors.SearchError)
        if error.code != "internal"
    }
    rows["internal"] = (
        "| `internal` | no | Anything that is not expected; the message holds an incident id, under"
        " which the worker's log explains it. |"
    )
    return "\n".join(["| code | retryable | meaning |", "|---|---|---|", *rows.values()]) + "\n"


def metrics_table() -> str:
    """A table: each metric, its type and labels, which parts have it, what it means."""
    rows = [_metric_row(metric) for metric in (*METRICS, *PROCESS)]
    header = ["| metric | type | labels | parts | meaning |", "|---|---|---|---|---|"]
    return "\n".join([*header, *rows]) + "\n"


def _metric_row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    parts = "all" if metric.parts == PARTS else ", ".join(metric.parts)
    return f"| `{metric.name}` | {metric.kind} | {labels} | {parts} | {_cell(metric.about)} |"


BLOCKS: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"tools": tool_list, "settings": settings_table},
    "docs/metrics.md": {"metrics": metrics_table},
    "docs/tools.md": {"tools": tool_reference, "errors": error_codes},
}


def rendered(text: str, name: str, content: str) -> str:
    """``text`` with the part ``name`` replaced by ``content``.

    Raises:
        ValueError: if it has no such part.
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"no part {name}: {begin} and {end} are missing")
    return pattern.sub(lambda _: f"{begin}\n{content}{end}", text, count=1)


def outdated() -> Iterator[tuple[Path, str]]:
    """The files whose generated parts are not what the code says, with what they should hold."""
    for name, blocks in BLOCKS.items():
        path = ROOT / name
        before = path.read_text(encoding="utf-8")
        after = before
        for block, content in blocks.items():
            after = rendered(after, block, content())
        if after != before:
            yield path, after


def _inputs(schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    rows = [
        (f"**`{name}`**" if name in required else f"`{name}`", _type(field), _default(field), field)
        for name, field in schema.get("properties", {}).items()
    ]
    if not rows:
        return "none: `{}`"
    lines = [
        f"| {name} | {kind} | {default} | {_about(field)} |" for name, kind, default, field in rows
    ]
    return "\n".join(["| field | type | default | meaning |", "|---|---|---|---|", *lines])


def _results(schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    lines = [
        f"| `{name}`{'' if name in required or not _optional(field) else ' ?'} | {_type(field)} |"
        f" {_cell(field.get('description', ''))} |"
        for name, field in schema.get("properties", {}).items()
    ]
    return "\n".join(["| field | type | meaning |", "|---|---|---|", *lines])


def _optional(field: Mapping[str, Any]) -> bool:
    return {"type": "null"} in field.get("anyOf", ())


def _type(field: Mapping[str, Any]) -> str:
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in field:
        return " or ".join(_type(each) for each in field["anyOf"] if each != {"type": "null"})
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    if "enum" in field:
        return " \\| ".join(f"`{value}`" for value in field["enum"])
    kind = str(field.get("type", "any"))
    if kind == "array":
        return f"list of {_type(field.get('items', {}))}"
    bounds = [f"{sign} {field[key]:g}" for key, sign in _BOUNDS if key in field]
    return " ".join([kind, ", ".join(bounds)]).strip()


def _default(field: Mapping[str, Any]) -> str:
    value = field.get("default")
    return "" if value is None else f"`{json.dumps(value)}`"


def _about(field: Mapping[str, Any]) -> str:
    examples = field.get("examples", ())
    shown = f" Example: `{json.dumps(examples[0], ensure_ascii=False)}`" if examples else ""
    return _cell(f"{field.get('description', '')}{shown}")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("``", "`")


def _tree(error: type[errors.SearchError]) -> Iterator[type[errors.SearchError]]:
    for child in error.__subclasses__():
        if child.__module__ == errors.__name__ and child is not errors.ConfigurationError:
            yield child
            yield from (each for each in _tree(child) if each.code != child.code)


def _meaning(error: type[errors.SearchError]) -> str:
    return _cell((error.__doc__ or "").splitlines()[0])


def main() -> int:
    """Write the parts, or check them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only name the files out of date")
    check = parser.parse_args().check
    stale = list(outdated())
    for path, content in stale:
        sys.stdout.write(f"{'out of date' if check else 'written'}: {path.relative_to(ROOT)}\n")
        if not check:
            path.write_text(content, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
