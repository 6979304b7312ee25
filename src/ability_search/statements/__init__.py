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
    set_collection_fields,
    stored_types,
    switch_generation,
    term_statistics,
)
from ability_search.statements.core import (
    Predicate,
    Statement,
    is_collection_name,
    source_type,
    type_name,
)
from ability_search.statements.schema import (
    create_generation,
    drop_generation,
    schema,
)
from ability_search.statements.searching import (
    build_graph,
    candidates,
    chunk_embedding,
    hit_rows,
    nearest,
)
from ability_search.statements.writing import (
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
    "Statement",
    "build_graph",
    "candidates",
    "chunk_embedding",
    "collection",
    "collections",
    "create_generation",
    "delete_collection",
    "discard_staged",
    "drop_generation",
    "fold_term_statistics",
    "hit_rows",
    "insert_collection",
    "is_collection_name",
    "list_file_sources",
    "list_sources",
    "nearest",
    "outdated_weights",
    "replace_sources",
    "set_weights",
    "schema",
    "set_collection_fields",
    "source_hashes",
    "source_passages",
    "source_records",
    "source_type",
    "stage_rows",
    "stored_types",
    "switch_generation",
    "term_statistics",
    "type_name",
]
