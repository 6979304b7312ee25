"""Expected answers of a collection of single-chunk documents, calculated from the formulas."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from tests.ability_search.flows.conftest import PATIENCE, Network, word_vector

from ability_search.collection import CALIBRATION, Calibration
from ability_search.store.stored_collections import read_collection
from ability_search.text.analyzer import analyzer_for

K1, B, TITLE_COUNT = 1.2, 0.75, 4
DEPTH = 40
"""Candidates of each arm, unless the settings say otherwise."""
Scores = dict[str, float]
"""By chunkId."""

_SYLLABLES = ("ba", "ke", "li", "mo", "nu", "ra", "so", "ti", "vu", "za")


def corpus(size: int, *, words: int = 60, seed: int = 7) -> list[dict[str, Any]]:
    """Documents over a small vocabulary, some of them alike to the letter.

    They are about as long as a new collection expects, so that maintenance has nothing to renew
    and scores do not change behind a test's back.
    """
    chance = random.Random(seed)
    vocabulary = sorted({"".join(chance.choices(_SYLLABLES, k=3)) + "k" for _ in range(4 * words)})[
        :words
    ]
    documents: list[dict[str, Any]] = []
    for n in range(size):
        if n % 10 == 9:
            alike = documents[-3]
            title, content = alike["title"], alike["content"]
        else:
            title = " ".join(chance.choices(vocabulary, k=2))
            # Frequencies fall with the rank, as those of words do.
            picked = chance.choices(
                vocabulary,
                weights=[1 / (rank + 3) for rank in range(words)],
                k=chance.randint(10, 60),
            )
            content = " ".join(picked)
        documents.append(
            {
                "source": f"s{n:04}",
                "title": title,
                "content": content,
                "metadata": {"half": n % 2, "rare": n % 100 == 42, "n": n},
            }
        )
    return documents


@dataclass
class Oracle:
    """Exact scores; ``average_length`` is the one the stored weights were made with."""

    collection: str
    documents: Sequence[dict[str, Any]]
    average_length: float
    within: Collection[str] | None = None
    """ChunkIds that a filter leaves; ``None`` leaves all."""
    depth: int | None = None
    """Candidates that each arm contributes to a hybrid query; ``None`` takes all."""
    calibration: Calibration = CALIBRATION
    """What was measured of the cosines."""

    @classmethod
    async def of(
        cls, network: Network, collection: str, documents: Sequence[dict[str, Any]]
    ) -> Oracle:
        """The oracle of what is stored in ``collection``."""
        async with asyncio.timeout(PATIENCE):
            record = await read_collection(network.store, collection)
            while record is None or record.calibrated != record.chunks:
                await asyncio.sleep(0)
                record = await read_collection(network.store, collection)
        calibration = Calibration(record.chance, record.near, record.agreement)
        return cls(collection, documents, record.average_length, calibration=calibration)

    def id(self, document: dict[str, Any]) -> str:
        return f"{self.collection}:{document['source']}:0"

    def vectors(self) -> dict[str, Any]:
        """Of unit length, by chunkId."""
        return {
            self.id(document): _document_vector(document["title"], document["content"])
            for document in self._allowed()
        }

    def cosines(self, text: str) -> Scores:
        query = _unit_vector(text)
        return {id_: float(query @ vector) for id_, vector in self.vectors().items()}

    def bm25(self, text: str) -> Scores:
        """Of the chunks that have one of the query's terms."""
        return self._bm25(self._query_weights(text))

    def _bm25(self, weights: Mapping[str, float]) -> Scores:
        scores = {}
        for document in self._allowed():
            counted = _counted(" ".join([document["content"]] + [document["title"]] * TITLE_COUNT))
            length = counted.total()
            saturation = K1 * (1 - B + B * length / self.average_length)
            score = 0.0
            for term, weight in weights.items():
                f = counted[term]
                score += weight * f * (K1 + 1) / (f + saturation)
            if score:
                scores[self.id(document)] = score
        return scores

    def keyword(self, text: str, *, further: str = "") -> Scores:
        """Normalized to [0, 1]; the words of ``further`` count half, and less than the others."""
        weights = self._query_weights(text)
        added = self._query_weights(further)
        share = 0.5 * min(1.0, sum(weights.values()) / sum(added.values())) if added else 0.0
        weights |= {term: share * weight for term, weight in added.items()}
        information = sum(weights.values())
        return {id_: 1 - math.exp(-raw / information) for id_, raw in self._bm25(weights).items()}

    def semantic(self, text: str) -> Scores:
        """Normalized to [0, 1]."""
        return self.nearness(self.cosines(text))

    def hybrid(self, text: str, *, semantic: float = 1.0, keyword: float = 1.0) -> Scores:
        """Convex, with given weights."""
        near, worded = self._candidates(text)
        total = semantic + keyword
        return {id_: (semantic * near[id_] + keyword * worded[id_]) / total for id_ in near}

    def default(self, text: str, *, meant: str | None = None) -> Scores:
        """What a hybrid query gives without further options.

        The model counts as far as its vectors agree with words, in the collection and in the first
        hits of the query. ``meant`` is embedded in place of ``text``.
        """
        near, worded = self._candidates(text, meant=meant)
        most = max(worded.values(), default=0.0)
        known = min(1.0, max(0.01, (self.calibration.agreement - 0.05) / 0.1))
        share = sum(worded[id_] for id_ in best(near, 3)) / 3 / most / 0.3 if most else 1.0
        weight = 2 * known * min(1.0, max(0.01, share))
        weights = self._query_weights(text).values()
        rare = min(1.0, max(weights, default=0.0) / _information(1, len(self.documents)))
        return {id_: (weight * near[id_] + rare * worded[id_]) / (weight + rare) for id_ in near}

    def nearness(self, cosines: Scores) -> Scores:
        """Normalized to [0, 1]."""
        chance, near, _ = self.calibration
        far = 2 * chance - near
        found: Scores = {}
        for id_, cosine in cosines.items():
            if cosine < far:
                found[id_] = 0.05 * (cosine + 1) / (far + 1)
            elif cosine < near:
                found[id_] = 0.05 + (2 / 3 - 0.05) * (cosine - far) / (near - far)
            else:
                found[id_] = 2 / 3 + (cosine - near) / (1 - near) / 3
        return found

    def reciprocal(
        self, text: str, *, k: float = 60, semantic: float = 1.0, keyword: float = 1.0
    ) -> Scores:
        """Weighted reciprocal ranks over their greatest possible sum."""
        scores: Scores = {}
        greatest = (semantic + keyword) / (k + 1)
        for weight, arm in ((semantic, self.cosines(text)), (keyword, self.bm25(text))):
            for rank, id_ in enumerate(best(arm), start=1):
                scores[id_] = scores.get(id_, 0.0) + weight / (k + rank) / greatest
        return scores

    def where(self, fits: Callable[[dict[str, Any]], bool]) -> set[str]:
        """The chunkIds of the documents that fit."""
        return {self.id(document) for document in self.documents if fits(document)}

    def _allowed(self) -> list[dict[str, Any]]:
        return [
            document
            for document in self.documents
            if self.within is None or self.id(document) in self.within
        ]

    def _candidates(self, text: str, *, meant: str | None = None) -> tuple[Scores, Scores]:
        """Both normalized scores of what the arms of a hybrid query find."""
        cosines, by_words = self.cosines(meant or text), self.keyword(text)
        listed = dict.fromkeys([*best(by_words, self.depth), *best(cosines, self.depth)])
        near = self.nearness({id_: cosines[id_] for id_ in listed})
        return near, {id_: by_words.get(id_, 0.0) for id_ in listed}

    def tied(self, text: str) -> bool:
        """Whether it takes the engine's own order of equal scores to say what an arm finds."""
        arms = [sorted(arm.values(), reverse=True) for arm in (self.cosines(text), self.bm25(text))]
        depth = self.depth
        return depth is not None and any(
            len(arm) > depth and math.isclose(arm[depth - 1], arm[depth], rel_tol=1e-5)
            for arm in arms
        )

    def _query_weights(self, text: str) -> dict[str, float]:
        terms = Counter(analyzer_for().query_terms(text))
        count = len(self.documents)
        titles = [_counted(document["title"]) for document in self.documents]
        contents = [_counted(document["content"]) for document in self.documents]
        weights = {}
        for term, repeated in terms.items():
            frequency = max(
                sum(term in field for field in titles), sum(term in field for field in contents)
            )
            idf = _information(frequency, count)
            weights[term] = idf * repeated
        return weights


