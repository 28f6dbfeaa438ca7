"""Deliveries on this machine: a file for each goal, and a memory in the knowledge store."""

import re
from dataclasses import dataclass
from hashlib import sha256

from orga.activities.adapters.deliveries.short_text import shortened_text, visible_answer
from orga.activities.adapters.tools.root import FileRoot
from orga.activities.adapters.tools.write_file import replace_file
from orga.activities.knowledge.ports import KnowledgeError, KnowledgeStore
from orga.activities.ports import NotifyError, RunKey, ToolError
from orga.workflows.types.goals.deliveries import GOAL_ID, DeliveryRequest
from orga.workflows.types.knowledge import Behalf, KnowledgeItem

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class FileDelivery:
    """Writes the answer unchanged, with the limits of all writing: never outside the root, never over a rule."""

    root: FileRoot
    path: str
    """The path relative to the root, with a placeholder for the goal's id."""

    @property
    def is_repeatable(self) -> bool:
        """True: a repetition writes the same file."""
        return True

    async def deliver(self, request: DeliveryRequest, run: RunKey) -> None:
        """Write it."""
        path = self.path.replace(GOAL_ID, file_name_part(run.workflow_id))
        text = request.text if request.text.endswith("\n") else f"{request.text}\n"
        try:
            await replace_file(self.root, path, text.encode("utf-8", "replace"))
        except ToolError as error:
            raise NotifyError(str(error), kind=error.kind, retryable=error.retryable) from None


def file_name_part(goal_id: str) -> str:
    """Return the id as a part of a file name. The starter of a goal chooses its id, which may be a path."""
    if _SAFE_NAME.fullmatch(goal_id):
        return goal_id
    return f"goal-{sha256(goal_id.encode('utf-8', 'replace')).hexdigest()[:32]}"


MAX_MEMORY_CHARS = 20_000
"""Characters of an answer. Recall shows only a part of it anyway."""


@dataclass(frozen=True)
class MemoryDelivery:
    """Stores the answer as a memory for the goal's user, or for its tenant if it names no user."""

    store: KnowledgeStore

    @property
    def is_repeatable(self) -> bool:
        """True: the store keeps one item for each key."""
        return True

    async def deliver(self, request: DeliveryRequest, run: RunKey) -> None:
        """Store it."""
        behalf = request.behalf or Behalf()
        text = shortened_text(visible_answer(request), MAX_MEMORY_CHARS, request.size, run)
        item = KnowledgeItem(
            kind="memory",
            text=f"Goal: {request.goal}\nEnded: {request.reason}\n{text}",
            scope="user" if behalf.reader.user else "tenant",
            owner=behalf.reader,
            key=request.key,
            confidence=min(max(request.confidence, 0.0), 1.0),
            provenance=behalf.provenance(f"goal of {request.agent}", run.workflow_id),
        )
        try:
            await self.store.store([item])
        except KnowledgeError as error:
            raise NotifyError(str(error), kind=error.kind, retryable=error.retryable) from None
