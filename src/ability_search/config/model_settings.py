"""The settings of models: embedder, reranker and language model."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, ByteSize, SecretStr, model_validator

from ability_search.config.setting_fields import (
    MIB,
    Group,
    HttpUrl,
    ModelName,
    seconds,
    secret,
    setting,
    size,
)
from ability_search.config.trusted_agent import TrustedAgent
from ability_search.text.model_traits import model_traits

_BY_NAME = "by the name of the model"


def _separated(value: object) -> object:
    """Return a prefix with the space that settings lose at the end; ``none`` is empty."""
    if not isinstance(value, str):
        return value
    prefix = value.strip()
    if prefix == "none":
        return ""
    return f"{prefix} " if prefix and prefix.isascii() else prefix


AgentOnNetwork = Annotated[TrustedAgent, BeforeValidator(TrustedAgent.parse)]
Prefix = Annotated[str | None, BeforeValidator(_separated)]


class ModelServer(Group):
    """A server of models."""

    transport: Literal["api", "broker"] = setting(
        "broker",
        about="Use a model manager on the network (`broker`) or an API over HTTP (`api`): that of"
        " OpenAI, Ollama and others, for a reranker that of Cohere or Jina.",
    )
    api_url: HttpUrl | None = setting(None, about="Base URL of the API.")
    agent: AgentOnNetwork | None = setting(
        None,
        about="Agent on the network that requests, and the API key with them, go to: its id, or"
        " `NAME@NETWORK`, its display name on a network. Every agent that can join the network can"
        " take that name: choose one that only your agents can join.",
        default_text="any; with a key the one that is there first, and no other",
    )
    api_key: SecretStr | None = secret(about="API key for the API or the model manager.")


class Embedding(ModelServer):
    """Embeddings."""

    prefix = "embedding_"
    model: ModelName = setting("nomic-embed-text", about="Embedding model of new collections.")
    query_prefix: Prefix = setting(
        None,
        about="Prefix of each query for that model, or `none`; for generations built from now on.",
        max_length=1024,
        default_text=_BY_NAME,
    )
    passage_prefix: Prefix = setting(
        None,
        about="Prefix of each stored text for that model, or `none`; likewise.",
        max_length=1024,
        default_text=_BY_NAME,
    )
    api_key: SecretStr | None = secret(
        key="api_key", about="API key for the API or the model manager."
    )
    batch_texts: int = setting(
        64, about="Maximum texts per request; fewer for a slow model.", unit="texts", ge=1, le=2048
    )
    batch_bytes: ByteSize = size(MIB, about="Maximum size of the texts in a request.", le=16 * MIB)
    concurrency: int = setting(
        2, about="Concurrent requests per indexing call.", unit="requests", ge=1, le=64
    )
    timeout: float = seconds(60.0, about="Timeout of one request.")
    query_timeout: float = seconds(10.0, about="Timeout for the query vector, retries included.")
    fallback_after: float = seconds(
        2.0, about="Time after which a hybrid query without its vector searches by keyword."
    )
    reuse: bool = setting(
        True, about="Reuse stored vectors of the same model and text (embedding cache)."
    )
    max_tokens: int | None = setting(
        None,
        about="Maximum input of the embedding model; chunks are never longer.",
        unit="tokens",
        ge=16,
        le=1_000_000,
        default_text="not set",
    )
    patience: float = seconds(
        30.0,
        about="How long indexing waits for an answer of the embedder, beyond `embedding_timeout`.",
        ge=0,
    )
    attempts: int | None = setting(
        None,
        about="Maximum attempts on transient failures.",
        unit="tries",
        ge=1,
        le=20,
        default_text="as many as the timeout allows",
    )
    breaker_failures: int = setting(
        5,
        about="Consecutive failures of a model after which its circuit breaker opens: requests"
        " wait, or fail if their timeout is earlier.",
        unit="failures",
        ge=1,
        le=1000,
    )
    breaker_reset: float = seconds(
        5.0, about="Time the circuit breaker stays open before the next attempt."
    )

    def prefixes_of(self, model: str) -> tuple[str, str]:
        """Return the query and the passage prefix of a model: as set, else by its name."""
        usual = model_traits(model)[:2]
        if model != self.model:
            return usual
        own = (self.query_prefix, self.passage_prefix)
        return (usual[0] if own[0] is None else own[0], usual[1] if own[1] is None else own[1])

    @property
    def index_timeout(self) -> float:
        """Longest time between two answers of the embedder while indexing, retries included."""
        return self.timeout + self.patience


class RerankerSettings(ModelServer):
    """Reranker: a model that rereads the first hits if the query asks for it."""

    prefix = "reranker_"
    model: ModelName | None = setting(
        None, about="Reranker model if the query names none.", default_text="the server's own"
    )
    timeout: float = seconds(
        1.5, about="Timeout of a request; on timeout the hits keep their order."
    )


class Expansion(ModelServer):
    """Query expansion: a language model adds words to a query if the query asks for it."""

    prefix = "expansion_"
    model: ModelName | None = setting(
        None, about="Language model if the query names none.", default_text="the server's own"
    )
    timeout: float = seconds(
        2.0, about="Timeout of a request; on timeout the query is not expanded."
    )

    @model_validator(mode="after")
    def _api_has_a_model(self) -> Expansion:
        if self.transport == "api" and self.model is None:
            raise ValueError("expansion_model must be set because expansion_transport is api")
        return self


class Kinds(Group):
    """Kinds: titles, summaries, keywords and propositions made of documents."""

    prefix = "kinds_"
    kinds: tuple[Literal["title", "summary", "keywords", "propositions"], ...] = setting(
        (),
        key="kinds",
        about="Kinds made of each document in new collections: any of title, summary, keywords,"
        " propositions.",
    )
    by: Literal["local", "chat"] = setting(
        "local",
        about="Extract them from the text (`local`) or have a language model on the network write"
        " them (`chat`).",
    )
    model: ModelName | None = setting(
        None, about="Language model that writes them.", default_text="as `expansion_model`"
    )
    timeout: float = seconds(
        30.0,
        about="Timeout of one request to that model; on timeout they are extracted from the text.",
    )
