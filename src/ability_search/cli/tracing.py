"""Sending traces from a component or command."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from ability_search.cli.served import INSTALL_OTEL
from ability_search.config.schema import Settings
from ability_search.errors import ConfigurationError

log = logging.getLogger(__name__)

_COLLECTOR = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""These apply to every program of the machine, so a missing extra is only a warning."""


@contextmanager
def traced(settings: Settings, part: str) -> Iterator[None]:
    """Send traces of the block to the collector set in the settings or by OpenTelemetry, if any.

    Raises:
        ConfigurationError: if the settings set one and the extra is missing.
    """
    endpoint = settings.tracing.endpoint
    if endpoint is None and not any(map(os.environ.get, _COLLECTOR)):
        yield
        return
    try:
        from ability_search.ops.traces import exporting
    except ModuleNotFoundError as exc:
        problem = f"the extra 'otel' is not installed ({exc.name} is missing)"
        if endpoint is not None:
            raise ConfigurationError(problem, hint=f"Run: {INSTALL_OTEL}") from exc
        log.warning("traces are not sent: %s", problem)
        yield
        return
    with exporting(endpoint.get_secret_value() if endpoint else None, part):
        yield
