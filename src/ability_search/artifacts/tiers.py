"""Choice between a shared artifact and the user's own artifact of the same sources."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ability_search.artifacts.artifact_reader import read_manifest
from ability_search.artifacts.manifest import Damaged, Manifest


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen artifact.

    Attributes:
        directory: Its directory.
        reasons: Warnings for the user, one sentence each: why their own artifact is not used, or
            why the shared one may give worse results.
    """

    directory: Path
    reasons: tuple[str, ...] = ()


def choose(shared: Path, own: Path | None, *, model: str) -> Choice:
    """Choose between a shared artifact and the user's own.

    The user's own is chosen if it has the revision of the shared one and the model that queries
    are embedded with.

    Args:
        shared: Directory of the shared artifact.
        own: Directory of the user's own artifact.
        model: Model that queries are embedded with.

    Raises:
        Damaged: if the shared artifact is invalid.
    """
    theirs = read_manifest(shared)
    against = None if own is None else _against(own, theirs, model)
    if own is not None and against is None:
        return Choice(own)
    reasons = [] if against is None else [f"the index in {own} is not used: {against}"]
    if theirs.model_id != model:
        reasons.append(
            f"the index in {shared} has vectors of the model {theirs.model_id!r}, not {model!r};"
            " if no provider serves that model, it is searched by keywords only"
        )
    return Choice(shared, tuple(reasons))


def _against(own: Path, shared: Manifest, model: str) -> str | None:
    """Return why the user's own artifact cannot be used; ``None`` if it can be."""
    try:
        manifest = read_manifest(own)
    except Damaged as exc:
        return str(exc)
    if manifest.revision != shared.revision:
        return f"it has revision {manifest.revision}, the shared index has {shared.revision}"
    if manifest.model_id != model:
        return f"it has vectors of the model {manifest.model_id!r}, not {model!r}"
    return None
