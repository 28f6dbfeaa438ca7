"""The `recall_context` activity: it recalls stored items that may help in the next reasoning step.

The model gets them with source and score, sanitized and within a limit. Strangers may have written stored text, so it
is between delimiters, like the result of a tool.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from temporalio import activity

from orga.activities.calls.activity import current_run_key, error_text, log_iteration
from orga.activities.knowledge.conventions import named_places
from orga.activities.knowledge.ports import KnowledgeError, KnowledgeStore
from orga.activities.knowledge.ranking import CANDIDATES
from orga.activities.knowledge.words import text_with_task
from orga.activities.models.conversations import Conversations
from orga.activities.text.sanitize import sanitized_text
from orga.activities.text.secrets import NO_SECRETS, KnownSecrets
from orga.workflows.types.context import text_digest
from orga.workflows.types.knowledge import Recall, Recalled, StoredItem
from orga.workflows.types.names import RECALL_CONTEXT
from orga.workflows.types.recall import (
    KNOWLEDGE_HEADER,
    RecalledContext,
    RecalledRef,
    RecallRequest,
    recall_id,
    taint_of,
)
from orga.workflows.types.text import clean_text, clip, one_line

MAX_ITEM_BYTES = 2_000
"""Bytes of an item that a model gets."""
_MAX_ITEM_CHARS = 20_000
"""Characters of an item that are read. They are sanitized, and the result is cut to `MAX_ITEM_BYTES`."""

SOURCE_CHARS = 200

INDENT = "  "
"""Indents each line of a stored text. Only our own lines have no indent, so a text cannot pretend to be an item."""

_RECALL_HINT = "recall_knowledge finds it by its words"

BLOCK_LINE = f"{KNOWLEDGE_HEADER} What was stored before and may concern this step, the most relevant first:"


@dataclass(frozen=True)
class _ShownKnowledge:
    text: str = ""
    items: tuple[RecalledRef, ...] = ()
    taint: tuple[str, ...] = ()
    content: str = ""
    """Digest of the items' texts and sources. It does not depend on their order and scores."""


def _clean_beginning(text: str, _: bool) -> str:
    return clean_text(text)


def shown_knowledge(
    found: Sequence[Recalled], max_bytes: int, safe_text: Callable[[str, bool], str] = _clean_beginning
) -> _ShownKnowledge:
    """Return the first items, as many as fit into `max_bytes`.

    `safe_text` makes a text safe for a model. Its second argument is True if the text is only the beginning of an item.
    """
    lines: list[str] = []
    contents: list[str] = []
    kept: list[Recalled] = []
    size = 0
    for each in found:
        whole = text_with_task(each.item)
        text_lines = safe_text(whole[:_MAX_ITEM_CHARS], len(whole) > _MAX_ITEM_CHARS).splitlines()
        indented = "\n".join(f"{INDENT}{line}" if line else "" for line in text_lines)
        text = clip(indented, MAX_ITEM_BYTES, _RECALL_HINT)
        source = _source_line(each.item)
        line = f"- {each.item.kind}, relevance={each.score:.2f}{source}\n{text}"
        size += len(line.encode()) + 1
        if size > max_bytes:
            break
        lines.append(line)
        contents.append(f"{each.item.id}\n{source}\n{text}")
        kept.append(each)
    if not kept:
        return _ShownKnowledge()
    taint = taint_of(tuple(name for each in kept for name in each.item.provenance.taint))
    references: list[RecalledRef] = []
    for each in kept:
        reference = RecalledRef(id=each.item.id, score=round(each.score, 4))
        references.append(reference.with_taint() if each.item.provenance.taint else reference)
    return _ShownKnowledge("\n".join(lines), tuple(references), taint, text_digest("\0".join(sorted(contents))))


