"""The `recall_knowledge` tool."""

import asyncio
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from orga.activities.adapters.knowledge.failures import told_to_model
from orga.activities.adapters.tools.parameters import Parameters
from orga.activities.knowledge.conventions import conventions_for
from orga.activities.knowledge.languages import language_named, language_of
from orga.activities.knowledge.places import from_root
from orga.activities.knowledge.ports import KnowledgeStore
from orga.activities.knowledge.shown import shown
from orga.activities.ports import ToolContext
from orga.workflows.types.knowledge import Behalf, Recall, Recalled
from orga.workflows.types.recall import RECALL_KNOWLEDGE, KnowledgeOutput, KnowledgeTold
from orga.workflows.types.text import clip
from orga.workflows.types.tools import ToolOptions, ToolOutput, ToolSpec

NOTHING = "Nothing that is stored fits. Go on with what you know, or look elsewhere."

MAX_BYTES = 18_000
"""Of what one call brings."""

TERM_BYTES = 300
"""Of a query, in the journal."""


class _Parameters(Parameters):
    query: str = Field(min_length=1, max_length=2_000, description="What you want to know, in its own words.")
    limit: int = Field(default=5, ge=1, le=20, description="Results at most.")
    directory: str | None = Field(
        default=None,
        max_length=1_000,
        description=(
            'With scope "conventions": the directory, or the file, that you work on, relative to the root. For a '
            'directory let the query name the language: "python conventions".'
        ),
    )
    scope: Literal["conventions"] | None = Field(
        default=None,
        description="With directory: the conventions that hold there, the nearest directory's first.",
    )


class RecallKnowledge:
    """What the run's own tenant, user and agent may recall; on whose behalf it is asked no argument says."""

    def __init__(self, store: KnowledgeStore, root: Path | None = None) -> None:
        self._store = store
        self._root = str(root or "")

    @property
    def spec(self) -> ToolSpec:
        """Read-only; what it brings is tainted where the run that stored it was, so it leaves no taint by itself."""
        return ToolSpec(
            name=RECALL_KNOWLEDGE,
            description=(
                "Look up what earlier runs and people have stored: facts, documents, what runs have learnt. With "
                'directory and scope "conventions": the conventions of that part of the project.'
            ),
            parameters=_Parameters.json_schema(),
            effect="read_only",
            options=ToolOptions(verified=True, trusted_output=True),
            main_argument="query",
        )

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Return what fits, or that nothing does."""
        wish, behalf = _Parameters.parse(arguments), context.behalf or Behalf()
        with told_to_model():
            found = await self._found(wish, behalf)
        now = await asyncio.to_thread(shown, found, MAX_BYTES)
        told = KnowledgeTold(terms=(clip(wish.query, TERM_BYTES),), items=now.items, taint=now.taint)
        return KnowledgeOutput(content=now.text or NOTHING, knowledge=told)

    async def _found(self, wish: _Parameters, behalf: Behalf) -> list[Recalled]:
        if wish.directory is not None and wish.scope == "conventions":
            language = language_of(wish.directory) or language_named(wish.query)
            directory = from_root(wish.directory, self._root)
            return await conventions_for(self._store, behalf.reader, directory, language, wish.limit)
        return await self._store.recall(
            Recall(text=wish.query, reader=behalf.reader, limit=wish.limit, threshold=behalf.threshold)
        )
