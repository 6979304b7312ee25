"""Globs on the source of a chunk."""

from __future__ import annotations

from collections.abc import Sequence

from ability_search.errors import InvalidInput
from ability_search.filters.operands import checked_text
from ability_search.filters.tree import (
    EVERYTHING,
    Field,
    Filter,
    Not,
    OneOf,
    Pattern,
    combine,
    either,
)
from ability_search.filters.wildcards import glob_regex

_SOURCE = Field("source")


def source_filter(
    include: Sequence[str] | None,
    exclude: Sequence[str] | None,
    *,
    max_globs: int = 256,
    max_length: int = 1024,
) -> Filter:
    """Return a filter for sources that match a glob of ``include`` and none of ``exclude``.

    A glob without ``*``, ``?`` and ``[`` is a literal source, found through the index; the text
    before the first wildcard also narrows the search through the index. The syntax is that of
    :func:`ability_search.filters.wildcards.glob_regex`, case-sensitive, over the whole source.

    Args:
        include: ``None`` allows every source. An empty list is refused, because a caller whose
            list of allowed sources came out empty must not see all of them.
        exclude: takes precedence over ``include``; ``None`` or empty excludes nothing.
        max_globs: globs accepted in each list.
        max_length: characters accepted in each glob.

    Raises:
        InvalidInput: naming ``sources`` or ``excludeSources`` and the position in it.
    """
    allowed = None
    if include is not None:
        if not include:
            raise InvalidInput("sources", "is empty", hint="Omit sources to search all of them.")
        allowed = _any_of("sources", include, max_globs, max_length)
    refused = _any_of("excludeSources", exclude, max_globs, max_length) if exclude else None
    return combine(EVERYTHING, allowed, None if refused is None else Not(refused))


def _any_of(name: str, globs: Sequence[str], max_globs: int, max_length: int) -> Filter:
    if isinstance(globs, str):
        raise InvalidInput(name, "is a string, not a list of globs")
    if len(globs) > max_globs:
        raise InvalidInput(name, f"has {len(globs)} globs, at most {max_globs} are accepted")
    exact: list[str] = []
    patterns: list[Filter] = []
    for position, glob in enumerate(globs):
        at = f"{name}.{position}"
        checked_text(at, glob, max_length)
        if not glob:
            raise InvalidInput(at, "is empty")
        if not any(char in glob for char in "*?["):
            exact.append(glob)
            continue
        try:
            patterns.append(Pattern(_SOURCE, *glob_regex(glob)))
        except ValueError as exc:
            raise InvalidInput(at, str(exc)) from exc
    return either(*([OneOf(_SOURCE, tuple(exact))] if exact else []), *patterns)
