"""Jupyter notebooks: prose and code of the cells, without what they printed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ability_search.text.loaders.extracts import Bounds, Extracted, Unreadable, known
from ability_search.text.loaders.front_matter import front_matter, read_markdown
from ability_search.text.loaders.markdown_writer import Composer
from ability_search.text.loaders.plain_text import decoded

_NO_NOTEBOOK = "not a notebook, though its name says so"


def read_notebook(name: str, data: bytes, bounds: Bounds) -> Extracted:
    """A notebook as Markdown, each cell of code a fence in the notebook's language.

    Outputs are left out: they follow from the code, and may be anything.

    Raises:
        Unreadable: if it is no notebook.
    """
    try:
        notebook = json.loads(decoded(data))
    except (ValueError, RecursionError) as exc:
        raise Unreadable(_NO_NOTEBOOK) from exc
    composer = Composer(bounds)
    about = _mapping(_mapping(notebook).get("metadata"))
    spec, info = _mapping(about.get("kernelspec")), _mapping(about.get("language_info"))
    language = str(info.get("name") or spec.get("language") or "python")
    for cell in _cells(notebook):
        source = _joined(cell.get("source", cell.get("input")))
        kind = cell.get("cell_type")
        if kind == "code":
            composer.code(source, language)
        elif kind in ("markdown", "heading"):
            composer.verbatim(f"# {source}" if kind == "heading" else source)
        else:
            composer.paragraph(source)
    told = str(about.get("title") or "")
    title = told or read_markdown(name, composer.text.encode("utf-8", "replace"), bounds).title
    metadata = {**front_matter(composer.text), **known(language=language)}
    metadata.pop("title", None)
    return Extracted(composer.text, "markdown", title=title, metadata=metadata)


def _cells(notebook: Any) -> list[Mapping[str, Any]]:
    """The cells, also those of the third version of the format."""
    sheets = _mapping(notebook).get("worksheets")
    pages = [notebook, *sheets] if isinstance(sheets, list) else [notebook]
    lists = [found for page in pages if isinstance(found := _mapping(page).get("cells"), list)]
    if not lists:
        raise Unreadable(_NO_NOTEBOOK)
    return [_mapping(cell) for cells in lists for cell in cells]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _joined(source: Any) -> str:
    parts = source if isinstance(source, list) else [source]
    return "".join(part for part in parts if isinstance(part, str))
