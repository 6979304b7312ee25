"""Every SQL statement of the project, as functions that return text and parameters.

Whatever a user supplied is a bound parameter. Type names are the only identifiers that vary; they
are built by :func:`ability_search.collection.new_type` from validated names of collections and
always stand in backticks.

The layout (types, indexes, why one subtype per generation) is described in ``docs/storage.md``.
"""

from ability_search.store.arcadedb.collections import (
    collection,
    collections,
    delete_collection,
    due_generations,
    fold_term_statistics,
    insert_collection,
    publish_generation,
    set_collection_fields,
    stored_types,
    switch_generation,
    term_statistics,
)
from ability_search.store.arcadedb.copies import source_chunks, source_places, source_records_at
from ability_search.store.arcadedb.core import (
    Predicate,
    Statement,
    aspect_type,
    link_type,
    source_type,
)
from ability_search.store.arcadedb.graph import best_chunks, context_rows, walk
from ability_search.store.arcadedb.jobs import (
    begin_job,
    claim_job,
    end_job,
    job,
    jobs,
    orphaned_jobs,
    records_being_built,
    renew_job,
)
from ability_search.store.arcadedb.overview import map_points, overview
from ability_search.store.arcadedb.schema import (
    base_type,
    create_aspects,
    create_generation,
    create_links,
    drop_generation,
    schema,
)
from ability_search.store.arcadedb.search import (
    build_graph,
    candidates,
    chunk_embedding,
    embeddings,
    hit_rows,
    nearest,
)
from ability_search.store.arcadedb.usage import (
    agents,
    count_uses,
    delete_uses,
    put_uses,
    uses,
    uses_of,
)
from ability_search.store.arcadedb.verification import (
    check_vectors,
    compare_sources,
    count_sources,
    sample_chunks,
    some_chunks,
    sources_named,
)
from ability_search.store.arcadedb.write import (
    Rows,
    aspect_sources,
    discard_staged,
    list_file_sources,
    list_sources,
    outdated_weights,
    replace_sources,
    set_weights,
    source_hashes,
    source_passages,
    source_records,
    stage_rows,
)

__all__ = [
    "Predicate",
    "Rows",
    "Statement",
    "agents",
    "aspect_sources",
    "aspect_type",
    "base_type",
    "begin_job",
    "best_chunks",
    "build_graph",
    "candidates",
    "check_vectors",
    "chunk_embedding",
    "claim_job",
    "collection",
    "collections",
    "compare_sources",
    "count_sources",
    "count_uses",
    "context_rows",
    "create_aspects",
    "create_generation",
    "create_links",
    "delete_collection",
    "delete_uses",
    "discard_staged",
    "drop_generation",
    "due_generations",
    "embeddings",
    "end_job",
    "fold_term_statistics",
    "hit_rows",
    "insert_collection",
    "job",
    "jobs",
    "link_type",
    "list_file_sources",
    "list_sources",
    "map_points",
    "nearest",
    "orphaned_jobs",
    "overview",
    "publish_generation",
    "put_uses",
    "records_being_built",
    "renew_job",
    "outdated_weights",
    "replace_sources",
    "set_weights",
    "schema",
    "sample_chunks",
    "some_chunks",
    "set_collection_fields",
    "source_chunks",
    "source_hashes",
    "source_passages",
    "source_places",
    "source_records",
    "source_records_at",
    "source_type",
    "sources_named",
    "stage_rows",
    "stored_types",
    "switch_generation",
    "term_statistics",
    "walk",
    "uses",
    "uses_of",
]
