"""Request and response of a rerank call, as defined by the APIs of Cohere and Jina."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from kadi_localnet.models.config import ModelsConfig
from kadi_localnet.models.requests import check_text, check_texts, validated


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
    documents: list[str] = Field(
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
    api_key: SecretStr | None = Field(
        default=None, description="API key for models on an upstream server."
    )

    @field_validator("documents", mode="before")
    @classmethod
    def _as_texts(cls, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return [item.get("text") if isinstance(item, Mapping) else item for item in value]


@dataclass(frozen=True, slots=True)
class Reranked:
    """One score per text, in the order of the texts, and the number of tokens read."""

    scores: Sequence[float]
    tokens: int


def read_rerank_request(raw: Any, config: ModelsConfig) -> RerankRequest:
    """Validate a rerank request against the schema and the limits.

    Raises:
        InvalidRequest: naming the field and the expected value.
        RequestTooLarge: naming the limit.
    """
    request = validated(RerankRequest, raw)
    check_text(request.query, config, where="query")
    check_texts(request.documents, config, where="documents")
    return request


def rerank_answer(request: RerankRequest, model: str, reranked: Reranked) -> dict[str, Any]:
    """Return the response: results by descending score, ties in the order of the documents."""
    scores = reranked.scores
    order = sorted(range(len(scores)), key=lambda index: (-scores[index], index))
    results: list[dict[str, Any]] = [
        {"index": index, "relevance_score": scores[index]} for index in order[: request.top_n]
    ]
    if request.return_documents:
        for result in results:
            result["document"] = {"text": request.documents[result["index"]]}
    usage = {"prompt_tokens": reranked.tokens, "total_tokens": reranked.tokens}
    return {"model": model, "results": results, "usage": usage}
