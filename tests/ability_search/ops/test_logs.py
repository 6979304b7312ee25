from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from ability_search.ops import logs
from kadi_client.context import CALL_ID, LOG_FIELD, handling

LOG = logging.getLogger("ability_search.some.place")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


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
