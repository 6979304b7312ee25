"""`doctor`: check the components."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from ability_search.errors import ConfigurationError
from ability_search.extensions.cli import output
from ability_search.extensions.cli.app import FAILED, app, command
from ability_search.extensions.cli.clients import choose_target
from ability_search.extensions.cli.parameters import BrokerOption, JsonOption
from ability_search.ops import logs

if TYPE_CHECKING:
    from ability_search.extensions.localstack.health_checks import Check

_CHECK_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red", "skip": "yellow"}


@command(app, "doctor")
def doctor(
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the problems.")] = False,
    broker: BrokerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check every component and suggest remedies; exit code 1 if a check fails.

    The checks cover the installation, the settings, the clock, the disk, the
    broker, the tools on the network, a database query, an embedding and the
    worker. Each is printed as it ends, within about a minute; what depends on one
    that failed is skipped.

    Example:
        ability-search doctor
        ability-search doctor --quiet || echo "unhealthy"
    """
    from ability_search.extensions.localstack import health_checks

    logs.configure("error", "pretty", component="doctor")
    made = _Checks(quiet=quiet, shown=not as_json)
    made.add(*health_checks.check_installation())
    settings, checks = health_checks.check_settings()
    made.add(*checks)
    if settings is not None:
        made.add(*health_checks.check_machine(settings))
        try:
            target = choose_target(settings, broker)
        except ConfigurationError as exc:
            made.add(health_checks.Check("broker", "fail", str(exc), exc.hint or ""))
        else:
            asyncio.run(made.add_all(health_checks.check_network(settings, target)))
    if as_json:
        output.print_json([asdict(check) for check in made.checks])
    if any(check.state == "fail" for check in made.checks):
        raise typer.Exit(FAILED)


@dataclass(slots=True)
class _Checks:
    """The checks made so far, each printed when it is added if they are ``shown``."""

    quiet: bool
    shown: bool
    checks: list[Check] = field(default_factory=list)

    async def add_all(self, checks: AsyncIterator[Check]) -> None:
        async for check in checks:
            self.add(check)

    def add(self, *checks: Check) -> None:
        for check in checks:
            if self.shown and not (self.quiet and check.state == "ok"):
                self._show(check)
            self.checks.append(check)

    def _show(self, check: Check) -> None:
        """Print a check, and its remedy unless an earlier one has the same."""
        out, colour = output.stdout(), _CHECK_COLOURS[check.state]
        out.print(
            f"[{colour}]{check.state:<4}[/{colour}] {check.name:<10} {output.plain(check.text)}"
        )
        if check.remedy and all(check.remedy != earlier.remedy for earlier in self.checks):
            output.print_indented(out, output.plain(check.remedy), 16)
