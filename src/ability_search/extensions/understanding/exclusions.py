"""Exclusions of a query: ``X, excluding Y``, ``X (ohne Y)``, ``除了Y以外的X``.

:mod:`.exclusion_forms` has the forms, by the queries in which they exclude. Words in quotation
marks exclude nothing; nor do commands to a machine (``remove all files except X``), idioms (``not
only``) and phrases that begin or end with a function word or occur in the rest of the query. What
is left must have a content word. ``-"a phrase"`` excludes, and so does ``-term`` at the end of a
query that does not look like a command line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from ability_search.extensions.understanding.exclusion_forms import GERUNDS, Form, Kind, forms_for
from ability_search.extensions.understanding.sentence_types import (
    REQUESTS,
    asks_how,
    is_instruction,
    is_question,
    is_request,
    is_statement,
    masked,
)
from ability_search.text.languages import STOP_WORDS

TIME: Final = "\ue000"
"""Replacement of each character of a time in a query; ends a phrase, counts as content."""
_PHRASE_WORDS: Final = 12
"""Maximum words of an excluded phrase; a longer one is the rest of a sentence, not a topic."""
_LEAD_LENGTH = 40
"""Maximum characters of :data:`_LEAD`."""
_JOINED = "and|but|then|und|aber|et|mais|puis|y|pero"
_POLITE = r"please|thanks|of course|bitte|danke|s'il (?:te|vous) plaît|merci|por favor|gracias"
_LEAD = re.compile(
    r"(?<!\s)(?:\s*+[,;:.!?(\[，。；：、？！（]\s*+|\s++[-–—]+\s++|\s++)?+(?:(?<!\w)(?:or|also|just|nur"
    rf"|jedoch|doch|{_JOINED}|{_POLITE})\s++|但是?|[请請]|而且|并且?){{0,4}}+\Z",
    re.IGNORECASE,
)
"""Words and marks before a form that belong to it."""
_PLEASE = re.compile(rf"[,，]?\s++(?:{_POLITE})(?!\w)", re.IGNORECASE)
_JOINT = re.compile(rf"[,;:.–—-]?\s++(?:{_JOINED})\s", re.IGNORECASE)
"""Words between a leading exclusion and the rest."""
_KINDS = re.compile(
    rf"""\b(?:{_POLITE}|(?:every|any)(?:thing|one)|apps|articles|books|courses|desserts|dishes
    |documents|documentation|drinks|examples|films|flights|games|gifts|guides|ideas|hotels|libraries
    |meals|movies|music|news|notes|options|papers|podcasts|recipes?|restaurants|routes|snacks
    |solutions|songs|tips|tools|tours|trips|tutorials|alles|artikel|beispiele|bücher|dokumente|filme
    |flüge|gerichte|getränke|ideen|musik|nachrichten|notizen|\w*reisen|\w*rezepte?|spiele|tipps
    |\w*verbindungen|tout|exemples|idées|livres|musique|plats|boissons|recettes?|conseils|trajets
    |vols|todo|artículos|bebidas|consejos|documentos|ejemplos|libros|música|noticias|notas|películas
    |platos|postres|recetas?|rutas|viajes|vuelos)\b
    |食谱|菜谱|文章|资料|教程|笔记|论文|新闻|电影|推荐""".replace("\n    ", ""),
    re.IGNORECASE,
)
"""Words for what is chosen from, with which ``without`` excludes."""
_FURTHER_WORDS = """
    all also always because both due each either else enough even every few get having here him
    just least like many might more most much must necessarily neither never none nor now often
    once one only other others own same since those though too us very well whether while without
    yet zero first second last rest empty current matter found true false
    das dem den der des die ein eine einen einer es ich ihm ihn ihr ihre man mich mir sie sich und
    oder wer wie wo wenn weil dass daß nicht nur noch zu ist sind fue fueron été wurde wurden le
    la les un une du de et ou ce cela ça que qui il elle ne pas je tu nous vous el los las uno una
    y o lo eso esto se su sus ni yo más
