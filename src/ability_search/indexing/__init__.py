"""The index, delete and reindex services, over the ports."""

from ability_search.indexing.options import IndexOptions
from ability_search.indexing.reports import Failure, IndexReport, Progress, Report
from ability_search.indexing.service import Indexing

__all__ = ["Failure", "IndexOptions", "IndexReport", "Indexing", "Progress", "Report"]
