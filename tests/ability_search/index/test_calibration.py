"""Calibration: what the cosines of a model mean among the texts of a collection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ability_search.search.values import DOCS
from tests.ability_search.text.term_arrays import term_ids
from tests.examples import examples

from ability_search.collection import CALIBRATION, Calibration
from ability_search.index.calibration import calibration_of
from ability_search.search.fusion import trust
from ability_search.store.records import WeightedChunk
from ability_search.text.term_ids import CONTENT, CONTEXT

TOPICS, OWN = 12, 40
COMMON = 24


def chunks(
    count: int, seed: int = 0, *, knows: float = 1.0, per_source: int = 1
) -> list[WeightedChunk]:
    """Chunks of one topic each, with terms of it; vectors tell the topic as far as asked."""
    chance = np.random.default_rng(seed)
    centres = chance.standard_normal((TOPICS, 32))
    found = []
    for n in range(count):
        topic = n % TOPICS
        of_topic = topic * OWN + chance.choice(OWN, 12, replace=False)
        common = TOPICS * OWN + chance.choice(COMMON, 12, replace=False)
        terms = np.unique(np.concatenate([of_topic, common])).tolist()
        vector = knows * centres[topic] + chance.standard_normal(32)
        found.append(
            WeightedChunk(
                f"docs:source {n // per_source}:{n % per_source}",
                terms,
                [1.0] * len(terms),
                embedding=vector.tolist(),
            )
        )
    return found


def measured(found: Sequence[WeightedChunk]) -> Calibration:
    return calibration_of(found)


def counting(found: Sequence[WeightedChunk]) -> list[WeightedChunk]:
    """The chunks with vectors that count words: the sum of a random vector for each."""
    words = np.random.default_rng(1).standard_normal((TOPICS * OWN + COMMON, 256))
    return [replace(c, embedding=words[list(c.terms)].sum(axis=0).tolist()) for c in found]


def conversation(found: Sequence[WeightedChunk]) -> list[WeightedChunk]:
    """The chunks as turns, embedded and searched with the two before them."""
    turns = []
    for n in range(2, len(found)):
        named = [[str(term) for term in found[at].terms] for at in (n - 2, n - 1, n)]
        context = np.unique(term_ids(CONTEXT, named[0] + named[1])).tolist()
        terms = [*term_ids(CONTENT, named[2]).tolist(), *context]
        vector = np.sum([np.array(each.embedding) for each in found[n - 2 : n + 1]], axis=0)
        weights = [1.0] * len(terms)
        turns.append(WeightedChunk(f"docs:chat/{n}:0", terms, weights, embedding=vector.tolist()))
    return turns


def test_cosines_are_those_of_random_and_of_nearest_documents() -> None:
    found = measured(chunks(200))
    assert abs(found.chance) < 0.1
    assert found.near > 0.5


def test_a_model_is_trusted_as_far_as_it_knows_the_texts() -> None:
    agreements = [measured(chunks(300, knows=each)).agreement for each in (0.0, 0.3, 1.0)]
    assert agreements == sorted(agreements)
    assert [trust(replace(DOCS, agreement=each)) for each in agreements[::2]] == [0.01, 1.0]


@pytest.mark.parametrize("texts", [list, conversation])
@pytest.mark.parametrize("count", [200, 300])
def test_vectors_that_count_words_tell_nothing_also_in_conversations(
    texts: Callable[[Sequence[WeightedChunk]], list[WeightedChunk]], count: int
) -> None:
    plain = chunks(count)
    counted = measured(texts(counting(plain))).agreement
    assert trust(replace(DOCS, agreement=counted)) < 0.1
    assert trust(replace(DOCS, agreement=measured(texts(plain)).agreement)) == 1.0


def test_terms_of_the_metadata_are_not_measured() -> None:
    plain = chunks(60)
    tagged = [
        replace(
            c,
            terms=[*c.terms, *term_ids("metadata.tag", [str(n % 5)]).tolist()],
            weights=[*c.weights, 1.0],
        )
        for n, c in enumerate(plain)
    ]
    assert measured(tagged) == measured(plain)


@settings(max_examples=examples(20))
@given(st.floats(0.5, 3.0), st.integers(0, 9))
def test_only_cosines_differ_under_a_model_whose_texts_are_all_alike(
    shift: float, seed: int
) -> None:
    plain = chunks(150, seed)
    alike = [replace(c, embedding=[*(c.embedding or ()), 6.0 * shift]) for c in plain]
    one, other = measured(plain), measured(alike)
    assert other.chance > one.chance
    assert other.near - other.chance >= 0.0199
    assert other.agreement == pytest.approx(one.agreement, abs=0.15)


def test_chunks_of_one_document_are_not_compared() -> None:
    found = chunks(60, per_source=30)
    assert measured(found) == CALIBRATION
    same = [replace(c, embedding=[1.0, 0.0]) for c in chunks(40, per_source=10)]
    assert measured(same) == Calibration(1.0, 1.02, CALIBRATION.agreement)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_documents_are_not_measured(count: int) -> None:
    assert measured(chunks(count)) == CALIBRATION


def test_chunks_without_terms_or_vectors_are_measured_as_far_as_they_go() -> None:
    bare = [replace(c, terms=[], weights=[]) for c in chunks(30)]
    assert measured(bare).agreement == CALIBRATION.agreement
    alike = [replace(c, terms=[1, 2], weights=[1.0, 1.0]) for c in chunks(30)]
    assert measured(alike).agreement == CALIBRATION.agreement
    unembedded = [replace(c, embedding=None) for c in chunks(30)]
    assert measured(unembedded) == CALIBRATION
