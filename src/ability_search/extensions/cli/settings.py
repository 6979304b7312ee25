"""The settings of every process that runs a component or a command: its log, its metrics."""

from __future__ import annotations

from typing import Literal

from pydantic import SecretStr, field_validator

from ability_search.config.setting_fields import Group, NonEmpty, secret, setting


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


class Metrics(Group):
    """Metrics of each process, in Prometheus format."""

    prefix = "metrics_"
    host: NonEmpty = setting("127.0.0.1", about="Listen address of `/metrics`.")
    port: int | None = setting(
        None,
        about="Port of `/metrics`; 0 picks a free port. `up` assigns each component its own,"
        " counting up from it.",
        ge=0,
        le=65535,
        default_text="not served",
    )
    token: SecretStr | None = secret(
        about="Bearer token that clients must send; required unless it listens on loopback only."
    )
