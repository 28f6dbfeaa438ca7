"""`[goals.prompts]`: templates of what goals ask their models. Each is tried where it is read."""

from typing import cast

from pydantic import ValidationInfo, field_validator

from orga.workflows.decisions.goals.placeholders import template_problem
from orga.workflows.types.goals.prompts import PROMPTS, PromptName, PromptTemplates
from orga.workflows.types.record import Border


class PromptsConfig(Border):
    """A template for each prompt; an empty one takes the default."""

    planning: str = ""
    """Asks for the plan."""
    execution: str = ""
    """Asks for the arguments of a step."""
    evaluation: str = ""
    """Asks for the scores of what a step brought."""
    decision: str = ""
    """Asks what is done next."""
    summary: str = ""
    """Asks for the final answer."""
    compression: str = ""
    """Asks for a shorter memory."""

    @field_validator("*")
    @classmethod
    def _makes_a_prompt(cls, text: str, info: ValidationInfo) -> str:
        if not text.strip():
            return ""
        if problem := template_problem(cast("PromptName", info.field_name), text):
            raise ValueError(problem)
        return text

    @property
    def templates(self) -> PromptTemplates | None:
        """The templates that runs record; None where all are the default ones."""
        given: dict[PromptName, str] = {name: text for name in PROMPTS if (text := getattr(self, name))}
        return PromptTemplates.of(given)
