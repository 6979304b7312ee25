"""The peers of :mod:`benchmarks.peers`; runs in their environment.

Reads requests from standard input, one JSON object a line, and answers each with a line.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
import tantivy
from lancedb.index import FTS, HnswSq
from lancedb.rerankers import RRFReranker

from benchmarks import texts
from benchmarks.vectors import DIMENSIONS, vector_of

_HITS = 10
_CANDIDATES = 40
_RRF_K = 60
_BATCH = 500
_BEAM = 100

Search = Callable[[str, str], list[str]]
"""Takes mode and query, returns the sources of the hits, whose texts it has read."""


def lance(directory: str, documents: Sequence[dict[str, Any]], vectors: Any) -> Search:
    """Return a search of LanceDB: IVF-HNSW-SQ, full text, reciprocal rank fusion."""
    schema = pa.schema(
        [
            ("source", pa.string()),
            ("title", pa.string()),
            ("content", pa.string()),
            ("vector", pa.list_(pa.float32(), DIMENSIONS)),
        ]
    )
    table = lancedb.connect(directory).create_table("bench", schema=schema)
    for start in range(0, len(documents), _BATCH):
        rows = zip(documents[start : start + _BATCH], vectors[start : start + _BATCH], strict=True)
        table.add([{**_stored(each), "vector": vector} for each, vector in rows])
    table.optimize()
    table.create_index("vector", config=HnswSq(distance_type="cosine", num_partitions=1))
    table.create_index("content", config=FTS(remove_stop_words=False))
    reranker = RRFReranker(K=_RRF_K)

    def search(mode: str, text: str) -> list[str]:
        vector = vector_of(text)
        if mode == "hybrid":
            query = table.search(query_type="hybrid").vector(vector).text(text).ef(_BEAM)
            query = query.rerank(reranker)
        elif mode == "semantic":
            query = table.search(vector).ef(_BEAM)
        else:
            query = table.search(text, query_type="fts")
        columns = query.select(["source", "title", "content"]).limit(_HITS)
        return [each["source"] for each in columns.to_list()]

    return search


def tantivy_and_numpy(directory: str, documents: Sequence[dict[str, Any]], vectors: Any) -> Search:
    """Return a search of tantivy's BM25 and of a scan of all vectors, by reciprocal rank."""
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("source", stored=True, tokenizer_name="raw")
    for name in ("title", "content"):
        builder.add_text_field(name, stored=True, tokenizer_name="en_stem")
    builder.add_unsigned_field("place", stored=True)
    index = tantivy.Index(builder.build(), path=directory)
    writer = index.writer()
    for place, each in enumerate(documents):
        writer.add_document(tantivy.Document(**_stored(each), place=place))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()
    matrix = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def by_words(text: str) -> list[int]:
        # Words only, in lower case: `be: it` asks for a field, and `OR` is an operator.
        words = " ".join(re.findall(r"\w+", text.lower()))
        query, _ = index.parse_query_lenient(words, ["title", "content"])
        found = searcher.search(query, _CANDIDATES).hits
        return [searcher.doc(address)["place"][0] for _, address in found]

    def by_meaning(text: str) -> list[int]:
        scores = matrix @ vector_of(text)
        best = np.argpartition(-scores, _CANDIDATES)[:_CANDIDATES]
        places: list[int] = best[np.argsort(-scores[best])].tolist()
        return places

    def search(mode: str, text: str) -> list[str]:
        lists = [by_words(text)] if mode != "semantic" else []
        lists += [by_meaning(text)] if mode != "keyword" else []
        scores: dict[int, float] = {}
        for found in lists:
            for rank, place in enumerate(found, start=1):
                scores[place] = scores.get(place, 0.0) + 1 / (_RRF_K + rank)
        best = sorted(scores, key=lambda place: -scores[place])[:_HITS]
        return [str(documents[place]["source"]) for place in best]

    return search


def _stored(document: dict[str, Any]) -> dict[str, str]:
    return {name: str(document[name]) for name in ("source", "title", "content")}


def main() -> None:
    """Load, then answer queries until standard input ends."""
    directory, chunks = sys.argv[1], int(sys.argv[2])
    peers: dict[str, Search] = {}
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {}
        if request["do"] == "load":
            documents = list(texts.documents(chunks))
            vectors = np.stack([vector_of(str(each["content"])) for each in documents])
            for name, load in (("LanceDB", lance), ("tantivy + numpy", tantivy_and_numpy)):
                started = time.perf_counter()
                peers[name] = load(directory, documents, vectors)
                seconds = time.perf_counter() - started
                answer[name] = {
                    "seconds": round(seconds, 1),
                    "ms a chunk": round(seconds / chunks * 1e3, 2),
                }
        else:
            for name, search in peers.items():
                answer[name] = _measured(search, request["mode"], request["queries"])
        print(json.dumps(answer), flush=True)


def _measured(search: Search, mode: str, queries: Sequence[str]) -> dict[str, Any]:
    taken, sources = [], []
    used = time.process_time()
    for text in queries:
        vector_of(text)  # kept, hence not measured
        started = time.perf_counter()
        sources.append(search(mode, text))
        taken.append((time.perf_counter() - started) * 1e3)
    used = time.process_time() - used
    return {"ms": taken, "sources": sources, "processor": used / len(queries) * 1e3}


main()
