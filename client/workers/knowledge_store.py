"""Opens the configured store of knowledge and its embedder, for workers and for the command line."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from orga.activities.adapters.knowledge.embedders import HashingEmbedder, ProviderEmbedder, WordLlamaEmbedder
from orga.activities.adapters.knowledge.sqlite.sqlite_store import SqliteStore
from orga.activities.adapters.models.model_settings import provider_endpoint
from orga.activities.adapters.problem import extra_remedy
from orga.activities.knowledge.ports import Embedder, KnowledgeStore
from orga.client.config.sections import ModelsConfig, OrgaConfig
from orga.client.config.workplace import short_digest
from orga.client.server.home import server_home, user_path
from orga.workflows.types.models.endpoints import DEFAULT_ENDPOINT
from orga.workflows.types.models.providers import HASHING, WORDLLAMA, checked_embedder_name

_MISSING_EXTRA = f"the embedder wordllama needs the extra: {extra_remedy('embeddings')}"


def configured_embedder(name: str, env: Mapping[str, str], models: ModelsConfig) -> Embedder:
    """Return the embedder that `[knowledge] embedder` names. It loads nothing and calls no provider yet.

    Raise ValueError if there is no such embedder, it is not installed, or its key or address is missing.
    """
    name = checked_embedder_name(name, models.embedding_endpoints)
    if name == HASHING:
        return HashingEmbedder()
    if name == WORDLLAMA:
        if find_spec("wordllama") is None:
            raise ValueError(_MISSING_EXTRA)
        return WordLlamaEmbedder()
    provider, _, model = name.partition(":")
    settings = models.endpoints.get(provider, DEFAULT_ENDPOINT)
    return ProviderEmbedder(model, provider_endpoint(provider, env, models.base_urls, settings))


def configured_store(config: OrgaConfig, env: Mapping[str, str], root: Path) -> KnowledgeStore:
    """Return the store. It opens nothing before its first use, so a worker that never uses it leaves no file.

    Raise ValueError if something is not set or not installed. The text names it, but contains no secret.
    """
    embedder = configured_embedder(config.knowledge.embedder, env, config.models)
    if config.knowledge.backend == "postgres":
        return _postgres_store(config.knowledge.dsn, env, embedder)
    return SqliteStore(store_path(config, root), embedder)


def store_path(config: OrgaConfig, root: Path) -> Path:
    """Return the file of an embedded store.

    By default it is in orga's own state folder, one file for each folder that runs work in. It is not in that folder:
    the files of a folder must not become knowledge, and agents must not be able to write the store.
    """
    if config.knowledge.path is not None:
        return user_path(config.knowledge.path).absolute()
    base = (config.file.parent if config.file else root).resolve()
    return server_home().knowledge / f"{short_digest(str(base))}.db"


def _postgres_store(variable: str, env: Mapping[str, str], embedder: Embedder) -> KnowledgeStore:
    if find_spec("psycopg") is None:
        raise ValueError(f'knowledge.backend: "postgres" needs the extra: {extra_remedy("postgres")}')
    from orga.activities.adapters.knowledge.postgres.postgres_store import PostgresStore
    from orga.activities.adapters.knowledge.postgres.schema import parse_address

    dsn = env.get(variable, "").strip()
    if not dsn:
        raise ValueError(
            f'knowledge.backend is "postgres", but {variable} is not set in the environment; set it to the address, '
            "postgresql://user:password@host/database"
        )
    return PostgresStore(parse_address(dsn, variable), embedder)
