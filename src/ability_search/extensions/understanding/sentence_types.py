"""Sentence type of a query: request, question, statement or instruction, and its quotations.

Characteristic words tell the types, without a grammar: requests and questions in English,
German, French, Spanish and Chinese, the others in English. A phrase like ``notes on caching`` has
none of these types. Words in quotation marks have no meaning as words of the query.
"""

from __future__ import annotations

import re
from typing import Final

_FLAGS = re.IGNORECASE | re.VERBOSE
_BE_OR_DO = (
    r"(?:is|are|was|were|do|does|did|has|have|had|can|could|should|would|will|shall|must|might"
    r"|may)(?:n't|not)?"
)
ASKED: Final = (
    r"(?:what|which|who|whom|whose|where|when|why|how|welche[rnms]?|was|wer|wo|wann|wie|warum"
    r"|quel(?:le)?s?|que|qu'|qui|où|quand|comment|pourquoi|cu[aá]l(?:es)?|qué|quién(?:es)?"
    r"|dónde|cuándo|cómo)"
)
_STATED_WORDS: Final = 6
"""Minimum words of a sentence with a capital and a full stop; shorter texts may be phrases."""

REQUESTS: Final = (
    "show|give|tell|find|get|send|list|name|recommend|suggest|provide|describe|explain|introduce"
    "|outline|discuss|analy[sz]e|compare|examine|summari[sz]e|present|write|search|explore|identify"
    "|review|talk|teach|elaborate|highlight|evaluate|assess|illustrate|zeige?|gib|nenne?|finde?|suche?|erkläre?|beschreibe?|erzähle?|liste|empfiehl|fasse?"
    "|vergleiche|stelle|montre[zr]?|donne[zr]?|trouve[zr]?|cherche[zr]?|liste[zr]?|décri[st]"
    "|décrivez|explique[zr]?|présente[zr]?|résume[zr]?|recommande[zr]?|conseille|compare[zr]?|cite"
    "|muestra|muéstrame|dame|da|dime|busca|busco|lista|describe|explica|presenta|resume|recomienda"
    "|recomiéndame|háblame|cuenta|nombra|compara|enumera|quiero|necesito"
)
"""Verbs that ask for texts."""
_DO = r"(?!\s+(?:read|know|see|find|learn|hear|eat|watch)\b)"
"""No verb for what is done with texts: ``I want to deploy``."""
_REQUEST = re.compile(
    rf"""
    ^\W*(?:(?:please|bitte|kindly|(?:can|could|would)\s+you(?:\s+please)?)\s+)?
    (?: (?:{REQUESTS}|(?:ich\s+)?(?:suche|brauche|möchte)|(?:je\s+)?(?:cherche|veux|voudrais)
        |(?:i|we)\s+(?:want|need|prefer|would\s+like)(?!\s+to\b{_DO})|i'd\s+like(?!\s+to\b{_DO})
        |(?:i'm\s+|i\s+am\s+)?(?:looking|searching)\s+for)(?:[\s-](?:me|moi|mir|uns|us|nous|nos))?\b
      | [请請]|介绍|介紹|推荐|推薦|列出|列举|描述|说明|說明|解释|概述|分析|比较|给我
      |告诉我|我想|查找|寻找|搜索)
    """,
    _FLAGS,
)
_QUESTION = re.compile(
    rf"""
    [?？]\W*$ | ^\W*{_BE_OR_DO}\b
    | ^\W*(?:(?:about|at|by|for|from|in|of|on|to|with|für|von|mit|de|à|en|por|con)\s+)?{ASKED}\b
    | ^[^,.]{{0,100}},\s*{ASKED}\b
    """,
    _FLAGS,
)
_FULL_STOP = re.compile(r"^\W*[A-Z].*[.!][\"')]*\s*$", re.DOTALL)
_FINITE = re.compile(
    rf"""
    ^\W*(?:i|we|you|he|she|they|let's)\b
    | (?<=\S\s)(?<!\bthat\s)(?<!\bwhich\s)(?<!\bwho\s)(?<!\bwhat\s)(?<!\bto\s)
      (?<!\bwe\s)(?<!\bi\s)(?<!\byou\s)(?<!\bthey\s)(?<!n't\s)(?<!\bnot\s)
      \b(?: {_BE_OR_DO} | occurs?|exists?|means|allows|contains|lacks|remains?|seems?|went
          | became|got|gave|took|said|improves?|reduces?|increases?|lowers|requires?
          | prevents?)\b(?!-)
    """,
    _FLAGS,
)
_PROCEDURE = re.compile(
    rf"""
    \bhow\s+(?:to|(?:do|can|could|should|would|did|does|is)\s+(?:i|we|you|one|it|they)\b)
    | \bwhat\s+(?:happens|if|would)\b | \bwhy\b
    | ^\W*(?!(?:can|could|would|will)\s+you\b)(?:{_BE_OR_DO})\b
    | \b(?:ways?|want|need|needs|try|trying|able|possible|like|allowed|have)\s+to
        {_DO}\b
    | \b(?:wie\s+(?:kann|mache?|soll|muss)|warum|wieso|kann\s+(?:ich|man)
      |comment\s+(?:faire|puis|\w+er\b)|pourquoi|peut-on|cómo\s+(?:puedo|se|\w+r\b)|por\s+qué|puedo)\b
    | 如何|怎么|怎麼|怎样|为什么|為什麼|为何|能否|可以.{0, 40}吗
    """,
    _FLAGS,
)
_INSTRUCTION = re.compile(
    r"""
    ^\W*+(?:[\w.+#]++:?\s++)?
    (?: (?:compute|convert|copy|decode|delete|disable|enable|encode|exclude|ignore|initialize|insert
        |iterate|kill|match|parse|raise|remove|rename|replace|returns?|select|serialize|split
        |uninstall|validate)\b
      | (?:add|build|change|check|clear|close|commit|copy|count|create|deploy|download|filter
        |install|load|merge|move|open|print|push|query|read|restart|restore|run|save|set|sort|start|stop
        |sync|test|update|upgrade|upload|use|view|write)
        \s+(?:an?|all|any|both|each|every|everything|my|no|only|the|this|these|your)\b )
    """,
    _FLAGS,
)

