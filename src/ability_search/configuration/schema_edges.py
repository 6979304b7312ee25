"""The settings of what lets others in, or look in, beside the network; see :mod:`.schema`."""

from __future__ import annotations

from pydantic import ByteSize, SecretStr

from ability_search.configuration.fields import KIB, MIB, Group, HttpUrl, setting


class Tracing(Group):
    """Following a call from part to part."""

    prefix = "tracing_"
    endpoint: HttpUrl | None = setting(
        None,
        about="Address of an OpenTelemetry collector that takes traces (OTLP over HTTP).",
        default_text="no traces",
    )
    propagate: bool = setting(
        True,
        about="Send the id of a call, and its trace, along with the calls made for it.",
    )


class Metrics(Group):
    """The numbers of each process, for Prometheus."""

    prefix = "metrics_"
    host: str = setting("127.0.0.1", about="Address that `/metrics` is served on.", min_length=1)
    port: int | None = setting(
        None,
        about="Its port; 0 takes a free one. `up` gives each part one of its own, from it on.",
        ge=0,
        le=65535,
        default_text="not served",
    )
    token: SecretStr | None = setting(
        None,
        about="Bearer token its callers must show; required unless it listens on loopback only.",
        min_length=1,
    )


class Gateway(Group):
    """The gateway: the tools over HTTP and, for assistants, over MCP."""

    prefix = "gateway_"
    host: str = setting("127.0.0.1", about="Address it listens on.", min_length=1)
    port: int = setting(8070, about="Port it listens on; 0 takes a free one.", ge=0, le=65535)
    token: SecretStr | None = setting(
        None,
        about="Bearer token its callers must show; required unless it listens on loopback only.",
        min_length=1,
    )
    hosts: tuple[str, ...] = setting(
        (), about="Further names by which it may be called, as in the header Host."
    )
    origins: tuple[str, ...] = setting(
        (), about="Origins of pages that may call it from a browser, each like https://example.org."
    )
    request_bytes: ByteSize = setting(
        ByteSize(32 * MIB), about="A request's body.", unit="bytes", ge=KIB, le=1024 * MIB
    )
    rate: float = setting(
        50.0, about="Requests of one address, on average.", unit="a second", gt=0, le=1_000_000
    )
    burst: int = setting(
        200, about="Requests of one address at once.", unit="requests", ge=1, le=1_000_000
    )
    concurrency: int = setting(64, about="Requests in progress.", unit="requests", ge=1, le=100_000)
    streams: int = setting(
        64, about="Event streams that are open.", unit="streams", ge=1, le=100_000
    )
    timeout: float = setting(
        300.0, about="Longest wait for a tool's answer.", unit="seconds", gt=0, le=3600
    )
