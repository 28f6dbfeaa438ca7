"""The store of knowledge that a configuration asks for; for workers and for the command line."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from orga.activities.adapters.knowledge.embedders.configured import configured_embedder
from orga.activities.adapters.knowledge.sqlite.store import SqliteStore
from orga.activities.knowledge.ports import KnowledgeStore
from orga.client.config.sections import OrgaConfig
from orga.client.server.home import server_home
from orga.client.user_path import user_path

MARK_CHARS = 10


def configured_store(config: OrgaConfig, env: Mapping[str, str], root: Path) -> KnowledgeStore:
    """Return the store; nothing is opened before it is used, so that a worker without knowledge leaves no file.

    Args:
        config: As it was read.
        env: Holds the address of a database and the keys of providers.
        root: Where file tools work.

    Raises:
        ValueError: Something that it needs is not set; the text names it, and no secret.
    """
    embedder = configured_embedder(config.knowledge.embedder, env, config.models.base_urls)
    if config.knowledge.backend == "postgres":
        raise ValueError('knowledge.backend: "postgres" is not available in this version; use "sqlite"')
    return SqliteStore(store_path(config, root), embedder)


def store_path(config: OrgaConfig, root: Path) -> Path:
    """Return the file of an embedded store.

    Where no path is configured it lies in orga's own state, not in the folder that runs work in: what a folder brings
    along must not become what agents are told, nor may they write it. Each folder has its own.
    """
    if config.knowledge.path is not None:
        return user_path(config.knowledge.path).absolute()
    base = (config.file.parent if config.file else root).resolve()
    mark = hashlib.sha256(str(base).encode(errors="surrogateescape")).hexdigest()[:MARK_CHARS]
    return server_home().knowledge / f"{mark}.db"
