"""The tools `recall_knowledge` and `store_knowledge`."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from orga.activities.adapters.tools.parameters import Parameters
from orga.activities.knowledge.conventions import conventions_for, language_of_path, named_language, path_from_root
from orga.activities.knowledge.ports import KnowledgeError, KnowledgeStore
from orga.activities.knowledge.recall import shown_knowledge
from orga.activities.ports import ToolContext, ToolError
from orga.workflows.types.knowledge import (
    DEFAULT_CONFIDENCE,
    DEFAULT_RECALLED,
    Behalf,
    KnowledgeItem,
    KnowledgeKind,
    Recall,
    Recalled,
    ScopeLevel,
    Stored,
)
from orga.workflows.types.recall import RECALL_KNOWLEDGE, STORE_KNOWLEDGE, KnowledgeOutput, KnowledgeReport, StoredRef
from orga.workflows.types.text import clip
from orga.workflows.types.tool_calls.tools import ToolOptions, ToolOutput, ToolSpec


@contextmanager
def raising_store_errors() -> Generator[None]:
    """Raise ToolError in place of KnowledgeError. The call had no effect, because a store does all or nothing."""
    try:
        yield
    except KnowledgeError as error:
        raise ToolError(str(error), kind=error.kind, retryable=error.retryable, acted="no") from error


NOTHING_FOUND = "Nothing that is stored fits. Go on with what you know, or look elsewhere."

MAX_BYTES = 18_000
"""Bytes of one call's result."""

TERM_BYTES = 300
"""Bytes of a query in the journal."""


class _RecallParameters(Parameters):
    query: str = Field(min_length=1, max_length=2_000, description="What you want to know, in its own words.")
    limit: int = Field(default=DEFAULT_RECALLED, ge=1, le=20, description="The maximum number of results.")
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
    """Recalls what the run's own tenant, user and agent may see. No argument of the model can change these."""

    def __init__(self, store: KnowledgeStore, root: Path | None = None) -> None:
        self._store = store
        self._root = str(root or "")
        self.spec = ToolSpec(
            name=RECALL_KNOWLEDGE,
            description=(
                "Look up what earlier runs and people have stored: facts, documents, what runs have learnt. With "
                'directory and scope "conventions": the conventions of that part of the project.'
            ),
            parameters=_RecallParameters.json_schema(),
            effect="read_only",
            options=ToolOptions(verified=True, trusted_output=True),
            main_argument="query",
        )
        """The tool is read-only. Stored items keep their own taint, so the tool adds none."""

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        wanted, behalf = _RecallParameters.parse(arguments), context.behalf or Behalf()
        with raising_store_errors():
            found = await self._recalled_items(wanted, behalf)
        shown = await asyncio.to_thread(shown_knowledge, found, MAX_BYTES)
        report = KnowledgeReport(terms=(clip(wanted.query, TERM_BYTES),), items=shown.items, taint=shown.taint)
        return KnowledgeOutput(content=shown.text or NOTHING_FOUND, knowledge=report)

    async def _recalled_items(self, wanted: _RecallParameters, behalf: Behalf) -> list[Recalled]:
        if wanted.directory is not None and wanted.scope == "conventions":
            language = language_of_path(wanted.directory) or named_language(wanted.query)
            directory = path_from_root(wanted.directory, self._root)
            return await conventions_for(self._store, behalf.reader, directory, language, wanted.limit)
        return await self._store.recall(
            Recall(text=wanted.query, reader=behalf.reader, limit=wanted.limit, threshold=behalf.threshold)
        )


MAX_CONTRADICTED = 20
"""Ids of contradicted facts that the journal shows."""


