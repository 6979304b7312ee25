"""Expected answers of a collection of single-chunk documents, calculated from the formulas."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from tests.ability_search.flows.conftest import Network, word_vector

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

    @classmethod
    async def of(
        cls, network: Network, collection: str, documents: Sequence[dict[str, Any]]
    ) -> Oracle:
        """The oracle of what is stored in ``collection``."""
        record = await network.store.collection(collection)
        assert record is not None
        return cls(collection, documents, record.average_length)

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

    def keyword(self, text: str) -> Scores:
        """Normalized to [0, 1]."""
        weights = self._query_weights(text)
        information = sum(weights.values())
        return {id_: 1 - math.exp(-raw / information) for id_, raw in self._bm25(weights).items()}

    def by_word(self, text: str) -> Scores:
        """Normalized to [0, 1], each of the eight words that tell most by itself."""
        weights = self._query_weights(text)
        words = sorted(weights, key=lambda word: -weights[word])[:8]
        parts = [{word: weights[word]} for word in words]
        parts.append({word: weight for word, weight in weights.items() if word not in words})
        scores = dict.fromkeys(self._bm25(weights), 0.0)
        for part in parts:
            information = sum(part.values())
            for id_, raw in self._bm25(part).items():
                scores[id_] += information * (1 - math.exp(-raw / information))
        return {id_: score / sum(weights.values()) for id_, score in scores.items()}

    def semantic(self, text: str) -> Scores:
        """Normalized to [0, 1]."""
        return {id_: min(1.0, max(0.0, cosine)) for id_, cosine in self.cosines(text).items()}

    def hybrid(self, text: str, *, semantic: float = 0.5, keyword: float = 0.5) -> Scores:
        """Convex; every candidate has a cosine."""
        cosines, by_words = self._candidates(text)
        total = semantic + keyword
        return {
            id_: (semantic * min(1.0, max(0.0, cosine)) + keyword * by_words[id_]) / total
            for id_, cosine in cosines.items()
        }

    def default(self, text: str, *, meant: str | None = None) -> Scores:
        """What a hybrid query gives without further options.

        The weights follow the trust in each retriever, the first hits pull the query's vector,
        which does not raise the best score, and pairs of its words count.
        ``meant`` is embedded in place of ``text``.
        """
        cosines, by_words = self._candidates(text, meant=meant)
        if not cosines:
            return {}
        share = 0.5
        if len(cosines) >= 10:
            known = {id_: by_words[id_] for id_ in cosines}
            most = max(known.values())
            alike = sum(known[id_] for id_ in best(cosines, 3)) / 3 / most if most else 0.0
            evidence = gap(cosines) + 0.6 * (alike - gap(known)) - 0.32
            share += min(0.3, max(-0.3, 0.6 * evidence))
        words = {id_: (1 - share) * by_words[id_] for id_ in cosines}
        fused = {id_: share * max(0.0, cosine) + words[id_] for id_, cosine in cosines.items()}
        ordered = best(fused)
        vectors = self.vectors()
        pull = [math.exp((fused[id_] - fused[ordered[0]]) / 0.1) for id_ in ordered[:3]]
        query = _unit_vector(meant or text)
        for weight, id_ in zip(pull, ordered, strict=False):
            query = query + 0.5 * weight / sum(pull) * vectors[id_]
        query = query / np.linalg.norm(query)
        scores = {
            id_: share * max(0.0, float(query @ vectors[id_])) + words[id_] for id_ in ordered[:20]
        }
        rest = ordered[20:]
        scale = min(1.0, min(scores.values()) / (fused[rest[0]] or 1.0)) if rest else 1.0
        raised = self.phrased(text, scores | {id_: scale * fused[id_] for id_ in rest})
        rise = max(1.0, max(scores.values()) / fused[ordered[0]])
        return {id_: score / rise for id_, score in raised.items()}

    def phrased(self, text: str, scores: Scores) -> Scores:
        """The scores of hybrid candidates, the first 20 raised by pairs of the query's words."""
        words = text.split()
        contents = [set(document["content"].split()) for document in self.documents]
        tells = {
            word: _information(sum(word in own for own in contents), len(contents))
            for word in words
        }
        pairs = {
            f" {one} {other} ": tells[one] + tells[other]
            for one, other in zip(words, words[1:], strict=False)
        }
        texts = {self.id(d): f" {d['title']} {d['content']} " for d in self.documents}
        raised = dict(scores)
        for id_ in best(scores, 20):
            known = sum(weight for pair, weight in pairs.items() if pair in texts[id_])
            share = known / sum(pairs.values()) if pairs else 0.0
            raised[id_] += 0.4 * share**2 * (1 - scores[id_])
        return raised

    def reciprocal(
        self, text: str, *, k: float = 60, semantic: float = 0.5, keyword: float = 0.5
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
        """Cosine and normalized BM25 of what the arms of a hybrid query find.

        Where the keyword arm has more than its depth, what it did not return has half the score
        of the last one that it did; a chunk without the words has 0.
        """
        cosines, by_words = self.cosines(meant or text), self.by_word(text)
        worded = best(self.keyword(text), self.depth)
        full = len(worded) == self.depth
        unseen = min(by_words[id_] for id_ in worded) / 2 if worded and full else 0.0
        listed = dict.fromkeys(worded) | dict.fromkeys(best(cosines, self.depth))
        seen = {id_: by_words[id_] for id_ in worded}
        return {id_: cosines[id_] for id_ in listed}, {id_: seen.get(id_, unseen) for id_ in listed}

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


def gap(scores: Scores) -> float:
    """Of the first ten scores: by how much the best exceeds their mean, relative to it."""
    first = sorted(scores.values(), reverse=True)[:10]
    return (first[0] - sum(first) / 10) / first[0] if first[0] > 0 else 0.0


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
