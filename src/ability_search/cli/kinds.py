"""The options that choose the kinds of chunks made of each document."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from ability_search.documents import ASPECTS

_NONE = "none"


class By(StrEnum):
    """The values of `--kinds-by`."""

    LOCAL = "local"
    CHAT = "chat"


KindsOption = Annotated[
    str | None,
    typer.Option(
        "--kinds",
        metavar="KIND,...",
        help="Kinds to make of each document: title, summary, keywords, propositions; or none.",
    ),
]
KindsByOption = Annotated[
    By | None,
    typer.Option("--kinds-by", help="Extract kinds from the text, or ask a language model."),
]


def kinds_fields(kinds: str | None, by: By | None) -> dict[str, Any]:
    """Return the tool input fields that choose the kinds.

    Raises:
        typer.BadParameter: if a kind is unknown.
    """
    fields: dict[str, Any] = {} if by is None else {"kindsBy": by.value}
    if kinds is None:
        return fields
    wanted = [] if kinds.strip() == _NONE else [kind.strip() for kind in kinds.split(",")]
    if unknown := [kind for kind in wanted if kind not in ASPECTS]:
        raise typer.BadParameter(
            f"{', '.join(map(repr, unknown))}: expected {', '.join(ASPECTS)} or {_NONE}",
            param_hint="--kinds",
        )
    return {**fields, "kinds": list(dict.fromkeys(wanted))}
