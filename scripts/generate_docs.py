"""Write the parts of the documentation that follow from the code.

A part stands between ``<!-- NAME:begin -->`` and ``<!-- NAME:end -->`` in its file. With
``--check`` nothing is written: files that are out of date are named, and make the exit code 1.
"""

import argparse
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, is_typeddict

from annotated_types import Ge, Gt, Le, Lt
from typer.main import get_command

from ability_search import client, errors
from ability_search.client import tool_options
from ability_search.config.setting_fields import KIB, MIB
from ability_search.config.settings_table import Spec, all_settings
from ability_search.extension import loaded
from ability_search.extensions.cli.app import all_commands, argument_name
from ability_search.extensions.cli.prometheus_meter import process_metrics
from ability_search.extensions.gateway import middleware
from ability_search.extensions.localstack import stack_metrics
from ability_search.ops.metrics.metric_table import COMPONENTS, METRICS, Metric
from ability_search.tools.table import TOOLS, all_tools

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = re.compile(r"^Example:\n(?P<code>(?:(?: {4}.*)?\n)*(?: {4}.*))$", re.MULTILINE)
"""The section of a docstring, cleaned, that holds an example."""
_SETTINGS_HEADER = (
    "| config.yml `search.` | environment | default | allowed | meaning |\n|---|---|---|---|---|"
)
_SIGNS = ((Ge, "≥", "ge"), (Gt, ">", "gt"), (Le, "≤", "le"), (Lt, "<", "lt"))
_BOUNDS = (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))


def tool_list() -> str:
    """A table: each tool and what it does."""
    rows = [f"| [`{row.name}`](docs/tools.md#{row.name}) | {row.summary} |" for row in TOOLS]
    return "\n".join(["| tool | what it does |", "|---|---|", *rows]) + "\n"


def tool_reference() -> str:
    """A section for each tool, and one for each object that inputs or results contain."""
    parts: list[str] = []
    objects: dict[str, Mapping[str, Any]] = {}
    for row in all_tools():
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
    """A table: each code that a failure can carry, whether calling again makes sense, a hint."""
    rows = {
        error.code: f"| `{error.code}` | {'yes' if error.retryable else 'no'} | {_meaning(error)} |"
        f" {_cell(HINTS.get(error.code) or error.default_hint)} |"
        for error in _tree(errors.SearchError)
        if error.code != "internal"
    }
    rows["internal"] = (
        "| `internal` | no | Anything that is not expected; the message holds an incident id, under"
        " which the worker's log explains it. | |"
    )
    head = ["| code | retryable | meaning | hint, or one of its hints |", "|---|---|---|---|"]
    return "\n".join([*head, *rows.values()]) + "\n"


HINTS = {
    error.code: error.hint
    for error in (
        errors.InvalidInput("limit", "too small"),
        errors.NotFound("collection", "dosc", nearest=["docs"]),
        errors.ModelMismatch("docs", recorded="nomic-embed-text", requested="all-MiniLM-L6-v2"),
        errors.DimensionMismatch("docs", recorded=768, received=384),
    )
}
"""Hints that are made for each failure, as examples."""


def command_reference() -> str:
    """A section for each command: how it is called, what it does, its arguments and options."""
    return "\n\n".join(filter(None, _commands(get_command(all_commands())))) + "\n"


def client_reference() -> str:
    """The methods of the client, the options that they take, and the failure that they raise."""
    parts = ["### SearchClient", _signature("SearchClient", client.SearchClient, "class")]
    parts.append(_prose(client.SearchClient))
    for name, method in vars(client.SearchClient).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            kind = "def" if inspect.isasyncgenfunction(method) else "async def"
            parts += [f"#### {name}", _signature(name, method, kind), _prose(method)]
    for name, value in vars(tool_options).items():
        if is_typeddict(value):
            parts += [f"### {name}", _prose(value), _fields(value)]
    parts += ["### ToolError", _prose(client.ToolError)]
    return "\n\n".join(parts) + "\n"


def metrics_table() -> str:
    """A table: each metric, its type and labels, which parts have it, what it means."""
    rows = [
        _metric_row(metric)
        for metric in (*METRICS, *stack_metrics.METRICS, *middleware.METRICS, *process_metrics())
    ]
    header = ["| metric | type | labels | parts | meaning |", "|---|---|---|---|---|"]
    return "\n".join([*header, *rows]) + "\n"


def _metric_row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    parts = "all" if metric.components == COMPONENTS else ", ".join(metric.components)
    return f"| `{metric.name}` | {metric.kind} | {labels} | {parts} | {_cell(metric.about)} |"


