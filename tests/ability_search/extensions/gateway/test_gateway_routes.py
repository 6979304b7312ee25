"""Routes of the gateway over the real worker."""

from __future__ import annotations

import json
from base64 import b64encode
from io import BytesIO
from typing import Any

import jsonschema
from pptx import Presentation
from tests.ability_search.edge_network import client, opened
from tests.ability_search.flows.conftest import Network, down

from ability_search.extensions.gateway.operations import openapi_document
from ability_search.files.selection import SECRET

DOCUMENT = json.loads(json.dumps(openapi_document(secured=False)))
BACKUPS = {"content": "Backups run at two in the morning.", "title": "Backups", "tag": "notes"}


MAIL = (
    b"From: a@example.org\nSubject: Harvest\nMIME-Version: 1.0\n"
    b'Content-Type: multipart/mixed; boundary="b"\n\n--b\nContent-Type: text/plain\n\n'
    b"Pears ripen in October.\n--b\nContent-Type: application/gzip\n"
    b'Content-Disposition: attachment; filename="old.gz"\nContent-Transfer-Encoding: base64\n\n'
    b"H4sIAA==\n--b--\n"
)


async def test_files_are_indexed_and_unreadable_ones_are_named(network: Network) -> None:
    slides = BytesIO()
    deck = Presentation()
    deck.slides.add_slide(deck.slide_layouts[5]).shapes.title.text = "Apples ripen in September"
    deck.save(slides)
    contents = {"deck.pptx": slides.getvalue(), "n.txt": b"Nets.", "x.tar.gz": b"\x1f\x8b\x08\0"}
    contents |= {"mail.eml": MAIL, "work/.env": b"KEY=1"}
    files = [{"source": name, "data": b64encode(data).decode()} for name, data in contents.items()]
    async with opened(network.settings) as url, client(url) as http:
        given = {"collection": "drop", "files": files, "jobId": "j1"}
        indexed = fits("application/json", "/files", (await http.post("/files", json=given)).json())
        assert (indexed["added"], indexed["jobId"]) == (3, "j1")
        assert [(each["source"], each["error"], each["code"]) for each in indexed["failed"]] == [
            ("x.tar.gz", "a gzip archive, not text", "invalid_input"),
            ("mail.eml#attachment=old.gz", "a gzip archive, not text", "invalid_input"),
            ("work/.env", SECRET, "invalid_input"),
        ]
        found = await http.post("/search", json={"query": "apples", "tag": "drop"})
        hit = found.json()["results"][0]
        assert hit["source"] == "deck.pptx"
        assert "Apples ripen in September" in hit["content"]
        again = await http.post("/files", json=given)
        assert again.json()["unchanged"] == 3
        for wrong, named in (
            (
                {**given, "files": files[2:3]},
                "files: none can be read; x.tar.gz: a gzip archive, not text",
            ),
            ({**given, "files": [{"source": "a", "data": "%"}]}, "files.0.data"),
            ({**given, "files": []}, "files: "),
        ):
            refused = await http.post("/files", json=wrong)
            problem = fits("application/problem+json", "/files", refused.json(), "400")
            assert named in problem["detail"]


async def test_an_emptied_file_is_deleted_and_a_copy_set_aside(network: Network) -> None:
    def sent(contents: dict[str, str]) -> dict[str, Any]:
        files = [
            {"source": name, "data": b64encode(text.encode()).decode()}
            for name, text in contents.items()
        ]
        return {"collection": "drop", "files": files, "dedupThreshold": 0.99}

    async with opened(network.settings) as url, client(url) as http:
        text = "# Nets\n\nNets are mended in March."
        stored = (
            await http.post("/files", json=sent({"a.md": text, "copy.md": text, "b": "Else."}))
        ).json()
        assert (stored["added"], stored["deduplicated"]) == (3, 1)
        emptied = (await http.post("/files", json=sent({"a.md": " \n", "b": ""}))).json()
        assert [each["source"] for each in emptied["failed"]] == ["a.md", "b"]
        assert "is blank" in emptied["failed"][0]["error"]
        found = await http.post("/search", json={"query": "nets", "tag": "drop"})
        assert [hit["source"] for hit in found.json()["results"]] == ["copy.md"]


async def test_the_memory_of_an_agent_is_written_read_searched_and_deleted(
    network: Network,
) -> None:
    async with opened(network.settings) as url, client(url) as http:

        async def called(name: str, **body: Any) -> Any:
            answer = await http.post(f"/tools/memory-{name}", json={"agentId": "ada"} | body)
            return fits("application/json", f"/tools/memory-{name}", answer.json())

        said = [{"role": "user", "content": "Nets are mended in March.", "time": "2026-03-01"}]
        await called("write", scratch={"topic": "nets"}, tasks=[{"content": "x"}], history=said)
        state = await called("read")
        assert (state["scratch"][0]["value"], state["tasks"][0]["status"]) == ("nets", "open")
        assert state["history"][0]["time"] == "2026-03-01T00:00:00.000Z"
        found = await called("search", query="when are nets mended", sessionId="default")
        assert found["results"][0]["source"] == "default/000000001"
        assert (await called("delete", before="2026-04-01", dryRun=True))["history"] == 1
        assert (await called("delete", tasks=["1"]))["tasks"] == 1
        refused = await http.post("/tools/memory-read", json={"agentId": "ada", "keys": ["no"]})
        problem = fits("application/problem+json", "/tools/memory-read", refused.json(), "404")
        assert "no key of the scratchpad named 'no'" in problem["detail"]
        refused = await http.post("/tools/memory-write", json={"scratch": "x"})
        assert refused.status_code == 400
        assert "scratch: " in refused.json()["detail"]


