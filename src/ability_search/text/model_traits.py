"""Embedding models: the text that they read, and their traits by name, as in their model cards."""

from __future__ import annotations

import re
from typing import NamedTuple

from ability_search.text.languages import ENGLISH, language_name, stemmer_of


class ModelTraits(NamedTuple):
    """Traits of an embedding model."""

    query_prefix: str = ""
    passage_prefix: str = ""
    language: str = ""
    """The only language of its training, as ISO 639; empty for several, or if unknown."""


_TASK = "Given a web search query, retrieve relevant passages that answer the query"
_SEARCHING = "Represent this sentence for searching relevant passages: "
_TRAITS = (
    (re.compile(r"nomic-embed-text-?v2"), ModelTraits("search_query: ", "search_document: ")),
    (re.compile(r"nomic-embed-text"), ModelTraits("search_query: ", "search_document: ", ENGLISH)),
    (
        re.compile(r"(multilingual-)?e5-(small|base|large)-instruct|e5-mistral"),
        ModelTraits(f"Instruct: {_TASK}\nQuery: "),
    ),
    (re.compile(r"multilingual-e5-(small|base|large)"), ModelTraits("query: ", "passage: ")),
    (re.compile(r"e5-(small|base|large)"), ModelTraits("query: ", "passage: ", ENGLISH)),
    (
        re.compile(r"bge-(small|base|large)-zh"),
        ModelTraits("为这个句子生成表示以用于检索相关文章：", "", "zh"),
    ),
    (re.compile(r"bge-(small|base|large)|mxbai-embed"), ModelTraits(_SEARCHING, "", ENGLISH)),
    (re.compile(r"snowflake-arctic-embed(2|-[ml]-v2)"), ModelTraits("query: ")),
    (re.compile(r"snowflake-arctic-embed"), ModelTraits(_SEARCHING, "", ENGLISH)),
    (
        re.compile(r"embeddinggemma"),
        ModelTraits("task: search result | query: ", "title: none | text: "),
    ),
    (re.compile(r"qwen3-embedding"), ModelTraits(f"Instruct: {_TASK}\nQuery:")),
    (
        re.compile(r"all-(minilm|mpnet|roberta)|multi-qa-|paraphrase-(minilm|mpnet)"),
        ModelTraits("", "", ENGLISH),
    ),
    (re.compile(r"gte-(small|base|large)(-en|$)"), ModelTraits("", "", ENGLISH)),
)
"""Traits by the beginning of the name, without the organization; the first row that fits counts."""


def model_traits(model: str) -> ModelTraits:
    """Return the traits of a model by its name; empty ones if it is not known."""
    name = model.lower().rpartition("/")[2]
    return next((traits for start, traits in _TRAITS if start.match(name)), ModelTraits())


def embedded_text(title: str, content: str, *, breadcrumb: str = "", context: str = "") -> str:
    """Return the text that models read for a passage: title, headings, introduction and content.

    The title is omitted if the headings or the content begin with it.
    """
    above = [breadcrumb, context]
    if not (breadcrumb.startswith(title) or content.startswith(title)):
        above.insert(0, title)
    return "\n".join([*filter(None, above), content])


def language_warnings(model: str, language: str, *, analyzer: str = "") -> list[str]:
    """Return warnings if a model or an analyzer does not fit the language of texts.

    Args:
        model: Name of the model.
        language: ISO 639 code; empty if it is unknown.
        analyzer: Language of the keyword search; that of English is also the default.
    """
    own = model_traits(model).language
    if not language:
        return []
    texts = f"the texts are in {language_name(language)}"
    warnings = []
    if own and own != language:
        warnings.append(
            f"{model} is a model for {language_name(own)}, and {texts}: semantic search will find"
            " little. Use a multilingual model, such as multilingual-e5-small, with search-reindex."
        )
    if analyzer == stemmer_of(ENGLISH) and language != ENGLISH:
        warnings.append(
            f"keyword search is for English, and {texts}: change it with search-reindex,"
            f" language {stemmer_of(language)}."
        )
    return warnings
