"""Files of the console, without a browser."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from tests.ability_search.edge_network import TOKEN, Stage, client, opened, settings_for

from ability_search.extensions.gateway.middleware import ASSETS

PAGE = files("ability_search.extensions.gateway").joinpath("page")
VENDOR = PAGE.joinpath("vendor")
OWN = {file.name: file.read_text(encoding="utf-8") for file in PAGE.iterdir() if not file.is_dir()}
VENDORED = {f"vendor/{file.name}": file.read_text(encoding="utf-8") for file in VENDOR.iterdir()}
TEXTS = OWN | VENDORED
INDEX = TEXTS["index.html"]
SCRIPTS = {name: text for name, text in OWN.items() if name.endswith(".js")}
LICENCE = "vendor/uPlot.LICENSE.txt"


async def test_page_needs_no_token_and_may_load_nothing_from_other_sites(
    stage: Stage, tmp_path: Path
) -> None:
    settings = settings_for(stage.url, tmp_path, SEARCH_GATEWAY_TOKEN=TOKEN)
    async with opened(settings) as url, client(url) as http:
        page = await http.get("/")
        assert (page.status_code, page.text) == (200, INDEX)
        parts = page.headers["content-security-policy"].split("; ")
        policy = dict(part.split(" ", 1) for part in parts)
        assert policy.pop("default-src") == "'none'"
        assert set(policy.values()) == {"'self'", "'none'"}
        known = {"if-none-match": page.headers["etag"]}
        assert (await http.get("/", headers=known)).status_code == 304
        for name in TEXTS.keys() - {"index.html"}:
            asset = await http.get(f"{ASSETS}{name}")
            assert (asset.status_code, asset.text) == (200, TEXTS[name])
            assert asset.headers["x-content-type-options"] == "nosniff"
        assert (await http.get(f"{ASSETS}none.js")).status_code == 404
        assert (await http.get("/collections")).status_code == 401


def test_every_file_is_used_and_every_used_file_exists() -> None:
    linked = set(re.findall(r'(?:href|src)="console/([^"]+)"', INDEX))
    imported = set(re.findall(r'from "\./([^"]+)"', "".join(SCRIPTS.values())))
    assert linked | imported == TEXTS.keys() - {"index.html", LICENCE}


def test_third_party_code_has_its_licence_and_evaluates_no_text() -> None:
    assert "Permission is hereby granted, free of charge" in VENDORED[LICENCE]
    (version,) = re.findall(r"\(v([\d.]+)\)", VENDORED["vendor/uPlot.esm.js"][:400])
    docs = Path(__file__).resolve().parents[4] / "docs" / "console.md"
    assert f"uPlot {version}" in docs.read_text(encoding="utf-8")
    running = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
    assert {name: re.findall(running, text) for name, text in VENDORED.items()} == {
        name: [] for name in VENDORED
    }


def test_page_has_no_inline_code_and_inserts_no_markup() -> None:
    assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=", INDEX)
    writing = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
        r"|https?://(?!www\.w3\.org)"
    )
    assert {name: re.findall(writing, text) for name, text in OWN.items()} == {
        name: [] for name in OWN
    }
