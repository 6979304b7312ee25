"""The first example of each public docstring, as a program that can be run."""

from __future__ import annotations

import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import kadi_client
from ability_search import client

IMPORTS = """\
import asyncio
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ability_search.client import *
from kadi_client import *
"""
OPENED = {
    "broker": 'async with Connection("ws://localhost:8080/kadi") as broker:',
    "search": "async with SearchClient() as search:",
}
"""How the names come about that an example uses and does not define."""
BLOCKING = "with BlockingSearchClient() as search:"


@dataclass(frozen=True)
class Example:
    """An example and the public name that it belongs to."""

    name: str
    code: str

    @property
    def program(self) -> str:
        """The example with its imports, in the blocks that open what it takes for granted."""
        lines = ["async def main() -> None:"]
        for name, opening in OPENED.items():
            if re.search(rf"\b{name}\.", self.code) and f"as {name}:" not in self.code:
                is_blocking = self.name.startswith("BlockingSearchClient.")
                lines.append(f"{'    ' * len(lines)}{BLOCKING if is_blocking else opening}")
        lines.append(textwrap.indent(self.code, "    " * len(lines)))
        return "\n".join([IMPORTS, *lines, "asyncio.run(main())", ""])


def public(package: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the classes and functions that a package defines and exports, and their methods."""
    own = package.__name__.partition(".")[0]

    def is_own(value: Any) -> bool:
        return getattr(value, "__module__", "").partition(".")[0] == own

    for name in package.__all__:
        value = getattr(package, name)
        if not is_own(value):
            continue
        yield name, value
        defining = value.__mro__ if inspect.isclass(value) else ()
        for member in dict.fromkeys(
            each for base in defining if is_own(base) for each in vars(base)
        ):
            if not member.startswith("_"):
                yield f"{name}.{member}", getattr(value, member)


def first_example(value: Any) -> str:
    """Return the code of the section ``Example`` of a docstring; empty if there is none."""
    _, _, rest = inspect.cleandoc(value.__doc__ or "").partition("Example:\n")
    indented = itertools.takewhile(lambda line: not line or line[0] == " ", rest.splitlines())
    return textwrap.dedent("\n".join(indented)).strip()


PUBLIC = dict(itertools.chain(public(kadi_client), public(client)))
EXAMPLES = [Example(name, code) for name, value in PUBLIC.items() if (code := first_example(value))]