def _source_line(item: StoredItem) -> str:
    origin = item.provenance
    parts = (
        f"confidence={item.confidence:.2f}" if item.kind in {"fact", "memory"} else "",
        f"directory={item.directory or '.'}" if item.kind == "convention" else "",
        f"source={origin.source}" if origin.source else "",
        f"run={origin.workflow_id}, iteration={origin.iteration}" if origin.workflow_id else "",
        f"model={origin.model}" if origin.model else "",
        f"untrusted: it came with {', '.join(origin.taint[:5])}" if origin.taint else "",
        "a newer fact says otherwise" if item.contradicted_by else "",
    )
    return "".join(f", {one_line(part, SOURCE_CHARS)}" for part in parts if part)


RECALL_TIMEOUT_S = 2.0
"""Seconds for both tries. Until they end, the run handles no signal, not even an abort."""

RETRY_PAUSE_S = 0.1
"""The delay before the second try of a retryable failure."""

MAX_ERROR_CHARS = 300


class RecallActivities:
    """Recalls from the worker's store, if it has one. A run continues even if the store cannot be read."""

    def __init__(
        self,
        store: KnowledgeStore | None,
        conversations: Conversations,
        secrets: KnownSecrets = NO_SECRETS,
        root: Path | None = None,
    ) -> None:
        """Keep the store. `root` is the root of the file tools: paths below it are paths of the project."""
        self._store = store
        self._conversations = conversations
        self._secrets = secrets
        self._root = str(root or "")

    @activity.defn(name=RECALL_CONTEXT)
    async def recall_context(self, request: RecallRequest) -> RecalledContext:
        """Return the matching items, or the reason why nothing could be looked up."""
        log_iteration(request.iteration)
        terms = tuple(self._secrets.redact(term) for term in request.search_terms)
        try:
            found = await self._recalled_items(request)
        except Exception as error:
            activity.logger.exception("the knowledge could not be read; the run goes on without it")
            cause = "too slow" if isinstance(error, TimeoutError) else error_text(error)
            kind = error.kind if isinstance(error, KnowledgeError) else type(error).__name__
            text = one_line(self._secrets.redact(clean_text(f"{kind}: {cause}")), MAX_ERROR_CHARS)
            return request.failed_recall(text).with_terms(terms)
        shown = await asyncio.to_thread(shown_knowledge, found, request.max_bytes, self._model_safe_text)
        context = RecalledContext(terms=terms, items=shown.items, taint=shown.taint, content=shown.content)
        if not shown.items:
            return context
        if shown.content == request.content:  # the conversation already has a block with these items
            return context.with_block_kept()
        text = self._secrets.redact(f"{BLOCK_LINE}\n{shown.text}")
        self._conversations.keep_result(current_run_key(), recall_id(request.iteration), text)
        return context.with_text(text)

    def _model_safe_text(self, text: str, is_cut: bool) -> str:
        return sanitized_text(clean_text(self._secrets.redact(text, is_cut=is_cut)))

    async def _recalled_items(self, request: RecallRequest) -> list[Recalled]:
        if self._store is None:
            raise KnowledgeError("this worker has no store of knowledge", kind="NoStore")
        async with asyncio.timeout(RECALL_TIMEOUT_S):
            try:
                return await recall_for_request(self._store, request, self._root)
            except KnowledgeError as error:
                if not error.retryable:
                    raise
            await asyncio.sleep(RETRY_PAUSE_S)
            return await recall_for_request(self._store, request, self._root)


async def recall_for_request(store: KnowledgeStore, request: RecallRequest, root: str = "") -> list[Recalled]:
    """Return items that share words with the conversation, and the conventions of files and folders that it names.

    The search asks for more items than the limit, because conventions of other folders are left out afterwards.
    """
    words = " ".join(request.terms or request.paths)
    query = Recall(text=words, reader=request.reader, limit=CANDIDATES, threshold=request.threshold)
    found = await store.recall(query)
    places = await named_places(store, request.reader, request.search_terms, request.limit, root)
    return places.with_conventions(found, request.limit)
