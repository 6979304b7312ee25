from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto
from tests.kadi_localnet.models.conftest import token_table

from kadi_localnet.models import ModelDirectory, ModelSetupError
from kadi_localnet.models.directory import find_files
from kadi_localnet.models.encoder import Encoder, normalized, pool

TinyModel = Callable[..., Path]


def load(path: Path) -> Encoder:
    return Encoder.load(find_files(ModelDirectory(path=path)))


def embed(encoder: Encoder, *texts: str) -> np.ndarray:
    """The vectors of texts, each run alone."""
    return np.concatenate([encoder.infer([tokens]) for tokens in encoder.tokenize(texts)])


def token_vectors(encoder: Encoder, text: str) -> np.ndarray:
    [tokens] = encoder.tokenize([text])
    vectors: np.ndarray = token_table()[tokens.ids]
    return vectors


@pytest.mark.model
class TestMiniLM:
    @pytest.mark.slow
    def test_gives_384_dimensions_of_norm_1(self, minilm_fp32: Encoder) -> None:
        texts = ["a cat", "", "数据库的索引"]
        vectors = embed(minilm_fp32, *texts)
        assert vectors.shape == (3, 384)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
        assert [len(tokens) for tokens in minilm_fp32.tokenize(texts)] == [4, 2, 8]

    def test_puts_what_means_the_same_together(self, minilm_fp32: Encoder) -> None:
        food, eating, market = embed(
            minilm_fp32,
            "A man is eating food.",
            "A man eats something.",
            "The stock market fell today.",
        )
        same, other = food @ eating, food @ market
        assert same > 0.6
        assert other < 0.2

    def test_reads_256_tokens_and_not_one_more(self, minilm_fp32: Encoder) -> None:
        [long] = minilm_fp32.tokenize(["word " * 1000])
        assert len(long) == 256
        assert (long.ids[0], long.ids[-1]) == (101, 102)

    def test_pads_nothing_by_itself(self, minilm_fp32: Encoder) -> None:
        assert [len(tokens) for tokens in minilm_fp32.tokenize(["", "one", "one two"])] == [2, 3, 4]

    @pytest.mark.parametrize("text", ["a\0b", "cut \ud83d", "\udc00\ud800", "\U0010ffff", "\n"])
    def test_takes_any_text(self, minilm_fp32: Encoder, text: str) -> None:
        assert np.isfinite(embed(minilm_fp32, text)).all()

    def test_a_lone_surrogate_reads_as_the_replacement_character(
        self, minilm_fp32: Encoder
    ) -> None:
        cut, replaced = minilm_fp32.tokenize(["a \ud83d b", "a \ufffd b"])
        paired, whole = minilm_fp32.tokenize(["a \ud83d\ude00\ud83d b", "a \U0001f600\ufffd b"])
        assert cut.ids.tolist() == replaced.ids.tolist()
        assert paired.ids.tolist() == whole.ids.tolist()

    @pytest.mark.process
    def test_int8_stays_close_to_fp32(self, minilm_fp32: Encoder, minilm_int8: Encoder) -> None:
        texts = ["How do I rotate a signing key?", "wing in a slipstream", "数据库", "x = foo(1)"]
        exact, quick = embed(minilm_fp32, *texts), embed(minilm_int8, *texts)
        assert np.sum(exact * quick, axis=1).min() > 0.97

    @pytest.mark.slow
    def test_knows_that_only_fp32_may_be_batched(
        self, minilm_fp32: Encoder, minilm_int8: Encoder
    ) -> None:
        assert minilm_fp32.independent
        assert not minilm_int8.independent


