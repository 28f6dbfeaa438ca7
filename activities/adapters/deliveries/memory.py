"""The store of knowledge: what a goal has found, later runs may recall."""

from dataclasses import dataclass

from orga.activities.adapters.deliveries.words import fitted, shown_text
from orga.activities.knowledge.ports import KnowledgeError, KnowledgeStore
from orga.activities.ports import NotifyError, RunKey
from orga.workflows.types.goals.deliveries import DeliveryRequest
from orga.workflows.types.knowledge import Behalf, KnowledgeItem

MEMORY_CHARS = 20_000
"""Of an answer: what is recalled is shown in part anyway."""


@dataclass(frozen=True)
class MemoryDelivery:
    """Stores the answer as a memory, for the goal's user, or its tenant where it names none."""

    store: KnowledgeStore

    @property
    def is_repeatable(self) -> bool:
        """The same key stores it once."""
        return True

    async def deliver(self, request: DeliveryRequest, run: RunKey) -> None:
        """Store it."""
        behalf = request.behalf or Behalf()
        text = fitted(shown_text(request), MEMORY_CHARS, request.size, run)
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
