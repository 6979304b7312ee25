"""The two kinds of ONNX models over token ids: sentence encoders return vectors, rerankers scores.

They know no event loop.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
from tokenizers import Tokenizer

from kadi_localnet.models.config import ModelFiles
from kadi_localnet.models.errors import ModelsError, ModelSetupError
from kadi_localnet.models.requests import Vectors, encodable

log = logging.getLogger(__name__)

Ids = npt.NDArray[np.int64]

_SENTENCE_OUTPUT = "sentence_embedding"
_TOKEN_OUTPUTS = ("last_hidden_state", "token_embeddings")
_LOGITS = "logits"
_ATTENDED = "attention_mask"
_INPUTS = frozenset({"input_ids", _ATTENDED, "token_type_ids"})


@dataclass(frozen=True, slots=True)
class Tokens:
    """A text, or a query and a text, as token ids; its length is their number."""

    ids: Ids
    types: Ids
    """0 for tokens of the first text, 1 for those of the second, if the model distinguishes."""

    def __len__(self) -> int:
        return len(self.ids)


class TokenGraph(ABC):
    """A loaded graph and its tokenizer; thread-safe.

    Attributes:
        name: File name of the graph.
        tokenizer: Path of its ``tokenizer.json``.
        max_tokens: Tokens after which texts are truncated.
        dimensions: Numbers of the output for a text.
        independent: True if the output for a text does not depend on the rest of its batch. Models
            with dynamically quantised activations use one scale for the whole batch: two vectors
            of one text then differ by a cosine of up to .02, so such a model must get one text per
            run.
    """

    probe_query: ClassVar[str | None] = None
    """The query with which a test run is made."""
    tolerance: ClassVar[float]
    """Difference between the outputs of a text alone and in a batch that is just rounding."""
    returns: ClassVar[str]
    """Name of the output in errors."""

    def __init__(self, files: ModelFiles, session: Any, tokenizer: Any) -> None:
        self.name = files.graph.name
        self.tokenizer = files.tokenizer
        self.max_tokens = files.max_tokens
        self.dimensions = 0
        self.independent = True
        self._session = session
        self._tokens = tokenizer
        self._pad_id = files.pad_id
        self._inputs = {item.name: item.type for item in session.get_inputs()}
        if set(self._inputs) - _INPUTS or "input_ids" not in self._inputs:
            raise ModelSetupError(
                f"{self.name} requires inputs other than token ids: {sorted(self._inputs)}"
            )
        ranks = {item.name: len(item.shape) for item in session.get_outputs()}
        self._output = self._choose_output(ranks)
        self._rank = ranks[self._output]

    @classmethod
    def load(cls, files: ModelFiles) -> Self:
        """Load the model and check the output of a test run.

        Raises:
            ModelSetupError: if a file cannot be read, the graph requires inputs other than ids,
                mask and types, or its outputs are not those of such a model.
        """
        started = time.perf_counter()
        file = files.tokenizer
        try:
            tokenizer = Tokenizer.from_file(str(file))
            file = files.graph
            session = ort.InferenceSession(
                str(file), _session_options(), providers=["CPUExecutionProvider"]
            )
        except Exception as exc:  # both libraries raise bare Exceptions
            hint = (
                f"If {file} is damaged, delete it: all-MiniLM-L6-v2 is built again, and"
                " `ability-search models pull` gets other models."
            )
            raise ModelSetupError(f"cannot load {file}: {exc}", hint=hint) from exc
        tokenizer.no_padding()
        tokenizer.enable_truncation(files.max_tokens)
        model = cls(files, session, tokenizer)
        model._probe()
        log.info(
            "loaded %s: %d dimensions, %d tokens, %.2f s",
            model.name,
            model.dimensions,
            model.max_tokens,
            time.perf_counter() - started,
        )
        return model

    def tokenize(self, texts: Sequence[str], query: str | None = None) -> list[Tokens]:
        """Tokenize each text, behind ``query`` if there is one, with special tokens.

        What is too long is truncated, of two texts the longer one. Unpaired surrogates become
        U+FFFD. An empty text gives only the special tokens.
        """
        asked = None if query is None else encodable(query)
        rows = []
        for text in map(encodable, texts):
            # One text per call: a batch would start one thread per core, and a plain encode() does
            # not release the interpreter lock.
            [row] = self._tokens.encode_batch_fast([text if asked is None else (asked, text)])
            rows.append(Tokens(np.asarray(row.ids, np.int64), np.asarray(row.type_ids, np.int64)))
        return rows

    def infer(self, batch: Sequence[Tokens]) -> Vectors:
        """Run tokenized texts at once: float32 of shape (len(batch), dimensions)."""
        return self.outputs(batch)

    @abstractmethod
    def outputs(self, batch: Sequence[Tokens]) -> Vectors:
        """Run tokenized texts at once and return the model's own output, one row each."""

    @abstractmethod
    def _choose_output(self, ranks: Mapping[str, int]) -> str:
        """Return the output to read, given the number of axes of each.

        Raises:
            ModelSetupError: if there is none.
        """

    def _run(self, batch: Sequence[Tokens]) -> tuple[Vectors, Ids]:
        """Run a batch, padded to its longest sequence.

        Returns:
            The output as float32, and the attention mask of shape (len(batch), longest).
        """
        length = max(1, *map(len, batch))
        ids = np.full((len(batch), length), self._pad_id, np.int64)
        mask = np.zeros_like(ids)
        types = np.zeros_like(ids)
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens)] = tokens.ids
            mask[row, : len(tokens)] = 1
            types[row, : len(tokens)] = tokens.types
        given = {"input_ids": ids, _ATTENDED: mask, "token_type_ids": types}
        feed = {
            name: given[name].astype(np.int32) if kind == "tensor(int32)" else given[name]
            for name, kind in self._inputs.items()
        }
        raw: Vectors = self._session.run([self._output], feed)[0].astype(np.float32, copy=False)
        return raw, mask

    def _probe(self) -> None:
        texts = ["probe", "a longer text beside the probe " * 4]
        short, long = self.tokenize(texts, self.probe_query)
        try:
            alone = self.outputs([short])
            padded = self.outputs([short, long])
        except ModelSetupError:
            raise
        except Exception as exc:  # onnxruntime raises its own types, all of them Exceptions
            raise ModelSetupError(f"{self.name} does not run: {exc}") from exc
        if alone.ndim != 2 or not alone.shape[1] or not np.isfinite(padded).all():
            raise ModelSetupError(f"{self.name} does not return {self.returns}")
        self.dimensions = int(alone.shape[1])
        self.independent = float(np.abs(alone - padded[:1]).max()) < self.tolerance


