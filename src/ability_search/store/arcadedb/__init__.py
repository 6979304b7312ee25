"""The store in ArcadeDB: all SQL of the project.

Functions return statements (text and bound parameters), the classes of :class:`.store.ArcadeStore`
run them and convert rows to the values of :mod:`ability_search.store.records`. What users supply is
always a bound parameter. Type names are the only identifiers that vary; they are built by
:func:`ability_search.collection.new_type` from validated names and stand in backticks.

The layout (types, indexes, why one subtype per generation) is described in ``docs/storage.md``.
"""
