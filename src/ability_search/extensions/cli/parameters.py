"""Options and arguments that several commands share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ability_search.collection import is_collection_name, proposed_name

_NO_KINDS = "none"

BrokerOption = Annotated[
    str | None,
    typer.Option(
        "--broker",
        metavar="URL",
        help="Broker to use instead of the running stack or the configured one.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="Timeout of a call.")
]
DataDirOption = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Data directory.  [default: data_dir]"),
]


def _collection_name(name: str | None) -> str | None:
    """Refuse what is not a collection name, with a proposal, which no tool repeats."""
    if name is None or is_collection_name(name):
        return name
    proposal = proposed_name(name).strip("-._")
    raise typer.BadParameter(
        "use 1 to 64 letters, digits, . _ - and begin with a letter or a digit"
        + (f", for example {proposal}" if proposal else "")
    )


CollectionArgument = Annotated[
    str, typer.Argument(callback=_collection_name, help="Name of the collection.")
]
CollectionOption = Annotated[
    str | None,
    typer.Option(
        "--collection",
        "-c",
        callback=_collection_name,
        help="Collection.  [default: the directory's name]",
    ),
]
CollectionsOption = Annotated[
    list[str] | None,
    typer.Option("--collection", "-c", help="Only this collection; repeatable."),
]
IncludeOption = Annotated[
    list[str] | None,
    typer.Option(metavar="PATTERN", help="Include only these files (gitignore syntax)."),
]
ExcludeOption = Annotated[
    list[str] | None, typer.Option(metavar="PATTERN", help="Skip these files.")
]
ModelOption = Annotated[str | None, typer.Option(help="Embedding model.")]
RevisionOption = Annotated[
    str | None,
    typer.Option(help="Revision of the sources.  [default: a hash of their texts]"),
]

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
SupervisedOption = Annotated[bool, typer.Option("--supervised", hidden=True)]
WaitOption = Annotated[
    float,
    typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait for the broker."),
]


def port_option(flag: str, about: str) -> Any:
    """Return an option for a port number; 0 chooses a free port."""
    return typer.Option(flag, min=0, max=65535, help=about)


DedupThresholdOption = Annotated[
    float | None,
    typer.Option(
        "--dedup-threshold",
        metavar="COSINE",
        help="Do not search a chunk whose nearest neighbour in the collection has at least this"
        " cosine, above 0 and at most 1, such as .95; the neighbour represents it.  [default: the"
        " collection's, or none]",
    ),
]


@dataclass(frozen=True, slots=True)
class IndexingOptions:
    """Options of chunking and embedding; the collection decides what is not set."""

    chunk_strategy: Annotated[str | None, typer.Option(help="Chunking strategy.")] = None
    max_tokens: Annotated[int | None, typer.Option(help="Maximum tokens per chunk.")] = None
    context: Annotated[
        str | None,
        typer.Option(
            "--context",
            metavar="N|section",
            help="Embed and search each chunk with up to 8 chunks before and after it, or with the"
            " beginning of its section.  [default: the collection's, or none]",
            show_default=False,
        ),
    ] = None
    model: ModelOption = None
    language: Annotated[
        str | None,
        typer.Option(
            help="Language of the keyword search, such as german, or none.  [default: detected]"
        ),
    ] = None
    kinds: Annotated[
        str | None,
        typer.Option(
            "--kinds",
            metavar="KIND,...",
            help="Kinds to make of each document: title, summary, keywords, propositions; or none.",
        ),
    ] = None
    kinds_by: Annotated[
        Literal["local", "chat"] | None,
        typer.Option("--kinds-by", help="Extract kinds from the text, or ask a language model."),
    ] = None

    def fields(self) -> dict[str, Any]:
        """Return the fields of the tool's input.

        Raises:
            typer.BadParameter: if a kind is unknown.
        """
        context = self.context
        return given(
            chunkStrategy=self.chunk_strategy,
            maxTokens=self.max_tokens,
            context=int(context) if context and context.isdecimal() else context,
            model=self.model,
            language=self.language,
            kindsBy=self.kinds_by,
        ) | ({} if self.kinds is None else {"kinds": _kinds(self.kinds)})


def _kinds(text: str) -> list[str]:
    from ability_search.documents import KINDS

    wanted = [] if text.strip() == _NO_KINDS else [kind.strip() for kind in text.split(",")]
    if unknown := [kind for kind in wanted if kind not in KINDS]:
        raise typer.BadParameter(
            f"{', '.join(map(repr, unknown))}: expected {', '.join(KINDS)} or {_NO_KINDS}",
            param_hint="--kinds",
        )
    return list(dict.fromkeys(wanted))


def json_object(text: str, option: str) -> dict[str, Any]:
    """Return the JSON object that an option or argument holds.

    Raises:
        typer.BadParameter: if it is not one.
    """
    try:
        value = json.loads(text)
    except ValueError as exc:
        raise typer.BadParameter(f"not JSON: {exc}", param_hint=option) from exc
    if not isinstance(value, dict):
        raise typer.BadParameter("expected a JSON object", param_hint=option)
    return value


def given(**values: Any) -> dict[str, Any]:
    """Return a tool's input from command options, without ``None``, ``False`` and ``[]``."""
    return {
        name: value
        for name, value in values.items()
        if value is not None and value is not False and value != []
    }
