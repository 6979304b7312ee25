"""Traces as a collector gets them, and collectors that do not."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import SpanKind
from tests.ability_search.collector import collecting

from ability_search.config.loader import load_settings
from ability_search.config.schema import Settings
from ability_search.errors import ConfigurationError
from ability_search.extensions.cli import traces
from ability_search.extensions.cli.component_run import traced
from ability_search.extensions.cli.http_server import serve_http
from ability_search.extensions.cli.traces import CALL_ID, exporting
from ability_search.providers.model_servers import ModelServers
from kadi_client.context import call_id, current, handling
from kadi_client.tracing import TRACEPARENT, separate, span, traceparent
from kadi_localnet.models.http import application

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
ENDPOINT = "SEARCH_TRACING_ENDPOINT"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Spans leave soon."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    yield


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_span_has_attributes_and_call_id_but_no_error_text() -> None:
    with (
        collecting() as collector,
        exporting(f"{collector.url}/v1/traces", "worker"),
        handling({"callId": "a"}),
    ):
        with span("outer", SpanKind.SERVER, {"n": 1}, parent=PARENT) as outer:
            outer.set_attribute("later", True)
            told = current()[TRACEPARENT]
            with pytest.raises(LookupError), span("inner"):
                raise LookupError("what was searched for")
        assert traceparent() is None
        until(lambda: len(collector.spans) == 2)
    inner, found = sorted(collector.spans, key=lambda each: each.name)
    assert (found.trace, found.parent) == tuple(PARENT.split("-")[1:3])
    assert told == f"00-{found.trace}-{found.id}-01"
    assert found.notes == {CALL_ID: "a", "n": 1, "later": True}
    assert (inner.parent, inner.trace) == (found.id, found.trace)
    assert inner.notes == {CALL_ID: "a", "error.type": "LookupError"}
    assert (inner.error, found.error) == ("LookupError", "")
    assert found.service == "ability-search-worker"


def test_the_standard_variables_apply(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        with traced(settings(tmp_path), "worker"), span("a"):
            pass
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
        with traced(settings(tmp_path), "worker"), span("b"):
            assert traceparent() is not None
    assert [(each.name, each.service) for each in collector.spans] == [("a", "mine")]


class _Model:
    """A model whose vectors are alike, and whose log would tell whom it works for."""

    def __init__(self) -> None:
        self.calls: list[str | None] = []

    async def create_embedding(self, raw: Any, *, timeout: float | None = None) -> dict[str, Any]:
        self.calls.append(call_id())
        return {"data": [{"index": 0, "embedding": [1.0, 0.0]}]}


async def test_the_trace_includes_a_model_behind_http(tmp_path: Path) -> None:
    model = _Model()
    answers = {"/v1/embeddings": model.create_embedding}
    app = application(answers, ["m"], token=None, max_bytes=10_000, timeout=30)
    with collecting() as collector, exporting(collector.url, "all"):
        async with serve_http(app, "127.0.0.1", 0, token=None, prefix="model_http") as url:
            for propagate in ("1", "0"):
                asked = {
                    "HOME": str(tmp_path),
                    "SEARCH_EMBEDDING_TRANSPORT": "api",
                    "SEARCH_EMBEDDING_API_URL": url,
                    "SEARCH_TRACING_PROPAGATE": propagate,
                }
                opening = ModelServers(load_settings(asked, tmp_path), _nobody).embedder()
                with handling({"callId": "a"}), span("query"):
                    async with opening as embedder:
                        await embedder.embed("m", ["bread"], timeout=30)
    assert model.calls[0] == "a"
    assert model.calls[1] not in ("a", None)
    assert sorted(" > ".join(collector.path_of(each)) for each in collector.spans) == [
        "/v1/embeddings",
        "query",
        "query",
        "query > embed",
        "query > embed",
        "query > embed > /v1/embeddings",
    ]


async def _nobody(
    tool: str,
    tool_input: Mapping[str, Any],
    *,
    timeout: float = 0.0,
    target_agent: str | None = None,
) -> Any:
    raise AssertionError


def test_components_of_one_process_have_tracers_of_their_own() -> None:
    with collecting() as own, collecting() as other:

        def guest() -> None:
            separate()
            assert traceparent() is None
            with exporting(other.url, "gateway"), span("of the guest"):
                pass

        with exporting(own.url, "broker"):
            copy_context().run(guest)
            with span("of the process"):
                pass
    assert [each.name for each in own.spans] == ["of the process"]
    assert [each.name for each in other.spans] == ["of the guest"]


def test_an_unavailable_collector_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with collecting() as collector, exporting(collector.url, "worker"):
        collector.status = 400

        def received(count: int) -> bool:
            return collector.requests >= count

        for sent in range(1, 4):
            with span("lost"):
                pass
            until(partial(received, sent))
        collector.status = 200
        with span("kept"):
            pass
        until(lambda: collector.spans)
    assert [span.name for span in collector.spans] == ["kept"]
    assert [(each.name, each.levelname) for each in caplog.records] == [
        (traces.__name__, "WARNING"),
        (traces.__name__, "INFO"),
    ]


def test_a_stuck_collector_does_not_delay_the_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "_FLUSH_SECONDS", 0.1)
    with collecting() as collector:
        collector.hold = threading.Event()
        with exporting(collector.url, "worker"):
            with span("a"):
                pass
            until(lambda: collector.requests)
        (flushing,) = [each for each in threading.enumerate() if each.name == "flush-spans"]
        collector.hold.set()
        flushing.join(30)
        assert not flushing.is_alive()


def test_traces_need_the_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delitem(sys.modules, traces.__name__)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with traced(settings(tmp_path), "worker"):
        assert not caplog.text
    with (
        pytest.raises(ConfigurationError) as raised,
        traced(settings(tmp_path, "http://c"), "worker"),
    ):
        raise AssertionError
    assert raised.value.hint == "Run: pip install 'ability-search[otel]'"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c")
    with traced(settings(tmp_path), "worker"):
        assert "extra 'otel' is not installed" in caplog.text


def test_an_invalid_variable_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "-1")
    with pytest.raises(ConfigurationError, match="queue"), exporting("http://c", "worker"):
        raise AssertionError


def settings(home: Path, endpoint: str = "") -> Settings:
    return load_settings({"HOME": str(home), ENDPOINT: endpoint}, home)
