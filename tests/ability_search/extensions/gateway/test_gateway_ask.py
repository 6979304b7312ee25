"""POST /ask before the real worker and a model behind a server that streams."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from tests.ability_search.edge_network import client, opened
from tests.ability_search.extensions.answers.chat_server import chat_server
from tests.ability_search.flows.conftest import Network, document


def _event(text: str) -> tuple[str, dict[str, Any]]:
    name, data = text.splitlines()
    return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


async def test_questions_are_answered_as_json_and_as_events(
    network: Network, tmp_path: Path
) -> None:
    async with chat_server(tmp_path) as server:
        expansion = network.settings.expansion.model_copy(
            update={"transport": "api", "api_url": SecretStr(server.url), "model": "usual"}
        )
        settings = replace(network.settings, expansion=expansion)
        text = "Backups run every night at 02:00."
        await network.call("search-index", collection="docs", documents=[document("a", text)])
        async with opened(settings) as url, client(url) as http:
            asked = {"query": "when do backups run every night?", "tag": "docs"}
            whole = (await http.post("/ask", json=asked)).json()
            assert (whole["outcome"], whole["answer"]) == ("answered", f"{text} [1]")
            assert whole["passages"][0]["source"] == "a"
            streaming = {"Accept": "text/event-stream"}
            answer = await http.post("/ask", json=asked, headers=streaming)
            assert answer.headers["content-type"].startswith("text/event-stream")
            events = dict(map(_event, answer.text.strip().split("\n\n")))
            assert list(events) == ["passages", "sentence", "answer"]
            assert events["passages"]["results"] == whole["passages"]
            assert events["sentence"] == whole["sentences"][0]
            assert events["answer"]["answer"] == whole["answer"]
            for wrong in ({"query": " "}, {"query": "x", "streem": True}, {}):
                refused = await http.post("/ask", json=wrong, headers=streaming)
                assert (refused.status_code, refused.json()["code"]) == (400, "invalid_input")
            gone = {**asked, "tag": "gone"}
            missing = await http.post("/ask", json=gone, headers=streaming)
            assert missing.json()["code"] == "not_found"
