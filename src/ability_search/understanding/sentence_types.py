"""Sentence type of a query: request, question, statement or instruction, and its quotations.

The type is detected by characteristic words of English, without a grammar. A phrase like ``notes on
caching`` has none of these types. Words in quotation marks have no meaning as words of the query.
"""

from __future__ import annotations

import re
from typing import Final

_FLAGS = re.IGNORECASE | re.VERBOSE
_BE_OR_DO = (
    r"(?:is|are|was|were|am|do|does|did|has|have|had|can|could|should|would|will|shall|must|might"
    r"|may)(?:n't|not)?"
)
_ASKED = r"(?:what|which|who|whom|whose|where|when|why|how)"
_STATED_WORDS: Final = 6
"""Minimum words of a sentence with a capital and a full stop; shorter texts may be phrases."""

_REQUEST = re.compile(
    r"^\W*(?:please\s+)?(?:(?:show|give|tell|find|get|send|list|recommend|suggest)(?:\s+me)?\b"
    r"|i\s+(?:want|need|prefer)\b(?!\s+to\b)|(?:i'm\s+|i\s+am\s+)?(?:looking|searching)\s+for\b)",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    rf"""
    \?\W*$ | ^\W*{_BE_OR_DO}\b
    | ^\W*(?:(?:about|at|by|for|from|in|of|on|to|with)\s+)?{_ASKED}\b
    | ^\W*(?:besides|apart|aside|except|excluding|other|with)\b[^,.]{{0,80}},\s*{_ASKED}\b
    """,
    _FLAGS,
)
_CIRCUMSTANCE = re.compile(r"^\W*(?:when|where)\b.*\.\W*$", _FLAGS)
_NEXT_SENTENCE = re.compile(r"[a-z]{3}[\"')]*[.!?][\"')]*\s+[\"'(]?[A-Z]")
_FULL_STOP = re.compile(r"^\W*[A-Z].*[.!][\"')]*\s*$", re.DOTALL)
_FINITE = re.compile(
    rf"""
    ^\W*(?:i|we|you|he|she|they|let's)\b
    | (?<=\S\s)(?<!\bthat\s)(?<!\bwhich\s)(?<!\bwho\s)(?<!\bwhat\s)(?<!\bto\s)
      (?<!\bwe\s)(?<!\bi\s)(?<!\byou\s)(?<!\bthey\s)(?<!n't\s)(?<!\bnot\s)
      \b(?: {_BE_OR_DO}
          | acts|affects|allows?|appears?|became|becomes?|believes?|consists?|contains?|contributes?
          | depends|exists?|gave|gets|gives?|goes|got|happens?|improves?|increases|indicates?
          | induces?|inhibits?|knew|knows|lacks?|leads|lives|looks|lowers|makes|means|occurs?
          | prevents?|provides?|reduces?|remains?|requires?|said|says|seems?|speaks|suggests|takes
          | thinks?|took|wants|went )\b(?!-)
    """,
    _FLAGS,
)
_ASKS_HOW = re.compile(
    r"""
    \b(?:how|why)\b | \bwhat\s+(?:happens|if|would)\b
    | ^\W*(?:can|could|should|would|will|do|does|did|is|are|was|were|has|have|am)(?:n't)?\b
    | \b(?:ways?|want|need|needs|try|trying|able|possible|like|allowed|have)\s+to\b
    """,
    _FLAGS,
)
_COMMANDS: Final = r"""
    (?:add|allow|authenticate|avoid|build|call|change|clone|commit|compile|configure|connect
      |convert|copy|count|create|debug|delete|deploy|disable|download|edit|enable|execute|export
      |filter|fix|force|generate|import|init|initialize|insert|install|join|kill|launch|load|log
      |login|make|merge|migrate|mount|move|open|parse|pull|push|query|read|rebase|rebuild|reload
      |remove|rename|render|replace|reset|resize|restart|restore|return|revert|rollback|rotate
      |run|save|scale|send|serve|set|setup|ship|sign|sort|split|ssh|start|stop|store|switch|sync
      |test|train|undo|uninstall|unlock|update|upgrade|upload|use|validate|verify|view|write
      |grep|tar|zip|select|sum)\b
"""
_HAS_VERB = re.compile(
    rf"""
    ^\W*(?:what|which|who|where|when)\b
    | \b(?:can|could|should|would|will|must|may|might|does|do|did|is|are|was|were|be|been|am|works?
        |runs?|fails?|starts?|using|cannot|can't)\b
    | \b(?:for|by|of|when|while)\s+\w+ing\b
    | ^\W*{_COMMANDS}
    """,
    _FLAGS,
)
_INSTRUCTION = re.compile(
    rf"""
    ^\W*+(?:[\w.+#]++:?\s++)?
    (?: (?:compute|convert|copy|decode|delete|disable|enable|encode|exclude|ignore|initialize|insert
        |iterate|kill|match|parse|raise|remove|rename|replace|returns|select|serialize|split
        |uninstall|validate)\b
      | {_COMMANDS}\s+(?:an?|all|any|both|each|every|everything|my|no|only|the|this|these|your)\b )
    """,
    _FLAGS,
)

