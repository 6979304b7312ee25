r"""Filters: parsing into a validated tree, and evaluation of the tree against a row.

:func:`.parser.parse_filter` parses a filter document, :func:`.parser.source_filter` globs of
sources. The store translates the tree to its query language, and :func:`.predicate.matches`
evaluates it against one row. Both follow these rules:

* A **missing** field is the same as a null one. It satisfies only ``$exists: false``,
  equality with ``null``, and negations (``$ne``, ``$nin``, ``$not``). Every other condition is
  false for it, never unknown.
* **Types are not mixed.** A number never equals or orders against a string or a boolean, and
  ``true`` is not 1. Whole and decimal numbers are one type: ``1`` equals ``1.0``. Where one of
  two ordered numbers is decimal, both are compared as 64-bit floats.
* **Strings** are compared exactly, case-sensitively, ordered by code point. Dates in metadata
  are strings like any other.
* **Lists**: ``$eq``, ``$in`` and their negations compare each element (``tags: "a"``), or the
  whole list if the operand is a list (``tags: ["a", "b"]``, in that order). ``$contains`` compares
  elements. Ordering, ``$like`` and ``$ilike`` are false for lists. Elements that are themselves
  lists or maps are not searched.
* ``$contains`` on a string is a **case-insensitive substring**, compared character by character
  under simple case folding (``ß`` is not ``ss``); on a list it is an element, compared exactly.
* ``$like`` is case-sensitive and covers the whole string: ``%`` is any run of characters, ``_``
  exactly one, and a backslash makes ``%``, ``_`` or itself literal. ``$ilike`` is the same under
  simple case folding.
* ``$between`` includes both ends.
* ``createdAt`` is compared as an instant of millisecond resolution, given as RFC 3339; without
  an offset it is UTC. A date alone is the whole UTC day: ``$lte`` includes it, ``$gt`` starts
  after it, ``$eq`` is any instant within it.
* ``metadata.a.b`` is key ``b`` of the map under key ``a``; a backslash makes a dot part of the
  key (``metadata.dc\.title``).
"""
