"""A retriever for LlamaIndex.

pip install llama-index-core
python llamaindex_retriever.py notes "what did we decide about the pump?"
"""

import sys

from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from ability_search.client import BlockingSearchClient


class SearchRetriever(BaseRetriever):
    """Hits of a collection as nodes."""

    def __init__(self, collection: str, limit: int = 5) -> None:
        super().__init__()
        self._collection = collection
        self._limit = limit

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        with BlockingSearchClient() as search:
            hits = search.query(self._collection, query_bundle.query_str, limit=self._limit).results
        return [
            NodeWithScore(
                node=TextNode(
                    id_=hit.chunk_id,
                    text=hit.content,
                    metadata={**hit.metadata, "source": hit.source},
                ),
                score=hit.score,
            )
            for hit in hits
        ]


if __name__ == "__main__":
    collection, question = sys.argv[1:]
    for found in SearchRetriever(collection).retrieve(question):
        print(found.node.metadata["source"], found.node.get_content(), sep=": ")
