"""Tables of values and notebooks: their lines are those of the file, or become Markdown."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

from ability_search.documents import Passage
from ability_search.extensions.formats.foreign_files import known
from ability_search.extensions.formats.front_matter import read_markdown
from ability_search.extensions.formats.markdown_writer import (
    FIRST_ROWS,
    Composer,
    column_names,
    described,
    flat,
    labelled,
)
from ability_search.text.chunkers.chunk_packing import VERBATIM, Ruler
from ability_search.text.chunkers.strategies import chunk_by
from ability_search.text.formats import Bounds, Extracted, Unreadable, too_much_text

_HEAD = 8192
"""Characters searched for the delimiter."""
_QUOTED = re.compile(r'"[^"]*+"')
_DELIMITERS = ",;\t|"
_DELIMITER_LINE = re.compile(r"sep=([^\w\s\"]|\t)\r?\n")
"""First line by which Excel knows the delimiter."""
_NOT_A_NOTEBOOK = "not a notebook, though its name says so"


def chunk_rows(ruler: Ruler, _language: str | None = None) -> list[Passage]:
    """Cut a text at its lines."""
    return chunk_by(ruler, VERBATIM)


def read_csv(name: str, text: str, bounds: Bounds) -> Extracted:
    """Read a table of values separated by commas, semicolons, tabs or vertical bars.

    Each row becomes one line, ``name: Ada; born: 1815``, with the line number of its beginning in
    the file. Text that is not such a table stays unchanged.
    """
    # A tab for .tsv files, else the delimiter of most of the first lines.
    head = _QUOTED.sub("", text[:_HEAD]).lstrip().split("\n")[:FIRST_ROWS]
    delimiter = max(
        "\t" if name.lower().endswith(".tsv") else _DELIMITERS,
        key=lambda each: (sum(each in line for line in head), head[0].count(each)),
    )
    if named := _DELIMITER_LINE.match(text):
        delimiter = named[1]
        text = f"\n{text[named.end() :]}"
    try:
        lines = _rows(text, delimiter, bounds)
    except csv.Error:
        return Extracted(text, "csv")
    return Extracted("\n".join(lines), "csv")


def _rows(text: str, delimiter: str, bounds: Bounds) -> list[str]:
    reader, first = (
        csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
        for _ in range(2)
    )
    lines: list[str] = []
    cells = filter(any, ([flat(cell) for cell in row] for row in first))
    titles, header, labels = column_names([*islice(cells, FIRST_ROWS)])
    room = bounds.text
    end = number = 0
    for row in reader:
        start, end = end, reader.line_num
        if not row:
            continue
        values = [flat(cell) for cell in row]
        lines += [""] * (start - len(lines))
        if number < titles or not any(values):
            lines.append(described((), values))
        elif number == titles and header:
            lines.append(", ".join(values))
        else:
            lines.append(labelled(values) if labels else described(header, values))
        number += any(values)
        room -= len(lines[-1].encode()) + 1
        if room < 0:
            raise too_much_text(bounds)
    return lines


def read_notebook(name: str, text: str, bounds: Bounds) -> Extracted:
    """Read a Jupyter notebook as Markdown, with code cells as fences in its language.

    Outputs are dropped: they follow from the code, and can be of any size and type.

    Raises:
        Unreadable: if it is not a notebook.
    """
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise Unreadable(_NOT_A_NOTEBOOK) from exc
    composer = Composer(bounds)
    about = _mapping(_mapping(notebook).get("metadata"))
    spec, info = _mapping(about.get("kernelspec")), _mapping(about.get("language_info"))
    language = str(info.get("name") or spec.get("language") or "python")
    for cell in _cells(notebook):
        given = cell.get("source", cell.get("input"))
        lines = given if isinstance(given, list) else [given]
        source = "".join(line for line in lines if isinstance(line, str))
        kind = cell.get("cell_type")
        if kind == "code":
            composer.code(source, language)
        elif kind in ("markdown", "heading"):
            composer.verbatim(f"# {source}" if kind == "heading" else source)
        else:
            composer.paragraph(source)
    given = str(about.get("title") or "")
    found = read_markdown(name, composer.text, bounds)
    metadata = {**found.metadata, **known(language=language)}
    return Extracted(composer.text, "markdown", title=given or found.title, metadata=metadata)


def _cells(notebook: Any) -> list[Mapping[str, Any]]:
    """Return the cells of a notebook, also in version 3 of the format."""
    sheets = _mapping(notebook).get("worksheets")
    pages = [notebook, *sheets] if isinstance(sheets, list) else [notebook]
    lists = [found for page in pages if isinstance(found := _mapping(page).get("cells"), list)]
    if not lists:
        raise Unreadable(_NOT_A_NOTEBOOK)
    return [_mapping(cell) for cells in lists for cell in cells]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
