"""Sources of settings, their precedence, and refused values."""

from __future__ import annotations

from pathlib import Path

import pytest

from ability_search.config.loader import load_settings, own_files
from ability_search.config.schema import Settings
from ability_search.config.settings_table import all_settings
from ability_search.errors import ConfigurationError
from ability_search.extensions.localstack.settings import Arcadedb, Models
from ability_search.text.model_traits import model_traits

KEPT = {
    "SEARCH_CHUNK_SIZE": "chunk_size",
    "SEARCH_EMBEDDING_MODEL": "embedding_model",
    "SEARCH_DATABASE": "database",
    "SEARCH_EMBEDDING_TRANSPORT": "embedding_transport",
    "SEARCH_EMBEDDING_API_URL": "embedding_api_url",
    "SEARCH_API_KEY": "api_key",
}


def load(directory: Path, config: str = "", **environ: str) -> Settings:
    (directory / "config.yml").write_text(config, encoding="utf-8")
    return load_settings({"HOME": str(directory / "home"), **environ}, directory)


def problems(directory: Path, config: str = "", **environ: str) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        load(directory, config, **environ)
    return caught.value.problems


def test_nothing_configured_gives_the_documented_defaults(tmp_path: Path) -> None:
    settings = load_settings({"HOME": "/home/ada"}, tmp_path)
    assert settings.chunking.size == 500
    assert settings.embedding.model == "nomic-embed-text"
    assert settings.embedding.transport == "broker"
    assert settings.database.name == "kadi_memory"
    assert settings.limits.batch_bytes == 24 * 1024 * 1024
    assert settings.files.allowed_roots == (tmp_path,)
    assert settings.files.data_dir == Path("/home/ada/.local/share/ability-search")
    assert settings.files.identity_file == Path("/home/ada/.config/ability-search/identity.pem")
    assert settings.broker.url.get_secret_value() == "ws://localhost:8080/kadi"
    assert settings.broker.networks == ("global",)
    assert settings.warnings == ()


def test_names_kept_from_the_earlier_ability_still_work() -> None:
    assert {spec.env[0]: spec.key for spec in all_settings().specs if spec.env[0] in KEPT} == KEPT


def test_keys_and_variables_are_unique_and_correspond() -> None:
    keys = [spec.key for spec in all_settings().specs]
    variables = [name for spec in all_settings().specs for name in spec.env]
    assert len(set(keys)) == len(keys)
    assert len(set(variables)) == len(variables)
    for spec in all_settings().specs:
        if spec.home is None:
            assert spec.env == (f"SEARCH_{spec.key.upper()}",)


def test_environment_wins_over_config(tmp_path: Path) -> None:
    config = "search:\n  chunk_size: 300\n  database: notes\n"
    settings = load(tmp_path, config, SEARCH_CHUNK_SIZE="200")
    assert settings.chunking.size == 200
    assert settings.database.name == "notes"


def test_config_is_found_by_walking_up(tmp_path: Path) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (tmp_path / "config.yml").write_text("search: {chunk_size: 123}\n", encoding="utf-8")
    assert load_settings({}, below).chunking.size == 123


def test_the_nearest_config_wins(tmp_path: Path) -> None:
    below = tmp_path / "a"
    below.mkdir()
    (tmp_path / "config.yml").write_text("search: {chunk_size: 123}\n", encoding="utf-8")
    (below / "config.yml").write_text("search: {chunk_size: 124}\n", encoding="utf-8")
    assert load_settings({}, below).chunking.size == 124


def test_other_sections_of_config_are_ignored(tmp_path: Path) -> None:
    assert load(tmp_path, "memory: {api_key: x, model: y}\nsearch:\n").chunking.size == 500


def test_merged_yaml_keys_do_not_count_as_duplicates(tmp_path: Path) -> None:
    config = (
        "base: &base {chunk_size: 300, database: notes}\nsearch: {<<: *base, chunk_size: 200}\n"
    )
    settings = load(tmp_path, config)
    assert settings.chunking.size == 200
    assert settings.database.name == "notes"


def test_sizes_take_units(tmp_path: Path) -> None:
    settings = load(tmp_path, "search: {max_document_bytes: 2 MiB}", SEARCH_ARCADEDB_HEAP="1GiB")
    assert settings.limits.document_bytes == 2 * 1024 * 1024
    assert settings.of(Arcadedb).heap == 1024**3


def test_relative_paths_resolve_against_the_file_that_holds_them(tmp_path: Path) -> None:
    below = tmp_path / "a"
    below.mkdir()
    config = (
        "search:\n  data_dir: data\n  allowed_roots: [docs, ~/notes, /srv]\n"
        "  model_dirs: [own, tiny=~/tiny, abs=/m]\n"
    )
    (tmp_path / "config.yml").write_text(config, encoding="utf-8")
    environ = {"HOME": "/home/ada", "SEARCH_CACHE_DIR": "cache"}
    settings = load_settings(environ, below)
    assert settings.of(Models).dirs == (f"{tmp_path / 'own'}", "tiny=/home/ada/tiny", "abs=/m")
    files = settings.files
    assert files.data_dir == tmp_path / "data"
    assert files.cache_dir == below / "cache"
    assert files.allowed_roots == (tmp_path / "docs", Path("/home/ada/notes"), Path("/srv"))


