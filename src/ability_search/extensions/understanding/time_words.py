"""Words of times in English, German, French, Spanish and Chinese, and texts as strings of kinds.

Every word, number or mark of a text is a token, and every token has a kind, one character: the
forms of :mod:`.time_forms` are patterns of kinds, and so hold in all languages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Final

WORDS: Final[Mapping[str, Mapping[int | str, str]]] = {
    # Months; "b" are abbreviations, and "m" names that are other words or first names, too.
    "M": {
        1: "january januar jänner janvier enero", 2: "february februar février febrero",
        7: "july juillet", 9: "september septembre septiembre",
        10: "october oktober octobre octubre", 11: "november novembre noviembre",
        12: "december dezember décembre diciembre",
    },
    "m": {
        3: "march märz mars marzo", 4: "april avril abril", 5: "May MAY mai mayo",
        6: "june juni juin junio", 7: "juli julio", 8: "august août agosto",
    },
    "b": {
        1: "jan", 2: "feb fév fev", 3: "mar", 4: "apr", 5: "may", 6: "jun", 7: "jul juil", 8: "aug",
        9: "sep sept", 10: "oct okt", 11: "nov", 12: "dec dez déc",
    },
    "S": {
        3: "spring frühling frühjahr printemps primavera", 6: "summer sommer été verano",
        9: "autumn fall herbst automne otoño", 12: "winter hiver invierno",
    },
    "w": {
        0: "monday montag lundi lunes 星期一 周一", 1: "tuesday dienstag mardi martes 星期二 周二",
        2: "wednesday mittwoch mercredi miércoles 星期三 周三",
        3: "thursday donnerstag jeudi jueves 星期四 周四",
        4: "friday freitag vendredi viernes 星期五 周五",
        5: "saturday samstag samedi sábado 星期六 周六",
        6: "sunday sonntag dimanche domingo 星期日 周日",
    },
    "U": {
        "hour": "hour hours stunde stunden heure heures hora horas 小时",
        "day": "day days tag tage tagen jour jours día días 天",
        "week": "week weeks woche wochen semaine semaines semana semanas 周 週 星期 个星期 個星期",
        "weekend": "weekend wochenende week-end fin_de_semana 周末 週末",
        "month": "month months monat monate monaten monats mois mois-ci mes meses 个月 個月",
        "quarter": "quarter quarters quartal quartals quartale trimestre trimestres 季度",
        "half": "half hälfte",
        "year": "year years jahr jahre jahren jahres an ans année années año años",
    },
    "年": {"year": "年"}, "月": {"month": "月"}, "日": {"day": "日 号 號"},
    "L": {  # Steps from this one.
        -1: "last previous letzte letzten letzter letztes letztem vergangene vergangenen dernier"
        " dernière derniers dernières passé passée pasado pasada pasados pasadas última último"
        " últimos últimas 上 上个 上個 去",
        0: "this current diese diesen dieser dieses diesem ce cet cette este esta 这 这个 這 這個"
        " 今 本",
        1: "next coming nächste nächsten nächster nächstes nächstem kommende kommenden prochain"
        " prochaine prochains próximo próxima próximos proximo proxima proximos que_viene 下 下个"
        " 下個 明",
    },
    "p": {-1: "past 过去 最近"},
    "T": {  # Days from today.
        -2: "day_before_yesterday vorgestern avant-hier anteayer 前天",
        -1: "yesterday gestern hier ayer 昨天 昨日", 1: "tomorrow morgen demain mañana 明天 明日",
        2: "day_after_tomorrow übermorgen après-demain pasado_mañana 后天",
        0: "today tonight heute aujourd'hui hoy 今天 今日",
    },
    "E": {0: "morning afternoon evening night matin soir nuit tarde noche"},
    "C": {
        2: "two zwei deux dos couple 二 两 兩", 3: "three drei trois tres few paar quelques 三 几",
        4: "four vier quatre cuatro 四", 5: "five fünf cinq cinco several mehrere 五",
        6: "six sechs seis 六", 7: "seven sieben siete 七", 8: "eight acht huit ocho 八",
        9: "nine neun neuf nueve 九", 10: "ten zehn dix diez 十", 12: "twelve zwölf douze doce",
    },
    "e": {1: "a one ein eine einem einer einen un une uno una 一"},
    "O": {
        1: "first erste ersten premier première primer primera",
        2: "second zweite zweiten deuxième segundo segunda",
        3: "third dritte dritten troisième tercer", 4: "fourth vierte vierten quatrième cuarto",
    },
    "Q": {"quarter": "Q", "half": "H"}, "q": {"quarter": "q", "half": "h"},
    # Relations before a period, and "z" behind it. "v" is German: "vor 1990", "vor drei Tagen".
    "r": {
        "since": "since starting beginning_in starting_in starting_from no_earlier_than seit ab"
        " depuis desde à_partir_de a_partir_de 自",
        "after": "after later_than newer_than nach après después_de",
        "before": "before prior_to earlier_than older_than avant antes_de",
    },
    "u": {"until": "until till up_until no_later_than by through bis jusqu'à jusqu'en hasta"},
    "g": {"before": "more_than", "since": "less_than", "until": "up_to"},  # Not before a bare year.
    "v": {"before": "vor"}, "N": {0: "il_y_a hace"}, "a": {0: "ago 前"},
    "z": {"since": "以来", "after": "之后 以后", "before": "以前 之前"},
    "f": {"since": "onwards onward"},
    # Words before a period that say nothing more: "i" also before a bare year.
    "i": {0: "in during within throughout from early mid late im anfang mitte ende en dans début"
          " fin durante pendant"},
    "h": {0: "on for over around about at dated beginning start middle end am vom zum au"
          " aux du del principios mediados finales"},
    "<": {0: "between zwischen entre"},
    "d": {0: "of de d"}, "t": {0: "the le la les el los las l der die das dem den des"},
    "j": {0: "to à al 至 到"}, "&": {0: "and or und oder et ou y 和"},
    "o": {0: "st nd rd th er te tes ème eme"}, "s": {0: "s"}, "*": {0: "的"},
    "B": {0: "ms px kb mb gb tb hz bytes tokens words users people requests rows items times boot"},
    "V": {0: "version patch release"},
    # Not what parts of them say. Capitalised, they are the planet and the morning.
    "x": {0: "la_mañana Mars MARS Morgen"},
}  # fmt: skip
"""Kind -> value -> words, in lower case unless the case matters."""
_FRENCH = frozenset(
    {"le", "la", "les", "l", "une", "est", "été", "qui", "que", "qu", "au", "et", "d"}
)
"""Words without which ``hier`` is German: here."""

_KINDS = {
    word.replace("_", " "): (kind, value)
    for kind, values in WORDS.items()
    for value, words in values.items()
    for word in words.split()
}
_HAN = "\u3400-\u9fff"
_LATIN = "A-Za-zÀ-ÖØ-öø-ÿŒœ"


def _any_of(words: Iterable[str]) -> str:
    """Return a pattern of words of several tokens, the longest first."""
    found = sorted(words, key=len, reverse=True)
    first = "".join({word[0] for word in found})
    pattern = f"(?=[{first}])(?:{'|'.join(map(re.escape, found))})"
    return pattern.replace(r"\ ", r"\s+").replace("'", "['’]")


_LONG = _any_of(word for word in _KINDS if not word.isalpha())
_LONG_HAN = _any_of(word for word in _KINDS if word[0] >= "\u3400" and len(word) > 1)
_NO_TIME = f"(?:(?![{''.join(word[0] for word in _KINDS)}])[{_HAN}])+"
_TOKEN = re.compile(
    rf"\s+|[0-9]+|(?<![{_LATIN}]){_LONG}(?![{_LATIN}])|[{_LATIN}]+|{_LONG_HAN}|{_NO_TIME}|.",
    re.IGNORECASE | re.DOTALL,
)

Value = int | str


@dataclass(frozen=True, slots=True)
class Tokens:
    """A text as tokens.

    Attributes:
        kinds: One character per token: those of :data:`WORDS`; ``1`` and ``2`` for numbers of so
            many digits, ``Y`` for 1900 to 2099, ``y`` for the other years from 1000 to 2999, ``9``
            for other numbers; a blank for any white space, ``x`` for other words, a mark for
            itself, ``~`` for a letter or mark of another script.
        texts: The tokens.
        ends: The offset after each token.
    """

    kinds: str
    texts: list[str]
    ends: list[int]

    def span(self, first: int, last: int) -> tuple[int, int]:
        """Return the offsets of the tokens from ``first`` to before ``last``."""
        return self.ends[first - 1] if first else 0, self.ends[last - 1] if last else 0

    def values(self, first: int, last: int) -> list[tuple[str, Value]]:
        """Return kind and value of each number and word of these tokens."""
        found: list[tuple[str, Value]] = []
        for at in range(first, last):
            kind, text = self.kinds[at], self.texts[at]
            if kind in "129Yy":
                found.append((kind, int(text)))
            elif (known := _known(text)) is not None:
                found.append(known)
        return found


def tokens_of(text: str) -> Tokens:
    """Return the tokens of a text, in time linear in its length."""
    texts = _TOKEN.findall(text)
    kinds = "".join(map(_kind, texts))
    if "T" in kinds and not _FRENCH & {each.lower() for each in texts}:
        kinds = "".join(
            "x" if text.lower() == "hier" else kind for kind, text in zip(kinds, texts, strict=True)
        )
    return Tokens(kinds, texts, list(accumulate(map(len, texts))))


def _known(text: str) -> tuple[str, Value] | None:
    if text in _KINDS:
        return _KINDS[text]
    return _KINDS.get(" ".join(text.lower().replace("’", "'").split()))


@lru_cache(maxsize=1 << 14)
def _kind(text: str) -> str:
    first = text[0]
    if first.isspace():
        return " "
    if first in "0123456789":
        if len(text) != 4 or first not in "12":
            return str(len(text)) if len(text) < 3 else "9"
        return "Y" if text[:2] in {"19", "20"} else "y"
    if (known := _known(text)) is not None:
        return known[0]
    if len(text) > 1 or first.isalpha():
        return "~" if "\u3400" <= first <= "\u9fff" else "x"
    return first if first in "-–—/.,:()+%'’_" else "~"