def best(scores: Scores, count: int | None = None) -> list[str]:
    """The first chunkIds by score, equal ones in their order."""
    return sorted(scores, key=lambda id_: (-scores[id_], id_))[:count]


def _information(frequency: int, count: int) -> float:
    return math.log(1 + (count - frequency + 0.5) / (frequency + 0.5))


@cache
def _counted(text: str) -> Counter[str]:
    return Counter(analyzer_for().terms(text))


@cache
def _document_vector(title: str, content: str) -> Any:
    # A title that the text begins with is not said twice.
    return _unit_vector(content if content.startswith(title) else f"{title} {content}")


@cache
def _unit_vector(text: str) -> Any:
    vector = word_vector(text)
    return vector / np.linalg.norm(vector)


def assert_ranked(
    results: Sequence[dict[str, Any]], scores: Scores, *, count: int, tolerance: float = 1e-4
) -> None:
    """The results are the best ``count`` by ``scores``, in order, with these scores.

    The engine calculates in 32 bits: what is closer than that may change places.
    """
    found = [hit["chunkId"] for hit in results]
    assert len(found) == len(set(found)) == min(count, len(scores))
    assert found == [
        hit["chunkId"] for hit in sorted(results, key=lambda hit: (-hit["score"], hit["chunkId"]))
    ]
    for hit, expected in zip(results, sorted(scores.values(), reverse=True), strict=False):
        assert math.isclose(hit["score"], scores[hit["chunkId"]], abs_tol=tolerance)
        assert math.isclose(scores[hit["chunkId"]], expected, abs_tol=1e-5)
