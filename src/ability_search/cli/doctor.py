"""`doctor`: check every component and suggest remedies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from ability_search.cli import output
from ability_search.cli.app import app, command
from ability_search.cli.checks import Check, check_installation, check_machine, check_settings
from ability_search.cli.client import BrokerOption, JsonOption
from ability_search.cli.failures import FAILED
from ability_search.config.schema import Settings
from ability_search.ops import logs

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@command(app, "doctor")
def doctor(
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the problems.")] = False,
    broker: BrokerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check every component and suggest remedies; exit code 1 if a check fails.

    The checks cover the installation, the settings, the clock, the disk, the
    broker, the tools on the network, a database query, an embedding and the
    worker.

    Example:
        ability-search doctor
        ability-search doctor --quiet || echo "unhealthy"
    """
    logs.configure("error", "pretty", part="doctor")
    settings, checks = check_settings()
    checks = [*check_installation(), *checks]
    if settings is not None:
        checks += check_machine(settings)
        checks += asyncio.run(_network(settings, broker))
    _show(checks, quiet=quiet, as_json=as_json)
    if any(check.state == "fail" for check in checks):
        raise typer.Exit(FAILED)


async def _network(settings: Settings, broker: str | None) -> list[Check]:
    from ability_search.cli.probes import check_network

    return [check async for check in check_network(settings, broker)]


def _show(checks: Sequence[Check], *, quiet: bool, as_json: bool) -> None:
    if as_json:
        output.print_json([asdict(check) for check in checks])
        return
    out = output.stdout()
    for check in checks:
        if quiet and check.state == "ok":
            continue
        colour = _COLOURS[check.state]
        out.print(
            f"[{colour}]{check.state:<4}[/{colour}] {check.name:<10} {output.plain(check.text)}",
            soft_wrap=True,
        )
        if check.remedy:
            out.print(f"     {'':<10} {output.plain(check.remedy)}", soft_wrap=True)
