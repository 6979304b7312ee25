"""ONNX graphs over token ids, with their tokenizers; without an event loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from kadi_localnet.models.errors import ModelSetupError
from kadi_localnet.models.requests import Vectors, encodable
from kadi_localnet.models.runtime import ort

Ids = npt.NDArray[np.int64]

_ATTENDED = "attention_mask"
_INPUTS = frozenset({"input_ids", _ATTENDED, "token_type_ids"})


@dataclass(frozen=True, slots=True)
class GraphFiles:
    """The files of a model, and what its tokenizer has to know."""

    graph: Path
    tokenizer: Path
    max_tokens: int
    """Longer texts are truncated, special tokens included."""
    pad_id: int = 0


class TokenGraph:
    """A loaded graph and its tokenizer; thread-safe.

    Attributes:
        ranks: Number of axes of each output, by name.
    """

    def __init__(self, name: str, session: Any, tokenizer: Any, *, pad_id: int) -> None:
        self.name = name
        self.ranks: Mapping[str, int] = {
            item.name: len(item.shape) for item in session.get_outputs()
        }
        self._session = session
        self._tokenizer = tokenizer
        self._pad_id = pad_id
        self._inputs = {item.name: item.type for item in session.get_inputs()}

    @classmethod
    def load(cls, files: GraphFiles) -> TokenGraph:
        """Load graph and tokenizer.

        Raises:
            ModelSetupError: if a file cannot be read, or the graph requires inputs other than
                ids, mask and types.
        """
        graph, file = files.graph, files.tokenizer
        try:
            loaded = Tokenizer.from_file(str(file))
            file = graph
            session = ort.InferenceSession(
                str(graph), _session_options(), providers=["CPUExecutionProvider"]
            )
        except Exception as exc:  # both libraries raise bare Exceptions
            hint = (
                f"If {file} is damaged, delete it: all-MiniLM-L6-v2 is built again, and"
                " `ability-search models pull` gets other models."
            )
            raise ModelSetupError(f"cannot load {file}: {exc}", hint=hint) from exc
        loaded.no_padding()
        loaded.enable_truncation(files.max_tokens)
        built = cls(graph.name, session, loaded, pad_id=files.pad_id)
        if set(built._inputs) - _INPUTS or "input_ids" not in built._inputs:
            raise ModelSetupError(
                f"{graph.name} requires inputs other than token ids: {sorted(built._inputs)}"
            )
        return built

    def encode(self, text: str, pair: str | None = None) -> Any:
        """Return the tokenizer's encoding of a text or a pair of texts.

        Special tokens are included; of two texts the longer one is truncated first. Unpaired
        surrogates become U+FFFD. An empty text gives only the special tokens.
        """
        # One text per call: a batch would start one thread per core, and a plain encode() does
        # not release the interpreter lock.
        item = encodable(text) if pair is None else (encodable(text), encodable(pair))
        return self._tokenizer.encode_batch_fast([item])[0]

    def run(
        self, output: str, batch: Sequence[Ids], types: Sequence[Ids] | None = None
    ) -> tuple[Vectors, Ids]:
        """Run a batch, padded to its longest sequence.

        Args:
            output: Name of the output to return.
            batch: Token ids of each sequence, shape (n,).
            types: Token types (0 or 1, the text of a pair), shaped as ``batch``; 0 by default.

        Returns:
            The output as float32, and the attention mask of shape (len(batch), longest).
        """
        length = max(1, max(len(ids) for ids in batch))
        ids = np.full((len(batch), length), self._pad_id, np.int64)
        mask = np.zeros_like(ids)
        kinds = np.zeros_like(ids)
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
            if types is not None:
                kinds[row, : len(tokens)] = types[row]
        given = {"input_ids": ids, _ATTENDED: mask, "token_type_ids": kinds}
        feed = {
            name: given[name].astype(np.int32) if kind == "tensor(int32)" else given[name]
            for name, kind in self._inputs.items()
        }
        raw: Vectors = self._session.run([output], feed)[0].astype(np.float32, copy=False)
        return raw, mask


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
