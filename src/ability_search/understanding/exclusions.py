"""Exclusions of a query: ``X, excluding Y``, ``X (ohne Y)``, ``除了Y以外的X``.

:data:`FORMS` are the ways to exclude ``X``, in English, German, French, Spanish and Chinese, by the
queries in which they exclude. A phrase ends with its bracket, else with its clause or list.

A text that commands a machine (``remove all files except X``) excludes nothing; nor do words in
quotation marks, parts of words (``non-blocking``), idioms (``not only``, ``no matter``) and phrases
that begin with a function word, describe a state (``but not working``) or occur in the rest of the
query. What would be left must have a content word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from ability_search.understanding.sentence_types import (
    asks_how,
    is_instruction,
    is_question,
    is_request,
    is_statement,
    masked,
)

TIME: Final = "\ue000"
"""Replacement of each character of a time in a query; ends a phrase, counts as content."""
_LEAD_LENGTH = 40
_PHRASE_WORDS: Final = 12
"""Maximum words of an excluded phrase outside brackets; a longer one is the rest of a sentence."""

FORMS: Final = {
    # Said to who answers: in any text; in a question for a way only behind a comma or a bracket.
    "direct": r"""
        (?:excluding|omitting|avoiding|disregarding|ignoring|not counting|not including|exclusive of|never mind) X
        leav(?:ing|e) (?:out|aside) X
        (?:to|with|under) the exclusion of X
        without (?:ABOUTING|(?:any )?(?:mention|reference|discussion|regard)s? (?:of|to)) X
        ^(?:(?:do not|don't|never|no need to) ABOUT|nothing (?:that \w+ )?(?:about|on|with|from)) X
        ^(?:minus|exclude|skip|ignore|omit|avoid|disregard|leave out) X
        ^(?:i|i'm|i am) (?:hate|dislike|(?:do not|don't) (?:eat|like|want|need)|not interested in)(?! to\b) X
        leav(?:e|ing) X (?:out|aside)
        with X (?:left out|excluded|excepted|omitted)
        , X (?:aside|excluded|excepted|left out|not included|ausgenommen|exclue?s?|excluid[oa]s?)$
        (?:ausgenommen|ausgeschlossen|exklusive|nicht eingeschlossen|unter Ausschluss(?: von)?) X
        ohne (?:Erwähnung|Nennung|Berücksichtigung|Bezug|Rücksicht|Einbeziehung)(?: (?:auf|von))? X
        ohne(?: (?:auf|über))? X (?:zu (?:erwähnen|nennen|berücksichtigen|behandeln|sprechen|reden|besprechen|diskutieren)|einzugehen|einzubeziehen)
        ^(?:erwähne?|nenne?|erwähnen sie|zeige?|berücksichtige)(?: mir| dabei)? (?:nicht|keine?[nr]?|nichts über) X
        ^(?:erwähne?|nenne?|berücksichtige|behandle|erwähnen sie)(?: dabei)? X nicht
        ^nichts (?:über|zu|von) X
        ^(?:lasse?|lassen sie)(?: dabei)? X (?:weg|aus|außen vor|beiseite)
        ^(?:schließe?|klammere)(?: dabei)? X aus
        en (?:excluant|omettant|ignorant|laissant de côté) X
        qui (?:ne |n')(?:parl|mentionn|concern|trait|inclu|contien|utilis|port)\w* pas(?: d[eu']| sur)? X
        sans (?:mentionner|parler d[eu']|évoquer|inclure|aborder|citer|tenir compte d[eu']|prendre en compte|mention d[eu']|faire référence (?:à|aux?)) X
        ^(?:ne |n')(?:mentionne|parle|inclu[st]|cite|évoque|montre|inclue)[zrs]? (?:pas|rien)(?: d[eu'])? X
        ^(?:exclu[st]|omet[s]?|évite[zr]?|ignore[zr]?) X
        (?:excluyendo|omitiendo|ignorando|exceptuando|sin contar|dejando (?:fuera|de lado)) X
        que no (?:mencion[ae]n?|habl[ae]n? de|incluy[ae]n?|trat[ae]n? de|conteng?an?|us[ae]n?) X
        sin (?:mencionar|hablar de|incluir|tratar|citar|considerar|tener en cuenta|discutir|referirse a|hacer referencia a|mención (?:de|a)) X
        ^no (?:menciones?|incluyas?|hables? de|muestres?|cites?|consideres?|mencionar|incluir|mencionen) X
        ^(?:excluye|omite|evita|ignora) X
        (?:(?:不要?|别|勿|无需|不必|避免)(?:再|要|想)?(?:包括|包含|含|涉及|提到|提及|提|讨论|考虑|谈论?|算|介绍|出现|说)|不要|排除|剔除|撇开|抛开) X
        """,
    # In any text but statements.
    "besides": r"""
        (?:besides|(?:apart|aside) from|with the exception of|(?<!none\s)(?<!each\s)other than)(?: (?:by|for|from|on|with))? X
        (?:unrelated to|(?:ha(?:s|ve|d)|having|with) nothing to do with) X
        (?:that|which|who)(?:'s not| (?:is|are|was|were)(?:n't| not)) (?:about(?! to\b)|(?:related|relating|referring) to|concerning|(?:from|at|on|by|of)(?! the same\b)) X
        (?:that|which)(?:'s not| (?:is|are)(?:n't| not))(?! an? ) STATE X
        (?:außer(?!halb|dem)|abgesehen von|mit Ausnahme(?: von)?|alles? bis auf) X
        ^bis auf X
        (?:der|die|das) nichts mit X zu tun ha(?:t|ben)
        (?:der|die|das)(?: nicht)?(?: von| über)? X (?:nicht )?(?:handeln|handelt|betreffen|betrifft|erwähnen|erwähnt|behandeln|enthalten|enthält)
        (?:à l'exception d[eu']|à l'exclusion d[eu']|hormis|hors(?! ligne)|excepté|mis à part|en dehors d[eu']|autres? que) X
        (?:excepto|a excepción de|con (?:la )?excepción de|aparte de|además de|fuera de|que no sean?) X
        除(?:了|去|开)? X (?:以外|之外|外(?!国|部|交|面|币|汇))(?!.{0,2}[还還也])的?
        除了? X [，,](?!.{0,12}[还還也])
        ^除了? X
        , X (?:除外|不算)
        """,
    # In neither statements nor questions how, why or whether, except in brackets.
    "except": r"""
        (?<!is\s)(?<!are\s)(?<!was\s)not (?:related to|concerning|regarding|mentioning|involving|about(?! to\b)) X
        (?<!try\s)(?<!bare\s)(?:except|save) for X
        (?<!try\s)(?<!bare\s)except(?: (?:in|by|from|on))? X
        ^(?:rather |definitely |preferably |just ){0,2}(?:not|neither)(?: (?:by|for|with))? STATE X
        (?P<kept>(?:any|every)(?:thing|where|one|body|\s\w+)(?: (?:about|in|from|of|on) [^,.;:!?]{1,60}?)?|all) but(?! (?:not|certain)\b) X
        (?:that|which|who)(?: (?:do|does|did)(?:n't| not)| never) ABOUT X
        (?P<kept>(?:which|what)(?: \w+){1,4}) (?:do|does|did)(?:n't| not) ABOUT X
        no IDIOM X please
        ^without IDIOM X
        ^ohne IDIOM X
        ^pas d[eu'] IDIOM X
        ^sans IDIOM X
        ^sin IDIOM X
        (?-i:(?<=[a-z]\s)(?<!with\s)(?<!using\s)(?<!do\s)(?<!is\s)(?<!or\s)(?<!out\s)NOT(?= \w*[a-z])) X
        ^(?:nur )?(?:nicht|keine?[nr]?)(?: über| von| mit)? STATE X
        (?<!ed)(?<!ing), (?:but |and |please |just )?no IDIOM X
        (?:sauf|mais pas|mais sans|et non|à part(?! entière))(?: (?:sur|pour))? X
        (?:salvo|(?<!\so\s)(?<!lo\s)(?<!al\s)menos|pero no|pero sin|y no)(?: (?:sobre|con))? X
        (?:而不是|但不是|非关于) X
        """,
    # Describe what is sought (`patients without diabetes`): in requests and with words for texts.
    "without": r"""
        (?:without|with no)(?: any)? IDIOM X
        (?:instead of|rather than) X
        (?:that|which)(?:'s not|(?: is| are)(?:n't| not)) an? X
        ^(?:but )?no IDIOM X
        ohne IDIOM X
        sans IDIOM X
        sin IDIOM X
        (?:没有|無|无) X
        """,
}

_MENTION = (
    "mention refer discuss consider include cover reference describe address involve concern list name"
    " explain deal talk go focus touch speak"
)
_WANT = "say show give tell want use contain bring need require have depend rely play live"


def _any(verbs: str) -> str:
    return "|".join(verbs.split())


_GERUNDS = "|".join(f"{verb.rstrip('e')}(?:{verb[-1]})?ing" for verb in _MENTION.split())
_BEHIND_VERB = r"(?: (?:to|about|into|on|in|up|with|me|anything|any|us)\b)*"
_WORDS = {
    "ABOUTING": f"(?:{_GERUNDS}){_BEHIND_VERB}",
    "ABOUT": f"(?:{_any(_MENTION)}|{_any(_WANT)})(?:s|e?d)?{_BEHIND_VERB}",
    "STATE": r"(?!\w+(?:ing|ed|able|ible|ive|ous|ful|ly|al|iert)\b|(?:about|able|born|given|known|made|seen|set|taken|ready|empty|null|true|false"
    r"|valid|public|closed|open|here|there|done|broken|found|allowed|only|just|nur|so|sure)\b)",
    "IDIOM": r"(?!(?:matter|doubts?|question|exception|fail|reason|problems?|idea|longer|more|one|such"
    r"|access|signal|errors?|luck|need|way|limits?|further|delay|warning|success|effect|risk|loss"
    r"|downtime|interruptions?|restarts?|zweifel|ende|grund|probleme?|erfolg|weiteres|doute|cesse|fin"
    r"|problèmes?|raison|duda|embargo|fin|problemas?|éxito|\w+ing)\b)",
}
_LEAD = re.compile(
    r"(?:\s*+[,;:.!?(，。；、（]\s*+|\s++[-–—]+\s++|\s++)?+(?:(?<!\w)(?:but|and|or|also|please|just|aber|jedoch"
    r"|bitte|doch|und|mais|et|s'il vous plaît|pero|por favor)\s++|但是?|[请請]|而且|并且?)*+\Z",
    re.IGNORECASE,
)
"""Words and marks before a form that belong to it."""
_CJK = re.compile("[一-鿿]")
_GAP = r"(?:(?<=['’])|\s++|(?=[“„«]))"
_INSIDE = r"[^.;:?!()（）。；？！\n]"


class _Form(NamedTuple):
    """A way to exclude a phrase."""

    kind: str
    pattern: re.Pattern[str]
    begins: bool
    """Whether a clause must begin with it."""
    closed: bool
    """Whether words behind the phrase belong to it."""


def _form(kind: str, line: str) -> _Form:
    chinese = _CJK.search(line) is not None
    cue, _, behind = (part.strip() for part in line.partition("X"))
    begins, cue = cue.startswith("^"), cue.removeprefix("^")
    guard = ""
    for name, words in _WORDS.items():
        if cue.endswith(f" {name}"):
            cue, guard = cue.removesuffix(f" {name}"), words
        cue = cue.replace(name, words)
    marked = cue.startswith(",")
    cue = cue.replace(",", "[,，:(（]", marked)
    start = "" if chinese or marked else r"(?<!\w)"
    gap, edge = (r"\s*+", "") if chinese or cue.endswith("]") else (_GAP, r"(?!\w)")
    phrase = ""
    if behind:
        edge = r"(?=\W*+$)" if behind.endswith("$") else edge
        space = r"\s*+" if chinese else r"\s++"
        phrase = rf"(?P<phrase>{_INSIDE}{{1,90}}?){space}(?:{behind.removesuffix('$')}){edge}"
    pattern = f"{start}(?:{cue}){gap}{guard}{phrase}".replace(" ", r"\s++")
    return _Form(kind, re.compile(pattern, re.IGNORECASE), begins, bool(behind))


_FORMS = [
    _form(kind, line.strip())
    for kind, lines in FORMS.items()
    for line in lines.strip().splitlines()
]
_KINDS = re.compile(
    r"\b(?:everything|anything|alternatives|articles|books|docs|documents|documentation|examples"
    r"|frameworks|guides|ideas|libraries|notes|options|papers|recipes?|solutions|tips|tools"
    r"|tutorials|alles|artikel|beispiele|bücher|dokumente|ideen|notizen|rezepte?|tipps|tout|articles"
    r"|exemples|idées|livres|recettes?|conseils|todo|artículos|documentos|ejemplos|ideas|libros"
    r"|notas|recetas?|consejos)\b|食谱|菜谱|文章|资料|教程|笔记|论文",
    re.IGNORECASE,
)
"""Words for collected texts, after which (in Chinese, before which) ``without`` excludes."""
_FUNCTION = frozenset(
    """
    a about all also always am an and any are as at be because being both but by can could did do does
    due each either else enough even every few for from get had has have having he her here him his
    how i if in is it its just least like many me might more most much must my necessarily neither no
    none nor not now of often on once one only or other others our own same she should since so some
    such than that the their them then there these they this those though to too us very was we well
    were what when where whether which while who whom whose why will with without would yet you your
    zero first second last same rest empty current matter found true false null none today
    das dem den der des die ein eine einen einer es ich ihm ihn ihr ihre man mich mir sie sich sein
    seine und oder was wer wie wo wenn weil dass daß nicht nur noch zu ist sind
    le la les un une des du de et ou ce cela ça que qui il elle on ne pas je tu nous vous
    el los las uno una y o que lo eso esto se su sus no ni yo más
    """.split()
)
"""Words that do not begin a topic, unless they are articles or possessive, see :data:`_OPENING`."""
_OPENING = re.compile(
    r"(?:(?:the|an?|any(?:thing|one)?|all|our|my|your|their|his|her|its|those|(?:the )?ones?|no|not"
    r"|nor|either|references|mentions?|discussions?|details|information|about|to|by|of|on|from"
    rf"|{_GERUNDS}|concerning|der|die|das|den|dem|des|alles?|ein(?:e[nmrs]?)?|über|von|vom|zu|seine?[rnm]?|ihre?[rnm]?"
    r"|les?|la|l'|des?|du|d'|une?|ses|son|sa|el|los|las|del?|una?|su|sus|por|para|al|with)(?:\s++|(?<=')))+",
    re.IGNORECASE,
)
_CLOSING = re.compile(
    r"(?:\s++(?:ones?|stuff|things?|related|please|bitte|thanks|at all|out|aside|instead)|[的了呢吗])+$",
    re.IGNORECASE,
)
_LATER = (
    r"that|which|who|whose|when|where|while|why|how|what|because|but|so|then|if|unless|is|are|was|were"
    r"|do|does|did|have|has|had|can|could|should|would|will|please|thanks|besides|except|excluding"
    r"|without|aber|gibt|gibt's|sind|ist|haben|hat|kann|können|welche[rs]?|was|wie|sont|est|ont|mais"
    r"|quels?|quelles?|comment|hay|son|est[áa]n?|tienen?|pero|qué|cuáles|cómo"
)
_END = re.compile(
    rf"[;:!?()（）。；？！\n\[\]] | \.(?=\s|$) | \s[-–—]+\s | [,，\ue000]"
    rf"| \s++(?:and\s++|und\s++|et\s++|y\s++)?(?:{_LATER})\b | \s++\ue000 | 的(?=[一-鿿])",
    re.IGNORECASE | re.VERBOSE,
)
"""The end of a clause."""
_PART_END = re.compile(r"\s++(?:for|during|since|until|before|after)\b", re.IGNORECASE)
"""The end of a phrase after weaker cues: ``besides Postgres for storage``."""
_AND = r"(?:and|or|nor|no|not|und|oder|sowie|et|ou|ni|y|e|o|u|&)"
_ITEM = (
    rf"(?:(?!(?:{_LATER}|after|at|before|just|my|only|since|within|show|tell|give)\b)[\w+#'’/.-]++"
    r"(?:\s++(?=\w)|(?!\w))){1,4}"
)
_LIST = re.compile(
    rf"(?:,\s*+(?!{_AND}\b){_ITEM})*,?\s*+{_AND}\s++{_ITEM}(?=\s*+(?:[.,;:!?)]|$))", re.IGNORECASE
)
"""Further items of a list, behind the first."""
_ITEMS = re.compile(rf"(?:,\s*+(?:{_AND}\s++)*{_ITEM})++(?=\s*+[.;:!?)]*+\s*+$)", re.IGNORECASE)
"""Items of a list without a conjunction, up to the end of the query."""
_SEPARATOR = re.compile(rf"\s*+[,，、]\s*+(?:{_AND}\s++)*|\s++{_AND}\s++|(?<=[一-鿿])[和或与及](?=[一-鿿])", re.IGNORECASE)
_MINUS = re.compile(r'(?<!\S)-(?:(?P<phrase>QQQ+)|(?:[^\W\d_]{3,}|[A-Z]{2,})(?=(?:\s+-\S+)*\s*$))')
_COMMAND_LINE = re.compile(
    r"(?<!\S)--?\w{1,2}(?=\s|$)|(?<!\S)--\w|(?<!\S)-[A-Z]+[a-z]|[|<>$\\=*]|[.~]/|\s\.\s|\d\s*$"
)
"""Signs of a command line: options, pipes, paths."""
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_EMPTY = _FUNCTION | frozenset(
    """
    anything articles docs documents everything find give i'm list looking need notes our please show
    something tell thing things want
    """.split()
)
"""Words without content."""
_BRACKETS = "(（"
_BRACKET = re.compile("[()（）]")
_CLOSINGS = re.compile(r"\s*+[.!。]"), re.compile(r"\s*+[)）]")
_SPACES = re.compile(r"\s{2,}")
_LOOSE = re.compile(r"(?<!\s)\s++(?=[,.;:?!](?:\s|$))")


@dataclass(frozen=True, slots=True)
class Excluded:
    """An excluded phrase: ``text[start:end]`` without its quotation marks."""

    phrase: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Exclusions:
    """A query split into its exclusions and the rest.

    Attributes:
        remaining: The query without exclusions; the query itself if there are none.
        excluded: The distinct phrases in order of position.
        spans: Removed spans, cue and phrases, in characters of the query.
    """

    remaining: str
    excluded: tuple[Excluded, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()


def find_exclusions(text: str) -> Exclusions:
    """Find the exclusions in ``text``."""
    plain = masked(text.replace("’", "'"))
    if is_instruction(plain):
        return Exclusions(text)
    excluded: dict[str, Excluded] = {}
    spans: list[tuple[int, int]] = []
    for start, at, end, last in sorted(_stretches(plain, text), key=lambda each: (each[0], -each[3])):
        if spans and start < spans[-1][1]:
            continue
        parts = list(_parts(plain, text, at, end))
        rest = (text[:start] + text[last:]).casefold()
        if parts and not any(part.phrase.casefold() in rest for part in parts):
            spans.append((start, last))
            for part in parts:
                excluded.setdefault(part.phrase.casefold(), part)
    remaining = without(text, spans)
    if not excluded or not (has_content(remaining) or TIME in remaining):
        return Exclusions(text)
    return Exclusions(remaining, tuple(excluded.values()), tuple(spans))


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
    return _LOOSE.sub("", _SPACES.sub(" ", " ".join(kept))).strip()


def has_content(text: str) -> bool:
    """Return whether a text has a word besides function words and ``show me all notes about``."""
    return any(match[0].casefold() not in _EMPTY for match in _WORD.finditer(text))


def _stretches(plain: str, text: str) -> Iterator[tuple[int, int, int, int]]:
    """Yield the start of each exclusion, the start and end of its phrases, and its end."""
    sentence = _Sentence(plain)
    for form in _FORMS:
        for match in form.pattern.finditer(plain):
            lead = _LEAD.search(plain, max(0, match.start() - _LEAD_LENGTH), match.start())
            start = lead.start() if lead else match.start()
            mark = plain[start : match.end()].lstrip()[:1]
            if form.begins and start and not plain[start : match.start()].strip():
                continue
            if not sentence.excludes(form.kind, mark, plain[:start]):
                continue
            ends = (match.end("phrase"), match.end()) if form.closed else None
            at = match.start("phrase") if form.closed else match.end()
            end, last = ends or (sentence.end_of(at, form.kind, mark),) * 2
            if "kept" in match.groupdict():
                start = match.end("kept")
            yield start + (mark in ".!?。"), at, end, _closed(plain, mark, last)
    if not _COMMAND_LINE.search(plain):
        for match in _MINUS.finditer(plain):
            if len(plain[: match.start()].split()) > (not match["phrase"]):
                yield match.start(), match.start() + 1, match.end(), match.end()


class _Sentence:
    """The type of a query, which decides on the kinds of forms."""

    def __init__(self, plain: str) -> None:
        self.plain = plain
        self.request = is_request(plain)
        self.statement = is_statement(plain)
        self.question = is_question(plain)

    def excludes(self, kind: str, mark: str, before: str) -> bool:
        """Return whether a form behind ``before`` and a mark excludes."""
        how = asks_how(before)
        if mark in _BRACKETS or kind == "direct":
            return not how or mark in _BRACKETS + ",，"
        statement = is_statement(before) if mark in ".!" else self.statement
        if statement or (kind != "besides" and how):
            return False
        return kind != "without" or self.request or _KINDS.search(self.plain) is not None

    def end_of(self, start: int, kind: str, mark: str) -> int:
        """Return the end of the phrases after a cue: of the bracket, the clause, or a list."""
        plain = self.plain
        if mark in _BRACKETS and (bracket := _bracket_end(plain, start)):
            return bracket
        found = _END.search(plain, start)
        end = found.start() if found else len(plain)
        if kind != "direct" and (part := _PART_END.search(plain, start, end)):
            end = part.start()
        items = _LIST.match(plain, end) or (not self.question and _ITEMS.match(plain, end))
        if items and has_content(plain[: start - 1].rpartition(" ")[0]):
            end = items.end()
        return start + len(plain[start:end].rstrip(" .,"))


def _bracket_end(plain: str, start: int) -> int | None:
    depth = 0
    for match in _BRACKET.finditer(plain, start):
        depth += 1 if match[0] in _BRACKETS else -1
        if depth < 0:
            return match.start()
    return None


def _closed(plain: str, mark: str, last: int) -> int:
    """Return the end of an exclusion with its bracket or its full stop."""
    closing = _CLOSINGS[mark in _BRACKETS].match(plain, last) if mark in _BRACKETS + ".!。" else None
    return closing.end() if closing else last


def _parts(plain: str, text: str, start: int, end: int) -> Iterator[Excluded]:
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
        word = _WORD.match(plain, at)
        topic = has_content(phrase) and not (word and word[0].casefold() in _FUNCTION)
        if topic and len(phrase.split()) <= _PHRASE_WORDS and not phrase[:1].isdigit():
            yield Excluded(phrase, at, last)
        elif not place:
            return
