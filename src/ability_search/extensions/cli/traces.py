"""Export of spans to an OpenTelemetry collector; the only module that needs the extra ``otel``.

Spans are queued, with a bound, and sent in the background. While the collector is not available,
spans are lost without blocking anything, and the log says so once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from ability_search import __version__
from ability_search.errors import ConfigurationError
from kadi_client import tracing
from kadi_client.context import call_id

log = logging.getLogger(__name__)

CALL_ID = "ability_search.call.id"
"""Attribute of every span: the call id, as in the log."""

_NOISY = ("opentelemetry", "urllib3")
"""Libraries that log every lost batch; here only the first one is logged."""
_PATH = "/v1/traces"
_FLUSH_SECONDS = 3.0
"""Timeout for sending queued spans at the end of a process."""


@contextmanager
def exporting(endpoint: str | None, component: str) -> Iterator[None]:
    """Send the spans of this process to a collector during the block.

    The environment variables ``OTEL_*`` set everything except the address.

    Args:
        endpoint: Address of the collector for OTLP over HTTP, with or without ``/v1/traces``;
            ``None`` to take it from the environment, too.
        component: Name of this component.

    Raises:
        ConfigurationError: if one of those variables is invalid.
    """
    try:
        address = endpoint and f"{endpoint.rstrip('/').removesuffix(_PATH)}{_PATH}"
        exporter = _Reporting(OTLPSpanExporter(endpoint=address))
        own = {
            "service.namespace": "ability-search",
            "service.name": f"ability-search-{component}",
            "service.version": __version__,
        }
        resource = Resource.create({**own, **OTELResourceDetector().detect().attributes})
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(_CallIds())
        provider.add_span_processor(BatchSpanProcessor(exporter))
    except (ValueError, OSError) as exc:
        raise ConfigurationError(
            f"traces cannot be sent: {exc}", hint="Check the environment variables OTEL_*."
        ) from exc
    for name in _NOISY:
        wanted = logging.NOTSET if log.isEnabledFor(logging.DEBUG) else logging.CRITICAL
        logging.getLogger(name).setLevel(wanted)
    tracing.use(provider.get_tracer("ability-search", __version__))
    try:
        yield
    finally:
        tracing.use(None)
        # The default timeout for an unresponsive collector is ten times as long.
        flushing = threading.Thread(target=provider.shutdown, name="flush-spans", daemon=True)
        flushing.start()
        flushing.join(0 if exporter.unavailable else _FLUSH_SECONDS)


class _CallIds(SpanProcessor):
    """Adds the call id to each span."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if call := call_id():
            span.set_attribute(CALL_ID, call)


class _Reporting(SpanExporter):
    """Logs when the collector starts to refuse spans and when it accepts them again."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.unavailable = False
        """True if the last export failed."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        failed = result is not SpanExportResult.SUCCESS
        if failed and not self.unavailable:
            log.warning("the collector does not accept traces; spans are lost until it does")
        elif self.unavailable and not failed:
            log.info("the collector accepts traces again")
        self.unavailable = failed
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)