class _StoreParameters(Parameters):
    subject: str = Field(min_length=1, max_length=300, description="What the fact is about.")
    predicate: str = Field(min_length=1, max_length=300, description="The relation: `is`, `depends on`, …")
    object: str = Field(min_length=1, max_length=2_000, description="The rest of the statement, in 1,000 characters.")
    confidence: float = Field(default=DEFAULT_CONFIDENCE, ge=0, le=1, description="How sure you are.")
    scope: Literal["user", "agent", "tenant"] | None = Field(
        default=None,
        description="Who may recall it. Default: the user that you work for, or your whole tenant if there is no user.",
    )


class StoreKnowledge:
    """Stores a fact, or what a run has learnt, for its own user, agent or tenant. No argument sets the taint."""

    def __init__(self, store: KnowledgeStore) -> None:
        self._store = store
        self.spec = ToolSpec(
            name=STORE_KNOWLEDGE,
            description=(
                "Store one fact for later runs, as subject, predicate and object. Store what you have found out and "
                "what will still hold; a newer fact about the same takes the place of an older one."
            ),
            parameters=_StoreParameters.json_schema(),
            effect="idempotent",
            options=ToolOptions(verified=True, trusted_output=True),
            main_argument="subject",
        )
        """The tool is idempotent: a repetition stores nothing twice."""

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        given, behalf = _StoreParameters.parse(arguments), context.behalf or Behalf()
        item = _fact_item(given, behalf, context)
        with raising_store_errors():
            stored, *others = await self._store.store([item, *_evidence_items(item, behalf, context)])
        evidence = tuple(_stored_reference(each, "output") for each in others)
        report = KnowledgeReport(stored=_stored_reference(stored, item.kind), evidence=evidence)
        return KnowledgeOutput(content=_stored_text(stored, item.scope), knowledge=report)


def _stored_reference(stored: Stored, kind: KnowledgeKind) -> StoredRef:
    return StoredRef(id=stored.id, kind=kind, change=stored.change, contradicts=stored.contradicts[:MAX_CONTRADICTED])


def _fact_item(given: _StoreParameters, behalf: Behalf, context: ToolContext) -> KnowledgeItem:
    scope, reader = _effective_scope(given, behalf), behalf.reader
    provenance = behalf.provenance(f"agent {reader.agent}" if reader.agent else "", context.workflow_id)
    fields: dict[str, Any] = {"subject": given.subject, "confidence": given.confidence, "provenance": provenance}
    fields |= {"scope": scope, "owner": reader}
    if behalf.is_learning:  # its subject is the task, which is left out: repetitions of the task would match it
        return KnowledgeItem(kind="memory", text=given.object, key=context.idempotency_key, **fields)
    text = f"{given.subject} {given.predicate} {given.object}"
    return KnowledgeItem(kind="fact", text=text, predicate=given.predicate, object=given.object, **fields)


def _evidence_items(item: KnowledgeItem, behalf: Behalf, context: ToolContext) -> list[KnowledgeItem]:
    """Return the results of a goal's steps. They share owner and provenance with `item`, which the goal has learnt."""
    return [
        KnowledgeItem(
            kind="output",
            text=output.text,
            scope=item.scope,
            owner=item.owner,
            key=f"{context.idempotency_key}/{output.step}",
            confidence=item.confidence,
            provenance=item.provenance.with_source(output.source or item.provenance.source),
        )
        for output in behalf.outputs
    ]


def _effective_scope(given: _StoreParameters, behalf: Behalf) -> ScopeLevel:
    """Return who may recall the item: never more people than the model allows."""
    user = behalf.reader.user
    if given.scope == "user" and not user:
        text = 'this run names no user (trusted_context.user); choose the scope "agent" or "tenant"'
        raise ToolError(text, kind="InvalidArguments")
    return given.scope or ("user" if user else "tenant")


def _stored_text(stored: Stored, scope: ScopeLevel) -> str:
    if stored.change == "unchanged":
        return f"That is already known (scope {scope})."
    older = len(stored.contradicts)
    says = "fact says" if older == 1 else "facts say"
    contradicted = f"; {older} older {says} otherwise and now count less" if older else ""
    return f"Stored (scope {scope}){contradicted}."