_OPENING = re.compile("[\"“„«`'‘]")
_END = {
    opening: re.compile(f"[{closing}\n]")
    for opening, closing in {
        '"': '"', "“": "”", "„": "“”", "«": "»", "`": "`", "'": "'", "‘": "’",
    }.items()
}  # fmt: skip
_BETWEEN_WORDS = "'‘"
"""Marks that are apostrophes if a letter precedes the first or follows the second."""
_WORD = re.compile(r"\w")


def masked(text: str) -> str:
    """Return ``text`` with each quotation, its marks included, as one word of the same length.

    Offsets are preserved. Apostrophes within words and unclosed quotation marks do not count.
    """
    parts: list[str] = []
    done = 0
    ends: dict[str, int] = {}
    for match in _OPENING.finditer(text):
        start = match.start()
        if start < done:
            continue
        mark = match[0]
        if ends.get(mark, 0) <= start:
            end = _END[mark].search(text, start + 1)
            ends[mark] = end.start() if end else len(text)
        if _is_quotation(text, start, ends[mark]):
            parts += (text[done:start], "Q" * (ends[mark] + 1 - start))
            done = ends[mark] + 1
    return "".join((*parts, text[done:]))


def _is_quotation(text: str, start: int, end: int) -> bool:
    """Return whether the mark at ``end`` closes a quotation that the mark at ``start`` opens."""
    if end == len(text) or text[end] == "\n" or end == start + 1:
        return False
    return text[start] not in _BETWEEN_WORDS or not (
        (start > 0 and _WORD.match(text, start - 1)) or _WORD.match(text, end + 1)
    )


def is_request(plain: str) -> bool:
    """Return whether a text is a plain request: ``show me``, ``I'm looking for``."""
    return _REQUEST.match(plain) is not None


def asks_how(plain: str) -> bool:
    """Return whether a text asks how, why, whether, or for a way to do something."""
    return _ASKS_HOW.search(plain) is not None


def has_verb(plain: str) -> bool:
    """Return whether the beginning of a text has a verb, and thus describes an action."""
    return _HAS_VERB.search(plain) is not None


def is_instruction(plain: str) -> bool:
    """Return whether a text is a command, or describes what a function does.

    A word may precede it: ``vim delete all lines``, ``Unix: kill all processes``.
    """
    return not is_request(plain) and _INSTRUCTION.match(plain) is not None


def is_statement(plain: str) -> bool:
    """Return whether a text states something instead of asking: ``X is Y``, or several sentences.

    A verb within a relative clause does not make a statement: ``papers that are about X``.
    """
    if is_request(plain):
        return False
    if _QUESTION.search(plain):
        return _CIRCUMSTANCE.match(plain) is not None
    full = _FULL_STOP.match(plain) is not None and len(plain.split()) >= _STATED_WORDS
    return full or any(found.search(plain) for found in (_NEXT_SENTENCE, _FINITE))
