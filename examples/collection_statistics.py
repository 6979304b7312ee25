"""What a user interface reads: every collection with its statistics, as JSON.

python collection_statistics.py
"""

import json

from ability_search.client import BlockingSearchClient


def main() -> None:
    with BlockingSearchClient() as search:
        shown = [
            {
                "name": each.name,
                "documents": each.sources,
                "chunks": each.chunks,
                "tokens": {
                    "least": each.min_tokens,
                    "average": each.avg_tokens,
                    "most": each.max_tokens,
                },
                "embedded": f"{search.info(each.name, limit=1).embedded_percent:.0f} %",
                "changed": each.updated_at,
            }
            for each in search.collections().collections
        ]
    print(json.dumps(shown, indent=2))


if __name__ == "__main__":
    main()
