"""Templates of a goal's prompts, as a run records them. A run keeps its own, whatever its workers' configuration
says.
"""

from collections.abc import Mapping
from typing import Literal, Self, get_args

from pydantic_core import to_json

from orga.workflows.types.context import short_digest, text_digest
from orga.workflows.types.names import GoalPromptName
from orga.workflows.types.record import Record

PromptName = Literal["planning", "execution", "evaluation", "decision", "summary", "compression"]

PROMPT_NAMES: tuple[PromptName, ...] = get_args(PromptName)

PROMPT_OF: Mapping[GoalPromptName, PromptName] = {
    "goal_plan": "planning",
    "goal_input": "execution",
    "goal_evaluate": "evaluation",
    "goal_decide": "decision",
    "goal_summary": "summary",
    "goal_compress": "compression",
}

MAX_TEMPLATE_BYTES = 16_000
"""Bytes of each template. Every run of a chain carries them all."""


class PromptTemplates(Record):
    """The templates that replace the default ones."""

    digest: str
    """Digest of the texts. The run's journal names it."""
    texts: dict[PromptName, str]

    @classmethod
    def of(cls, texts: Mapping[PromptName, str]) -> Self | None:
        """Return the templates with their digest, or None if there are none."""
        if not texts:
            return None
        canonical = to_json(sorted(texts.items())).decode()
        return cls(digest=short_digest(text_digest(canonical)), texts=dict(texts))
