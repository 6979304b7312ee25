"""Ids of terms as arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ability_search.text.term_ids import TermIds, term_id


def term_ids(field: str, terms: Sequence[str]) -> TermIds:
    """The ids of terms in a field, in their order."""
    return np.fromiter((term_id(field, term) for term in terms), np.int32, len(terms))
