"""Export of spans to an OpenTelemetry collector; the only module that imports OpenTelemetry.

Spans are queued, with a bound, and sent in the background. While the collector is not available,
spans are lost without blocking anything, and the log says so once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ability_search import __version__
from ability_search.errors import ConfigurationError
from kadi_client import tracing
from kadi_client.context import TRACEPARENT, call_id
from kadi_client.tracing import Kind, Span, Value

log = logging.getLogger(__name__)

CALL_ID = "ability_search.call.id"
"""Attribute of every span: the call id, as in the log."""

_COMPLAINING = ("opentelemetry", "urllib3")
"""Libraries that log every lost batch; here only the first one is logged."""
_PATH = "/v1/traces"
_FLUSH_SECONDS = 3.0
"""Timeout for sending queued spans at the end of a process."""
_KINDS: Mapping[Kind, SpanKind] = {
    "internal": SpanKind.INTERNAL,
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
}


@contextmanager
def exporting(endpoint: str | None, part: str) -> Iterator[None]:
    """Send the spans of this process to a collector during the block.

    The environment variables ``OTEL_*`` set everything except the address.

    Args:
        endpoint: Address of the collector for OTLP over HTTP, with or without ``/v1/traces``;
            ``None`` to take it from the environment, too.
        part: Name of this component.

    Raises:
        ConfigurationError: if one of those variables is invalid.
    """
    try:
        exporter = _Reporting(OTLPSpanExporter(endpoint=endpoint and _address(endpoint)))
        provider = TracerProvider(resource=_resource(part), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(exporter))
    except (ValueError, OSError) as exc:
        raise ConfigurationError(
            f"traces cannot be sent: {exc}", hint="Check the environment variables OTEL_*."
        ) from exc
    for name in _COMPLAINING:
        wanted = logging.NOTSET if log.isEnabledFor(logging.DEBUG) else logging.CRITICAL
        logging.getLogger(name).setLevel(wanted)
    tracing.use(SpanCollector(provider))
    try:
        yield
    finally:
        tracing.use(None)
        # The default timeout for an unresponsive collector is ten times as long.
        flushing = threading.Thread(target=provider.shutdown, name="flush-spans", daemon=True)
        flushing.start()
        flushing.join(0 if exporter.away else _FLUSH_SECONDS)


class SpanCollector:
    """A :class:`kadi_client.tracing.Tracer` that uses OpenTelemetry.

    Args:
        provider: Receives the spans.
    """

    def __init__(self, provider: trace.TracerProvider) -> None:
        self._tracer = provider.get_tracer("ability-search", __version__)
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def span(
        self, name: str, kind: Kind, notes: Mapping[str, Value], parent: str | None
    ) -> Iterator[Span]:
        """Record a span of the block; see :meth:`kadi_client.tracing.Tracer.span`."""
        context = None
        if parent is not None:
            context = self._propagator.extract({TRACEPARENT: parent}, Context())
        call = call_id()
        attributes = dict(notes) if call is None else {CALL_ID: call, **notes}
        with self._tracer.start_as_current_span(
            name,
            context,
            _KINDS[kind],
            attributes,
            # Error messages may quote the query.
            record_exception=False,
            set_status_on_exception=False,
        ) as started:
            told = _Span(started)
            try:
                yield told
            except BaseException as exc:
                told.fail(type(exc).__name__)
                raise

    def traceparent(self) -> str | None:
        """Return the current trace context; see :meth:`kadi_client.tracing.Tracer.traceparent`."""
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return carrier.get(TRACEPARENT)


class _Span:
    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def note(self, name: str, value: Value) -> None:
        self._span.set_attribute(name, value)

    def fail(self, reason: str) -> None:
        self._span.set_status(StatusCode.ERROR, reason)
        self._span.set_attribute("error.type", reason)


class _Reporting(SpanExporter):
    """Logs when the collector starts to refuse spans and when it accepts them again."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.away = False
        """Whether the last export failed."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        away = result is not SpanExportResult.SUCCESS
        if away and not self.away:
            log.warning("the collector does not accept traces; spans are lost until it does")
        elif self.away and not away:
            log.info("the collector accepts traces again")
        self.away = away
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def _address(endpoint: str) -> str:
    base = endpoint.rstrip("/")
    return base if base.endswith(_PATH) else base + _PATH


def _resource(part: str) -> Resource:
    own = {
        "service.namespace": "ability-search",
        "service.name": f"ability-search-{part}",
        "service.version": __version__,
    }
    return Resource.create({**own, **OTELResourceDetector().detect().attributes})
