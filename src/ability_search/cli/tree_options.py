"""Options of the commands that read local files and directories."""

from __future__ import annotations

from typing import Annotated

import typer

CollectionOption = Annotated[
    str | None,
    typer.Option("--collection", "-c", help="Collection.  [default: the directory's name]"),
]
IncludeOption = Annotated[
    list[str] | None,
    typer.Option(metavar="PATTERN", help="Include only these files (gitignore syntax)."),
]
ExcludeOption = Annotated[
    list[str] | None, typer.Option(metavar="PATTERN", help="Skip these files.")
]
