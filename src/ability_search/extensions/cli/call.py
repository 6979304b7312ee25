"""`call`: call any tool on the network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ability_search.client.tool_client import check_unicode
from ability_search.extensions.cli import output
from ability_search.extensions.cli.app import FAILED, app, command
from ability_search.extensions.cli.clients import with_client
from ability_search.extensions.cli.parameters import BrokerOption, TimeoutOption, json_object


@command(app, "call")
def call(
    tool: Annotated[str, typer.Argument(help="Name of the tool.")],
    tool_input: Annotated[
        str,
        typer.Argument(
            metavar="[JSON]", help="Input of the tool; @FILE reads a file, - reads stdin."
        ),
    ] = "{}",
    broker: BrokerOption = None,
    timeout: TimeoutOption = 60.0,
) -> None:
    """Call any tool on the network and print its answer as JSON.

    Exit code 1 means that the answer has "success": false.

    Example:
        ability-search call search-collections
        ability-search call search-query '{"collection": "docs", "query": "backup"}'
        ability-search call search-index @documents.json --timeout 600
    """
    value = _read(tool_input)
    check_unicode(value)
    answer = with_client(
        broker,
        lambda client: client.connection.invoke(tool, value, timeout=timeout, check=False),
    )
    output.print_json(answer)
    if isinstance(answer, dict) and answer.get("success") is False:
        raise typer.Exit(FAILED)


def _read(text: str) -> dict[str, Any]:
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            text = Path(text[1:]).read_text(encoding="utf-8")
    except OSError as exc:
        raise typer.BadParameter(f"{exc.filename}: {exc.strerror}", param_hint="JSON") from exc
    except ValueError as exc:
        raise typer.BadParameter(f"not UTF-8: {exc}", param_hint="JSON") from exc
    return json_object(text, "JSON")
