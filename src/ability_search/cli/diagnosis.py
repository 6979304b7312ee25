"""`doctor`: check the components."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ability_search.cli import output
from ability_search.cli.app import FAILED, app, command
from ability_search.cli.clients import choose_target
from ability_search.cli.parameters import BrokerOption, JsonOption
from ability_search.errors import ConfigurationError
from ability_search.ops import logs

if TYPE_CHECKING:
    from ability_search.components.health_checks import Check

_CHECK_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


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
    from ability_search.components import health_checks

    logs.configure("error", "pretty", component="doctor")
    settings, checks = health_checks.check_settings()
    checks = [*health_checks.check_installation(), *checks]
    if settings is not None:
        checks += health_checks.check_machine(settings)
        try:
            target = choose_target(settings, broker)
        except ConfigurationError as exc:
            checks.append(health_checks.Check("broker", "fail", str(exc), exc.hint or ""))
        else:
            checks += asyncio.run(health_checks.check_network(settings, target))
    _show_checks(checks, quiet=quiet, as_json=as_json)
    if any(check.state == "fail" for check in checks):
        raise typer.Exit(FAILED)


def _show_checks(checks: Sequence[Check], *, quiet: bool, as_json: bool) -> None:
    if as_json:
        output.print_json([asdict(check) for check in checks])
        return
    out = output.stdout()
    for check in checks:
        if quiet and check.state == "ok":
            continue
        colour = _CHECK_COLOURS[check.state]
        out.print(
            f"[{colour}]{check.state:<4}[/{colour}] {check.name:<10} {output.plain(check.text)}"
        )
        if check.remedy:
            output.print_indented(out, output.plain(check.remedy), 16)
