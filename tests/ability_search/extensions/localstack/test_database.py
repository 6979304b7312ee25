"""The database ability as a component."""

from __future__ import annotations

from pathlib import Path

import pytest

from ability_search.config.loader import load_settings
from ability_search.errors import ConfigurationError
from ability_search.extensions.localstack.contexts import open_database
from kadi_localnet.broker import serve_broker

pytestmark = pytest.mark.engine


@pytest.mark.slow
async def test_two_databases_do_not_serve_under_one_identity(tmp_path: Path) -> None:
    async with serve_broker("127.0.0.1", 0) as broker:
        environ = {"BROKER_URL": broker.url, "SEARCH_IDENTITY_FILE": str(tmp_path / "key.pem")}
        first, second = (
            load_settings({**environ, "SEARCH_DATA_DIR": str(tmp_path / name)}, tmp_path)
            for name in "ab"
        )
        async with open_database(first, wait=10):
            with pytest.raises(ConfigurationError, match="another database serves under") as taken:
                async with open_database(second, wait=10):
                    pass
            assert "SEARCH_IDENTITY_FILE" in str(taken.value.hint)
        async with open_database(second, wait=10):
            pass
