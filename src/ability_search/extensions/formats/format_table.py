"""The table of formats that need more than decoding."""

from __future__ import annotations

from dataclasses import replace

from ability_search.extensions.formats.escapes import JSON_FORMATS
from ability_search.text.formats import MARKDOWN, TEXT, UNKNOWN, Format

_HOME = "ability_search.extensions.formats"

FORMATS = (
    Format(
        name="code",
        text=f"{_HOME}.escapes:read_code",
        cut=f"{_HOME}.symbols:chunk_code",
        language=f"{_HOME}.symbols:is_code_language",
    ),
    Format(
        name="conversation",
        text=f"{_HOME}.conversations:read_conversation",
        cut=f"{_HOME}.conversation_turns:chunk_conversation",
    ),
    Format(
        name="csv",
        suffixes=(".csv", ".tsv"),
        others=("tsv",),
        text=f"{_HOME}.tables_and_notebooks:read_csv",
        cut=f"{_HOME}.tables_and_notebooks:chunk_rows",
    ),
    Format(name="docx", suffixes=(".docm", ".docx"), binary=f"{_HOME}.office_documents:read_docx"),
    Format(
        name="email",
        suffixes=(".eml",),
        binary=f"{_HOME}.email_messages:read_email",
        holds_documents=True,
    ),
    Format(name="epub", suffixes=(".epub",), binary=f"{_HOME}.html:read_epub"),
    Format(
        name="html",
        suffixes=(".htm", ".html", ".xhtml"),
        others=("htm", "xhtml"),
        binary=f"{_HOME}.html:read_html",
        cut=f"{_HOME}.html:chunk_html",
    ),
    Format(name="image", binary=f"{_HOME}.pdf:read_image", refused=f"{_HOME}.ocr:image_problem"),
    Format(
        name="json",
        suffixes=tuple(f".{name}" for name in sorted(JSON_FORMATS)),
        others=tuple(sorted(JSON_FORMATS - {"json"})),
        text=f"{_HOME}.sent_documents:read_json_file",
        holds_documents=True,
        cut=f"{_HOME}.json_members:chunk_json",
        sign=f"{_HOME}.escapes:looks_like_json",
    ),
    replace(
        MARKDOWN,
        text=f"{_HOME}.front_matter:read_markdown",
        front=f"{_HOME}.front_matter:front_of",
        sign=f"{_HOME}.front_matter:begins_markdown",
    ),
    Format(
        name="mbox",
        suffixes=(".mbox",),
        binary=f"{_HOME}.email_messages:read_mbox",
        holds_documents=True,
    ),
    Format(
        name="notebook", suffixes=(".ipynb",), text=f"{_HOME}.tables_and_notebooks:read_notebook"
    ),
    Format(
        name="odf",
        suffixes=(".fodp", ".fods", ".fodt", ".odp", ".ods", ".odt"),
        binary=f"{_HOME}.office_documents:read_odf",
    ),
    Format(
        name="pdf",
        suffixes=(".pdf",),
        binary=f"{_HOME}.pdf:read_pdf",
        isolate=f"{_HOME}.isolated_reader:IsolatedReader",
    ),
    Format(name="pptx", suffixes=(".pptm", ".pptx"), binary=f"{_HOME}.office_documents:read_pptx"),
    Format(
        name="rst",
        suffixes=(".rst",),
        others=("rest", "restructuredtext"),
        text=f"{_HOME}.restructured_sections:read_restructured",
        cut=f"{_HOME}.restructured_sections:chunk_rst",
    ),
    Format(name="rtf", suffixes=(".rtf",), binary=f"{_HOME}.office_documents:read_rtf"),
    Format(name="svg", suffixes=(".svg",), binary=f"{_HOME}.html:read_svg"),
    replace(TEXT, text=f"{_HOME}.conversations:read_text"),
    replace(
        UNKNOWN, text=f"{_HOME}.conversations:read_unknown", decode=f"{_HOME}.encodings:detected"
    ),
    Format(name="xlsx", suffixes=(".xlsm", ".xlsx"), binary=f"{_HOME}.office_documents:read_xlsx"),
)
"""The formats, in order of their names."""