def test_xdg_directories_are_used_if_absolute(tmp_path: Path) -> None:
    environ = {"HOME": "/h", "XDG_DATA_HOME": "/d", "XDG_CACHE_HOME": "relative"}
    files = load_settings(environ, tmp_path).files
    assert files.data_dir == Path("/d/ability-search")
    assert files.cache_dir == Path("/h/.cache/ability-search")


def test_lists_are_parsed_from_one_variable(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        "search: {read_allow: docs}",
        SEARCH_ARCADEDB_URLS="http://a:2480, http://b:2480",
        SEARCH_ALLOWED_ROOTS="/one:/two",
    )
    assert [str(url) for url in settings.of(Arcadedb).urls] == ["http://a:2480", "http://b:2480"]
    assert settings.reading.allow == ("docs",)
    assert settings.files.allowed_roots == (Path("/one"), Path("/two"))


def test_all_problems_are_reported_at_once_with_file_and_key(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        "search: {chunk_size: many, embeding_model: x, fusion: magic}\n",
        SEARCH_DATABASE="no spaces allowed",
        SEARCH_LOG_LEVEL="loud",
    )
    file = tmp_path / "config.yml"
    assert len(found) == 5
    for beginning in (
        f"{file}: search.chunk_size: ",
        f"{file}: search.embeding_model: unknown key; did you mean embedding_model?",
        f"{file}: search.fusion: ",
        "SEARCH_DATABASE: ",
        "SEARCH_LOG_LEVEL: ",
    ):
        assert any(text.startswith(beginning) for text in found), beginning


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("chunk_size: yes", "expected a number or a string"),
        ("chunk_size:", "has no value"),
        ("chunk_size: 5", "greater than or equal to 16"),
        ("chunk_size: 100.5", "valid integer"),
        ("bm25_b: .nan", "finite number"),
        ("embedding_model: 7", "valid string"),
        ("max_batch_bytes: lots", "byte string"),
        ("embedding_api_url: 5", "valid string"),
        ("embedding_api_url: localhost:11434", "begins with http:// or https://"),
        ("embedding_api_url: 'http://[::1'", "begins with http:// or https://"),
        ("arcadedb_urls: [ftp://x]", "begins with http:// or https://"),
        ("local_broker_backplane: 'nats://a:4222,http://b'", "begins with nats:// or tls://"),
        ("chunk_overlap: 500", "chunk_overlap must be smaller than chunk_size"),
        ("max_batch_bytes: 64 MiB", "max_batch_bytes must not exceed max_message_bytes"),
        ("max_document_bytes: 30 MiB", "max_document_bytes must not exceed max_batch_bytes"),
        ("{fusion_semantic: 0, fusion_keyword: 0}", "must not both be 0"),
        ("arcadedb_backend: http", "arcadedb_urls must be set"),
        ("broker_url: ws://x/kadi", "config.toml [broker.<name>] URL"),
        ("networks: [a]", "config.toml [broker.<name>] NETWORKS"),
        ("chunk_size: 300\n  max_limit: 50\n  zzz: 1", "unknown key"),
        ("chunk_size: 300\n  max_limit: 50\n  1: 1", "expected a string as key"),
        ("chunk_size: 100\n  chunk_size: 200", "duplicate key chunk_size"),
        ("chunk_size: [", "not valid YAML (line"),
        ("chunk_size: 2024-99-99", "not valid YAML"),
        ("chunk_size: \0", "not valid YAML"),
        ("data_dir: 5", "not a valid path"),
        ("secret_key_file: 5", "not a valid path"),
        ("allowed_roots: [docs, 5]", "search.allowed_roots.1: "),
        ("allowed_roots: []", "at least 1 item"),
        ("read_deny: ['a[']", "search.read_deny.0: "),
    ],
)
def test_a_wrong_value_is_refused(tmp_path: Path, line: str, expected: str) -> None:
    (problem,) = problems(tmp_path, f"search:\n  {line}\n")
    assert problem.startswith(str(tmp_path / "config.yml"))
    assert expected in problem


FOREIGN = (
    "- a list\n",
    "search: lunr\n",
    "search: {provider: lunr, limit: 10, language: en}\n",
    "search: {provider: algolia, database: postgres}\n",
    "title: {{ page.title }}\n",
)


