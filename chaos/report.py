"""The report of a campaign: as JSON, and as tables."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from chaos.expectations import CLASSES, Violation
from chaos.ledger import Ledger, percentiles

MIB = 2**20
_TRACEBACK = re.compile(rb"^\s*(?:\|\s*)*Traceback \(most recent call last\)", re.MULTILINE)
_HELD = re.compile(rb"the event loop was held for ([0-9.]+) s, ([0-9.]+) s of it by its work")
HELD_SECONDS = 1.0
"""Longest time for which the work of an event loop may hold it: a second in which a component
answers nobody. It is processor time of the loop's thread, so that neither a pause of the process
nor other work on the machine counts."""
_NEVER_RETRIEVED = b"exception was never retrieved"


def holds(log: Path) -> list[Violation]:
    """Return the times for which the work of a loop held it for too long, as of the stack's log."""
    lines = log.read_bytes().splitlines() if log.exists() else []
    return [
        Violation(
            f"no event loop to be held for more than {HELD_SECONDS:g} s by its work",
            line.decode(errors="replace"),
        )
        for line in lines
        if (said := _HELD.search(line)) is not None and float(said[2]) > HELD_SECONDS
    ]


def report_of(ledger: Ledger, header: Mapping[str, Any], seconds: float, log: Path) -> Any:
    """Return the report as values of JSON.

    Args:
        ledger: What the campaign kept.
        header: The options of the campaign.
        seconds: Its duration.
        log: The log of the components.
    """
    text = log.read_bytes() if log.exists() else b""
    return {
        **header,
        "seconds": round(seconds, 1),
        "phases": {name: round(each, 1) for name, each in ledger.phases.items()},
        "steps": ledger.issued,
        "calls": sum(ledger.calls.values()),
        "operations": dict(ledger.operations.most_common()),
        "callsByTool": dict(sorted(ledger.calls.items())),
        "failures": dict(ledger.codes.most_common()),
        "unknownOutcomes": ledger.unknown,
        "faults": dict(ledger.faults.most_common()),
        "kills": {
            "total": ledger.kills.total(),
            "while starting": ledger.kills_while_starting,
            **ledger.kills,
        },
        "killsPerMinute": round(
            ledger.kills.total() / max(ledger.phases.get("faults", 0.0) / 60, 1e-9), 1
        ),
        "attacks": dict(ledger.attacks.most_common()),
        "inputs": {
            "answered": ledger.answered,
            **{kind: dict(sorted(each.items())) for kind, each in sorted(ledger.inputs.items())},
        },
        "checks": {**ledger.checks, "inputs": ledger.answered, "queries": ledger.queries},
        "found": {
            kind: sum(each["kind"] == kind for each in ledger.violations) for kind in CLASSES
        },
        "latency": {name: percentiles(values) for name, values in sorted(ledger.latency.items())},
        "restarts": {name: percentiles(values) for name, values in sorted(ledger.restarts.items())},
        "recoveries": {
            name: percentiles(values) for name, values in sorted(ledger.recoveries.items())
        },
        "memory": _memory(ledger),
        "log": {
            "bytes": len(text),
            "tracebacks": len(_TRACEBACK.findall(text)),
            "neverRetrieved": text.count(_NEVER_RETRIEVED),
            "eventLoopHeld": percentiles([float(held) for held, _ in _HELD.findall(text)]),
            "eventLoopHeldByWork": percentiles([float(work) for _, work in _HELD.findall(text)]),
        },
        "notes": ledger.notes,
        "violations": ledger.violations,
    }


def _memory(ledger: Ledger) -> dict[str, Any]:
    """Return the peak of each component, and the slope of its process that lived longest."""
    lives = defaultdict(list)
    for memory in ledger.memory.values():
        lives[memory.component].append(memory)
    found = {}
    for component, memories in sorted(lives.items()):
        longest = max(memories, key=lambda each: each.times[-1] - each.times[0])
        newest = max(memories, key=lambda each: each.times[-1])
        slope = longest.slope()
        found[component] = {
            "processes": len(memories),
            "peakMib": round(max(max(each.sizes) for each in memories) / MIB),
            "lastMib": round(longest.sizes[-1] / MIB),
            "minutes": round((longest.times[-1] - longest.times[0]) / 60, 1),
            "mibPerMinute": None if slope is None else round(slope, 2),
            **newest.over_searches(),
        }
    return found


def show(report: Mapping[str, Any], console: Console) -> None:
    """Print a report as tables."""
    console.print(
        f"seed {report['seed']}: {report['steps']} steps, {report['calls']} calls in"
        f" {report['seconds']:.0f} s; {report['unknownOutcomes']} of unknown outcome;"
        f" {len(report['violations'])} violations"
    )
    for title in (
        "phases",
        "operations",
        "failures",
        "faults",
        "kills",
        "attacks",
        "checks",
        "found",
    ):
        counts = ", ".join(f"{name} {count}" for name, count in report[title].items())
        console.print(f"{title}: {counts or 'none'}")
    console.print(f"kills a minute: {report['killsPerMinute']}")
    for kind, answers in report["inputs"].items():
        console.print(f"hostile input, {kind}: {answers}")
    for title in ("latency", "restarts", "recoveries"):
        table = Table(title=f"{title}, in seconds", title_justify="left")
        for column in ("", "count", "p50", "p95", "max"):
            table.add_column(column)
        for name, values in report[title].items():
            cells = (str(values.get(column, "")) for column in ("count", "p50", "p95", "max"))
            table.add_row(name, *cells)
        console.print(table)
    table = Table(title="memory", title_justify="left")
    columns = ("processes", "peakMib", "lastMib", "minutes", "mibPerMinute", "mibPer10000Searches")
    for column in ("", *columns):
        table.add_column(column)
    for name, values in report["memory"].items():
        table.add_row(name, *(str(values.get(column)) for column in columns))
    console.print(table)
    console.print(f"log: {report['log']}")
    for note in report["notes"]:
        console.print(f"note: {note}")
    for violation in report["violations"]:
        console.print(
            f"VIOLATION in step {violation['step']} of {violation['actor']}"
            f" ({violation['operation']}), fault {violation['fault'] or 'none'}\n"
            f"  expected: {violation['expected']}\n  seen:     {violation['seen']}",
            markup=False,
            highlight=False,
        )
