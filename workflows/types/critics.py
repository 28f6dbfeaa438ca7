"""Critics, which review answers or calls after the gate, and what their models get and reply."""

from math import fsum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from orga.workflows.types.context import ReasonRequest
from orga.workflows.types.input import Name
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.models.call_settings import ModelSettings
from orga.workflows.types.record import CheckedInput, replace_fields
from orga.workflows.types.tool_calls.gate import ApprovalTerms
from orga.workflows.types.tool_calls.loop_tools import loop_tool
from orga.workflows.types.tool_calls.tools import matches_any_glob, object_schema

WEIGHT_TOLERANCE = 0.01
"""The largest allowed difference between the sum of a rubric's weights and 1."""

_ROUNDING = 1e-9

DimensionName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,39}$")]


class Dimension(CheckedInput):
    """One dimension that a critic scores from 0 to 1."""

    weight: float = Field(gt=0, le=1)
    """Its share of the score. The weights of a rubric sum to 1."""
    description: str = Field(default="", max_length=2_000)
    """The meaning of a good score. The model reads it."""


def weights_problem(rubric: dict[str, Dimension]) -> str:
    """Return the problem if the weights of a rubric with dimensions do not sum to 1, or ""."""
    total = fsum(dimension.weight for dimension in rubric.values())
    is_one = abs(total - 1) <= WEIGHT_TOLERANCE + _ROUNDING
    return "" if is_one or not rubric else f"sum to {total:g}, not to 1"


class Reviewers(CheckedInput):
    """People who decide with `orga approve` and `orga deny`. The reason of a denial is the feedback."""

    approvers: tuple[Name, ...] = ()
    """People who may decide. Empty: anyone who may send updates to the run."""
    expires_s: float = Field(default=ApprovalTerms().expires_s, ge=0.001, le=31_536_000)
    """Seconds without a decision, after which the review counts as failed."""


class CriticReply(BaseModel):
    """The exact shape of a critic model's reply."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    scores: dict[str, Annotated[float, Field(ge=0, le=1)]]
    feedback: str
    approved: bool
    """The model's own opinion. It decides nothing."""


class Critic(ModelSettings):
    """One critic. With a rubric a model reviews, and `person` replaces a review that fails. Else the person reviews."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,39}$")
    """Its name in the journal and in feedback."""
    tools: tuple[Name, ...] = ()
    """Names or globs of the tools whose calls are reviewed. Empty: the critic reviews the final answer."""
    rubric: dict[DimensionName, Dimension] = Field(default={}, max_length=20)
    """Dimensions by name. Their weights sum to 1."""
    threshold: float = Field(default=0.7, ge=0, le=1)
    """The lowest weighted score that passes."""
    model: Name | None = None
    """`provider:model` or `tier:NAME`. Null takes the run's model."""
    instructions: str = Field(default="", max_length=20_000)
    """Instructions for the model, in addition to the rubric."""
    context: Literal["task", "conversation"] = "task"
    """With `task`, the model also reads what the agent was given. With `conversation`, it reads all messages, too."""
    max_output_tokens: int = Field(default=2_000, ge=1, le=100_000)
    """Output tokens of one review."""
    person: Reviewers | None = None
    max_rounds: int = Field(default=2, ge=0, le=100)
    """The number of times in a row that the critic may send the agent back."""
    on_exhausted: Literal["accept", "error", "ask"] = "error"
    """The effect of one more rejection: `accept` with a remark, end the run (`error`), or `ask` the person."""
    on_failure: Literal["closed", "open"] = "closed"
    """The effect of a failed review: `closed` asks the person, or ends the run if there is none. `open` continues."""

    @model_validator(mode="after")
    def _can_review(self) -> "Critic":
        if not self.rubric and self.person is None:
            raise ValueError("give a rubric for a model, or a person, or both")
        if self.on_exhausted == "ask" and (self.person is None or not self.rubric):
            raise ValueError('on_exhausted = "ask" needs a rubric for the model, and a person')
        if problem := weights_problem(self.rubric):
            raise ValueError(f"the weights of the rubric {problem}")
        return self

    def with_model(self, model: str) -> Self:
        return replace_fields(self, {"model": model})

    @property
    def tier_key(self) -> str:
        return f"critic:{self.name}"

    @property
    def is_model(self) -> bool:
        """True if a model reviews first. Otherwise the person does."""
        return bool(self.rubric)

    @property
    def reviews_answers(self) -> bool:
        return not self.tools

    def reviews_call(self, call: ToolCall) -> bool:
        """Return True if the critic reviews this call. A critic of answers reviews the calls that end the run."""
        tool = loop_tool(call.name)
        if self.reviews_answers:
            return tool.is_answer
        return any(matches_any_glob(name, self.tools) for name in (call.name, *tool.calls(call.arguments)))


MAX_SUBJECT_BYTES = 200_000
"""Bytes. The review of a longer subject fails. If a critic read only a part, it could miss a fault in the rest."""


class CritiqueRequest(ReasonRequest):
    """Input of `critique`: the latest model call by reference, and the part of its reply to review."""

    critic: str
    """The critic's name. The setup holds the rest."""
    subject: str
    """The answer, or the arguments of a call as JSON."""
    tool: str = ""
    """The tool of a call. Empty for an answer."""
    problem: str = ""
    """The fault of the critic's previous verdict. Set if the critic is asked once more."""


def verdict_schema(critic: Critic) -> dict[str, Any]:
    """Return the JSON Schema of a model's verdict. It requires each dimension once and allows nothing else."""
    scores = {name: {"type": "number", "minimum": 0, "maximum": 1} for name in critic.rubric}
    return object_schema(
        {
            "scores": object_schema(scores),
            "feedback": {"type": "string", "description": "What has to change, in a few sentences."},
            "approved": {"type": "boolean", "description": "Your own opinion."},
        }
    )