class TestDirectory:
    def test_averages_the_attended_tokens_by_default(self, tiny: TinyModel) -> None:
        encoder = load(tiny())
        padded = encoder.infer(encoder.tokenize(["red green", "red green blue grey red"]))
        mean = token_vectors(encoder, "red green").mean(axis=0)
        np.testing.assert_allclose(padded[0], mean / np.linalg.norm(mean), atol=1e-6)

    def test_takes_the_first_token_where_the_files_say_so(self, tiny: TinyModel) -> None:
        config = {"pooling_mode_cls_token": True, "word_embedding_dimension": 4}
        encoder = load(tiny(pooling_config=config))
        first = token_vectors(encoder, "blue")[0]
        [vector] = embed(encoder, "blue")
        np.testing.assert_allclose(vector, first / np.linalg.norm(first), atol=1e-6)

    def test_takes_an_output_that_is_the_embedding_already(self, tiny: TinyModel) -> None:
        path = tiny(output="sentence_embedding", inputs=("input_ids",))
        assert embed(load(path), "grey").shape == (1, 4)

    def test_takes_int32_inputs_and_a_graph_in_the_onnx_folder(self, tiny: TinyModel) -> None:
        path = tiny(kind=TensorProto.INT32, file="onnx/model.onnx")
        assert load(path).dimensions == 4

    @pytest.mark.parametrize(
        ("settings", "limit"),
        [
            ({}, 512),
            ({"sentence_bert_config": {"max_seq_length": 20}, "config": {}}, 20),
            ({"tokenizer_config": {"model_max_length": 64}}, 64),
            (
                {
                    "tokenizer_config": {"model_max_length": 1e30},
                    "config": {"max_position_embeddings": 99},
                },
                99,
            ),
            (
                {
                    "tokenizer_config": {"model_max_length": 400},
                    "config": {"max_position_embeddings": 128},
                },
                128,
            ),
        ],
    )
    def test_reads_the_limit_where_exporters_write_it(
        self, tiny: TinyModel, settings: dict[str, object], limit: int
    ) -> None:
        path = tiny(**settings)
        encoder = load(path)
        assert encoder.max_tokens == limit
        assert len(encoder.tokenize(["red " * 600])[0]) == limit

    def test_refuses_what_it_cannot_use(self, tiny: TinyModel, tmp_path: Path) -> None:
        decoder = tiny("decoder", inputs=("input_ids", "attention_mask", "position_ids"))
        with pytest.raises(ModelSetupError, match="position_ids"):
            load(decoder)
        with pytest.raises(ModelSetupError, match="pooling_mode_lasttoken"):
            load(tiny("last", pooling_config={"pooling_mode_lasttoken": True}))
        broken = tiny("broken")
        (broken / "config.json").write_text("{", encoding="utf-8")
        with pytest.raises(ModelSetupError, match=r"config\.json of 'broken'"):
            load(broken)

    @pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
    @pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
    def test_names_the_file_that_is_truncated(
        self, tiny: TinyModel, name: str, kept: float
    ) -> None:
        file = tiny("damaged") / name
        whole = file.read_bytes()
        file.write_bytes(whole[: int(len(whole) * kept)])
        with pytest.raises(ModelSetupError, match=f"cannot load {file}: ") as raised:
            load(file.parent)
        assert f"If {file} is damaged, delete it" in raised.value.hint

    def test_names_the_file_that_is_missing(self, tiny: TinyModel, tmp_path: Path) -> None:
        with pytest.raises(ModelSetupError, match=r"'empty' has no tokenizer\.json"):
            find_files(ModelDirectory(path=tmp_path / "empty"))
        two = tiny("two", file="a.onnx")
        (two / "b.onnx").write_bytes((two / "a.onnx").read_bytes())
        with pytest.raises(ModelSetupError, match=r"found a\.onnx, b\.onnx"):
            find_files(ModelDirectory(path=two))

    def test_a_directory_is_written_as_path_or_name_and_path(self) -> None:
        assert ModelDirectory.parse("models/bge").names == ("bge",)
        assert ModelDirectory.parse("BAAI/bge=models/x").names == ("BAAI/bge",)
        for wrong in ("", "name=", "=path", "a b=path"):
            with pytest.raises(ModelSetupError, match="NAME=PATH"):
                ModelDirectory.parse(wrong)


def test_pooling_ignores_padding_and_survives_an_empty_mask() -> None:
    hidden = np.array([[[1, 3], [3, 5], [100, 100]], [[7, 7], [7, 7], [7, 7]]], np.float32)
    mask = np.array([[1, 1, 0], [0, 0, 0]])
    np.testing.assert_array_equal(pool(hidden, mask, "mean"), [[2, 4], [0, 0]])
    np.testing.assert_array_equal(pool(hidden, mask, "cls"), [[1, 3], [7, 7]])
    np.testing.assert_array_equal(normalized(np.zeros((1, 2), np.float32)), [[0, 0]])


def test_settings_that_are_not_objects_count_as_none(tiny: TinyModel) -> None:
    path = tiny()
    (path / "config.json").write_text(json.dumps([1]), encoding="utf-8")
    assert load(path).max_tokens == 512
