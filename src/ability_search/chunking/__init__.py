"""Text to passages: pure functions, one module a strategy.

The chunks of every strategy cover each character that is not blank, in order, and each is a slice
of the text; only those of ``sliding-window`` overlap. None counts more than ``max_tokens``.
"""

from ability_search.chunking.joining import joined
from ability_search.chunking.strategies import (
    DEFAULT_MAX_TOKENS,
    DEFAULT_OVERLAP,
    STRATEGIES,
    chunk,
)
from ability_search.chunking.tokens import EstimatedTokens, TokenCounter, TokenizerTokens

__all__ = [
    "DEFAULT_MAX_TOKENS",
    "DEFAULT_OVERLAP",
    "STRATEGIES",
    "EstimatedTokens",
    "TokenCounter",
    "TokenizerTokens",
    "chunk",
    "joined",
]
