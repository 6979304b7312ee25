"""Prerequisites of the examples on a page: files and collections."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable

from tests.snippets.blocks import ROOT
from tests.snippets.reader import Reader

TEXTS = {
    "docs/backup.md": "# Backup\n\nEvery night the data is copied to a tape in the cellar.\n",
    "docs/guide/install.md": "# Installing\n\nUnpack the archive, then start the program.\n",
    "project/valve.py": '"""The valve stays closed."""\n',
    "src/pump.py": '"""The pump is replaced in May."""\n',
}
SET = {
    "corpus.jsonl": [
        {"_id": "bread", "title": "Bread", "text": "The dough rests for an hour."},
        {"_id": "soup", "title": "Soup", "text": "Onions are fried until golden."},
        {"_id": "tape", "title": "Backup", "text": "The data is copied to a tape."},
    ],
    "queries.jsonl": [
        {"_id": "q1", "text": "how long does the dough rest"},
        {"_id": "q2", "text": "what is done with onions"},
    ],
}
JUDGEMENTS = "query-id\tcorpus-id\tscore\nq1\tbread\t1\nq2\tsoup\t1\n"


def prepare(page: str, reader: Reader) -> None:
    """Make it so."""
    PREPARED.get(page, texts)(reader)


def texts(reader: Reader) -> None:
    """Two directories."""
    for name, text in TEXTS.items():
        file = reader.directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def judged(reader: Reader) -> None:
    """Sets of queries with known answers."""
    for name in ("data/cranfield", "data/notes", "mine"):
        directory = reader.directory / name
        directory.mkdir(parents=True)
        for file, lines in SET.items():
            (directory / file).write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
        (directory / "qrels.tsv").write_text(JUDGEMENTS, encoding="utf-8")


def everything(reader: Reader) -> None:
    """Texts and sets."""
    texts(reader)
    judged(reader)


def checkout(reader: Reader) -> None:
    """What a reader of the tutorial has before he begins."""
    for name in ("docs", "examples"):
        (reader.directory / name).symlink_to(ROOT / name)


def library(reader: Reader) -> None:
    """The docstrings that the README searches."""
    modules = "base64 bisect csv glob gzip heapq shutil subprocess tempfile textwrap"
    write = runpy.run_path(str(ROOT / "scripts" / "demo.py"))["write_library"]
    assert write(reader.directory / "stdlib", modules) == 10
    (reader.machine.home / "Documents").mkdir()


def skills(reader: Reader) -> None:
    """A repository of skills beside texts that are indexed."""
    collection(reader)
    reader.run("git init --quiet hub")
    reader.run(
        "git -C hub -c user.name=Somebody -c user.email=somebody@example.org"
        " commit --quiet --allow-empty --message Begin"
    )


def collection(reader: Reader) -> None:
    """Texts that are indexed."""
    texts(reader)
    reader.run("ability-search index docs")


PREPARED: dict[str, Callable[[Reader], None]] = {
    "README.md": library,
    "artifacts.md": skills,
    "ask.md": collection,
    "evaluation.md": judged,
    "graph.md": collection,
    "howto.md": everything,
    "operations.md": collection,
    "tools.md": collection,
    "tutorial.md": checkout,
}