_QUOTATION = re.compile(
    r"""
    "[^"\n]{1,300}" | “[^”\n]{1,300}” | „[^“”\n]{1,300}[“”] | «[^»\n]{1,300}» | `[^`\n]{1,300}`
    | (?<!\w)'[^'\n]{1,300}'(?!\w) | (?<!\w)‘[^’\n]{1,300}’(?!\w)
    """,
    re.VERBOSE,
)
"""A quotation; marks after or before a letter are apostrophes."""


def masked(text: str) -> str:
    """Return ``text`` with each quotation, its marks included, as one word of the same length.

    Offsets are preserved. Apostrophes within words and unclosed quotation marks do not count.
    """
    return _QUOTATION.sub(lambda quotation: "Q" * len(quotation[0]), text)


def is_request(plain: str) -> bool:
    """Return whether a text is a plain request: ``show me``, ``I'm looking for``, ``describe``."""
    return _REQUEST.match(plain) is not None


def asks_how(plain: str) -> bool:
    """Return whether a text asks for a way to do something, why, or whether."""
    return _PROCEDURE.search(plain) is not None


def is_question(plain: str) -> bool:
    """Return whether a text is a question, by its first words or its last mark."""
    return _QUESTION.search(plain) is not None


def is_instruction(plain: str) -> bool:
    """Return whether a text is a command, or describes what a function does.

    A word may precede it: ``vim delete all lines``, ``Unix: kill all processes``.
    """
    return not is_request(plain) and _INSTRUCTION.match(plain) is not None


def is_statement(plain: str) -> bool:
    """Return whether a text states something instead of asking: ``X is Y``, or a full sentence.

    A verb within a relative clause does not make a statement: ``papers that are about X``.
    """
    if is_request(plain) or is_question(plain):
        return False
    full = _FULL_STOP.match(plain) is not None and len(plain.split()) >= _STATED_WORDS
    return full or _FINITE.search(plain) is not None
