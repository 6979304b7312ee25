"""The settings of answers."""

from __future__ import annotations

from ability_search.config.setting_fields import Group, ModelName, seconds, setting


class Answers(Group):
    """Answers: a language model answers questions from the passages that a search finds."""

    prefix = "answer_"
    model: ModelName | None = setting(
        None, about="Language model that answers.", default_text="as `expansion_model`"
    )
    timeout: float = seconds(
        60.0, about="Timeout of an answer; on timeout it ends with the sentences so far."
    )
    tokens: int = setting(
        600, about="Maximum length of an answer.", unit="tokens", ge=16, le=100_000
    )
    passage_tokens: int = setting(
        3000,
        about="Budget for the passages sent to the model, as `maxResultTokens` of search-query.",
        unit="tokens",
        ge=400,
        le=1_000_000,
    )
    floor: float = setting(
        0.35,
        about="Minimum `relevance` of the hits; below it the answer is that the sources have none.",
        ge=0,
        le=1,
    )
