"""Options of the commands that run components."""

from __future__ import annotations

from typing import Annotated, Any

import typer

SupervisedOption = Annotated[bool, typer.Option("--supervised", hidden=True)]
WaitOption = Annotated[
    float,
    typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait for the broker."),
]


def port_option(flag: str, about: str) -> Any:
    """Return an option for a port number; 0 chooses a free port."""
    return typer.Option(flag, min=0, max=65535, help=about)
