"""The settings of the gateway, over HTTP and over MCP."""

from __future__ import annotations

from typing import Literal

from pydantic import ByteSize, SecretStr

from ability_search.config.setting_fields import (
    MIB,
    Group,
    NonEmpty,
    seconds,
    secret,
    setting,
    size,
)

McpProfile = Literal["lean", "full"]


class Gateway(Group):
    """Gateway: the tools over HTTP and over MCP."""

    prefix = "gateway_"
    host: NonEmpty = setting("127.0.0.1", about="Listen address.")
    port: int = setting(8070, about="Listen port; 0 picks a free port.", ge=0, le=65535)
    token: SecretStr | None = secret(
        about="Bearer token that clients must send; required unless it listens on loopback only."
    )
    hosts: tuple[str, ...] = setting((), about="Additional allowed values of the Host header.")
    origins: tuple[str, ...] = setting(
        (), about="Allowed origins of browser requests, such as https://example.org."
    )
    request_bytes: ByteSize = size(32 * MIB, about="Maximum size of a request body.")
    rate: float = setting(
        50.0, about="Average request rate per client address.", unit="a second", gt=0, le=1_000_000
    )
    burst: int = setting(
        200, about="Burst size per client address.", unit="requests", ge=1, le=1_000_000
    )
    concurrency: int = setting(64, about="Concurrent requests.", unit="requests", ge=1, le=100_000)
    streams: int = setting(64, about="Open event streams.", unit="streams", ge=1, le=100_000)
    timeout: float = seconds(300.0, about="Timeout of a tool call.")
    mcp_profile: McpProfile = setting(
        "lean",
        key="mcp_profile",
        about="Tools over MCP: `lean` has few parameters and returns references, `full` has all.",
    )
