"""`[knowledge]`: where what runs learn is kept. The address of a database is a secret: the environment holds it."""

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from orga.activities.adapters.knowledge.embedders.names import checked_embedder
from orga.workflows.types.record import Border
from orga.workflows.types.sandbox import ConfiguredPath

DSN_VARIABLE = "ORGA_KNOWLEDGE_DSN"

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")


def _variable(name: object) -> object:
    """Let a name pass; whatever else stands there may hold a password and is not repeated."""
    if isinstance(name, str) and not _VARIABLE.fullmatch(name):
        raise ValueError(
            f'has to name the variable of the environment that holds the address, as dsn = "{DSN_VARIABLE}" does; the '
            "address itself is a secret and stands in no file"
        )
    return name


def _embedder(name: object) -> object:
    return checked_embedder(name) if isinstance(name, str) else name


class KnowledgeConfig(Border):
    """The section. A run that has `knowledge` uses it."""

    backend: Literal["sqlite", "postgres"] = "sqlite"
    """`postgres`: one store for the workers of several machines; it needs pgvector, and the extra `postgres` here."""
    path: ConfiguredPath | None = None
    """`sqlite`: the file, relative to the file that says so. Null: a file for this folder among orga's own state."""
    dsn: Annotated[str, BeforeValidator(_variable)] = DSN_VARIABLE
    """`postgres`: the variable that holds the address, `postgresql://user:password@host/database`."""
    embedder: Annotated[str, BeforeValidator(_embedder), Field(max_length=300)] = "hashing"
    """What makes vectors of texts: `hashing`, `wordllama` (the extra `embeddings`), or `provider:model`, as
    `openai:text-embedding-3-small` and `ollama:nomic-embed-text`."""
