"""Portable artifacts: a collection as a directory of plain files.

``index_manifest.json`` says what there is; ``sources.jsonl`` and ``chunks.jsonl`` hold one record
a line, ``vectors.f32`` one vector for each line of the latter. See ``docs/artifacts.md``.
"""
