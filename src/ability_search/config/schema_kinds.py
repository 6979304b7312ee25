"""Settings of aspects, the derived texts of a document."""

from __future__ import annotations

from typing import Literal

from ability_search.config.setting_fields import Group, setting


class Aspects(Group):
    """Kinds: titles, summaries, keywords and propositions made of documents."""

    prefix = "kinds_"
    kinds: tuple[Literal["title", "summary", "keywords", "propositions"], ...] = setting(
        (),
        key="kinds",
        about="Kinds made of each document in new collections: any of title, summary, keywords,"
        " propositions.",
    )
    by: Literal["local", "chat"] = setting(
        "local",
        about="Extract them from the text (`local`) or have a language model on the network write"
        " them (`chat`).",
    )
    model: str | None = setting(
        None,
        about="Language model that writes them.",
        min_length=1,
        max_length=256,
        default_text="as `expansion_model`",
    )
    timeout: float = setting(
        30.0,
        about="Timeout of one request to that model; on timeout they are extracted from the text.",
        unit="seconds",
        gt=0,
        le=3600,
    )