def settings_tables() -> str:
    """A section for each group of settings, with a table of them in the order of declaration."""
    parts = []
    for group in all_settings().groups:
        about = (group.__doc__ or "").splitlines()[0].rstrip(".")
        rows = (_setting_row(each) for each in all_settings().specs if each.group is group)
        parts.append("\n".join([f"## {about}", "", _SETTINGS_HEADER, *rows]))
    return "\n\n".join(parts) + "\n"


def _setting_row(spec: Spec) -> str:
    environment = ", ".join(f"`{name}`" for name in spec.env)
    about = spec.field.description or ""
    cells = (_setting_home(spec), environment, _setting_default(spec), _setting_bounds(spec), about)
    return "| " + " | ".join(map(_cell, cells)) + " |"


def _setting_home(spec: Spec) -> str:
    if spec.home is not None:
        return spec.home
    return "secret: vault `models`" if spec.kind == "secret" else f"`{spec.key}`"


def _setting_default(spec: Spec) -> str:
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


def _setting_bounds(spec: Spec) -> str:
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
    allowed = f"{text} {unit}".strip()
    if not spec.empty_values:
        return allowed
    return f"{allowed}, or empty" if allowed else "may be empty"


BLOCKS: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"tools": tool_list},
    "docs/cli.md": {"commands": command_reference},
    "docs/metrics.md": {"metrics": metrics_table},
    "docs/python.md": {"client": client_reference},
    "docs/settings.md": {"settings": settings_tables},
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


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The section of a command, and those of the commands in a group."""
    children = getattr(command, "commands", {})
    if path:
        text, examples = _help(command)
        yield f"{'#' * (len(path) + 1)} {' '.join(path)}"
        yield text
        if not children:
            arguments = [
                argument_name(each) for each in command.params if each.name in _given(command)
            ]
            words = ["ability-search", *path, *arguments, "[OPTIONS]"]
            yield f"```text\n{' '.join(words)}\n```"
            yield _parameters(command)
        if examples:
            yield f"<!-- only parsed: examples of the help -->\n```sh\n{examples}\n```"
    for name in children if path else loaded().commands:
        yield from _commands(children[name], (*path, name))


def _help(command: Any) -> tuple[str, str]:
    """What the help of a command says, and its examples, a line each."""
    text, _, examples = command.help.replace("\b\n", "").partition("Example:\n")
    return text.strip(), "\n".join(line.strip() for line in examples.strip().splitlines())


def _given(command: Any) -> set[str]:
    """Names of the parameters that are given without an option."""
    return {each.name for each in command.params if each.param_type_name == "argument"}


def _parameters(command: Any) -> str:
    """A table: each argument and option, and what it means."""
    rows = []
    for param in command.params:
        if getattr(param, "hidden", False):
            continue
        if param.name in _given(command):
            shown = argument_name(param)
        else:
            shown = ", ".join([*param.opts, *param.secondary_opts])
            shown += "" if param.is_flag else f" {param.metavar or param.name.upper()}"
        usual = param.default if isinstance(param.default, int | float | str) else False
        told = "" if usual is False or "[default:" in param.help else f" Default: `{usual}`."
        rows.append(f"| `{_cell(shown)}` | {_cell(param.help)}{told} |")
    return "\n".join(["| | |", "|---|---|", *rows])


def _signature(name: str, function: Callable[..., Any], kind: str) -> str:
    shown = re.sub(r"(: | -> )'([^']*)'", r"\1\2", str(inspect.signature(function)))
    shown = re.sub(r"\b(inputs|results)\.", "", shown).replace("(self, ", "(").replace("(self", "(")
    return f"```text\n{kind} {name}{shown.removesuffix(' -> None')}\n```"


def _prose(described: Any) -> str:
    """Return a docstring as Markdown: an example in a block, references in code, lists."""
    text = inspect.cleandoc(described.__doc__ or "")
    text = re.sub(r":\w+:`([^`]+)`", r"`\1`", text).replace("``", "`")
    text = EXAMPLE.sub(_fenced, text)
    head, *sections = re.split(r"^(Args|Attributes|Returns|Raises):\n", text, flags=re.MULTILINE)
    parts = [head.strip()]
    for title, content in zip(sections[::2], sections[1::2], strict=True):
        lines = inspect.cleandoc(content.strip("\n")).replace("\n    ", " ")
        items = re.sub(r"^(\w+): ", r"- `\1`: ", lines, flags=re.MULTILINE)
        parts.append(f"{title}:\n\n{items.strip()}")
    return "\n\n".join(parts)


def _fenced(example: re.Match[str]) -> str:
    code = textwrap.dedent(example["code"]).strip()
    return f"<!-- only parsed: run as an example of its docstring -->\n```python\n{code}\n```"


def _fields(described: type) -> str:
    lines = [f"{name}: {kind.__forward_arg__}" for name, kind in described.__annotations__.items()]
    return "\n".join(["```text", *lines, "```"])


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
