"""`top`: live metrics of the components."""

from __future__ import annotations

import asyncio
import json
from contextlib import nullcontext
from typing import Annotated
from urllib.parse import urlsplit

import typer
from rich.live import Live

from ability_search.cli import output
from ability_search.cli.app import app, command
from ability_search.cli.client import JsonOption, client_settings
from ability_search.cli.failures import NOT_FOUND
from ability_search.cli.looking import Watcher
from ability_search.cli.picture import Picture
from ability_search.cli.serving import run_until_stopped
from ability_search.cli.top_view import draw
from ability_search.cli.up import DataDirOption
from ability_search.errors import InvalidInput
from ability_search.ops.metrics.metric_table import PATH


@command(app, "top")
def top(
    url: Annotated[
        list[str] | None,
        typer.Option(
            "--url",
            help="Address of metrics, instead of those of the running stack; repeatable.",
            show_default=False,
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit.")] = False,
    as_json: JsonOption = False,
    interval: Annotated[
        float,
        typer.Option("--interval", metavar="SECONDS", min=0.1, help="Time between two updates."),
    ] = 1.0,
    data_dir: DataDirOption = None,
) -> None:
    """Show live metrics of the components: calls, latencies, failures, queues, memory.

    Rates and latencies cover the last ten seconds; the first update covers the time
    since the start. A component that does not answer is shown as gone until it
    returns. Stop with Ctrl-C. Without a terminal, `top` prints once and exits; with
    --json it prints one object per line. Exit code 3 means that no stack is running
    or, when printing once, that all components are gone.

    Example:
        ability-search top
        ability-search top --once --json
        ability-search top --url http://127.0.0.1:9401 --url http://127.0.0.1:9402
    """
    settings = client_settings()
    token = settings.metrics.token
    watcher = Watcher(
        [_address(each) for each in url or ()],
        data_dir or settings.files.data_dir,
        token=token.get_secret_value() if token else None,
    )
    if not watcher.addresses():
        output.fail(
            f"no stack is running in {watcher.data_dir}",
            "Start one with `ability-search up`, or set the address of metrics with --url.",
        )
        raise typer.Exit(NOT_FOUND)
    terminal = output.stdout().is_terminal
    if once or not (as_json or terminal):
        seen = asyncio.run(_once(watcher))
        _show(seen, as_json)
        if all(part.state == "gone" for part in seen.parts):
            raise typer.Exit(NOT_FOUND)
    else:
        asyncio.run(run_until_stopped(_follow(watcher, interval, as_json)))


def _address(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput("--url", "expected an address like http://127.0.0.1:9401")
    return url if parts.path.strip("/") else f"{url.rstrip('/')}{PATH}"


async def _once(watcher: Watcher) -> Picture:
    async with watcher.client() as client:
        return await watcher.look(client)


async def _follow(watcher: Watcher, interval: float, as_json: bool) -> None:
    screen = Live(console=output.stdout(), screen=True, auto_refresh=False)
    async with watcher.client() as client:
        with nullcontext() if as_json else screen:
            while True:
                seen = await watcher.look(client)
                if as_json:
                    typer.echo(json.dumps(seen.as_json()))
                else:
                    screen.update(draw(seen), refresh=True)
                await asyncio.sleep(interval)


def _show(seen: Picture, as_json: bool) -> None:
    if as_json:
        output.print_json(seen.as_json())
    else:
        output.stdout().print(draw(seen))
