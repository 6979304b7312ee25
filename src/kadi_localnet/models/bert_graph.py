"""Building the ONNX graph of a BERT sentence encoder from its weights.

The graph contains all steps from token ids to the embedding: the encoder of Devlin et al. 2019
(arXiv:1810.04805), the mean of its last hidden states over the attention mask and the L2
normalisation, as sentence-transformers models are defined (arXiv:1908.10084).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import ModelProto, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.quant_utils import add_pre_process_metadata
from safetensors.numpy import load_file

Array = npt.NDArray[Any]
Weights = Mapping[str, Array]

# Added to the scores of padding: e^-10000 is 0 in float32, and sums with it stay finite.
_MASKED = -10_000.0

# Opset 20 has Gelu and goes with IR version 9; onnxruntime supports both since 1.17.
_OPSET = 20
_IR_VERSION = 9


@dataclass(frozen=True, slots=True)
class BertShape:
    """The values of a ``config.json`` of Hugging Face that determine the graph."""

    layers: int
    heads: int
    hidden: int
    epsilon: float

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> BertShape:
        """Read the configuration of a BERT encoder with GELU and absolute positions."""
        return cls(
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            hidden=config["hidden_size"],
            epsilon=config["layer_norm_eps"],
        )


def build_graph(weights: Weights, shape: BertShape) -> ModelProto:
    """Build the encoder with pooling and normalisation.

    Inputs are int64 of shape (batch, sequence), both axes dynamic; the output
    ``sentence_embedding`` is float32 of shape (batch, hidden), every row of norm 1. A row needs
    at least one attended token; a sequence may have as many tokens as there are positions.
    """
    model = onnx.parser.parse_model(_syntax(shape))
    for node in model.graph.node:
        node.name = node.output[0]
    model.graph.initializer.extend(
        numpy_helper.from_array(np.ascontiguousarray(value), name)
        for name, value in _constants(weights, shape).items()
    )
    return model


def write_graph(source: Path, target: Path) -> None:
    """Build the graph from ``model.safetensors`` and ``config.json`` in ``source`` as ``target``.

    Its constants are in a file beside it, of its name and ``.data``, of which onnxruntime reads
    what it needs: 13 MB less stay in memory than from one file.

    The weights are stored in seven bits with one scale per channel, and activations are quantised
    at run time. One scale per tensor ruins the ranking. Eight bits saturate on processors without
    VNNI, which would return a different embedding for the same text.

    Raises:
        OSError: if a file cannot be read or written.
    """
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    graph = build_graph(load_file(source / "model.safetensors"), BertShape.from_config(config))
    prepared = onnx.shape_inference.infer_shapes(graph)
    add_pre_process_metadata(prepared)
    quantize_dynamic(
        prepared,
        str(target),
        per_channel=True,
        reduce_range=True,
        weight_type=QuantType.QInt8,
        use_external_data_format=True,
    )


def _constants(weights: Weights, shape: BertShape) -> dict[str, Array]:
    """Return the constants of the graph by name: of a tensor ``a.b.weight`` it is ``a_b_weight``.

    Weights of products are transposed, because onnxruntime packs and quantises only a plain MatMul.
    """
    width = shape.hidden // shape.heads
    constants: dict[str, Array] = {
        "first": np.array([0], np.int64),
        "second": np.array([1], np.int64),
        "last": np.array([-1], np.int64),
        "between": np.array([1, 2], np.int64),
        "heads": np.array([0, 0, shape.heads, width], np.int64),
        "joined": np.array([0, 0, shape.hidden], np.int64),
        "one": np.array(1, np.float32),
        "masked": np.array(_MASKED, np.float32),
    }

    def keep(path: str, weight: Array, bias: Array) -> None:
        name = path.replace(".", "_")
        constants[f"{name}_weight"], constants[f"{name}_bias"] = weight, bias

    def keep_norm(path: str) -> None:
        keep(path, weights[f"{path}.weight"], weights[f"{path}.bias"])

    for kind in ("word", "position", "token_type"):
        constants[kind] = weights[f"embeddings.{kind}_embeddings.weight"]
    keep_norm("embeddings.LayerNorm")
    # The factor 1/sqrt(width) of the scores is folded into the query, and the three projections
    # are one product. Both are exact and save a pass over the largest tensor.
    scale = {"query": np.float32(width**-0.5), "key": np.float32(1), "value": np.float32(1)}
    for layer in range(shape.layers):
        path = f"encoder.layer.{layer}"
        own = f"{path}.attention.self"
        weight = np.concatenate([weights[f"{own}.{name}.weight"] * scale[name] for name in scale])
        bias = np.concatenate([weights[f"{own}.{name}.bias"] * scale[name] for name in scale])
        keep(own, weight.T, bias)
        for part in ("attention.output", "intermediate", "output"):
            dense = f"{path}.{part}.dense"
            keep(dense, weights[f"{dense}.weight"].T, weights[f"{dense}.bias"])
        keep_norm(f"{path}.attention.output.LayerNorm")
        keep_norm(f"{path}.output.LayerNorm")
    return constants


def _syntax(shape: BertShape) -> str:
    """Return the graph in ONNX's textual syntax."""
    layers = "".join(_layer(layer, shape) for layer in range(shape.layers))
    return f"""
<ir_version: {_IR_VERSION}, opset_import: ["": {_OPSET}], producer_name: "ability-search">
sentence_encoder (
    int64[batch, sequence] input_ids,
    int64[batch, sequence] attention_mask,
    int64[batch, sequence] token_type_ids
) => (float[batch, {shape.hidden}] sentence_embedding) {{
    words = Gather (word, input_ids)
    types = Gather (token_type, token_type_ids)
    length = Shape <start = 1, end = 2> (input_ids)
    positions = Slice (position, first, length, first)
    typed = Add (words, types)
    embedded = Add (typed, positions)
    {_norm("hidden_0", "embedded", "embeddings", shape)}
    mask = Cast <to = {onnx.TensorProto.FLOAT}> (attention_mask)
    mask_of_keys = Unsqueeze (mask, between)
    padding = Sub (one, mask_of_keys)
    bias = Mul (padding, masked)
    {layers}
    mask_of_tokens = Unsqueeze (mask, last)
    attended = Mul (hidden_{shape.layers}, mask_of_tokens)
    total = ReduceSum <keepdims = 0> (attended, second)
    count = ReduceSum <keepdims = 1> (mask, second)
    mean = Div (total, count)
    sentence_embedding = LpNormalization <axis = -1, p = 2> (mean)
}}"""


