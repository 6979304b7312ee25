"""Retrieval from the memory of an agent: conversations written session by session, then questions.

Each judged conversation is written to the history of an agent in the order of its sessions, with
the time of each session, and again as plain documents with the same texts. The questions are asked
of both; those of the history as of the last session. Needs a running stack::

    python -m benchmarks.agent_memory DIRECTORY...

Prints nDCG@10 and recall@10 of both, and the mean differences with 95 % intervals.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from ability_search.client import SearchClient
from ability_search.extensions.evaluation.comparison import paired
from ability_search.extensions.evaluation.evaluator import per_query

METRICS = ("nDCG@10", "Recall@10")
WAYS = ("documents", "history")
Rows = list[dict[str, Any]]


def _rows(path: Path) -> Rows:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _time(row: Mapping[str, Any]) -> str:
    """Return the time of a turn's session, such as ``1:56 pm on 8 May, 2023``."""
    return f"{datetime.strptime(row['metadata']['date'], '%I:%M %p on %d %B, %Y').isoformat()}Z"


async def _written(search: SearchClient, agent: str, corpus: Rows) -> dict[str, str]:
    """Write a conversation to the history; return the id of each source."""
    ids: dict[str, str] = {}
    for session, turns in groupby(corpus, lambda row: str(row["metadata"]["session"])):
        rows = list(turns)
        for start in range(0, len(rows), 256):
            part = rows[start : start + 256]
            said = [
                {"role": row["metadata"]["speaker"], "content": row["text"], "time": _time(row)}
                for row in part
            ]
            written = {"agentId": agent, "sessionId": session, "history": said}
            stored = await search.call("memory-write", written)
            sources = [entry["source"] for entry in stored["history"]]
            ids |= dict(zip(sources, (row["_id"] for row in part), strict=True))
    return ids


async def _measured(search: SearchClient, directory: Path) -> dict[str, list[Any]]:
    """Return the values of each metric for each question, as documents and as history."""
    corpus, queries = _rows(directory / "corpus.jsonl"), _rows(directory / "queries.jsonl")
    qrels: dict[str, dict[str, int]] = {}
    for line in (directory / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, source, score = line.split("\t")
        qrels.setdefault(query, {})[source] = int(score)
    agent = f"set-{directory.name}"
    await search.call("memory-delete", {"agentId": agent, "sessionId": "*"})
    ids = await _written(search, agent, corpus)
    plain = [
        {"source": row["_id"], "title": "", "content": row["text"], "metadata": row["metadata"]}
        for row in corpus
    ]
    await search.index(agent, plain)
    as_of = max(map(_time, corpus))
    rankings: dict[str, dict[str, list[str]]] = {"documents": {}, "history": {}}
    for asked in queries:
        name, text = asked["_id"], asked["text"]
        found = await search.query(agent, text)
        rankings["documents"][name] = [hit.source for hit in found.results]
        found = await search.query(f"history-{agent}", text, as_of=as_of)
        rankings["history"][name] = [ids[hit.source] for hit in found.results]
    await search.call("memory-delete", {"agentId": agent, "sessionId": "*"})
    await search.delete(agent)
    values: dict[str, list[Any]] = {}
    for way, ranking in rankings.items():
        measured = per_query(qrels, ranking, limit=10)
        for metric in METRICS:
            values[f"{way} {metric}"] = [measured[query][metric] for query in sorted(qrels)]
    return values


async def _run(directories: list[Path]) -> None:
    values: dict[str, list[Any]] = {}
    async with SearchClient() as search:
        for directory in directories:
            for name, measured in (await _measured(search, directory)).items():
                values[name] = values.get(name, []) + measured
    for name, measured in values.items():
        print(f"{name}: {sum(measured) / len(measured):.3f} ({len(measured)} questions)")
    for metric in METRICS:
        print(metric, paired(*(np.array(values[f"{way} {metric}"]) for way in WAYS)))


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agent_memory", description=__doc__)
    parser.add_argument("directory", nargs="+", type=Path, help="judged conversations")
    asyncio.run(_run(parser.parse_args().directory))


if __name__ == "__main__":
    main()
