"""`[knowledge]` selects the store and the embedder. The address of a database is never in the file."""

from pathlib import Path

import pytest

from orga.client.config.file import ConfigError, load_config
from orga.client.config.sections import ModelsConfig, OrgaConfig
from orga.client.config.trust.check import Untrusted
from orga.client.config.trust.rules_in_use import rules_in_use
from orga.client.workers.knowledge_store import configured_embedder, store_path
from orga.client.workers.parts import secret_names

DSN = "postgresql://orga:planted-password@db.test/orga"


def a_config(folder: Path, text: str, **env: str) -> OrgaConfig:
    (folder / "orga.toml").write_text(text, encoding="utf-8")
    return load_config(folder=folder, env=env | {"ORGA_TRUST": "1"})


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_the_default_store_is_a_file_for_this_folder_alone(tmp_path: Path, home: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
    paths = [store_path(OrgaConfig(), folder) for folder in (one, other, one)]
    assert paths[0] == paths[2] != paths[1]
    assert {path.parent for path in paths} == {home / "knowledge"}


def test_a_subfolder_shares_the_store_of_its_configuration(tmp_path: Path) -> None:
    config = a_config(tmp_path, '[knowledge]\nembedder = "hashing"\n')
    assert store_path(config, tmp_path) == store_path(config, tmp_path / "src")


def test_a_path_is_relative_to_its_configuration_file(tmp_path: Path) -> None:
    config = a_config(tmp_path, '[knowledge]\npath = "kept/k.db"\n')
    assert store_path(config, Path("/elsewhere")) == tmp_path / "kept" / "k.db"


def test_the_environment_wins(tmp_path: Path) -> None:
    named = {"ORGA_KNOWLEDGE__BACKEND": "postgres", "ORGA_KNOWLEDGE__EMBEDDER": "ollama:nomic-embed-text"}
    config = a_config(tmp_path, '[knowledge]\nbackend = "sqlite"\n', **named).knowledge
    assert (config.backend, config.embedder) == ("postgres", "ollama:nomic-embed-text")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param('backend = "redis"', r"orga.toml:2: knowledge.backend: 'redis' should be 'sqlite' or 'postgres'"),
        pytest.param(f'dsn = "{DSN}"', r"orga.toml:2: knowledge.dsn: has to name the environment variable"),
        pytest.param(
            'embedder = "word2vec"', r"orga.toml:2: knowledge.embedder: 'word2vec' names no embedder; allowed"
        ),
        pytest.param('embedder = "anthropic:x"', r"provider one of openrouter, openai, ollama, openai-compatible"),
        pytest.param('embedder = "openai:"', r"names no embedder"),
        pytest.param('dns = "X"', r"unknown key; did you mean 'dsn'\? allowed: backend, path, dsn, embedder"),
    ],
)
def test_a_mistake_is_reported_with_its_line_and_without_the_password(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        a_config(tmp_path, f"[knowledge]\n{text}\n")
    assert "planted" not in str(caught.value)


def test_an_address_in_place_of_a_variable_name_is_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ORGA_KNOWLEDGE__DSN: knowledge\.dsn: has to name") as caught:
        a_config(tmp_path, "", ORGA_KNOWLEDGE__DSN=DSN)
    assert "planted" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "env", "says"),
    [
        pytest.param("openai:text-embedding-3-small", {}, "openai has no key: set OPENAI_API_KEY", id="no key"),
        pytest.param("openai-compatible:x", {}, "set \\[models\\] base_urls", id="no address"),
    ],
)
def test_an_embedder_without_a_key_or_address_names_the_missing_setting(
    name: str, env: dict[str, str], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        configured_embedder(name, env, ModelsConfig())


@pytest.mark.parametrize("name", ["hashing", "wordllama", "ollama:nomic-embed-text", "openai:text-embedding-3-small"])
def test_an_embedder_is_created_without_a_request(name: str) -> None:
    made = configured_embedder(name, {"OPENAI_API_KEY": "planted-key"}, ModelsConfig())
    assert made.name.startswith(name)
    assert "planted" not in repr(vars(made) if hasattr(made, "__dict__") else made)


def test_the_variable_with_the_address_is_a_secret() -> None:
    config = OrgaConfig.model_validate({"knowledge": {"dsn": "WHERE"}}, extra="forbid")
    assert "WHERE" in secret_names(config)


def test_a_store_inside_the_folder_needs_trust(tmp_path: Path) -> None:
    """Its facts would otherwise pass for our own."""
    (tmp_path / "orga.toml").write_text('[knowledge]\npath = "k.db"\n')
    with pytest.raises(Untrusted, match="takes the knowledge of agents from a file that others may have written"):
        load_config(folder=tmp_path, env={})


def test_a_database_server_needs_trust_and_an_embedder_does_not(tmp_path: Path) -> None:
    (tmp_path / "orga.toml").write_text('[knowledge]\nbackend = "postgres"\n')
    with pytest.raises(Untrusted, match="stores what agents learn on a server"):
        load_config(folder=tmp_path, env={})
    (tmp_path / "orga.toml").write_text('[knowledge]\nbackend = "sqlite"\nembedder = "wordllama"\n')
    assert load_config(folder=tmp_path, env={}).knowledge.embedder == "wordllama"


def test_agents_cannot_write_the_store(tmp_path: Path) -> None:
    config = a_config(tmp_path, '[knowledge]\npath = "k.db"\n')
    files = rules_in_use(config, tmp_path, {}).stores
    assert {tmp_path / "k.db", tmp_path / "k.db-wal"} <= set(files)
