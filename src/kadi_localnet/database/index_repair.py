"""Opens a database, and repairs the indexes of one whose process was killed."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jpype

log = logging.getLogger(__name__)

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
            database.command("sql", _creation(index))
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


def _creation(index: Mapping[str, Any]) -> str:
    properties = ", ".join(f"`{name}`" for name in index["properties"])
    return (
        f"CREATE INDEX ON `{index['type']}` ({properties}) {_SPARSE}"
        f" METADATA {json.dumps(index['metadata'])}"
    )


def _write(path: Path, definitions: _Definitions) -> None:
    """Write a file that is there as a whole, or not at all."""
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("w", encoding="utf-8") as file:
        json.dump(definitions, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
