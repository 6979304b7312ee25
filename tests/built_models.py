"""The local models that this machine has built, for the home directories of tests."""

from __future__ import annotations

from pathlib import Path

from kadi_localnet.models.config import default_cache_dir


def lend_models(home: Path) -> None:
    """Spare building the local model, which takes seconds, if this machine has it."""
    cache = home / ".cache" / "ability-search"
    cache.mkdir(parents=True)
    for built in default_cache_dir().glob("*.onnx"):
        (cache / built.name).symlink_to(built)
