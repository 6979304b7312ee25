"""The option ``fullText``: full-text search over chosen fields, blended into the score.

It is a separate retriever, so that it finds what the others do not. Every candidate gets its exact
full-text score, whichever retriever found it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ability_search.errors import InvalidInput
from ability_search.extensions.reranking import RerankingOptions
from ability_search.search.candidates import Candidate, Candidates, blend
from ability_search.search.query import Query, chunk_field
from ability_search.search.stage import scorer
from ability_search.search.wants import Product, Wants
from ability_search.text.term_ids import CONTENT, TITLE, metadata_field

FULL_TEXT: Final = "fullText"


class FullTextSearch(NamedTuple):
    """The option with the names of its fields."""

    weight: float
    fields: tuple[str, ...]
    """As their terms are indexed."""
    language: str | None


def full_text(asked: RerankingOptions) -> FullTextSearch | None:
    """Return the option of a request.

    Raises:
        InvalidInput: if one of its fields is no text.
    """
    option = asked.full_text
    if option is None or not option.enabled:
        return None
    names = (_text_field(f"fullText.fields.{n}", name) for n, name in enumerate(option.fields))
    fields = tuple(dict.fromkeys(names))
    return FullTextSearch(option.weight, fields, option.language) if option.weight > 0 else None


def _text_field(path: str, name: str) -> str:
    """Return the name of a field under which its terms are indexed."""
    field = chunk_field(path, name)
    if field.path:
        return metadata_field(field.path)
    if name not in (TITLE, CONTENT):
        raise InvalidInput(
            path, "is not a text field", hint="Use title, content or metadata.<key>."
        )
    return name


def _wants(option: FullTextSearch, query: Query) -> Wants:
    words = Product(query.topic, option.fields, option.language, retrieves=True)
    return Wants(products={FULL_TEXT: words})


def score_full_text(
    option: FullTextSearch, items: Sequence[Candidate], candidates: Candidates
) -> None:
    """Make the normalized full-text score a share of the score."""
    terms = candidates.request.products[FULL_TEXT]
    raw = [item.values.get(FULL_TEXT) or item.columns.get(FULL_TEXT) or 0.0 for item in items]
    for item, score, value in zip(items, raw, terms.normalized(raw).tolist(), strict=True):
        if score > 0:
            item.values[FULL_TEXT] = score
        blend(item, FULL_TEXT, value, option.weight, bm25=score, normalized=value)


FULL_TEXT_SCORES = scorer(FULL_TEXT, 20, score_full_text, option=full_text, wants=_wants)
