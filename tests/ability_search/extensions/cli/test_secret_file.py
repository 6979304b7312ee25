"""secrets.toml: what is written, who can read it, and what an error says."""

from __future__ import annotations

import base64
import fcntl
import os
import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import SecretStr
from tests.examples import examples

from ability_search.config.vault import is_encrypted, reveal
from ability_search.errors import ConfigurationError
from ability_search.extensions.cli.secret import read_vault, set_secret

SECRET = "sk-very-hidden"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "secrets.toml"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return tmp_path / "config" / "secrets.key"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def get_secret(path: Path, vault: str, key: str, *, key_file: Path) -> SecretStr:
    return reveal(read_vault(path, vault)[key], path, vault, key, key_file=key_file)


def list_secrets(path: Path, vault: str) -> tuple[str, ...]:
    return tuple(sorted(read_vault(path, vault)))


def store(path: Path, key_file: Path, key: str = "SEARCH_API_KEY", value: str = SECRET) -> None:
    set_secret(path, "models", key, value, key_file=key_file)


def test_a_secret_is_read_back(path: Path, key_file: Path) -> None:
    store(path, key_file)
    value = get_secret(path, "models", "SEARCH_API_KEY", key_file=key_file)
    assert value.get_secret_value() == SECRET
    assert SECRET not in repr(value)


