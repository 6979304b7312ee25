"""The options that say what is made of each document."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from ability_search.documents import ASPECTS

_NONE = "none"


class By(StrEnum):
    """What `--kinds-by` takes."""

    LOCAL = "local"
    CHAT = "chat"


KindsOption = Annotated[
    str | None,
    typer.Option(
        "--kinds",
        metavar="KIND,...",
        help="Make these of each document: title, summary, keywords, propositions; or none.",
    ),
]
KindsByOption = Annotated[
    By | None,
    typer.Option("--kinds-by", help="Extract them from the text, or ask a language model."),
]


def kinds_fields(kinds: str | None, by: By | None) -> dict[str, Any]:
    """The fields of a tool's input that say what is made of each document.

    Raises:
        typer.BadParameter: if a kind is none.
    """
    fields: dict[str, Any] = {} if by is None else {"kindsBy": by.value}
    if kinds is None:
        return fields
    wanted = [] if kinds.strip() == _NONE else [kind.strip() for kind in kinds.split(",")]
    if unknown := [kind for kind in wanted if kind not in ASPECTS]:
        raise typer.BadParameter(
            f"{', '.join(map(repr, unknown))}: none of {', '.join(ASPECTS)}, {_NONE}",
            param_hint="--kinds",
        )
    return {**fields, "kinds": list(dict.fromkeys(wanted))}
