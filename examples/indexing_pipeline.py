"""An indexing pipeline: records of a JSON Lines file become documents of a collection.

    python indexing_pipeline.py records.jsonl notes

Each line has an id, a title and a text; everything else becomes metadata to filter by. Running it
again costs nothing for records that have not changed.
"""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ability_search.client import SearchClient


def records(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            yield {
                "source": record.pop("id"),
                "title": record.pop("title"),
                "content": record.pop("text"),
                "metadata": record,
            }


async def main(path: str, collection: str) -> None:
    async with SearchClient() as search:
        report = await search.index(
            collection,
            records(Path(path)),
            progress=lambda done, total, stage: print(f"{stage}: {done} of {total}"),
        )
    print(f"{report.added} added, {report.updated} updated, {report.unchanged} unchanged")
    for failure in report.failed:
        print(f"{failure.source}: {failure.error}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