@hypothesis_settings(
    max_examples=examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(value=st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_text_is_read_back(path: Path, key_file: Path, value: str) -> None:
    store(path, key_file, value=value)
    got = get_secret(path, "models", "SEARCH_API_KEY", key_file=key_file)
    assert got.get_secret_value() == value


def test_the_file_is_private_and_contains_no_plain_text(path: Path, key_file: Path) -> None:
    store(path, key_file)
    assert SECRET not in path.read_text(encoding="utf-8")
    assert is_encrypted(read_vault(path, "models")["SEARCH_API_KEY"])
    assert mode(path) == 0o600
    assert mode(key_file) == 0o600
    assert [entry.name for entry in path.parent.iterdir() if entry.is_file()] == [path.name]
    assert [entry.name for entry in key_file.parent.iterdir()] == [key_file.name]


def test_equal_values_have_different_ciphertexts(path: Path, key_file: Path) -> None:
    store(path, key_file, "ONE")
    store(path, key_file, "TWO")
    stored = read_vault(path, "models")
    assert stored["ONE"] != stored["TWO"]


def test_setting_again_replaces_and_keeps_the_key_file(path: Path, key_file: Path) -> None:
    store(path, key_file)
    key = key_file.read_bytes()
    store(path, key_file, value="second")
    got = get_secret(path, "models", "SEARCH_API_KEY", key_file=key_file)
    assert got.get_secret_value() == "second"
    assert key_file.read_bytes() == key
    assert list_secrets(path, "models") == ("SEARCH_API_KEY",)


def test_the_rest_of_the_file_is_unchanged(path: Path, key_file: Path) -> None:
    before = (
        "# mine\n[vaults.models]\ntype = 'age' # theirs\n\n"
        "[secrets.models]\nOTHER = 'ENC[abc]' # keep\n\n[secrets.tunnel]\nTOKEN = 'x'\n"
    )
    path.write_text(before, encoding="utf-8")
    store(path, key_file)
    after = path.read_text(encoding="utf-8")
    for line in before.splitlines():
        assert line in after
    document = tomllib.loads(after)
    assert document["secrets"]["tunnel"] == {"TOKEN": "x"}
    assert document["vaults"]["models"] == {"type": "age"}
    assert list_secrets(path, "models") == ("OTHER", "SEARCH_API_KEY")


@pytest.mark.parametrize(
    "before",
    [
        "secrets.models.OTHER = 'x'\n",
        "secrets = {models = {OTHER = 'x'}}\n",
        "[secrets.models]\nOTHER = 'x'\n[a]\n[secrets.tunnel]\nT = 'y'\n",
        "[vaults.models]\nOTHER = 'x'\nSEARCH_API_KEY = 'old'\n",
        "\ufeff[secrets.models]\r\nOTHER = 'x'\r\n",
    ],
)
def test_every_toml_notation_of_the_tables_can_be_edited(
    path: Path, key_file: Path, before: str
) -> None:
    path.write_text(before, encoding="utf-8", newline="")
    store(path, key_file)
    assert list_secrets(path, "models") == ("OTHER", "SEARCH_API_KEY")
    got = get_secret(path, "models", "SEARCH_API_KEY", key_file=key_file)
    assert got.get_secret_value() == SECRET


def test_an_unencrypted_value_is_returned_unchanged(path: Path, key_file: Path) -> None:
    path.write_text("[secrets.models]\nA = 'plain'\n", encoding="utf-8")
    assert get_secret(path, "models", "A", key_file=key_file).get_secret_value() == "plain"
    assert not key_file.exists()


def test_a_value_cannot_be_moved_to_another_name(path: Path, key_file: Path) -> None:
    store(path, key_file, "ONE")
    text = read_vault(path, "models")["ONE"]
    for table in ("[secrets.models]\nTWO", "[secrets.other]\nONE"):
        path.write_text(f"{table} = '{text}'\n", encoding="utf-8")
        vault = "other" if "other" in table else "models"
        with pytest.raises(
            ConfigurationError, match="modified, or encrypted with a key other than"
        ):
            get_secret(path, vault, list_secrets(path, vault)[0], key_file=key_file)


def test_another_key_does_not_decrypt(path: Path, key_file: Path, tmp_path: Path) -> None:
    store(path, key_file)
    other = tmp_path / "other.key"
    store(tmp_path / "elsewhere.toml", other)
    with pytest.raises(ConfigurationError, match="encrypted with a key other than") as caught:
        get_secret(path, "models", "SEARCH_API_KEY", key_file=other)
    assert "ability-search secret set SEARCH_API_KEY --vault models" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ENC[AES256_GCM,data:Zm9yZWlnbg,tag:abc]", "by another program"),
        ("ENC[]", "by another program"),
        ("-----BEGIN AGE ENCRYPTED FILE-----", "by another program"),
        ("ENC[as1:***]", "damaged"),
        ("ENC[as1:äöü]", "damaged"),
        ("ENC[as1:]", "modified"),
        ("ENC[as1:AAAA]", "modified"),
        ("ENC[as1:" + base64.urlsafe_b64encode(bytes(60)).decode() + "]", "modified"),
    ],
)
def test_a_failed_decryption_is_reported_without_the_value(
    path: Path, key_file: Path, text: str, expected: str
) -> None:
    store(path, key_file, "UNRELATED")
    path.write_text(f"[secrets.models]\nSEARCH_API_KEY = '{text}'\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=expected) as caught:
        get_secret(path, "models", "SEARCH_API_KEY", key_file=key_file)
    message = str(caught.value)
    assert message.startswith(f"{path}: SEARCH_API_KEY cannot be decrypted")
    assert "secret set SEARCH_API_KEY" in message
    assert text not in message


def test_reading_reports_a_missing_key_file_and_does_not_create_it(
    path: Path, key_file: Path
) -> None:
    store(path, key_file)
    key_file.unlink()
    with pytest.raises(ConfigurationError, match="SEARCH_SECRET_KEY_FILE"):
        get_secret(path, "models", "SEARCH_API_KEY", key_file=key_file)
    assert not key_file.exists()


def test_a_key_readable_by_others_is_refused(path: Path, key_file: Path) -> None:
    store(path, key_file)
    key_file.chmod(0o640)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        get_secret(path, "models", "SEARCH_API_KEY", key_file=key_file)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        store(path, key_file)


@pytest.mark.parametrize("content", [b"", b"not base64!", base64.b64encode(b"short")])
def test_a_malformed_key_file_is_refused(path: Path, key_file: Path, content: bytes) -> None:
    key_file.parent.mkdir()
    key_file.write_bytes(content)
    key_file.chmod(0o600)
    with pytest.raises(ConfigurationError, match="not a key"):
        store(path, key_file)
    assert not path.exists()


def test_a_key_file_that_is_a_broken_link_is_not_replaced(path: Path, key_file: Path) -> None:
    key_file.parent.mkdir()
    key_file.symlink_to("nowhere")
    with pytest.raises(ConfigurationError, match="is missing"):
        store(path, key_file)
    assert key_file.is_symlink()
    assert not path.exists()


def test_a_directory_instead_of_the_file_is_reported(path: Path, key_file: Path) -> None:
    path.mkdir()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        list_secrets(path, "models")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        store(path, key_file)


def test_a_key_file_that_is_a_directory_is_refused(path: Path, key_file: Path) -> None:
    key_file.mkdir(parents=True)
    with pytest.raises(ConfigurationError, match="cannot be read or created"):
        store(path, key_file)


@pytest.mark.parametrize(
    ("vault", "key", "value"),
    [("models", "lower", "x"), ("models", "A.B", "x"), ("a.b", "KEY", "x"), ("models", "KEY", "")],
)
def test_invalid_names_and_empty_values_are_refused(
    path: Path, key_file: Path, vault: str, key: str, value: str
) -> None:
    with pytest.raises(ConfigurationError):
        set_secret(path, vault, key, value, key_file=key_file)
    assert not path.exists()
    assert not key_file.exists()


@pytest.mark.parametrize("before", ["[secrets", "secrets = 5\n", "[secrets]\nmodels = 5\n"])
def test_a_file_that_cannot_be_edited_is_unchanged(path: Path, key_file: Path, before: str) -> None:
    path.write_text(before, encoding="utf-8")
    with pytest.raises(ConfigurationError, match="nothing was written"):
        store(path, key_file)
    assert path.read_text(encoding="utf-8") == before


def test_concurrent_writers_keep_both_secrets(path: Path, key_file: Path) -> None:
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(ConfigurationError, match="another process is writing"):
            store(path, key_file)
    finally:
        os.close(descriptor)
    store(path, key_file)
    assert list_secrets(path, "models") == ("SEARCH_API_KEY",)


def test_a_link_to_the_file_stays_a_link(path: Path, key_file: Path, tmp_path: Path) -> None:
    real = tmp_path / "real.toml"
    real.touch()
    path.symlink_to(real)
    store(path, key_file)
    assert path.is_symlink()
    assert list_secrets(real, "models") == ("SEARCH_API_KEY",)


def test_a_missing_directory_is_reported(tmp_path: Path, key_file: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be written"):
        store(tmp_path / "none" / "secrets.toml", key_file)


def test_a_missing_file_or_vault_lists_no_secrets(path: Path, key_file: Path) -> None:
    assert list_secrets(path, "models") == ()
    store(path, key_file)
    assert list_secrets(path, "other") == ()


def test_values_that_are_not_strings_are_reported(path: Path) -> None:
    path.write_text("[secrets.models]\nA = 5\nB = 'x'\nC = []\n", encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        list_secrets(path, "models")
    assert [problem.split()[2] for problem in caught.value.problems] == ["A:", "C:"]