class Encoder(TokenGraph):
    """A sentence encoder, whose vectors have norm 1."""

    tolerance = 1e-4
    returns = "sentence vectors"

    def __init__(self, files: ModelFiles, session: Any, tokenizer: Any) -> None:
        super().__init__(files, session, tokenizer)
        self._pooling = files.pooling

    def outputs(self, batch: Sequence[Tokens]) -> Vectors:
        """Return the vectors."""
        raw, mask = self._run(batch)
        return normalized(raw if self._rank == 2 else pool(raw, mask, self._pooling))

    def _choose_output(self, ranks: Mapping[str, int]) -> str:
        if ranks.get(_SENTENCE_OUTPUT) == 2:
            return _SENTENCE_OUTPUT
        for name in (*_TOKEN_OUTPUTS, *ranks):
            if ranks.get(name) == 3:
                return name
        raise ModelSetupError(f"no output with token vectors to pool; outputs: {sorted(ranks)}")


class CrossEncoder(TokenGraph):
    """A reranker, which scores a text against a query."""

    probe_query = "probe"
    tolerance = 1e-3
    returns = "finite scores"

    def infer(self, batch: Sequence[Tokens]) -> Vectors:
        """Return the logistic function of the logits, in [0, 1], float64 of shape (n, 1).

        Raises:
            ModelsError: if a logit is not finite.
        """
        logits = self.outputs(batch).astype(np.float64)
        if not np.isfinite(logits).all():
            raise ModelsError(f"{self.name} returned a score that is not finite")
        with np.errstate(over="ignore"):
            return np.asarray(1 / (1 + np.exp(-logits)))

    def outputs(self, batch: Sequence[Tokens]) -> Vectors:
        """Return the logits, of shape (n, 1)."""
        logits, _ = self._run(batch)
        if logits.shape != (len(batch), 1):
            raise ModelSetupError(
                f"{self.name} is not a reranker: {logits.shape[-1]} logits per pair, not 1"
            )
        return logits

    def _choose_output(self, ranks: Mapping[str, int]) -> str:
        flat = [name for name, rank in ranks.items() if rank == 2]
        if _LOGITS in flat:
            return _LOGITS
        if len(flat) == 1:
            return flat[0]
        raise ModelSetupError(
            f"{self.name} is not a reranker: no logits among the outputs {sorted(ranks)}"
        )


def pool(hidden: Vectors, mask: Ids, pooling: str) -> Vectors:
    """Pool token vectors of shape (batch, sequence, d) into one vector per text.

    ``mean`` averages over the attended tokens, ``cls`` takes the first token.
    """
    if pooling == "cls":
        return hidden[:, 0]
    weights = mask[..., None].astype(np.float32)
    mean: Vectors = (hidden * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1)
    return mean


def normalized(vectors: Vectors) -> Vectors:
    """Return the rows scaled to norm 1; a row of zeros is unchanged."""
    norms: Vectors = np.linalg.norm(vectors, axis=1, keepdims=True).astype(np.float32)
    norms[norms == 0] = 1
    return vectors / norms


def _session_options() -> Any:
    options = ort.SessionOptions()
    # Each lane runs in one thread; thread pools inside the session would only compete with it.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Lengths differ from run to run, so that memory patterns and an arena would only waste memory.
    options.enable_mem_pattern = False
    options.enable_cpu_mem_arena = False
    options.log_severity_level = 3
    return options