KIND = {"content-type": "application/json"}
HUGE = b'{"collection": "notes", "query": "x", "limit": 1' + b"0" * 40 + b"}"


def fits(name: str, path: str, answer: Any, status: str = "200", method: str = "post") -> Any:
    """The answer, after it was held against what the document says of it."""
    responses = DOCUMENT["paths"][path][method]["responses"]
    schema = responses[status]["content"][name]["schema"]
    jsonschema.validate(answer, {**schema, "components": DOCUMENT["components"]})
    return answer


async def test_text_is_ingested_searched_listed_replaced_and_deleted(network: Network) -> None:
    json_ = "application/json"
    async with opened(network.settings) as url, client(url) as http:
        first = await http.post("/ingest", json={**BACKUPS, "metadata": {"year": 2026}})
        assert fits(json_, "/ingest", first.json())["added"] == 1
        again = await http.post("/ingest", json={**BACKUPS, "content": "They run at noon."})
        assert again.json()["updated"] == 1
        other = {"content": "Bread rests.", "title": "Bread", "tag": "kitchen", "source": "b/1"}
        assert (await http.post("/ingest", json=other)).json()["collection"] == "kitchen"

        everywhere = await http.post("/search", json={"query": "noon", "limit": 3})
        found = fits(json_, "/search", everywhere.json())
        assert [hit["source"] for hit in found["results"]][0] == "Backups"
        assert {hit["collection"] for hit in found["results"]} == {"notes", "kitchen"}
        tagged = await http.post("/search", json={"query": "bread", "tag": "kitchen"})
        assert [hit["source"] for hit in tagged.json()["results"]] == ["b/1"]

        asked = {"query": "bread", "tag": "kitchen", "hops": 3}
        over = await http.post("/graph-search", json=asked)
        assert "graph" in fits(json_, "/graph-search", over.json())["timings"]
        refused = await http.post("/graph-search", json={**asked, "hops": 4})
        assert (refused.status_code, "hops" in refused.text) == (400, True)

        missing = await http.get("/collections/notes/graph")
        assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
        analyze = {"collection": "notes"}
        assert (await http.post("/tools/notes-analyze", json=analyze)).status_code == 200
        graph = (await http.get("/collections/notes/graph")).json()
        assert fits(json_, "/collections/{name}/graph", graph, method="get")["chunks"] == 1

        listed = fits(json_, "/collections", (await http.get("/collections")).json(), method="get")
        assert {item["name"] for item in listed["collections"]} == {"notes", "kitchen"}
        info = await http.get("/collections/notes", params={"limit": 1})
        about = fits(json_, "/collections/{name}", info.json(), method="get")
        assert about["sources"] == ["Backups"]

        offered = fits(json_, "/network", (await http.get("/network")).json(), method="get")
        offers = {tool["name"]: tool["providers"] for tool in offered["tools"]}
        assert [each["name"] for each in offers["create-embedding"]] == ["parts"]

        gone = await http.post("/tools/search-delete", json={"collection": "notes"})
        assert fits(json_, "/tools/search-delete", gone.json())["deleted"] == 1
        left = (await http.post("/tools/search-collections")).json()["collections"]
        assert [item["name"] for item in left] == ["kitchen"]


async def test_failures_are_problem_documents_with_code_hint_and_status(
    network: Network,
) -> None:
    async with opened(network.settings) as url, client(url) as http:
        await http.post("/ingest", json=BACKUPS)
        query = "/tools/search-query"
        other = {"collection": "notes", "query": "x", "model": "m"}
        cases = [
            (await http.post(query, json={"collection": "note", "query": "x"}), 404, "not_found"),
            (await http.post(query, json={"query": "x"}), 400, "invalid_input"),
            (await http.post(query, json=other), 409, "model_mismatch"),
            (await http.post("/ingest", json={"title": "x"}), 400, "invalid_input"),
            (await http.get("/collections/none"), 404, "not_found"),
            (await http.get("/collections/notes?limit=many"), 400, "invalid_input"),
            (await http.get("/collections/notes?limit=0"), 400, "invalid_input"),
            (await http.get(f"/collections/notes?limit={10**30}"), 400, "invalid_input"),
            (await http.get("/collections/notes?limt=1"), 400, "invalid_input"),
            (await http.get("/collections?limit=1"), 400, "invalid_input"),
            (await http.get("/events?colection=notes"), 400, "invalid_input"),
            (await http.post("/search?tag=notes", json={"query": "x"}), 400, "invalid_input"),
            (await http.post(query, content=HUGE, headers=KIND), 413, "too_large"),
            (await http.post(query, content=b'{"a":1e999}', headers=KIND), 400, "invalid_input"),
        ]
        for response, status, code in cases:
            problem = response.json()
            assert (response.status_code, problem["status"]) == (status, status), problem
            assert response.headers["content-type"] == "application/problem+json"
            assert problem["code"] == code
            assert problem["hint"]
            fits("application/problem+json", query, problem, str(status))
        assert "notes" in cases[0][0].json()["hint"]
        assert cases[0][0].json()["tool"] == "search-query"
        assert "collection" in cases[1][0].json()["detail"]
        assert "content" in cases[3][0].json()["detail"]
        hints = [response.json()["hint"] for response, *_ in cases]
        assert hints[8:11:2] == ["Did you mean limit?", "Did you mean collection?"]

        network.model.failure = down
        semantic = {"collection": "notes", "query": "other words", "mode": "semantic"}
        away = await http.post(query, json=semantic)
        assert (away.status_code, away.json()["code"]) == (503, "embedding_unavailable")
        assert away.json()["retryable"]
        assert int(away.headers["retry-after"]) >= 1
