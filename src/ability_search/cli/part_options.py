"""Options of the commands that run parts of the system."""

from __future__ import annotations

from typing import Annotated, Any

import typer

SupervisedOption = Annotated[bool, typer.Option("--supervised", hidden=True)]
WaitOption = Annotated[
    float,
    typer.Option(
        "--wait", metavar="SECONDS", min=0, help="How long the broker may take to appear."
    ),
]


def port_option(flag: str, about: str) -> Any:
    """An option that takes the number of a port, or 0 for a free one."""
    return typer.Option(flag, min=0, max=65535, help=about)
