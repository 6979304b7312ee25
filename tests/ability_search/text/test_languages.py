from __future__ import annotations

import pytest
import snowballstemmer

from ability_search.text import languages
from ability_search.text.analyzer import UNSTEMMED
from ability_search.text.languages import (
    detect_language,
    language_name,
    language_of,
    stemmer_of,
)
from ability_search.text.model_traits import language_warnings

TEXTS = {
    "de": "Die Sicherungen laufen jede Nacht um drei Uhr. Am Morgen prüft jemand das Protokoll.",
    "fr": "Les sauvegardes sont faites chaque nuit à trois heures, et leur journal est relu.",
    "ru": "Резервные копии создаются каждую ночь в три часа, утром кто-то проверяет журнал.",
    "zh": "备份任务每天凌晨三点运行。早上有人检查日志，如果发现错误，就重新开始备份。",
    "ja": "バックアップは毎晩三時に実行されます。朝、誰かがログを確認します。",
}


@pytest.mark.parametrize("language", TEXTS)
def test_languages_are_detected(language: str) -> None:
    assert detect_language([TEXTS[language]] * 2) == language


def test_english_needs_no_detector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(languages, "_detector", lambda: None)
    text = "The backup of the database runs at night, and it is checked by the one who is on call. "
    assert detect_language([text, text]) == "en"
    assert detect_language([TEXTS["de"]] * 2) == ""


@pytest.mark.parametrize(
    "texts", [[], [""], ["backup"], ["1234 5678 " * 50], ['{"a": [true, 1]}' * 20], ["a1b2 " * 99]]
)
def test_what_has_no_clear_language_is_unknown(texts: list[str]) -> None:
    assert detect_language(texts) == ""


def test_texts_in_two_languages_have_no_clear_one() -> None:
    assert detect_language([TEXTS["de"], TEXTS["fr"], TEXTS["ru"]] * 3) in ("", "ru")


def test_stemmers_exist_and_have_a_language() -> None:
    for name in set(languages._STEMMERS.values()):
        assert name in snowballstemmer.algorithms()
        assert stemmer_of(language_of(name)) == name
    assert stemmer_of("zh") == UNSTEMMED
    assert language_of(UNSTEMMED) == ""


def test_a_keyword_search_for_english_is_warned_about() -> None:
    (warning,) = language_warnings("e", "tr", analyzer="english")
    assert warning.startswith("keyword search is for English, and the texts are in Turkish")
    assert warning.endswith("language turkish.")
    for language, analyzer in (("en", "english"), ("", "english"), ("tr", "none")):
        assert language_warnings("e", language, analyzer=analyzer) == []


def test_languages_have_names() -> None:
    assert [language_name(code) for code in ("de", "zh", "sw")] == [
        "German",
        "Chinese",
        "the language 'sw'",
    ]


def test_a_model_of_one_language_is_warned_about() -> None:
    (warning,) = language_warnings("sentence-transformers/all-MiniLM-L6-v2", "de")
    assert "a model for English" in warning
    assert "German" in warning
    assert "search-reindex" in warning


@pytest.mark.parametrize(
    ("model", "language"),
    [("all-MiniLM-L6-v2", "en"), ("all-MiniLM-L6-v2", ""), ("multilingual-e5-small", "zh")],
)
def test_a_model_that_fits_or_is_not_known_is_not(model: str, language: str) -> None:
    assert language_warnings(model, language) == []
