"""Options of the commands that take files and directories of this machine."""

from __future__ import annotations

from typing import Annotated

import typer

CollectionOption = Annotated[
    str | None,
    typer.Option("--collection", "-c", help="Collection.  [default: the directory's name]"),
]
IncludeOption = Annotated[
    list[str] | None,
    typer.Option(metavar="PATTERN", help="Only these files (gitignore syntax)."),
]
ExcludeOption = Annotated[
    list[str] | None, typer.Option(metavar="PATTERN", help="None of these files.")
]
