"""Captions of recorded calls (SubRip, ``.srt``): what was said, a paragraph for each pause."""

from __future__ import annotations

import re

from ability_search.text.formats import Format
from ability_search.text.loaders import Bounds, Extracted, Unreadable

CAPTIONS = Format(name="captions", suffixes=(".srt",), text="helpdesk.captions:read_captions")
"""Its text is cut as plain text is, because it names nothing else that cuts it."""

_CUE = re.compile(
    r"^\d+\n(?P<start>\d+:\d\d:\d\d),\d{3} --> [^\n]+\n(?P<words>.+?)(?:\n\n|\Z)",
    re.MULTILINE | re.DOTALL,
)
_PAUSE = 3
"""Captions between two pauses."""


def read_captions(_name: str, text: str, _bounds: Bounds) -> Extracted:
    """Read captions; the time of the first is in the metadata.

    Raises:
        Unreadable: if there are none.
    """
    cues = list(_CUE.finditer(text.replace("\r\n", "\n")))
    if not cues:
        raise Unreadable("no captions, though its name says so")
    words = [" ".join(cue["words"].split()) for cue in cues]
    paragraphs = [" ".join(words[i : i + _PAUSE]) for i in range(0, len(words), _PAUSE)]
    return Extracted("\n\n".join(paragraphs), "text", metadata={"begins": cues[0]["start"]})
