"""Settings of tracing, metrics and the gateway; see :mod:`.schema`."""

from __future__ import annotations

from pydantic import ByteSize, SecretStr

from ability_search.config.setting_fields import KIB, MIB, Group, HttpUrl, setting


class Tracing(Group):
    """Tracing."""

    prefix = "tracing_"
    endpoint: HttpUrl | None = setting(
        None,
        about="Address of an OpenTelemetry collector (OTLP over HTTP).",
        default_text="no traces",
    )
    propagate: bool = setting(
        True,
        about="Propagate the call id and trace context to the calls made on its behalf.",
    )


class Metrics(Group):
    """Metrics of each process, in Prometheus format."""

    prefix = "metrics_"
    host: str = setting("127.0.0.1", about="Listen address of `/metrics`.", min_length=1)
    port: int | None = setting(
        None,
        about="Port of `/metrics`; 0 picks a free port. `up` assigns each component its own,"
        " counting up from it.",
        ge=0,
        le=65535,
        default_text="not served",
    )
    token: SecretStr | None = setting(
        None,
        about="Bearer token that clients must send; required unless it listens on loopback only.",
        min_length=1,
    )


class Gateway(Group):
    """Gateway: the tools over HTTP and over MCP."""

    prefix = "gateway_"
    host: str = setting("127.0.0.1", about="Listen address.", min_length=1)
    port: int = setting(8070, about="Listen port; 0 picks a free port.", ge=0, le=65535)
    token: SecretStr | None = setting(
        None,
        about="Bearer token that clients must send; required unless it listens on loopback only.",
        min_length=1,
    )
    hosts: tuple[str, ...] = setting((), about="Additional allowed values of the Host header.")
    origins: tuple[str, ...] = setting(
        (), about="Allowed origins of browser requests, such as https://example.org."
    )
    request_bytes: ByteSize = setting(
        ByteSize(32 * MIB),
        about="Maximum size of a request body.",
        unit="bytes",
        ge=KIB,
        le=1024 * MIB,
    )
    rate: float = setting(
        50.0, about="Average request rate per client address.", unit="a second", gt=0, le=1_000_000
    )
    burst: int = setting(
        200, about="Burst size per client address.", unit="requests", ge=1, le=1_000_000
    )
    concurrency: int = setting(64, about="Concurrent requests.", unit="requests", ge=1, le=100_000)
    streams: int = setting(64, about="Open event streams.", unit="streams", ge=1, le=100_000)
    timeout: float = setting(300.0, about="Timeout of a tool call.", unit="seconds", gt=0, le=3600)
