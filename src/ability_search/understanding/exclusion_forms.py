"""Forms of exclusions: the ways to exclude ``X``, in five languages.

Each line of :data:`FORMS` is a regular expression with ``X`` for the phrase. ``^`` stands for the
beginning of a clause, ``,`` at the beginning for any mark that sets the phrase off, ``$`` for the
end of the query, and words of :data:`_NAMES` for patterns. Where words follow ``X``, the phrase
reaches up to them. An open phrase ends with its bracket, else with its clause or list.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

Kind = Literal["direct", "besides", "except", "without"]

FORMS: Final[dict[Kind, str]] = {
    # Said to who answers: in any text; in a question for a way only behind a comma or a bracket.
    "direct": r"""
        (?:excluding|omitting|avoiding|disregarding|ignoring|exclusive of) X
        (?:setting aside|never mind) X
        (?:not (?:counting|including)|leav(?:ing|e) (?:out|aside)|without MENTIONING) X
        without (?:any )?(?:mention|reference|discussion|regard)s? (?:of|to) X
        ^(?:do not|don't|never|no need to) MENTION X
        ^nothing (?:that \w+ )?(?:about|on|with|from) X
        ^(?:minus|exclude|skip|ignore|omit|avoid|disregard) X
        ^(?:i'm not interested in|i am not interested in|i don't care about) X
        ^i (?:hate|dislike|(?:do not|don't) (?:eat|like|want|need))(?! to\b) X
        leav(?:e|ing) X (?:out|aside)
        with X (?:left out|excluded|excepted|omitted)
        , X (?:aside|excluded|excepted|left out|not included)$
        , X (?:ausgenommen|exclue?s?|excluid[oa]s?|除外|不算)$
        (?:ausgenommen|ausgeschlossen|exklusive|unter Aus(?:schluss|klammerung)(?: von)?) X
        ohne (?:Erwähnung|Nennung|Berücksichtigung|Bezug|Rücksicht)(?: (?:auf|von))? X
        ohne(?: (?:auf|über))? X (?:zu (?:erwähnen|nennen|berücksichtigen|behandeln)|einzugehen)
        ohne(?: (?:auf|über|von))? X zu (?:sprechen|reden|besprechen|diskutieren)
        ^(?:erwähne?n?|nenne?n?|zeige?|berücksichtige)(?: sie| mir| dabei)? (?:nicht|keine?n?) X
        ^(?:erwähne?n?|nenne?n?|berücksichtige|behandle)(?: sie| dabei)? X nicht
        ^(?:lasse?n?)(?: sie| dabei)? X (?:weg|aus|außen vor|beiseite)
        ^(?:nichts|sprich nicht|rede nicht) (?:über|zu|von) X
        ohne dass X (?:vorkommt|vorkommen|erwähnt wird|erwähnt werden)
        en (?:excluant|omettant|ignorant|laissant de côté) X
        sans (?:mentionner|parler d[eu']|évoquer|inclure|aborder|citer|tenir compte d[eu']) X
        sans (?:prendre en compte|mention d[eu']|faire référence (?:à|aux?)) X
        qui (?:ne |n')(?:parl|mentionn|concern|trait|inclu|contien)\w* pas(?: d[eu']| sur)? X
        ^(?:ne |n')(?:mentionne|parle|inclu[st]|cite|évoque|montre)[zrs]? (?:pas|rien)(?: d[eu'])? X
        ^(?:exclu[stz]|exclue[zr]|omets?|évite[zr]?|ignore[zr]?) X
        (?:excluyendo|omitiendo|ignorando|exceptua[dn]+o|sin contar|dejando (?:fuera|de lado)) X
        sin (?:mencionar|hablar de|incluir|tratar|citar|considerar|tener en cuenta) X
        sin (?:referirse a|hacer referencia a|mención (?:de|a)) X
        que no (?:mencion[ae]n?|habl[ae]n? de|incluy[ae]n?|trat[ae]n? de|conten?g?[ae]n?) X
        ^no (?:mencion(?:es?|en|ar)|incluy?[aier][ns]?|hables? de|muestres?|cites?|consideres?) X
        ^(?:excluye|omite|evita|ignora|nada de) X
        (?:不要?|别|勿|无需|不必|避免)(?:再|要|想)?(?:包括|包含|含|涉及|提[到及]?) X
        (?:不要?|别|勿|无需|不必|避免)(?:再|要|想)?(?:讨论|考虑|谈论?|算|介绍|出现|说) X
        (?:不要|排除|剔除|撇开|抛开) X
        """,
    # In any text but statements.
    "besides": r"""
        (?:besides|(?:apart|aside) from|with the exception of)(?: (?:by|for|from|on|with))? X
        (?<!none\s)(?<!each\s)other than(?: (?:by|for|from|on|with))? X
        (?:unrelated to|(?:ha(?:s|ve|d)|having|with) nothing to do with) X
        (?:that|which|who)IS_NOT (?:about(?! to\b)|(?:related|relating) to|concerning) X
        (?:that|which|who)IS_NOT (?:from|at|on|by|of)(?! the same\b) X
        (?:that|which)IS_NOT(?! an? ) STATE X
        (?:außer(?!halb|dem)|abgesehen von|mit Ausnahme(?: von)?|alles? bis auf) X
        ^bis auf X
        (?:der|die|das) nichts mit X zu tun ha(?:t|ben)
        (?:der|die|das) (?:nicht (?:von|über)|keine?n?) X (?:hande|entha|enthä|behande)l\w+
        (?:der|die|das) X nicht (?:erwähn|enthalt|enthält|behandel|betreff)\w*
        (?:à l'ex(?:ception|clusion) d[eu']|hormis|hors(?! ligne)|excepté|mis à part) X
        (?:exception faite d[eu']|en dehors d[eu']|autres? que) X
        (?:excepto|(?:a|con(?: la)?) excepción de|aparte de|además de|fuera de|que no sean?) X
        除[了去开]? X (?:以外|之外|外(?![国部交面币汇]))(?!.{0,2}[还還也])的?
        除了? X [，,](?!.{0,12}[还還也])
        ^除了? X
        , X [之以]外$
        """,
    # In neither statements nor questions how, why or whether, except in brackets.
    "except": r"""
        (?<!is\s)(?<!are\s)(?<!was\s)not (?:related to|concerning|regarding|mentioning|involving) X
        (?<!is\s)(?<!are\s)(?<!was\s)not about(?! to\b) X
        (?<!try\s)(?<!bare\s)(?:except(?: (?:for|in|by|from|on))?|save for) X
        ^(?:rather |definitely |preferably |just ){0,2}(?:not|neither)(?: (?:by|for|with))? STATE X
        (?P<kept>(?:any|every)(?:thing|where|one|body|\s\w+)|all) but(?! (?:not|certain)\b) X
        (?P<kept>(?:any|every)thing (?:about|in|from|of|on) [^,.;:!?]{1,60}?) but(?! not\b) X
        (?:that|which|who)(?: (?:do|does|did)(?:n't| not)| never) MENTION X
        (?P<kept>(?:which|what)(?: \w+){1,4}) (?:do|does|did)(?:n't| not) MENTION X
        (?-i:(?<=[a-z]\s)(?<!with\s)(?<!using\s)(?<!is\s)(?<!or\s)(?<!out\s)NOT(?= \w*[a-z])) X
        no IDIOM X please
        ^(?:without|ohne|pas(?: d[eu'])?|sans|sin) IDIOM X
        (?<!ed)(?<!ing), (?:but |and |please |just )?no IDIOM X
        ^(?:nur )?(?:nicht|keine?[nr]?)(?: über| von| mit)? STATE X
        (?:sauf|mais pas|mais sans|et non|à part(?! entière))(?: (?:sur|pour))? X
        (?:salvo|(?<!\so\s)(?<!lo\s)(?<!al\s)menos|pero no|pero sin|y no)(?: (?:sobre|con))? X
        (?:而不是|但不是|非关于) X
        """,
    # Describe what is sought (`mice without p53`): in requests, and with words for texts.
    "without": r"""
        (?:without|with no|ohne|sans|sin)(?: any)? IDIOM X
        (?:instead of|rather than) X
        (?:that|which)IS_NOT an? X
        ^no IDIOM X
        (?:没有|無|无) X
        """,
}

_MENTION = (
    "mention refer discuss consider include cover reference describe address involve concern list"
    " name explain deal talk go focus touch speak bring"
)
_USE = "say show give tell want use contain need require have depend rely play live"


def _any(verbs: str) -> str:
    return "|".join(verbs.split())


GERUNDS: Final = "|".join(f"{verb.rstrip('e')}(?:{verb[-1]})?ing" for verb in _MENTION.split())
_OBJECT = r"(?: (?:to|about|into|on|in|up|with|me|anything|any|us)\b)*"
_NAMES = {
    "MENTIONING": f"(?:{GERUNDS}){_OBJECT}",
    "MENTION": f"(?:{_any(_MENTION)}|{_any(_USE)})(?:s|e?d)?{_OBJECT}",
    "IS_NOT": "(?:'s not| (?:is|are|was|were)(?:n't| not))",
    # What describes: `that aren't responding`.
    "STATE": r"(?!\w+(?:ing|ed|able|ible|ive|ous|ful|ly|al|iert)\b|(?:about|able|born|given|known"
    r"|made|seen|set|taken|ready|empty|null|true|false|valid|public|closed|open|here|there|done"
    r"|broken|found|allowed|only|just|nur|so|sure)\b)",
    # Words that `without` and `no` make a description with: `without doubt`, `no such file`.
    "IDIOM": r"(?!(?:\w+ing|matter|doubts?|question|exception|fail|reason|problems?|idea|longer"
    r"|more|one|such|access|signal|errors?|luck|need|way|limits?|further|delay|warning|success|effect"
    r"|risk|loss|downtime|interruptions?|restarts?|zweifel|ende|grund|probleme?|erfolg|weiteres"
    r"|doute|cesse|fin|problèmes?|raison|duda|embargo|problemas?|éxito)\b)",
}
_CJK = re.compile("[一-鿿]")
_GAP = r"(?:(?<=['’])|\s++|(?=[“„«]))"
_INSIDE = r"[^.;:?!()（）。；？！\n]"


class Form(NamedTuple):
    """A way to exclude a phrase."""

    kind: Kind
    pattern: re.Pattern[str]
    """Matches the cue, and with it the group ``phrase`` if words follow."""
    begins: bool
    """Whether a clause must begin with it."""
    closed: bool
    """Whether words behind the phrase belong to it."""


def _form(kind: Kind, line: str) -> Form:
    chinese = _CJK.search(line) is not None
    cue, _, behind = (part.strip() for part in line.partition("X"))
    begins, cue = cue.startswith("^"), cue.removeprefix("^")
    guard = ""
    for name, words in _NAMES.items():
        if cue.endswith(f" {name}") and words.startswith("(?!"):
            cue, guard = cue.removesuffix(f" {name}"), words
        cue = cue.replace(name, words)
    set_off = cue.startswith(",")
    cue = cue.replace(",", "[,，:(（–—]", set_off)
    start = "" if chinese or set_off else r"(?<!\w)"
    gap, edge = (r"\s*+", "") if chinese or cue.endswith("]") else (_GAP, r"(?!\w)")
    phrase = ""
    if behind:
        at_end = behind.endswith("$")
        edge = r"(?=\W{0,9}$)" if at_end else edge
        space = r"\s*+" if chinese else r"\s++"
        phrase = rf"(?P<phrase>{_INSIDE}{{1,60}}?){space}(?:{behind.removesuffix('$')}){edge}"
    pattern = f"{start}(?:{cue}){gap}{guard}{phrase}".replace(" ", r"\s++")
    return Form(kind, re.compile(pattern, re.IGNORECASE), begins, bool(behind))


ALL_FORMS: Final = [
    _form(kind, line.strip())
    for kind, lines in FORMS.items()
    for line in lines.strip().splitlines()
]
