"""A collector of traces: OTLP over HTTP, as one line of a collector's configuration opens it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Seen:
    """A span as it arrived."""

    name: str
    kind: int
    id: str
    parent: str
    trace: str
    notes: dict[str, Any]
    service: str
    error: str


@dataclass
class Collector:
    """Receives spans over HTTP, and keeps them."""

    url: str
    spans: list[Seen] = field(default_factory=list)
    requests: int = 0
    status: int = 200
    hold: threading.Event | None = None
    """Requests wait for it."""

    def path_of(self, span: Seen) -> list[str]:
        """Names from the root to a span; the root's parent is somebody else's."""
        by_id = {each.id: each for each in self.spans}
        path = [span.name]
        while (parent := by_id.get(span.parent)) is not None:
            path.insert(0, parent.name)
            span = parent
        return path


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.requests += 1
            if collector.hold is not None:
                collector.hold.wait()
            if collector.status == 200:
                collector.spans += _read(body)
            self.send_response(collector.status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(f"http://127.0.0.1:{server.server_port}")
    serving = threading.Thread(target=server.serve_forever, args=(0.05,))
    serving.start()
    try:
        yield collector
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def _read(body: bytes) -> list[Seen]:
    request = ExportTraceServiceRequest.FromString(body)
    found = []
    for resource in request.resource_spans:
        about = {each.key: each.value.string_value for each in resource.resource.attributes}
        for scope in resource.scope_spans:
            found += [
                Seen(
                    name=span.name,
                    kind=span.kind,
                    id=span.span_id.hex(),
                    parent=span.parent_span_id.hex(),
                    trace=span.trace_id.hex(),
                    notes={each.key: _value(each.value) for each in span.attributes},
                    service=about["service.name"],
                    error=span.status.message,
                )
                for span in scope.spans
            ]
    return found


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))
