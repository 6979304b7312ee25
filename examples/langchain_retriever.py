"""A retriever for LangChain.

pip install langchain-core
python langchain_retriever.py notes "what did we decide about the pump?"
"""

import sys

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from ability_search.client import BlockingSearchClient


class SearchRetriever(BaseRetriever):
    """Hits of a collection as documents."""

    collection: str
    limit: int = 5

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        with BlockingSearchClient() as search:
            hits = search.query(self.collection, query, limit=self.limit).results
        return [
            Document(
                id=hit.chunk_id,
                page_content=hit.content,
                metadata={**hit.metadata, "source": hit.source, "score": hit.score},
            )
            for hit in hits
        ]


if __name__ == "__main__":
    collection, question = sys.argv[1:]
    for document in SearchRetriever(collection=collection).invoke(question):
        print(document.metadata["source"], document.page_content, sep=": ")
