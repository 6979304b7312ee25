"""The index, delete and reindex services, over the ports."""

from ability_search.indexing.service import (
    Failure,
    Indexing,
    IndexOptions,
    IndexReport,
    Progress,
    Report,
)

__all__ = ["Failure", "IndexOptions", "IndexReport", "Indexing", "Progress", "Report"]