"""
_FUNCTION = frozenset(f"{STOP_WORDS['english']} {_FURTHER_WORDS}".split()) - {"been", "into"}
"""Words that neither begin nor end a topic, unless they belong to :data:`_OPENING`."""
_REQUEST_WORDS = """
    anything articles docs documents everything find give i'm list looking need notes please show
    something tell thing things want
"""
_EMPTY = _FUNCTION.union(_REQUEST_WORDS.split())
"""Words without content."""
_OPENING = re.compile(
    r"(?:(?:the|an?|any(?:thing|one)?|all|our|my|your|their|his|her|its|those|(?:the )?ones?|no|not"
    r"|nor|either|references?|mentions?|discussions?|details|information|related|about|to|by|of|on"
    rf"|from|with|having|using|utiliser|usar|{GERUNDS}|concerning|regarding|der|die|das|den|dem|des|alles?|ein(?:e[nmrs]?)?"
    r"|über|von|vom|zu|auf|dabei|aber|jedoch|bitte|seine?[rnm]?|ihre?[rnm]?|les?|la|l'|des?|du|d'"
    r"|une?|ses|son|sa|sur|aux?|el|los|las|del?|una?|sus?|por|para|con|sobre|al)(?:\s++|(?<=')))+",
    re.IGNORECASE,
)
"""Beginnings of a phrase that are no part of it."""
_CLOSING = re.compile(
    r"(?:(?<!\s)\s++(?:ones?|stuff|things?|related|at all|instead|zeigen|nennen|finden|geben"
    r"|empfehlen)|[的了呢吗]|[以之]外|不谈){1,3}$",
    re.IGNORECASE,
)
_LATER = (
    r"that|which|who|whose|when|where|while|why|how|what|because|but|so|then|if|unless|is|are|was"
    r"|were|do|does|did|have|has|had|can|could|should|would|will|besides|except|excluding|without"
    r"|aber|gibt|sind|ist|haben|hat|kann|können|welche[rs]?|wie|sont|est|ont|mais|quels?|quelles?"
    rf"|comment|hay|son|est[áa]n?|tienen?|pero|qué|cuáles|cómo|{_POLITE.replace(' ', '[ ]')}"
)
"""Words behind a phrase."""
_END = re.compile(
    rf"""[;:!?()（）。；：？！\n\[\]] | \.(?=\s|$) | \s[-–—]+\s | [,，\ue000] | 的(?=[一-鿿])
    | (?<!\s)\s++(?:(?:(?:and|und|et|y)\s++)?(?:{_LATER})|(?:and|und|et|y)\s++(?:{REQUESTS}))\b
    | (?<!\s)\s++\ue000""",
    re.IGNORECASE | re.VERBOSE,
)
"""The end of a clause."""
_PART_END = re.compile(r"(?<!\s)\s++(?:for|during|since|until|before|after)\b", re.IGNORECASE)
"""The end of a phrase after weaker cues: ``besides Postgres for storage``."""
_AND = r"(?:and|or|nor|no|not|und|oder|sowie|et|ou|ni|y|e|o|u|&)"
_ITEM = (
    rf"(?:(?!(?:{_LATER.replace('[ ]', ' ')}|after|at|before|just|my|only|since|within|in|on|for"
    rf"|with|sur|en|dans|i|we|ich|wir|je|nous|{REQUESTS})\b)[\w+#'’/.-]++(?:\s++(?=\w)|(?!\w))){{1,4}}"
)
_LIST = re.compile(
    rf"(?:(?:,\s*+(?:{_AND}\s++)*|\s++{_AND}\s++){_ITEM})++(?=\s*+(?:[.;:!?)]|$))", re.IGNORECASE
)
"""Further items of a list, behind the first."""
_SEPARATOR = re.compile(
    rf"(?<!\s)\s*+[,，、]\s*+(?:{_AND}\s++)*|(?<!\s)\s++{_AND}\s++"
    r"|(?<=[一-鿿])[和或与](?=[一-鿿])",
    re.IGNORECASE,
)
_MINUS = re.compile(
    r"(?<!\S)-(?:(?P<phrase>QQQ+)|(?:[^\W\d_]{3,}|[A-Z]{2,})(?=(?:\s{1,3}-\S{1,60}){0,16}\s{0,3}$))"
)
_COMMAND_LINE = re.compile(
    r"(?<!\S)--?\w{1,2}(?=\s|$)|(?<!\S)--\w|(?<!\S)-[A-Z]+[a-z]|[|<>$\\=*]|[.~]/|\s\.\s|\d\s?$"
)
"""Signs of a command line: options, pipes, paths."""
_NO_TOPIC = re.compile(r"^\d+\W*$|^[此这那]|什么|谁|被|哪|除")
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_BRACKETED = re.compile(
    r"[^()（）\[\]]*+(?:[(（\[][^()（）\[\]]*+[)）\]][^()（）\[\]]*+)*+(?=[)）\]])"
)
_CLOSED = re.compile(r"\s*+[)）\].!。]")
_LOOSE = re.compile(r"(?<!\s)\s++(?=[,.;:?!](?:\s|$))")


@dataclass(frozen=True, slots=True)
class Exclusions:
    """A query split into its exclusions and the rest.

    Attributes:
        remaining: The query without exclusions; the query itself if there are none.
        excluded: The distinct phrases in order of position, without quotation marks.
        spans: Removed spans, cue and phrases, in characters of the query.
    """

    remaining: str
    excluded: tuple[str, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()


def find_exclusions(text: str) -> Exclusions:
    """Find the exclusions in ``text``."""
    plain = masked(text.replace("’", "'"))
    excluded: dict[str, str] = {}
    spans: list[tuple[int, int]] = []
    for start, at, end, last in sorted(_stretches(plain), key=lambda each: (each.start, -each.end)):
        if spans and start < spans[-1][1]:
            continue
        parts = list(_parts(plain, text, at, end))
        rest = without(text, [*spans, (start, last)])
        searched = has_content(rest) or TIME in rest
        if is_instruction(plain):  # `ignore drafts and show ...`
            searched = is_request(rest) or is_question(rest)
        elif not start:
            searched = searched and not is_statement(rest)
        again = any(part.casefold() in rest.casefold() for part in parts)
        if parts and searched and not again:
            spans.append((start, last))
            for part in parts:
                excluded.setdefault(part.casefold(), part)
    return Exclusions(without(text, spans), tuple(excluded.values()), tuple(spans))


def without(text: str, spans: list[tuple[int, int]]) -> str:
    """Return ``text`` without these ordered spans, with spaces and punctuation tidied."""
    if not spans:
        return text
    kept = []
    at = 0
    for start, end in spans:
        kept.append(text[at:start].rstrip(" \t\n,;，；"))
        at = end
    kept.append(text[at:] if any(kept) else text[at:].lstrip(" \t\n,;.，；。"))
    return _LOOSE.sub("", " ".join(" ".join(kept).split())).strip()


def has_content(text: str) -> bool:
    """Return whether a text has a word besides function words and ``show me all notes about``."""
    return any(match[0].casefold() not in _EMPTY for match in _WORD.finditer(text))


class _Stretch(NamedTuple):
    """An exclusion in a query: its start and end, and those of its phrases, in characters."""

    start: int
    phrases: int
    phrases_end: int
    end: int


def _stretches(plain: str) -> Iterator[_Stretch]:
    """Yield the possible exclusions, those of one form after the other."""
    sentence = _Sentence(plain)
    for form in forms_for(plain):
        for match in form.pattern.finditer(plain):
            if found := sentence.stretch(form, match):
                yield found
    if "-" in plain and not _COMMAND_LINE.search(plain):
        for match in _MINUS.finditer(plain):
            if len(plain[: match.start()].split()) > (not match["phrase"]):
                yield _Stretch(match.start(), match.start() + 1, match.end(), match.end())


class _Sentence:
    """A query with its sentence type, which decides on the kinds of forms that exclude."""

    def __init__(self, plain: str) -> None:
        self.plain = plain

    @cached_property
    def chosen(self) -> bool:
        return is_request(self.plain) or _KINDS.search(self.plain) is not None

    @cached_property
    def statement(self) -> bool:
        return is_statement(self.plain)

    def stretch(self, form: Form, match: re.Match[str]) -> _Stretch | None:
        """Return the exclusion of a form; ``None`` if it excludes nothing there."""
        plain, at = self.plain, match.start()
        lead = _LEAD.search(plain, max(0, at - _LEAD_LENGTH), at)
        start = lead.start() if lead else at
        start += len(plain[start:at]) - len(plain[start:at].lstrip())
        mark, before = plain[start], plain[:start]
        if form.begins and start == at and before.strip():
            return None
        if not self.excludes(form.kind, mark, before):
            return None
        if "phrase" in match.groupdict():
            phrases, end, last = *match.span("phrase"), match.end()
        else:
            phrases = match.end()
            end = last = self.end_of(phrases, form.kind, mark, has_content(before))
        if polite := _PLEASE.match(plain, last):
            last = polite.end()
        if not before.strip() and (joint := _JOINT.match(plain, last)):
            last = joint.end()
        if mark in "(（[.!。" and (closed := _CLOSED.match(plain, last)):
            last = closed.end()
        kept = match.end("kept") + 1 if "kept" in match.groupdict() else start + (mark in ".!?。")
        return _Stretch(kept, phrases, end, last)

    def excludes(self, kind: Kind, mark: str, before: str) -> bool:
        """Return whether a form behind ``before`` and a mark excludes."""
        how = asks_how(before)
        if mark in "(（[" or kind == "direct":
            return not how or mark in "(（[,，.!?;。！？；"
        statement = is_statement(before) if mark in ".!" else self.statement
        if statement or (kind != "besides" and how):
            return False
        return kind != "without" or self.chosen

    def end_of(self, start: int, kind: Kind, mark: str, preceded: bool) -> int:
        """Return the end of the phrases after a cue: of the bracket, the clause, or a list.

        Before everything else a comma ends them, not a list: ``Besides rent, what did we pay``.
        """
        plain = self.plain
        if mark in "(（[" and (bracketed := _BRACKETED.match(plain, start)):
            return bracketed.end()
        found = _END.search(plain, start)
        end = found.start() if found else len(plain)
        if kind != "direct" and (part := _PART_END.search(plain, start, end)):
            end = part.start()
        if preceded and (items := _LIST.match(plain, end)):
            end = items.end()
        return start + len(plain[start:end].rstrip(" .,"))


def _parts(plain: str, text: str, start: int, end: int) -> Iterator[str]:
    """Yield the phrases between two offsets; none if the text cannot be a topic."""
    cuts = [start]
    for match in _SEPARATOR.finditer(plain, start, end):
        cuts += match.span()
    cuts.append(end)
    for place, (first, last) in enumerate(zip(cuts[::2], cuts[1::2], strict=True)):
        opening = _OPENING.match(plain, first, last)
        at = opening.end() if opening else first
        closing = _CLOSING.search(plain, at, last)
        last = closing.start() if closing else last
        phrase = text[at:last].strip(" \t\"“”„«»`'.《》")
        if _is_topic(plain[at:last]):
            yield phrase
        elif not place:
            return


def _is_topic(phrase: str) -> bool:
    """Return whether a phrase can be what is excluded, not a part of a sentence."""
    words = _WORD.findall(phrase)
    if not has_content(phrase) or len(words) > _PHRASE_WORDS or _NO_TOPIC.search(phrase):
        return False
    return not _FUNCTION.intersection((words[0], words[-1])) and words[0] != "I"
