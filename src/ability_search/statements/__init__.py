"""Every SQL statement of the project, as functions that return text and parameters.

Whatever a user supplied is a bound parameter. Type names are the only identifiers that vary; they
are built by :func:`type_name` from validated collection names and always stand in backticks.

The layout (types, indexes, why one subtype per generation) is described in ``docs/storage.md``.
"""

from ability_search.statements.catalogue import (
    collection,
    collections,
    delete_collection,
    fold_term_statistics,
    insert_collection,
    publish_generation,
    set_collection_fields,
    stored_types,
    switch_generation,
    term_statistics,
)
from ability_search.statements.copying import (
    source_chunks,
    source_places,
    source_records_at,
)
from ability_search.statements.core import (
    Predicate,
    Statement,
    aspect_type,
    is_collection_name,
    link_type,
    source_type,
    type_name,
)
from ability_search.statements.neighbours import best_chunks, context_rows, walk
from ability_search.statements.reusing import known_vectors, vector_places
from ability_search.statements.schema import (
    create_aspects,
    create_generation,
    create_links,
    drop_generation,
    schema,
)
from ability_search.statements.searching import (
    Arm,
    Shown,
    TermsArm,
    VectorArm,
    build_graph,
    candidates,
    chunk_embedding,
    embeddings,
    hit_rows,
    nearest,
)
from ability_search.statements.usage import (
    agents,
    count_uses,
    delete_uses,
    put_uses,
    uses,
    uses_of,
)
from ability_search.statements.writing import (
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
    "Arm",
    "Predicate",
    "Rows",
    "Shown",
    "Statement",
    "TermsArm",
    "VectorArm",
    "agents",
    "aspect_sources",
    "aspect_type",
    "best_chunks",
    "build_graph",
    "candidates",
    "chunk_embedding",
    "collection",
    "collections",
    "count_uses",
    "context_rows",
    "create_aspects",
    "create_generation",
    "create_links",
    "delete_collection",
    "delete_uses",
    "discard_staged",
    "drop_generation",
    "embeddings",
    "fold_term_statistics",
    "hit_rows",
    "insert_collection",
    "is_collection_name",
    "known_vectors",
    "link_type",
    "list_file_sources",
    "list_sources",
    "nearest",
    "publish_generation",
    "put_uses",
    "outdated_weights",
    "replace_sources",
    "set_weights",
    "schema",
    "set_collection_fields",
    "source_chunks",
    "source_hashes",
    "source_passages",
    "source_places",
    "source_records",
    "source_records_at",
    "source_type",
    "stage_rows",
    "stored_types",
    "switch_generation",
    "term_statistics",
    "type_name",
    "vector_places",
    "walk",
    "uses",
    "uses_of",
]
