"""Forms of exclusions: the ways to exclude ``X``, in five languages.

Each line of :data:`FORMS` is a regular expression with ``X`` for the phrase. Words in capitals
stand for those of :data:`WORDS`, in all languages: those of one do not occur in another. ``^`` is
the beginning of a clause, ``,`` at the beginning any mark that sets the phrase off, ``$`` the end
of a clause. Where words follow ``X``, the phrase reaches up to them. An open phrase ends with its
bracket, else with its clause or list.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from ability_search.extensions.understanding.sentence_types import ASKED

Kind = Literal["direct", "besides", "except", "without"]

FORMS: Final[dict[Kind, str]] = {
    # Said to who answers: in any text; in a question for a way only behind a mark.
    "direct": r"""
        REMOVING X
        WITHOUT (?:any )?(?:MENTIONING|INFINITIVE|REFERENCE) X
        ^DO_NOT_MENTION X
        ^DO_NOT_MENTION X (?:in|dans|en)
        ^(?:NOTHING|REMOVE|DISLIKE) X
        ^PUT X (?:out|aside|apart|weg|aus|außen vor|beiseite|(?:he)?raus|de côté)
        with X ASIDE
        ,(?!\s*除) X ASIDE$
        (?:where|in which) X (?:is|are|was|were)(?:n't| not) MENTION
        ohne X (?:zu VERB|einzugehen)
        ^VERB X nicht
        (?:qui (?:ne |n')MENTIONNE pas|que no MENCIONA) X
        """,
    # In any text but statements.
    "besides": r"""
        BESIDES(?: (?:by|for|from|on|with))? X
        ^(?:outside(?: of)?|beyond|in addition to|neben|jenseits|outre|fuera) X (?=[,，] ¿?ASKED\b)
        THAT_IS_NOT (?:about(?! to\b)|relat(?:ed|ing) to|from|at|on|by|of)(?! the same\b) X
        , (?:in )?d(?:ie|er|as|enen) (?:nichts? (?:von|über|mit|am|in)|kein\w*) X (?:zu tun )?VERB
        , (?:in )?d(?:ie|er|as|enen) X nicht VERB
        (?<![排删剔去清])除[了去开]? X (?:[以之]?外(?![国部交面币汇])|[，,])(?!.{0,12}[还也])的?
        ^除了? X
        ^(?:介绍|推荐|列出|描述)? X [之以]外(?=的?\w)
        [与和跟同] X (?:无关|没有?关系)的?
        """,
    # In neither statements nor questions how, why or whether, except in brackets.
    "except": r"""
        EXCEPT X
        (?<!is\s)(?<!are\s)(?<!was\s)not (?:about(?! to\b)|related to|MENTIONING|from|by) X
        ^(?:rather |preferably )?(?:not|neither|nicht|pas|不是)(?: (?:by|for|with|von))? STATE X
        ^none (?:about|by|from|in|of|on) X
        (?P<kept>(?:any|every)(?:thing|where|one|body|\s\w+)|all) but(?! (?:not|certain)\b) X
        (?P<kept>(?:all|every\w*(?:'s)?)(?: \w+){1,5}) (?:(?:save|bar|but) (?:the|for)|barring) X
        (?P<kept>alle[sn]?(?: \w+)?) bis auf X
        (?P<kept>(?:which|what)(?: \w+){1,4}) (?:do|does|did)(?:n't| not) MENTION X
        (?:(?:that|which|who|where|but) (?:d(?:o|oes|id)(?:n't| not)|never)|nobody|no one) MENTION X
        (?:that|which|who) (?:(?:avoid|omit|skip)s?|leaves? out) X
        THAT_IS_NOT(?! an? ) STATE X
        (?-i:(?<=[a-z]\s)(?<!with\s)(?<!using\s)(?<!is\s)(?<!or\s)(?<!out\s)N[O]T(?= \w*[a-z])) X
        ,(?<!ed.) (?:but |and |please |just )?no IDIOM X
        ^(?:WITHOUT|kein(?:e[nmrs]?)?|pas(?= d[e'u])|无|無) IDIOM X
        """,
    # Describe what is sought (`mice without p53`): in requests, and with words for texts.
    "without": r"""
        WITHOUT(?: any)? IDIOM X
        (?:instead of|rather than|anstelle|(?:an)?statt|au lieu|plutôt que|en lugar|en vez) X
        THAT_IS_NOT an? X
        ^no IDIOM X
        (?:没有|(?<!毫)[无無](?![疑论法关线人需所国])) X
        """,
}
WORDS: Final = {
    "REMOVING": r"""excluding|omitting|avoiding|disregarding|discounting|ignoring|skipping|removing
        |dropping|exclusive of|(?:leaving|setting|putting|ruling|filtering) (?:out|aside)
        |not (?:counting|including)|(?:staying|steering) (?:clear of|away from)
        |as opposed to|(?:if we|si on|si) (?:ignor|exclu)\w+
        |(?<!\d\s)(?<!^)(?<!plus\s)minus(?! (?:signs?|symbols?|one|two|three|ten)\b)
        |ausgenommen|ausgeschlossen|exklusive|abzüglich|unter Aus(?:schluss|klammerung|lassung)
        |nicht (?:eingeschlossen|einschließlich|mitgezählt|mitgerechnet|eingerechnet)
        |(?:en|ne) (?:excluant|omettant|ignorant|évitant|laissant de côté|(?:parl|trait)ant pas)
        |excluyendo|exceptuando|omitiendo|ignorando|evitando|descontando|no incluyendo
        |sin contar|quitando|dej(?:ando|a|e) (?:fuera|aparte|de lado)|没有?(?:提[到及]|涉及)
        |(?:不要?|别|勿|无需|不必|避免)(?:再|要|想)?(?:包括|包含|含有?|涉及|提[到及]?|讨论|考虑
        |谈论?到?|算上?|介绍|出现|说|加|放|透露|显示|列出|使用)|不要(?![在止相])|不计""",
    "REMOVE": r"""exclude|skip|ignore|omit|avoid|disregard|hide|drop|forget(?: about)?|never mind
        |(?:leave|set|put|filter|take|rule) (?:out|aside)|(?:steer|stay) (?:clear of|away from)
        |(?:ignorier|vermeid|überspring|vergiss|meid|streich|verzicht)(?:en?)?(?: sie)?(?: auf)?
        |(?:exclu[st]|exclue|omet|omette|évite|ignore|saute|oublie|écarte)[szr]?|laisse[zr]? de côté
        |excluye|omite|evita|ignora|salta|olvida|descarta|quita|nada de
        |排除|剔除|撇开|抛开|避开|避免|忽略|跳过|去掉|过滤掉?|屏蔽""",
    "DISLIKE": r"""(?:i'm|i am) (?:not (?:interested in|looking for)|allergic to|tired of|sick of)
        |(?:i|we|we've|i've) (?:already (?:know|have|read|covered)(?: about)?|had enough of
        |can(?:'t|not) (?:use|stand|eat)|hate|dislike
        |(?:do not|don't) (?:eat|like|want|need|use|drink|care about))(?! to\b)
        |ich (?:hasse|(?:will|möchte|mag|brauche|esse) keine?[nrms]?)
        |je (?:déteste|ne (?:veux|mange) pas|n'aime pas)(?! \w+(?:er|ir|re)\b)
        |(?:odio|no (?:quiero|necesito|como|me gustan?))(?! \w+[aei]r\b)
        |我不(?:想[要看吃]?|吃|喜欢|看)""",
    "NOTHING": r"""(?:nothing|not a word) (?:that \w+ )?(?:about|on|with|from)
        |no (?:need for|REFERENCE)|nichts (?:über|zu|von)|rien (?:sur|de|avec)|nada (?:de|sobre)""",
    "DO_NOT_MENTION": r"""(?:do not|don't|never|no need to) MENTION|(?:sprich|rede) nicht
        |VERB(?: sie| mir| dabei)? (?:nicht|keine?[nr]?)|ne pas INFINITIVE
        |(?:ne |n')MENTIONNE (?:pas|rien)|no MENCIONA""",
    "VERB": r"""(?:erwähn|nenn|zeig|berücksichtig|behandel|enthalt|enthält|betreff|handel|sprech|red
        |verrat|besprech|diskutier|brauch|benötig|verwend|nutz|lieg|komm|stamm|vorkomm)(?:en?|n|t)?
        |sind|ist|haben|hat""",
    "MENTIONNE": r"(?:mentionn|parl|inclu|cit|évoqu|montr|abord|concern|trait|contien)\w*|ont",
    "MENCIONA": r"""(?:mencion|habl|incluy|trat|conten|conteng|contien|muestr|cit|consider|toc|us
        |necesit|requier)[ae][sn]?""",
    "INFINITIVE": r"""mentionner|parler|évoquer|inclure|aborder|citer|compter|révéler|traiter
        |tenir compte|prendre en compte|faire (?:référence|mention)|mencionar|hablar|incluir|tratar
        |citar|considerar|tener en cuenta|referir(?:te|se)?|hacer (?:mención|referencia)|revelar
        |tocar|abordar|nombrar""",
    "REFERENCE": r"""(?:mention|reference|discussion|regard)s? (?:of|to|for)|mention|mención
        |Erwähnung|Nennung|Berücksichtigung|Bezug|Rücksicht""",
    "PUT": "(?:leav|set|put|tak|keep)(?:e|t?ing)?|laisse[zr]?|(?:lass|klammer|schließ)(?:en?)?",
    "BESIDES": r"""besides|(?:apart|aside) from|with the exception of|unrelated to
        |(?<!none\s)(?<!each\s)other than|(?:(?:that|which) )?(?:(?:ha(?:s|ve)|with) nothing
        |(?:do|does)(?:n't| not) have anything) to do with|au(?:ß|ss)er(?!halb|dem| acht\b)
        |abgesehen von|mit Ausnahme(?: von)?|à l'ex(?:ception|clusion)|exception faite|en dehors
        |autres? que|hormis|hors(?!\W?(?:ligne|service|piste|sujet)\b)|excepté|mise?s? à part
        |abstraction faite|si ce n'est|(?:qui n'(?:a|ont) )?rien à voir avec|sans rapport avec
        |excepto|(?:a|con(?: la)?) excepción|(?<!y\s)aparte del?|además del?
        |distint[oa]s? (?:del?|al?)|(?:que no tienen? )?nada que ver con|no relacionad[oa]s? con""",
    "EXCEPT": r"""(?<!try\s)(?<!bare\s)(?!(?-i:EX[C]EP[T]))except(?: (?:for|in|by|from|on))?
        |save for|sauf(?! erreur)|et non|à part(?! entière)|salvo|(?<!\so\s)(?<!lo\s)(?<!al\s)menos
        |pero (?:no|sin)|y no|而不是|而非|但不是|非关于""",
    "THAT_IS_NOT": r"""(?:that|which|who|but)(?:'s not| (?:is|are|was|were)(?:n't| not))
        |qui ne (?:sont|est) pas|que no (?:sean?|estén?|son|están?)""",
    "WITHOUT": r"(?<!with\sand\s)(?<!with\sor\s)without|with no|free (?:of|from)|ohne|sans|sin",
    "ASIDE": r"""apart|exclu(?:ded|s?es?|s)?|excepted|left out|omitted|removed|(?:set )?aside
        |not (?:included|needed|wanted)|(?:do|does)(?:n't| not) count|(?:mal )?beiseite
        |ausgenommen|ausgeschlossen|außen vor(?: gelassen)?|exceptée?s?|mise?s? à part
        |(?:nicht|bitte) (?:eingerechnet|inbegriffen|mitgezählt|(?:aus|weg)lassen)
        |non comprise?s?|excluid[oa]s?|aparte|no incluid[oa]s?|除外|不算|[之以]外""",
    # What describes: `that aren't responding`.
    "STATE": r"""(?!(?-i:[a-z])\w*(?:ing|ed|able|ible|ive|ous|ful|ly|al|iert|és?|ées?|ad[oa]s?)\b
        |(?:about|able|born|given|known|made|seen|set|taken|ready|empty|null|true|false|valid|public|closed|open
        |here|there|done|broken|found|allowed|never|only|just|nur|so|sure|mal|encore)\b)""",
    # Words that `without` and `no` make a description with: `without doubt`, `no such file`.
    "IDIOM": r"""(?!(?:matter|doubts?|question|exception|fail|reason|problems?|idea|longer
        |more|one|such|access|signal|errors?|luck|need|way|limits?|further|delay|warning|success
        |effect|risk|loss|downtime|interruptions?|restarts?|zweifel|ende|grund|probleme?|erfolg
        |weiteres|ahnung|doute|cesse|fin|problèmes?|raison|duda|embargo|problemas?|éxito)\b)""",
    "ASKED": ASKED,
}
"""Words for what a form is made of. Those that begin ``(?!`` are what may not follow."""

_VERBS = (
    "mention refer discuss consider include cover reference describe address involve concern list"
    " name explain deal talk go get focus touch speak bring"
)
_OBJECT = r"(?: (?:to|about|into|on|upon|in|up|with|for|me|us|anything|any)\b)*"
GERUNDS: Final = "|".join(f"{verb.rstrip('e')}(?:{verb[-1]})?ing" for verb in _VERBS.split())
WORDS["MENTIONING"] = f"(?:{GERUNDS}){_OBJECT}"
WORDS["MENTION"] = (
    rf"(?:(?:{_VERBS.replace(' ', '|')}|say|show|give|tell|want|use|contain|need|require|have"
    rf"|depend|rely|play|live)(?:s|e?d)?|(?:work|call)(?:s|ed)? (?:on|for)){_OBJECT}"
)
_NAME = re.compile(r"\b[A-Z][A-Z_]{2,}\b")
_LINE = re.compile(r"\n *")
_CJK = "(?-i:[一-鿿])"
"""Without regard to case, compiling it would look up that of each of the 20,992 characters."""
_START = rf"(?:(?<!\w)|(?={_CJK}))"
_GAP = rf"(?:(?<={_CJK})\s*+|(?!\w)(?:\s++|(?=[“„«])))"
_INSIDE = r"[^.;:?!()（）。；：？！\n]"
_CLAUSE_END = r"(?=\s*+(?:[,;:.!?)\]）。，；？！–—]|$|(?:and|und|et|y)\b))"


class Form(NamedTuple):
    """A way to exclude a phrase: ``begins`` says whether a clause must begin with it.

    The pattern matches the cue, and with it the group ``phrase`` if words follow.
    """

    kind: Kind
    pattern: re.Pattern[str]
    begins: bool


def _spelled(form: str) -> str:
    """Return a form with the words that its names stand for."""
    while _NAME.search(form):
        form = _NAME.sub(lambda name: f"(?:{_LINE.sub('', WORDS[name[0]])})", form)
    return form


def _form(kind: Kind, line: str) -> Form:
    cue, behind = (part.strip() for part in re.split(r"\bX\b", line, maxsplit=1))
    begins, cue, guard = cue.startswith("^"), cue.removeprefix("^"), ""
    if (last := cue.rpartition(" ")[2]) in {"STATE", "IDIOM"}:
        cue, guard = cue.removesuffix(f" {last}"), last
    start, gap, inside = _START, _GAP, _INSIDE
    if cue.startswith(","):
        cue, start = rf"(?:[,，.:;(（\[–—]|\A){cue.removeprefix(',')}", ""
        gap = r"\s*+" if cue.endswith(")") else gap
    if begins or not start:
        inside = _INSIDE.replace("^", "^,，")
    phrase = ""
    if behind:
        edge = _CLAUSE_END if behind.endswith("$") else rf"(?:(?!\w)|(?<={_CJK}))"
        space = "" if behind.startswith("(?=") else rf"(?:\s++|(?=\[|除|{_CJK}))"
        phrase = rf"(?P<phrase>{inside}{{1,60}}?){space}(?:{behind.removesuffix('$')}){edge}"
    pattern = _spelled(f"{start}(?:{cue}){gap}{guard}{phrase}").replace(" ", r"\s++")
    return Form(kind, re.compile(pattern, re.IGNORECASE), begins)


ALL_FORMS: Final = [
    _form(kind, line.strip())
    for kind, lines in FORMS.items()
    for line in lines.strip().splitlines()
]
_UNNAMED = [re.sub(r"\(\?P<\w+>", "(?:", form.pattern.pattern) for form in ALL_FORMS]
_STARTED = "|".join(each.removeprefix(_START) for each in _UNNAMED if each.startswith(_START))
_OTHERS = "|".join(each for each in _UNNAMED if not each.startswith(_START))
_ANY = re.compile(f"{_START}(?:{_STARTED})|{_OTHERS}", re.IGNORECASE)


def forms_for(text: str) -> list[Form]:
    """Return the forms to look for in a text: none if it has none of them, as most queries."""
    return ALL_FORMS if _ANY.search(text) else []
