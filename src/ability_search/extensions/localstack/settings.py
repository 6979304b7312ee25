"""The settings of a deployment, and of the local stack: broker, database ability and models."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, ByteSize, SecretStr, model_validator

from ability_search.config.setting_fields import (
    KIB,
    MIB,
    Group,
    HttpUrl,
    NonEmpty,
    Url,
    WebSocketUrl,
    begins_with,
    seconds,
    secret,
    setting,
    size,
)

_DEPLOYER = "set by `kadi deploy`"

OPEN_NETWORK = "SEARCH_LOCAL_BROKER_PRIVATE_NETWORK="
"""Variable, set to nothing, with which `ability-search up` has no private network."""

BackplaneUrl = Annotated[Url, begins_with("nats", "tls", several=True)]


def _check_pair(value: str) -> str:
    name, _, agent = value.rpartition("=")
    if not name or not agent:
        raise ValueError(f"{value!r} is not a pair NAME=AGENT_ID")
    return value


Pair = Annotated[str, AfterValidator(_check_pair)]


class Deployment(Group):
    """Deployment: secrets that a worker requests from its deployer at startup."""

    prefix = "deploy_"
    secrets_timeout: float = seconds(60.0, about="Timeout for the deployer's answer.")
    nonce: SecretStr | None = secret(
        env=("KADI_DEPLOY_NONCE",),
        home=_DEPLOYER,
        about="Nonce that authenticates the request; if unset, no secrets are requested.",
    )
    required_secrets: tuple[str, ...] = setting(
        (),
        env=("KADI_REQUIRED_SECRETS",),
        home=_DEPLOYER,
        about="Secrets that the worker requires.",
    )
    optional_secrets: tuple[str, ...] = setting(
        (),
        env=("KADI_OPTIONAL_SECRETS",),
        home=_DEPLOYER,
        about="Secrets that the worker requests but does not require.",
    )
    rendezvous_broker: WebSocketUrl | None = setting(
        None,
        env=("KADI_RENDEZVOUS_BROKER",),
        home=_DEPLOYER,
        about="Broker where the deployer listens.",
        default_text="the worker's broker",
    )

    @property
    def awaited(self) -> tuple[str, ...]:
        """Names of the secrets to request; none without a nonce."""
        if self.nonce is None:
            return ()
        return tuple(dict.fromkeys((*self.required_secrets, *self.optional_secrets)))


class LocalBroker(Group):
    """Broker of the local stack."""

    prefix = "local_broker_"
    host: NonEmpty = setting("127.0.0.1", about="Listen address.")
    port: int = setting(8080, about="Listen port; 0 picks a free port.", ge=0, le=65535)
    members: tuple[Pair, ...] = setting(
        (),
        about="Networks that only listed agents may join, as `NETWORK=AGENT_ID` for each agent.",
    )
    providers: tuple[Pair, ...] = setting(
        (),
        about="Tools that only listed agents may offer, as `TOOL=AGENT_ID`, one for each agent; a"
        " tool is a name or a pattern such as `mail-*`.",
    )
    announce: tuple[NonEmpty, ...] = setting(
        (),
        about="Networks for listed agents that errors may name: who calls a tool that is offered"
        " there learns so, and how to be listed. `ability-search up` announces its private one.",
    )
    private_network: str = setting(
        "components",
        about="Network of the components of `ability-search up`, which no other agent may join;"
        " empty for none (`SEARCH_LOCAL_BROKER_PRIVATE_NETWORK=`). Then every agent can call the"
        " database and the models.",
    )
    shared_process: bool = setting(
        True,
        about="Whether the gateway and the first worker of `ability-search up` run in the process"
        " of its first broker, which takes less memory. They then end and restart together.",
    )
    memory: ByteSize = size(
        512 * MIB,
        about="Memory for the messages and registrations of all sessions; at least four messages."
        " From half of it on, events are dropped, those of slow readers first, and messages of"
        " sessions with more than their share wait; beyond it, the session that holds most is"
        " closed.",
        ge=MIB,
        le=64 * 1024 * MIB,
    )
    event_bytes: ByteSize = size(
        MIB,
        about="Maximum size of an event, whatever `max_message_bytes`; a larger one is refused.",
        ge=KIB,
        le=64 * MIB,
    )
    backplane: BackplaneUrl | None = setting(
        None,
        about="Address of a NATS server, or those of a cluster, separated by commas."
        " All brokers with the same one are one network.",
    )


class Models(Group):
    """Model manager of the local stack."""

    prefix = "model_"
    dirs: tuple[str, ...] = setting(
        (),
        about="Directories, each with an ONNX model (embedder or reranker) and its tokenizer.json,"
        " as `PATH` or `NAME=PATH`.",
        named_paths=True,
    )
    threads: int | None = setting(
        None,
        about="Threads for embedding documents.",
        unit="threads",
        ge=1,
        le=256,
        default_text="one per core",
    )
    http_host: NonEmpty = setting(
        "127.0.0.1", about="Listen address of the model manager's HTTP API."
    )
    http_port: int = setting(
        8090, about="Port of the model manager's HTTP API; 0 picks a free port.", ge=0, le=65535
    )
    http_token: SecretStr | None = secret(
        about="Bearer token that clients must send; required unless it listens on loopback only."
    )


class Arcadedb(Group):
    """Database ability of the local stack."""

    prefix = "arcadedb_"
    backend: Literal["embedded", "http"] = setting(
        "embedded",
        about="Engine in the process (`embedded`), or a server or cluster over HTTP (`http`).",
    )
    heap: ByteSize | None = size(
        None,
        about="Heap size of the embedded engine.",
        ge=128 * MIB,
        le=1024 * 1024 * MIB,
        default_text="derived from the machine's memory and the stored vectors",
    )
    urls: tuple[HttpUrl, ...] = setting(
        (), about="Addresses of the server, or of each server of a cluster."
    )
    spread_reads: bool = setting(
        False,
        about="Whether reads are spread over the servers of a cluster that replicates by Raft; each"
        " waits for what was committed before it. Otherwise the leader answers all of them.",
    )
    user: NonEmpty = setting("root", about="User name on the server.")
    password: SecretStr | None = secret(about="Password of that user.")
    statement_timeout: float = seconds(
        120.0,
        about="Longest time for a statement, whatever its caller asks for; `database_timeout` if"
        " that is longer.",
    )

    @model_validator(mode="after")
    def _http_has_an_address(self) -> Arcadedb:
        if self.backend == "http" and not self.urls:
            raise ValueError("arcadedb_urls must be set because arcadedb_backend is http")
        return self
