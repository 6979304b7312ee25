"""Requests and responses: embeddings as OpenAI's API, reranking as those of Cohere and Jina."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationError, field_validator

from kadi_client.tools import validation_text
from kadi_localnet.models.config import ModelsConfig
from kadi_localnet.models.errors import InvalidRequest, RequestTooLarge

R = TypeVar("R", bound=BaseModel)

MAX_VALUES = 10_000
"""Maximum number of objects and arrays in a request, see
:func:`kadi_client.messages.has_more_values`."""

Vectors = npt.NDArray[np.float32]


def _text_or_texts(schema: dict[str, Any]) -> None:
    texts = {key: schema.pop(key) for key in ("type", "items", "minItems")}
    schema["anyOf"] = [{"type": "string"}, texts]


class EmbeddingRequest(BaseModel):
    """Input of ``create-embedding`` and of ``POST /v1/embeddings``."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    model: str = Field(
        description="Name of a served model.", min_length=1, examples=["all-MiniLM-L6-v2"]
    )
    input: Annotated[list[str], FailFast()] = Field(
        description="One text or a list of texts; an empty text is embedded like any other.",
        min_length=1,
        examples=[["What is a chunk?"]],
        json_schema_extra=_text_or_texts,
    )
    encoding_format: Literal["float", "base64"] | None = Field(
        default="float",
        description="Encoding of the vectors; base64 encodes little-endian float32 values.",
    )
    dimensions: int | None = Field(
        default=None, description="Dimensions of the vectors, if the model can shorten them.", ge=1
    )

    @field_validator("input", mode="before")
    @classmethod
    def _as_list(cls, value: Any) -> Any:
        if isinstance(value, str):
            return [value]
        if isinstance(value, list) and value and isinstance(value[0], int | list):
            raise ValueError(
                "send texts, not token ids (LangChain: check_embedding_ctx_length=False)"
            )
        return value


def _texts_or_objects(schema: dict[str, Any]) -> None:
    text = schema["items"]
    named = {"type": "object", "properties": {"text": text}, "required": ["text"]}
    schema["items"] = {"anyOf": [text, named]}


class RerankRequest(BaseModel):
    """Input of ``rerank`` and of ``POST /v1/rerank``."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    model: str | None = Field(
        default=None,
        description="Name of a served reranker; the first one by default.",
        min_length=1,
    )
    query: str = Field(description="The search query.", min_length=1, examples=["What is a chunk?"])
    documents: Annotated[list[str], FailFast()] = Field(
        description="The texts to rank, each a string or an object {text}.",
        min_length=1,
        examples=[["A chunk is a piece of a document.", "Lunch is at noon."]],
        json_schema_extra=_texts_or_objects,
    )
    top_n: int | None = Field(
        default=None, description="Number of results to return; all by default.", ge=1
    )
    return_documents: bool = Field(
        default=False, description="Include the document of each result as {text}."
    )

    @field_validator("documents", mode="before")
    @classmethod
    def _as_texts(cls, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return [item.get("text") if isinstance(item, Mapping) else item for item in value]


def read_request(shape: type[R], raw: Any, limits: ModelsConfig) -> R:
    """Validate a request against its model and the limits.

    Raises:
        InvalidRequest: naming the field and the expected value.
        RequestTooLarge: naming the limit.
    """
    try:
        request = shape.model_validate(raw)
    except ValidationError as exc:
        raise InvalidRequest(validation_text(exc), param=_param(exc)) from None
    for field in ("query", "input", "documents"):
        texts = getattr(request, field, ())
        if isinstance(texts, str):
            _check_text(texts, limits, field)
            continue
        if len(texts) > limits.max_texts:
            raise RequestTooLarge(
                f"{field}: {len(texts)} texts, at most {limits.max_texts} are allowed;"
                " send them in several requests",
                param=field,
            )
        for index, text in enumerate(texts):
            _check_text(text, limits, f"{field}.{index}")
    return request


def _check_text(text: str, limits: ModelsConfig, where: str) -> None:
    # A character has at most four bytes, so only a text that may be too long is encoded.
    if len(text) * 4 <= limits.max_text_bytes:
        return
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > limits.max_text_bytes:
        raise RequestTooLarge(
            f"{where}: {size} bytes, at most {limits.max_text_bytes} are allowed; split the text",
            param=where.partition(".")[0],
        )


def _param(error: ValidationError) -> str | None:
    """Return the field of the first error; ``None`` if the input as a whole is not valid."""
    path = error.errors(include_url=False, include_input=False, include_context=False)[0]["loc"]
    return str(path[0]) if path else None


def encodable(text: str) -> str:
    """Return ``text`` with unpaired surrogates, which UTF-8 cannot encode, replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def embedding_answer(request: EmbeddingRequest, vectors: Vectors, tokens: int) -> dict[str, Any]:
    """Return the response in OpenAI's shape, with the requested model name.

    Args:
        request: The request.
        vectors: One row for each of its texts.
        tokens: Number of tokens read.
    """
    rows: list[Any]
    if request.encoding_format == "base64":
        little = np.ascontiguousarray(vectors, dtype="<f4")
        rows = [base64.b64encode(row.tobytes()).decode("ascii") for row in little]
    else:
        rows = vectors.tolist()
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": row}
            for index, row in enumerate(rows)
        ],
        "model": request.model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def rerank_answer(
    request: RerankRequest, model: str, scores: Sequence[float], tokens: int
) -> dict[str, Any]:
    """Return the response: results by descending score, ties in the order of the documents.

    Args:
        request: The request.
        model: Name of the reranker.
        scores: One for each document.
        tokens: Number of tokens read.
    """
    order = sorted(range(len(scores)), key=lambda index: (-scores[index], index))
    results: list[dict[str, Any]] = [
        {"index": index, "relevance_score": scores[index]} for index in order[: request.top_n]
    ]
    if request.return_documents:
        for result in results:
            result["document"] = {"text": request.documents[result["index"]]}
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"model": model, "results": results, "usage": usage}
