"""Opening of a database: its dense vector indexes are loaded, and repaired after a kill."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jpype

from kadi_localnet.database.index_use import IndexUse

log = logging.getLogger(__name__)

_DENSE = "LSM_VECTOR"
_GRAPH = ".vecgraph"
_ORDINALS = ".vecordmap"
_ORDINAL_BYTES = 3.5
"""Bytes of a vector in the file that maps the nodes of a graph to vectors, at least."""
_LINK_BYTES = 4


def stored_vectors(directory: Path) -> list[tuple[int, int]]:
    """Return the number of vectors, about, and their dimensions for each graph below a directory.

    Vectors that were never in a graph do not count.
    """
    found = []
    for schema in directory.glob("*/schema.json"):
        try:
            types = json.loads(schema.read_text(encoding="utf-8"))["types"].values()
            indexes = [each for own in types for each in own.get("indexes", {}).items()]
        except (OSError, ValueError, KeyError):
            continue  # the engine says what is wrong with it
        for name, index in indexes:
            if index.get("type") == _DENSE:
                # Two of its files bound the number of nodes of a graph.
                files, links = f"{name}_vecgraph.*", int(index["maxConnections"]) + 2
                graphs = sum(each.stat().st_size for each in schema.parent.glob(files + _GRAPH))
                maps = sum(each.stat().st_size for each in schema.parent.glob(files + _ORDINALS))
                count = round(min(graphs / (_LINK_BYTES * links), maps / _ORDINAL_BYTES))
                found.append((count, int(index["dimensions"])))
    return found


_NEIGHBOURS = 10


def warm_vector_indexes(name: str, database: Any, indexes: IndexUse, stop: threading.Event) -> None:
    """Load the graphs of all dense vector indexes of a database, one after the other.

    A persisted graph is read, a missing one is built. One search then loads the vectors on its path
    and the engine's code. Searches meanwhile wait for the same load; inserts and exact scans
    proceed. Runs in a separate thread; ends after the current index once ``stop`` is set.
    """
    vector_index = jpype.JClass("com.arcadedb.index.vector.LSMVectorIndex")
    started = time.monotonic()
    warmed = 0
    try:
        for index in database.getSchema().getIndexes():
            if stop.is_set():
                return
            if isinstance(index, vector_index) and not index.isWarm():
                with indexes.searching(name, str(index.getTypeName())):
                    index.warmUp()
                    # For this vector every similarity is defined.
                    vector = [1.0] + [0.0] * (index.getDimensions() - 1)
                    query = jpype.JArray(jpype.JFloat)(vector)
                    index.findNeighborsFromVector(query, _NEIGHBOURS)
                warmed += 1
    except jpype.JException as exc:
        log.warning("warm-up of %s stopped: %s", name, exc.getClass().getSimpleName())
        return
    if warmed:
        log.info("%s: %d vector indexes loaded in %.2f s", name, warmed, time.monotonic() - started)


def close_dropped_graphs(name: str, database: Any, types: Sequence[str]) -> None:
    """Close the graphs of the dropped vector indexes of some types.

    The engine deletes such a file but keeps it open, which holds a file handle and its disk space
    until the database is closed. It closes a file before it deletes it, and fails if there is none.
    """
    files, prefixes = database.getFileManager(), tuple(f"{each}_" for each in types)
    for file in files.getFiles():
        path = Path("" if file is None else str(file.getFilePath()))
        if path.suffix != _GRAPH or not path.name.startswith(prefixes) or path.exists():
            continue
        number = file.getFileId()
        try:
            path.touch()
            database.getPageManager().deleteFile(database, number)
            files.dropFile(number)
        except (OSError, jpype.JException) as exc:
            log.warning("%s: the dropped graph %s was not closed: %s", name, path.name, exc)


_SPARSE = "LSM_SPARSE_VECTOR"
_GRAPHS = "*.vecgraph.*"
_JOURNAL = "sparse-indexes.rebuilding"
_NO_METADATA = {"type", "bucket", "properties", "nullStrategy", "unique"}

_Definitions = Mapping[str, Mapping[str, Any]]
"""By name, such as ``T[terms,weights]``: ``type``, ``properties`` and ``metadata`` of an index."""


def open_repaired(factory: Any, directory: Path) -> Any:
    """Open a database; after a kill, rebuild its sparse vector indexes and remove stray files.

    Unlike records and other indexes, such an index has no log: after a kill it silently lacks what
    was committed since it was last written to disk. To rebuild it, the engine drops it first, so
    the definitions are kept in a file until all are rebuilt, in case this process is killed, too.
    Files beside the graph of a dense index stay behind if its type is dropped while the graph is
    being built.

    Raises:
        jpype.JException: if the engine fails.
    """
    # Closing a database removes its transaction logs.
    killed = any(directory.glob("*.wal"))
    database = factory(str(directory)).open()
    for stray in directory.glob(_GRAPHS):
        if not stray.with_suffix("").exists():
            stray.unlink()
    try:
        _repair_sparse_indexes(directory, database, killed=killed)
    except jpype.JException:
        database.close()
        raise
    return database


def _repair_sparse_indexes(directory: Path, database: Any, *, killed: bool) -> None:
    started = time.monotonic()
    journal = directory / _JOURNAL
    interrupted: _Definitions = json.loads(journal.read_bytes()) if journal.exists() else {}
    if not killed and not interrupted:
        return
    definitions = {**_sparse_indexes(directory), **interrupted}
    if definitions:
        _write(journal, definitions)
    for name, index in definitions.items():
        if name not in interrupted:
            database.command("sql", f"REBUILD INDEX `{name}`")
        elif database.getSchema().existsType(index["type"]):
            database.command("sql", f"DROP INDEX `{name}` IF EXISTS")
            properties = ", ".join(f"`{name}`" for name in index["properties"])
            metadata = json.dumps(index["metadata"])
            database.command(
                "sql",
                f"CREATE INDEX ON `{index['type']}` ({properties}) {_SPARSE} METADATA {metadata}",
            )
    if definitions:
        journal.unlink()
        log.warning(
            "%s was not closed properly: rebuilt %d indexes in %.2f s",
            directory.name,
            len(definitions),
            time.monotonic() - started,
        )


def _sparse_indexes(directory: Path) -> _Definitions:
    types = json.loads((directory / "schema.json").read_bytes())["types"]
    return {
        f"{name}[{','.join(index['properties'])}]": {
            "type": name,
            "properties": index["properties"],
            "metadata": {key: index[key] for key in index.keys() - _NO_METADATA},
        }
        for name, own in types.items()
        for index in own.get("indexes", {}).values()
        if index.get("type") == _SPARSE
    }


def _write(path: Path, definitions: _Definitions) -> None:
    """Write a file that is there as a whole, or not at all."""
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("w", encoding="utf-8") as file:
        json.dump(definitions, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
