"""Which of two indexes over the same sources answers: the shared one, or a user's own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ability_search.artifacts.artifact_reader import read_manifest
from ability_search.artifacts.manifest import Damaged, Manifest


@dataclass(frozen=True, slots=True)
class Choice:
    """The artifact that answers.

    Attributes:
        directory: Of it.
        reasons: Why not the user's own, and what is to be known of the one that was chosen; a
            sentence each, to be said to the user.
    """

    directory: Path
    reasons: tuple[str, ...] = ()


def choose(shared: Path, own: Path | None, *, model: str) -> Choice:
    """Choose between a shared artifact and a user's own.

    The own one answers if it was made of the sources that the shared one was made of, and with
    the model that queries are embedded with; otherwise the shared one.

    Args:
        shared: The directory of the shared artifact.
        own: That of the user's own, if there may be one.
        model: What queries are embedded with.

    Raises:
        Damaged: if the shared one is needed and is not as it should be.
    """
    theirs = read_manifest(shared)
    against = None if own is None else _against(own, theirs, model)
    if own is not None and against is None:
        return Choice(own)
    reasons = [] if against is None else [f"the index in {own} does not answer: {against}"]
    if theirs.model_id != model:
        reasons.append(
            f"the index in {shared} was made with the model {theirs.model_id!r}, not {model!r}: its"
            " queries are embedded with that one where it is served, else it is searched by words"
        )
    return Choice(shared, tuple(reasons))


def _against(own: Path, shared: Manifest, model: str) -> str | None:
    """Return why the user's own artifact cannot be used; ``None`` if it can."""
    try:
        manifest = read_manifest(own)
    except Damaged as exc:
        return str(exc)
    if manifest.revision != shared.revision:
        return f"it is of revision {manifest.revision}, the shared one of {shared.revision}"
    if manifest.model_id != model:
        return f"it was made with the model {manifest.model_id!r}, not {model!r}"
    return None
