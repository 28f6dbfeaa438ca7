"""The store of knowledge of this folder's configuration."""

import os
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from orga.activities.knowledge.ports import KnowledgeError, KnowledgeStore
from orga.client.cli.exit_codes import UsageError
from orga.client.config.file import load_config
from orga.client.errors import OrgaError

_OF_USAGE = frozenset({"InvalidItem", "NewerSchema", "OtherProject"})


@dataclass(frozen=True)
class Opened:
    """What commands work on."""

    store: KnowledgeStore
    root: Path
    """Of the project: directories of conventions and documents are counted from here, wherever in it a command is."""


@asynccontextmanager
async def opened_store(config_file: Path | None) -> AsyncGenerator[Opened]:
    """Yield the store; it is closed at the end, however that comes.

    Raises:
        UsageError: It is not configured, or refuses what it was given.
        OrgaError: It cannot do it.
    """
    from orga.client.workers.knowledge import configured_store

    config = load_config(config_file).config
    base = config.file.parent if config.file else Path.cwd()
    root = (config.tools.files.root or base).resolve()
    try:
        store = configured_store(config, os.environ, root)
    except ValueError as error:
        raise UsageError(str(error)) from None
    try:
        with _told():
            yield Opened(store, root)
    finally:
        await store.close()


@contextmanager
def _told() -> Generator[None]:
    try:
        yield
    except KnowledgeError as error:
        raise (UsageError if error.kind in _OF_USAGE else OrgaError)(str(error)) from None
