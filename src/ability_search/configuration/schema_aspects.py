"""Settings of what is made of each document beside its chunks."""

from __future__ import annotations

from typing import Literal

from ability_search.configuration.fields import Group, setting


class Aspects(Group):
    """Titles, summaries, keywords and propositions that are made of documents."""

    prefix = "kinds_"
    kinds: tuple[Literal["title", "summary", "keywords", "propositions"], ...] = setting(
        (),
        key="kinds",
        about="What is made of each document of new collections: any of title, summary, keywords,"
        " propositions.",
    )
    by: Literal["local", "chat"] = setting(
        "local", about="Extract it from the text, or have a language model on the network write it."
    )
    model: str | None = setting(
        None,
        about="Language model for it.",
        min_length=1,
        max_length=256,
        default_text="as `expansion_model`",
    )
    timeout: float = setting(
        30.0,
        about="Longest wait for one answer of it; then it is extracted from the text.",
        unit="seconds",
        gt=0,
        le=3600,
    )
