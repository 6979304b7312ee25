"""All settings: type, default, unit, bounds and description of each.

One group per concern. The name of a setting is its group's prefix and its attribute joined by ``_``
(an attribute may set another key): ``chunk_size`` is ``settings.chunking.size`` in code,
``search.chunk_size`` in config.yml and ``SEARCH_CHUNK_SIZE`` in the environment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ByteSize, SecretStr, field_validator, model_validator

from ability_search.config.schema_deployment import Deployment
from ability_search.config.schema_edges import Gateway, Metrics, Tracing
from ability_search.config.schema_jobs import JobSettings
from ability_search.config.schema_kinds import Aspects
from ability_search.config.schema_local import Arcadedb, LocalBroker, Models
from ability_search.config.setting_fields import (
    KIB,
    MIB,
    Group,
    HttpUrl,
    Url,
    WebSocketUrl,
    setting,
)
from ability_search.text.chunkers import Strategy


class Chunking(Group):
    """Chunking."""

    prefix = "chunk_"
    size: int = setting(500, about="Maximum size of a chunk.", unit="tokens", ge=16, le=8192)
    overlap: int = setting(
        50, about="Overlap of consecutive sliding windows.", unit="tokens", ge=0, le=4096
    )
    strategy: Strategy = setting("auto", about="Chunking strategy if the call sets none.")
    tokenizer: Path | None = setting(
        None,
        key="tokenizer",
        about="Path of the embedding model's tokenizer.json, for exact token counts.",
        default_text="an estimate",
    )

    @model_validator(mode="after")
    def _overlap_is_smaller(self) -> Chunking:
        if self.overlap >= self.size:
            raise ValueError("chunk_overlap must be smaller than chunk_size")
        return self


class Embedding(Group):
    """Embeddings."""

    prefix = "embedding_"
    model: str = setting(
        "nomic-embed-text",
        about="Embedding model of new collections.",
        min_length=1,
        max_length=256,
    )
    transport: Literal["api", "broker"] = setting(
        "broker",
        about="Use a model manager on the network (`broker`) or an OpenAI-compatible API (`api`).",
    )
    api_url: HttpUrl | None = setting(None, about="Base URL of the embedding API.")
    api_key: SecretStr | None = setting(
        None, key="api_key", about="API key for the API or the model manager.", min_length=1
    )
    batch_texts: int = setting(64, about="Maximum texts per request.", unit="texts", ge=1, le=2048)
    batch_bytes: ByteSize = setting(
        ByteSize(MIB),
        about="Maximum size of the texts in a request.",
        unit="bytes",
        ge=KIB,
        le=16 * MIB,
    )
    concurrency: int = setting(
        2, about="Concurrent requests per indexing call.", unit="requests", ge=1, le=64
    )
    timeout: float = setting(60.0, about="Timeout of one request.", unit="seconds", gt=0, le=3600)
    query_timeout: float = setting(
        10.0,
        about="Timeout for the query vector, retries included.",
        unit="seconds",
        gt=0,
        le=3600,
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
    attempts: int = setting(
        5, about="Maximum attempts on transient failures.", unit="tries", ge=1, le=20
    )
    breaker_failures: int = setting(
        5,
        about="Consecutive failures after which the circuit breaker opens and requests fail at"
        " once.",
        unit="failures",
        ge=1,
        le=1000,
    )
    breaker_reset: float = setting(
        5.0,
        about="Time the circuit breaker stays open before the next attempt.",
        unit="seconds",
        gt=0,
        le=3600,
    )


class Reranker(Group):
    """Reranker: a model that rereads the first hits if the query asks for it."""

    prefix = "reranker_"
    transport: Literal["api", "broker"] = setting(
        "broker",
        about="Use a model manager on the network (`broker`) or an API like Cohere's or Jina's"
        " (`api`).",
    )
    api_url: HttpUrl | None = setting(None, about="Base URL of the reranker API.")
    api_key: SecretStr | None = setting(
        None, about="API key for the API or the model manager.", min_length=1
    )
    model: str | None = setting(
        None,
        about="Reranker model if the query names none.",
        min_length=1,
        max_length=256,
        default_text="the server's own",
    )
    timeout: float = setting(
        1.5,
        about="Timeout of a request; on timeout the hits keep their order.",
        unit="seconds",
        gt=0,
        le=3600,
    )


class Expansion(Group):
    """Query expansion: a language model adds words to a query if the query asks for it."""

    prefix = "expansion_"
    model: str | None = setting(
        None,
        about="Language model if the query names none.",
        min_length=1,
        max_length=256,
        default_text="the server's own",
    )
    api_key: SecretStr | None = setting(None, about="API key for the model manager.", min_length=1)
    timeout: float = setting(
        2.0,
        about="Timeout of a request; on timeout the query is not expanded.",
        unit="seconds",
        gt=0,
        le=3600,
    )


class Database(Group):
    """Database."""

    prefix = "database_"
    name: str = setting(
        "kadi_memory",
        key="database",
        about="Database that holds the collections.",
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
    )
    timeout: float = setting(30.0, about="Timeout of one statement.", unit="seconds", gt=0, le=3600)
    patience: float = setting(
        10.0,
        about="How long a statement waits for a database ability that is restarting.",
        unit="seconds",
        ge=0,
        le=3600,
    )
    grace_period: float = setting(
        10.0,
        about="Time a replaced generation is kept for running queries.",
        unit="seconds",
        ge=0,
        le=3600,
    )
    write_group_bytes: ByteSize = setting(
        ByteSize(4 * MIB),
        about="Maximum data per transaction, unless a single source is larger.",
        unit="bytes",
        ge=64 * KIB,
        le=16 * MIB,
    )
    write_group_chunks: int = setting(
        500,
        about="Maximum chunks per transaction, unless a single source has more.",
        unit="chunks",
        ge=1,
        le=5000,
    )


class Limits(Group):
    """Limits of calls, queries and messages."""

    prefix = "max_"
    batch_documents: int = setting(
        1000, about="Documents per search-index call.", unit="documents", ge=1, le=100_000
    )
    batch_bytes: ByteSize = setting(
        ByteSize(24 * MIB),
        about="Total size of the documents in a call.",
        unit="bytes",
        ge=KIB,
        le=1024 * MIB,
    )
    document_bytes: ByteSize = setting(
        ByteSize(10 * MIB), about="Size of one document.", unit="bytes", ge=KIB, le=1024 * MIB
    )
    document_chunks: int = setting(
        20_000, about="Chunks of one document.", unit="chunks", ge=1, le=1_000_000
    )
    stored_bytes: ByteSize = setting(
        ByteSize(64 * MIB),
        about="One document as it is stored: its text, and with every chunk title and metadata.",
        unit="bytes",
        ge=64 * KIB,
        le=4096 * MIB,
    )
    file_bytes: ByteSize = setting(
        ByteSize(10 * MIB),
        about="Size of one file in search-index-file; larger files are skipped.",
        unit="bytes",
        ge=KIB,
        le=1024 * MIB,
    )
    unpacked_bytes: ByteSize = setting(
        ByteSize(100 * MIB),
        about="Unpacked size of a DOCX, PPTX or XLSX file; larger files are skipped.",
        unit="bytes",
        ge=KIB,
        le=1024 * MIB,
    )
    query_bytes: ByteSize = setting(
        ByteSize(128 * KIB), about="Size of a query.", unit="bytes", ge=256, le=16 * MIB
    )
    limit: int = setting(1000, about="Results per query.", unit="results", ge=1, le=10_000)
    filter_depth: int = setting(8, about="Nesting depth of a filter.", unit="levels", ge=1, le=64)
    filter_nodes: int = setting(
        256, about="Conditions in a filter.", unit="conditions", ge=1, le=10_000
    )
    concurrent_calls: int = setting(
        32,
        about="Concurrent calls; further calls are queued.",
        unit="calls",
        ge=1,
        le=10_000,
    )
    waiting_calls: int = setting(
        1024,
        about="Queued calls, at most a quarter of them from one agent; further calls fail with"
        " `busy`.",
        unit="calls",
        ge=0,
        le=100_000,
    )
    message_bytes: ByteSize = setting(
        ByteSize(32 * MIB),
        about="Size of a message on the network.",
        unit="bytes",
        ge=64 * KIB,
        le=1024 * MIB,
    )

    @model_validator(mode="after")
    def _sizes_nest(self) -> Limits:
        if self.document_bytes > self.batch_bytes:
            raise ValueError("max_document_bytes must not exceed max_batch_bytes")
        if self.batch_bytes > self.message_bytes:
            raise ValueError("max_batch_bytes must not exceed max_message_bytes")
        return self


class Ranking(Group):
    """Ranking."""

    candidates: int = setting(
        40, about="Candidates per retriever.", unit="chunks", ge=10, le=10_000
    )
    ef_search: int = setting(
        100,
        about="Beam width (ef) of the vector search; higher values improve recall.",
        unit="chunks",
        ge=10,
        le=10_000,
    )
    scan_below: int = setting(
        1000,
        about="Collection size below which vector search is an exact scan of all vectors.",
        unit="chunks",
        ge=0,
        le=100_000,
    )
    bm25_k1: float = setting(
        1.2,
        about="BM25 term frequency saturation (k1); applies to generations built from now on.",
        ge=0,
        le=10,
    )
    bm25_b: float = setting(
        0.75,
        about="BM25 length normalization (b); applies to generations built from now on.",
        ge=0,
        le=1,
    )
    title_weight: float = setting(
        1.5, about="Weight of terms in the title, relative to 1 in the content.", ge=0, le=100
    )
    fusion: Literal["convex", "rrf"] = setting(
        "convex", about="Fusion method: convex combination or reciprocal rank fusion."
    )
    fusion_k: float = setting(
        60.0, about="Rank constant of reciprocal rank fusion.", ge=0, le=10_000
    )
    fusion_semantic: float = setting(0.7, about="Weight of the semantic retriever.", ge=0, le=100)
    fusion_keyword: float = setting(0.3, about="Weight of the keyword retriever.", ge=0, le=100)
    fusion_peak: float = setting(
        0.8,
        about="How strongly the semantic weight adapts to how much its best hit stands out; 0 keeps"
        " it fixed.",
        ge=0,
        le=10,
    )
    feedback: float = setting(
        0.5,
        about="Weight of pseudo-relevance feedback in hybrid queries; 0 disables it.",
        ge=0,
        le=10,
    )
    phrasing: float = setting(
        0.4, about="Weight of phrase matches in hybrid queries; 0 disables them.", ge=0, le=1
    )

    @model_validator(mode="after")
    def _some_arm_counts(self) -> Ranking:
        if self.fusion_semantic + self.fusion_keyword == 0:
            raise ValueError("fusion_semantic and fusion_keyword must not both be 0")
        return self


class Files(Group):
    """Files."""

    allowed_roots: tuple[Path, ...] = setting(
        about="Directories that search-index-file may read.",
        default_text="the working directory",
        min_length=1,
    )
    timeout: float = setting(
        30.0,
        key="file_timeout",
        about="Timeout for reading one PDF, DOCX, PPTX, XLSX or HTML file.",
        unit="seconds",
        gt=0,
        le=3600,
    )
    data_dir: Path = setting(
        about="Directory of the local stack's databases.",
        default_text="$XDG_DATA_HOME/ability-search",
    )
    cache_dir: Path = setting(
        about="Directory of built and downloaded models.",
        default_text="$XDG_CACHE_HOME/ability-search",
    )
    identity_file: Path = setting(
        about="Private key that identifies this worker to brokers; created at first start.",
        default_text="$XDG_CONFIG_HOME/ability-search/identity.pem",
    )
    secret_key_file: Path = setting(
        about="Encryption key of secrets.toml; created by `secret set`.",
        default_text="$XDG_CONFIG_HOME/ability-search/secrets.key",
    )


class Logging(Group):
    """Logging, on standard error."""

    prefix = "log_"
    level: Literal["debug", "info", "warning", "error"] = setting("info", about="Minimum severity.")
    format: Literal["pretty", "json"] = setting(
        "pretty", about="Log format: for people (`pretty`) or for log collectors (`json`)."
    )

    @field_validator("level", "format", mode="before")
    @classmethod
    def _ignore_case(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value


class Broker(Group):
    """Broker connection.

    The worker joins all brokers that the files name; the database ability and the model manager
    join the first.
    """

    url: WebSocketUrl = setting(
        Url("ws://localhost:8080/kadi"),
        env=("BROKER_URL", "KADI_BROKER_URL"),
        home="config.toml `[broker.<name>] URL`, agent.json `brokers.<name>`",
        about="Address of a single broker; if unset, the files may name several.",
    )
    networks: tuple[str, ...] = setting(
        ("global",),
        env=("BROKER_NETWORKS", "KADI_BROKER_NETWORKS"),
        home="config.toml `[broker.<name>] NETWORKS`, agent.json `networks`",
        about="Networks to join.",
        min_length=1,
    )
    name: str = "local"
    """Name of its entry in the files."""
    mode: str = "native"
    """``MODE`` of that entry, lower case; only ``native``, a plain WebSocket, is supported."""


GROUPS: dict[str, type[Group]] = {
    "chunking": Chunking,
    "embedding": Embedding,
    "reranker": Reranker,
    "expansion": Expansion,
    "aspects": Aspects,
    "database": Database,
    "jobs": JobSettings,
    "limits": Limits,
    "ranking": Ranking,
    "files": Files,
    "logging": Logging,
    "metrics": Metrics,
    "tracing": Tracing,
    "broker": Broker,
    "deployment": Deployment,
    "local_broker": LocalBroker,
    "models": Models,
    "arcadedb": Arcadedb,
    "gateway": Gateway,
}
