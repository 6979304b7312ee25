"""Text to passages: pure functions.

The passages of every strategy are slices of the text, in order, and together they cover every
character that is not whitespace, except front matter. A slice may follow a preface, such as the
header of its table. Only those of ``sliding-window`` overlap. No passage has more
than ``max_tokens`` tokens.
"""

from __future__ import annotations

from typing import Literal

Strategy = Literal[
    "auto", "markdown-headers", "code-blocks", "paragraph", "sliding-window", "semantic"
]
"""Names of the chunking strategies, for settings, tools and chunking alike."""
