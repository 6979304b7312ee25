"""A cross-encoder on onnxruntime: scores texts against a query, without an event loop."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kadi_localnet.models.errors import ModelsError, ModelSetupError
from kadi_localnet.models.graphs import GraphFiles, Ids, TokenGraph

log = logging.getLogger(__name__)

Scores = npt.NDArray[np.float64]

_OUTPUT = "logits"
# Tolerance between the logits of a pair run alone and in a batch, see encoder._ROUNDING.
_ROUNDING = 1e-3


class Pair(NamedTuple):
    """A query and a text, tokenized together."""

    ids: Ids
    types: Ids
    """0 for tokens of the query, 1 for tokens of the text, if the model distinguishes them."""


class CrossEncoder:
    """A loaded cross-encoder and its tokenizer; thread-safe."""

    def __init__(self, graph: TokenGraph) -> None:
        self._graph = graph
        self._output = _choose_output(graph)
        self.independent = True
        """True if a pair's score does not depend on the rest of its batch; see
        :attr:`kadi_localnet.models.encoder.Encoder.independent`."""

    @classmethod
    def load(cls, files: GraphFiles) -> CrossEncoder:
        """Load the model and check the output of a test run.

        Raises:
            ModelSetupError: if a file cannot be read, the graph requires inputs other than ids,
                mask and types, or does not return one finite logit per pair.
        """
        started = time.perf_counter()
        encoder = cls(TokenGraph.load(files))
        encoder._probe()
        log.info("loaded %s: reranker, %.2f s", files.graph.name, time.perf_counter() - started)
        return encoder

    def tokenize(self, query: str, texts: Sequence[str]) -> list[Pair]:
        """Tokenize ``query`` with each text; in long pairs, the longer of the two is truncated."""
        encodings = [self._graph.encode(query, text) for text in texts]
        return [
            Pair(np.asarray(each.ids, np.int64), np.asarray(each.type_ids, np.int64))
            for each in encodings
        ]

    def infer(self, batch: Sequence[Pair]) -> Scores:
        """Score pairs in one run: the logistic function of the logits, in [0, 1], shape (n,).

        Raises:
            ModelsError: if a logit is not finite.
        """
        logits = self._logits(batch)
        if not np.isfinite(logits).all():
            raise ModelsError(f"{self._graph.name} returned a score that is not finite")
        with np.errstate(over="ignore"):
            return np.asarray(1 / (1 + np.exp(-logits)))

    def _logits(self, batch: Sequence[Pair]) -> Scores:
        ids, types = zip(*batch, strict=True)
        raw, _ = self._graph.run(self._output, ids, types)
        if raw.shape != (len(batch), 1):
            raise ModelSetupError(
                f"{self._graph.name} is not a reranker: {raw.shape[-1]} logits per pair, not 1"
            )
        return raw[:, 0].astype(np.float64)

    def _probe(self) -> None:
        short, long = self.tokenize("probe", ["a text", "a longer text beside it " * 4])
        try:
            alone = self._logits([short])
            padded = self._logits([short, long])
        except ModelSetupError:
            raise
        except Exception as exc:  # onnxruntime raises its own types, all of them Exceptions
            raise ModelSetupError(f"{self._graph.name} does not run: {exc}") from exc
        if not np.isfinite(padded).all():
            raise ModelSetupError(f"{self._graph.name} does not return finite scores")
        self.independent = abs(float(alone[0] - padded[0])) < _ROUNDING


def _choose_output(graph: TokenGraph) -> str:
    flat = [name for name, rank in graph.ranks.items() if rank == 2]
    if _OUTPUT in flat:
        return _OUTPUT
    if len(flat) == 1:
        return flat[0]
    raise ModelSetupError(
        f"{graph.name} is not a reranker: no logits among the outputs {sorted(graph.ranks)}"
    )