def _layer(n: int, shape: BertShape) -> str:
    path = f"encoder_layer_{n}"
    return f"""
    {_dense(f"joint_{n}", f"hidden_{n}", f"{path}_attention_self")}
    query_{n}, key_{n}, value_{n} = Split <axis = -1, num_outputs = 3> (joint_{n})
    {_heads("query", n, (0, 2, 1, 3))}
    {_heads("key", n, (0, 2, 3, 1))}
    {_heads("value", n, (0, 2, 1, 3))}
    scores_{n} = MatMul (query_heads_{n}, key_heads_{n})
    biased_{n} = Add (scores_{n}, bias)
    shares_{n} = Softmax <axis = -1> (biased_{n})
    mixed_{n} = MatMul (shares_{n}, value_heads_{n})
    turned_{n} = Transpose <perm = [0, 2, 1, 3]> (mixed_{n})
    joined_{n} = Reshape (turned_{n}, joined)
    {_dense(f"attended_{n}", f"joined_{n}", f"{path}_attention_output_dense")}
    residual_{n} = Add (attended_{n}, hidden_{n})
    {_norm(f"normed_{n}", f"residual_{n}", f"{path}_attention_output", shape)}
    {_dense(f"wide_{n}", f"normed_{n}", f"{path}_intermediate_dense")}
    active_{n} = Gelu (wide_{n})
    {_dense(f"narrow_{n}", f"active_{n}", f"{path}_output_dense")}
    changed_{n} = Add (narrow_{n}, normed_{n})
    {_norm(f"hidden_{n + 1}", f"changed_{n}", f"{path}_output", shape)}"""


def _heads(part: str, n: int, order: tuple[int, ...]) -> str:
    return f"""{part}_split_{n} = Reshape ({part}_{n}, heads)
    {part}_heads_{n} = Transpose <perm = {list(order)}> ({part}_split_{n})"""


def _dense(output: str, value: str, name: str) -> str:
    return f"""{output}_product = MatMul ({value}, {name}_weight)
    {output} = Add ({output}_product, {name}_bias)"""


def _norm(output: str, value: str, name: str, shape: BertShape) -> str:
    parameters = f"{name}_LayerNorm_weight, {name}_LayerNorm_bias"
    return f"""{output} = LayerNormalization <axis = -1, epsilon = {shape.epsilon!r}>
        ({value}, {parameters})"""


if __name__ == "__main__":
    write_graph(Path(sys.argv[1]), Path(sys.argv[2]))
