"""Run random operations and faults against a local stack, and check what must be true.

Everything is drawn from one seed. The exit code is 1 if anything that must be true was not; the
data directory and the logs are kept then.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from chaos.campaign import Campaign, Plan, Recorded
from chaos.report import show
from chaos.stack_process import StartFailed
from chaos.steps import EVERY, GROUPS, chosen_faults


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seed", type=int, help="default: the time")
    parser.add_argument(
        "--minutes", type=float, default=5.0, help="duration, from start to stop; default: 5"
    )
    parser.add_argument("--clients", type=int, default=3, help="clients at once; default: 3")
    parser.add_argument(
        "--faults",
        default="default",
        metavar="LIST",
        help=f"names, separated by commas, of: {', '.join((*GROUPS, *EVERY))}; default: default",
    )
    parser.add_argument("--no-attacks", action="store_true", help="no hostile input")
    parser.add_argument(
        "--inputs", type=int, default=10_000, help="hostile inputs in batches; default: 10000"
    )
    parser.add_argument(
        "--queries",
        type=int,
        default=200,
        help="searches in calm at the end, as many as the time allows; default: 200",
    )
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run the steps of a log again")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report as JSON")
    parser.add_argument("--home", type=Path, help="directory for data and logs; it is kept")
    return parser


def main() -> int:
    """Parse the command line, run the campaign, report; 1 if there was a violation."""
    parser = _parser()
    arguments = parser.parse_args()
    try:
        recorded = Recorded(arguments.replay) if arguments.replay else None
        plan = Plan(
            seed=int(time.time()) if arguments.seed is None else arguments.seed,
            minutes=arguments.minutes,
            clients=arguments.clients,
            faults=chosen_faults(arguments.faults),
            attacks=not arguments.no_attacks,
            inputs=0 if arguments.no_attacks else arguments.inputs,
            queries=arguments.queries,
        )
    except ValueError as exc:
        parser.error(str(exc))
    if recorded is not None:
        plan = recorded.plan
    home = arguments.home or Path(tempfile.mkdtemp(prefix="ability-search-chaos-"))
    home.mkdir(parents=True, exist_ok=True)
    console = Console(soft_wrap=True)
    console.print(f"seed {plan.seed}, {plan.minutes:g} minutes; log: {home / 'steps.jsonl'}")
    logging.basicConfig(filename=home / "clients.log", level=logging.WARNING)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        report = asyncio.run(Campaign(plan, home, recorded, console.print).run())
    except StartFailed as exc:
        console.print(f"error: {exc}", markup=False)
        return 1
    except KeyboardInterrupt:
        console.print(f"stopped; data and logs are kept in {home}")
        return 128 + signal.SIGINT
    if arguments.report:
        arguments.report.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    show(report, console)
    if report["violations"]:
        console.print(f"data and logs are kept in {home}")
        return 1
    if arguments.home is None:
        shutil.rmtree(home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