@pytest.mark.parametrize("config", FOREIGN)
def test_a_config_of_another_program_is_passed_over_with_a_warning(
    tmp_path: Path, config: str
) -> None:
    (tmp_path / "config.yml").write_text("search: {chunk_size: 123}", encoding="utf-8")
    below = tmp_path / "site"
    below.mkdir()
    settings = load(below, config)
    assert settings.chunking.size == 123
    (warning,) = settings.warnings
    assert warning.startswith(f"{below / 'config.yml'} is ignored: ")
    assert own_files(below) == [tmp_path / "config.yml"]


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.yml").write_bytes(b"search: \xff\xfe")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        load_settings({}, tmp_path)


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("api_key: sk-hidden", "SEARCH_API_KEY"),
        ("arcadedb_password: sk-hidden", "SEARCH_ARCADEDB_PASSWORD"),
        ("embedding_api_url: https://ada:sk-hidden@host/", "SEARCH_EMBEDDING_API_URL"),
        ("arcadedb_urls: ['http://root:sk-hidden@host']", "SEARCH_ARCADEDB_URLS"),
        ("embedding_api_url: ENC[sk-hidden]", "SEARCH_EMBEDDING_API_URL"),
    ],
)
def test_a_secret_in_config_is_refused_and_not_shown(tmp_path: Path, line: str, place: str) -> None:
    (problem,) = problems(tmp_path, f"search:\n  {line}\n")
    assert "secrets are not allowed in this file" in problem
    assert place in problem
    assert "sk-hidden" not in problem


def test_no_error_shows_a_value(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        SEARCH_CHUNK_SIZE="sk-hidden",
        SEARCH_EMBEDDING_API_URL="sk-hidden",
        BROKER_URL="https://ada:sk-hidden@host",
        SEARCH_FUSION="sk-hidden",
        SEARCH_MAX_LIMIT="99999999sk-hidden",
    )
    assert len(found) == 5
    assert "sk-hidden" not in "".join(found)


def test_no_repr_shows_a_credential(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        SEARCH_API_KEY="sk-hidden",
        SEARCH_ARCADEDB_PASSWORD="sk-hidden",
        SEARCH_EMBEDDING_API_URL="https://ada:sk-hidden@host:1/v1?key=sk-hidden",
        SEARCH_ARCADEDB_URLS="http://root:sk-hidden@db:2480",
        BROKER_URL="wss://ada:sk-hidden@broker/kadi?token=sk-hidden",
    )
    assert settings.embedding.api_key is not None
    assert settings.embedding.api_key.get_secret_value() == "sk-hidden"
    assert "sk-hidden" in settings.broker.url.get_secret_value()
    assert "sk-hidden" not in repr(settings)
    assert "sk-hidden" not in f"{settings.broker.url} {settings.of(Arcadedb).urls}"
    assert str(settings.embedding.api_url) == "https://host:1/v1"
    assert "sk-hidden" not in settings.embedding.model_dump_json()


def test_settings_cannot_be_changed(tmp_path: Path) -> None:
    settings = load(tmp_path)
    with pytest.raises(AttributeError):
        settings.chunking = settings.chunking  # type: ignore[misc]
    with pytest.raises(ValueError, match="frozen"):
        settings.chunking.size = 1  # type: ignore[misc]


def test_the_same_arguments_give_the_same_settings(tmp_path: Path) -> None:
    environ = {"HOME": "/h", "SEARCH_CHUNK_SIZE": "99", "SEARCH_CHUNK_OVERLAP": "9"}
    assert load_settings(environ, tmp_path) == load_settings(environ, tmp_path)


@pytest.mark.parametrize(
    ("model", "query", "passage"),
    [
        ("all-MiniLM-L6-v2", "", ""),
        ("nomic-embed-text", "search_query: ", "search_document: "),
        ("nomic-embed-text:v1.5", "search_query: ", "search_document: "),
        ("intfloat/multilingual-e5-small", "query: ", "passage: "),
        ("intfloat/e5-base-v2", "query: ", "passage: "),
        ("BAAI/bge-m3", "", ""),
        ("text-embedding-3-small", "", ""),
        ("snowflake-arctic-embed2", "query: ", ""),
        ("Snowflake/snowflake-arctic-embed-l-v2.0", "query: ", ""),
    ],
)
def test_prefixes_are_those_of_the_model_card(model: str, query: str, passage: str) -> None:
    assert model_traits(model)[:2] == (query, passage)


def test_instructions_precede_queries_only() -> None:
    for model in ("bge-large", "bge-small-zh-v1.5", "multilingual-e5-large-instruct"):
        query, passage, _ = model_traits(model)
        assert query
        assert passage == ""


def test_prefixes_that_are_set_hold_for_the_configured_model_only(tmp_path: Path) -> None:
    embedding = load(
        tmp_path,
        SEARCH_EMBEDDING_MODEL="nomic-embed-text",
        SEARCH_EMBEDDING_QUERY_PREFIX="ask:",
        SEARCH_EMBEDDING_PASSAGE_PREFIX="none",
    ).embedding
    assert embedding.prefixes_of("nomic-embed-text") == ("ask: ", "")
    assert embedding.prefixes_of("e5-small") == ("query: ", "passage: ")
