"""The public API for parts of your own: a model, a policy, a critic, a knowledge store, a summarizer,
a store of pictures and documents.

Each part is an object with the methods of a protocol. `OrgaPlugin` and `orga.worker` take it (docs/own-parts.md).
"""

from orga.activities.knowledge.identity import is_erased_by, is_visible, item_id, require_named
from orga.activities.knowledge.ports import KnowledgeError, KnowledgeStore, StoreFacts
from orga.activities.ports import (
    BlobStore,
    CodeCritic,
    ModelError,
    ModelProvider,
    ModelRequest,
    PolicyEngine,
    Review,
    ReviewedWork,
    Summarizer,
)
from orga.workflows.types.critics import Critic, Dimension
from orga.workflows.types.knowledge import Erasure, KnowledgeItem, KnowledgeKind, Recall, Recalled, Stored, StoredItem
from orga.workflows.types.messages import Message, Reply
from orga.workflows.types.models.usage import Usage
from orga.workflows.types.parts import ToolCall
from orga.workflows.types.tool_calls.gate import ApprovalTerms, GateRequest, Verdict
from orga.workflows.types.tool_calls.tools import ToolSpec

__all__ = [
    "ApprovalTerms",
    "BlobStore",
    "CodeCritic",
    "Critic",
    "Dimension",
    "Erasure",
    "GateRequest",
    "KnowledgeError",
    "KnowledgeItem",
    "KnowledgeKind",
    "KnowledgeStore",
    "Message",
    "ModelError",
    "ModelProvider",
    "ModelRequest",
    "PolicyEngine",
    "Recall",
    "Recalled",
    "Reply",
    "Review",
    "ReviewedWork",
    "StoreFacts",
    "Stored",
    "StoredItem",
    "Summarizer",
    "ToolCall",
    "ToolSpec",
    "Usage",
    "Verdict",
    "is_erased_by",
    "is_visible",
    "item_id",
    "require_named",
]
