"""Hits on the terminal."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from ability_search.extensions.cli import output
from ability_search.search.response import Hit

_SNIPPET = 300
_LEAD = 60


def stale_chunks(hits: Sequence[Hit]) -> set[str]:
    """Return the chunkIds of hits whose files were changed after they were indexed.

    Sources are files of this directory or of one above it if at least half of a collection's hits
    exist there.
    """
    by_collection: dict[str, list[Hit]] = {}
    for hit in hits:
        by_collection.setdefault(hit.chunk_id.partition(":")[0], []).append(hit)
    stale = set()
    here = Path.cwd()
    for own in by_collection.values():
        for root in (here, *here.parents):
            files = [each for each in own if os.path.isfile(root / _file(each))]
            if 2 * len(files) >= len(own):
                stale |= {each.chunk_id for each in files if _is_newer(root / _file(each), each)}
                break
    return stale


def _file(hit: Hit) -> str:
    return hit.of or hit.source


def _is_newer(file: Path, hit: Hit) -> bool:
    if hit.created_at is None:
        return False
    return file.stat().st_mtime > datetime.fromisoformat(hit.created_at).timestamp()


def print_hit(place: int, hit: Hit, *, stale: bool) -> None:
    """Print a hit with its place among all; ``stale`` if its file changed later."""
    out = output.stdout()
    where = output.plain(place_of(hit))
    title = output.plain(hit.breadcrumb or hit.title)
    out.print(
        f"[bold]{place}.[/bold] [green]{hit.score:.3f}[/green] [cyan]{where}[/cyan]  {title}",
    )
    if hit.of:
        out.print(f"   of {output.plain(hit.of)}", soft_wrap=True)
    if stale:
        out.print("   [yellow]changed since it was indexed[/yellow]")
    for line in _snippet(hit).splitlines():
        output.print_indented(out, line, 3)
    scores = ", ".join(f"{name} {score:.3f}" for name, score in hit.scores.items())
    out.print(f"   [dim]{output.plain(hit.chunk_id)}  {scores}[/dim]")
    if hit.explain:
        out.print(f"   [dim]{output.plain(json.dumps(hit.explain))}[/dim]")
    out.print()


def place_of(hit: Hit) -> str:
    """Return the source of a hit, with its page or its first line."""
    if hit.page:
        return f"{hit.source} p. {hit.page}"
    return f"{hit.source}:{hit.start_line}" if hit.start_line else hit.source


def _snippet(hit: Hit) -> str:
    """Return the beginning of the text, or the text around the first match; mark matches."""
    content, marks = hit.content, hit.highlights or []
    begin = max(0, marks[0].start - _LEAD) if marks else 0
    end = min(len(content), begin + _SNIPPET)
    parts = ["..."] if begin else []
    position = begin
    for mark in marks:
        if mark.start < position or mark.end > end:
            continue
        parts += [output.plain(content[position : mark.start], lines=True)]
        match = output.plain(content[mark.start : mark.end], lines=True)
        parts += [f"[bold yellow]{match}[/bold yellow]"]
        position = mark.end
    parts.append(output.plain(content[position:end], lines=True))
    if end < len(content):
        parts.append("...")
    return "\n".join(line for line in "".join(parts).splitlines() if line.strip())
