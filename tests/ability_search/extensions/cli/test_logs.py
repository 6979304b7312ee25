from __future__ import annotations

import io
import json
import logging

import pytest

from ability_search.extensions.cli import logs
from kadi_client.context import CALL_ID, LOG_FIELD, handling

LOG = logging.getLogger("ability_search.some.place")


@pytest.fixture(autouse=True)
def own_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tests before this one left running does not log."""
    handle = logging.Logger.handle

    def own(logger: logging.Logger, record: logging.LogRecord) -> None:
        if record.pathname == __file__:
            handle(logger, record)

    monkeypatch.setattr(logging.Logger, "handle", own)


def test_json_logs_have_one_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json", component="worker")
    LOG.info("took %d ms\nand more", 7)
    try:
        raise ValueError("x")
    except ValueError:
        LOG.exception("failed")
    LOG.debug("unseen")
    out, err = capsys.readouterr()
    assert out == ""
    first, second = map(json.loads, err.splitlines())
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "info",
        "part": "worker",
        "logger": "ability_search.some.place",
        "message": "took 7 ms\nand more",
    }
    assert "ValueError: x" in second["exception"]


def test_pretty_logs_show_time_severity_and_component(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("warning", "pretty", component="broker")
    LOG.warning("look %s", "out")
    LOG.info("unseen")
    assert capsys.readouterr().err[8:] == " WARN  broker: look out\n"


def test_libraries_that_log_every_request_are_silenced(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure("info", "pretty", component="worker")
    logging.getLogger("httpx").info("GET")
    assert capsys.readouterr().err == ""
    logs.configure("debug", "pretty", component="worker")
    logging.getLogger("httpx").info("GET")
    assert "GET" in capsys.readouterr().err


def test_a_line_contains_the_id_of_its_call(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "pretty", component="worker")
    with handling({CALL_ID: "call-1"}):
        LOG.info("done")
        LOG.info("done for another", extra={LOG_FIELD: "call-2"})
        logs.configure("info", "json", component="worker")
        LOG.info("done")
    LOG.info("done")
    first, second, third, fourth = capsys.readouterr().err.splitlines()
    assert first.endswith(" INFO  worker: done [call-1]")
    assert second.endswith(" INFO  worker: done for another [call-2]")
    assert json.loads(third)["call"] == "call-1"
    assert "call" not in json.loads(fourth)


def test_no_level_logs_the_content_of_messages(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("debug", "pretty", component="worker")
    for name in ("websockets.client", "mcp.server", "kadi_localnet.broker.server.websocket"):
        logging.getLogger(name).debug("> TEXT a document, a key")
    assert not capsys.readouterr().err


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def folding() -> tuple[logs.FoldingHandler, io.StringIO, Clock]:
    stream, clock = io.StringIO(), Clock()
    handler = logs.FoldingHandler(stream, clock=clock)
    handler.setFormatter(logs.JsonFormatter("worker"))
    logging.getLogger().handlers[:] = [handler]
    logging.getLogger().setLevel("INFO")
    return handler, stream, clock


def messages(stream: io.StringIO) -> list[str]:
    found = [json.loads(line)["message"] for line in stream.getvalue().splitlines()]
    stream.seek(0)
    stream.truncate()
    return found


def test_a_repeated_warning_that_cannot_be_formatted_does_not_reach_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    _, stream, clock = folding()
    for _ in range(30):
        LOG.warning("no answer to call %d", "seven")
    clock.now += 11
    LOG.warning("something else")
    assert messages(stream) == ["something else"]


def test_repeated_warnings_are_folded_into_one_line_with_their_number() -> None:
    handler, stream, clock = folding()
    for n in range(1000):
        LOG.warning("no answer to call %d", n)
    LOG.warning("something else")
    logging.getLogger("ability_search.other").warning("no answer to call %d", 1)
    LOG.error("no answer to call %d", 2)
    written = messages(stream)
    assert written[:20] == [f"no answer to call {n}" for n in range(20)]
    assert written[20:] == ["something else", "no answer to call 1", "no answer to call 2"]
    clock.now += 11
    LOG.info("a call")
    assert messages(stream) == ["980 more like this: no answer to call 999", "a call"]
    LOG.warning("no answer to call %d", 3)
    handler.close()
    assert messages(stream) == ["no answer to call 3"]


def test_counts_are_written_when_the_log_ends_or_is_set_up_again() -> None:
    handler, stream, _ = folding()
    for n in range(22):
        LOG.warning("lost %d", n)
    handler.close()
    assert messages(stream)[20:] == ["2 more like this: lost 21"]
    _, stream, _ = folding()
    for n in range(21):
        LOG.warning("lost %d", n)
    logs.configure("info", "json", component="worker")
    assert messages(stream)[20:] == ["1 more like this: lost 20"]


def test_a_count_has_no_traceback_and_no_call(capsys: pytest.CaptureFixture[str]) -> None:
    handler, stream, _ = folding()
    for _ in range(25):
        with handling({CALL_ID: "call-1"}):
            try:
                raise ValueError("x")
            except ValueError:
                LOG.exception("failed")
    with handling({CALL_ID: "call-2"}):
        handler.close()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert all(line["call"] == "call-1" and "exception" in line for line in lines[:20])
    assert lines[20]["message"] == "5 more like this: failed"
    assert not {"call", "exception"} & lines[20].keys()
    assert capsys.readouterr().err == ""


def test_lines_of_calls_are_never_folded() -> None:
    _, stream, _ = folding()
    for _ in range(100):
        LOG.info("search-query ok in %d ms", 3)
    assert len(messages(stream)) == 100


def test_the_number_of_different_messages_that_are_counted_is_bounded() -> None:
    handler, stream, clock = folding()
    for n in range(5000):
        LOG.warning(f"told {n}")  # noqa: G004 - messages without arguments
    assert len(messages(stream)) == 5000
    assert len(handler._runs) <= 1000
    clock.now += 11
    LOG.info("a call")
    assert not handler._runs
