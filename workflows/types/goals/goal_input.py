"""The input of `GoalWorkflow`, checked once when a goal starts."""

from typing import Annotated, Any, Literal, Self, cast

from pydantic import AfterValidator, Field, model_validator

from orga.workflows.types.goals.deliveries import MAX_DELIVERIES, DeliveryName
from orga.workflows.types.goals.pipelines import MAX_INPUTS, PipelineInput, PipelineName
from orga.workflows.types.input import (
    MAX_ATTACHMENTS,
    AgentInput,
    Attachment,
    ContextStrategy,
    LoopConfig,
    Name,
    Task,
    TrustedContext,
)
from orga.workflows.types.limits import CostLimit, SecondsLimit, TokenLimit, ToolCallLimit
from orga.workflows.types.models.call_settings import ModelSettings
from orga.workflows.types.record import CheckedInput, check_input, not_an_object, replace_fields
from orga.workflows.types.tool_calls.recovery import Recovery

MAX_GOAL_BYTES = 50_000
"""Bytes. A longer goal belongs in a file that a step reads, because the state carries the goal and its plan."""

MAX_PIPELINE_GOAL_BYTES = 8_000
"""Bytes of a goal with a pipeline. Each of its steps gets the whole goal."""


def _checked_goal_size(goal: str) -> str:
    if (size := len(goal.encode("utf-8", "replace"))) > MAX_GOAL_BYTES:
        raise ValueError(f"must not be longer than {MAX_GOAL_BYTES} bytes, it has {size}; put it into a file")
    return goal


Deliver = Annotated[tuple[DeliveryName, ...] | None, Field(max_length=MAX_DELIVERIES)]

_RUN_DEFAULTS = LoopConfig()


class GoalConfig(ModelSettings):
    """Limits and settings of one goal. A limit is reached when the value equals it."""

    max_iterations: int = Field(default=15, ge=1, le=1_000)
    """Rounds of steps that were executed."""
    max_llm_calls: int = Field(default=60, ge=4, le=100_000)
    """Model calls, including those of delegated steps. The last of them is reserved for the final answer."""
    max_plan_steps: int = Field(default=8, ge=1, le=30)
    """Open steps of a plan. Finished ones do not count."""
    max_parallel_steps: int = Field(default=4, ge=1, le=30)
    """Steps that run in parallel."""
    step_timeout_s: float = Field(default=120.0, ge=0.1, le=86_400)
    """Seconds for one attempt of a step. If an agent carries out the step, seconds for its whole run."""
    step_budget_s: float = Field(default=300.0, ge=0.1, le=86_400)
    """Seconds that the goal gets for each step of its longest plan, and once more for everything else."""
    timeout_s: SecondsLimit | None = None
    """Seconds for the whole goal, instead of `step_budget_s`. Pauses and waits for people do not count."""
    stuck_threshold: int = Field(default=3, ge=1, le=100)
    """Rounds in a row with only errors or without progress, or unusable replies in a row, that make the goal stuck."""
    done_confidence: float = Field(default=0.7, ge=0, le=1)
    """The lowest confidence at which the model's `done` counts."""
    max_total_tokens: TokenLimit = 500_000
    max_cost_usd: CostLimit | None = None
    max_tool_calls: ToolCallLimit | None = None
    plan_review: Literal["never", "always", "policy"] = "never"
    """Review of plans before their steps run: `never`, `always` by a person, or `policy`, which may ask a person."""
    on_exhausted: Literal["stop", "ask"] = _RUN_DEFAULTS.on_exhausted
    """The reaction to a limit: end with the results so far, or wait for a person who may `extend_budget`."""
    context_token_budget: int = Field(default=_RUN_DEFAULTS.context_token_budget, ge=500, le=10**8)
    context_strategy: ContextStrategy = _RUN_DEFAULTS.context_strategy
    max_output_tokens: int = Field(default=_RUN_DEFAULTS.max_output_tokens, ge=1, le=10**7)
    recovery: Recovery = Recovery()
    """Recovery of steps whose tools have none of their own."""


class GoalInput(CheckedInput):
    """Input of `GoalWorkflow`. Only `goal` is required. Null takes the agent's own setting."""

    goal: Annotated[Task, AfterValidator(_checked_goal_size)]
    agent: Name = "default"
    """The agent whose tools, delegates, instructions and policy the goal uses."""
    model: Name | None = None
    skills: tuple[Name, ...] | None = Field(default=None, min_length=1)
    """A subset of the tools of the agent and its delegates. Null for all of them."""
    config: GoalConfig = GoalConfig()
    trusted_context: TrustedContext = {}
    """Facts from whoever starts the goal. No model and no tool can write them."""
    attachments: tuple[Attachment, ...] = Field(default=(), max_length=MAX_ATTACHMENTS)
    """Pictures and documents that belong to the goal, by reference."""
    tenant: Name | None = None
    deliver: Deliver = None
    """Channels of the worker that get the answer. Null takes the default channels."""
    pipeline: PipelineName | None = None
    """The name of a configured plan. The model then makes none."""
    inputs: tuple[PipelineInput, ...] | None = Field(default=None, min_length=1, max_length=MAX_INPUTS)
    """Inputs of a `map_reduce` pipeline. Null takes those of its configuration."""

    @model_validator(mode="after")
    def _fits_a_pipeline(self) -> "GoalInput":
        if self.pipeline is None:
            if self.inputs is not None:
                raise ValueError("inputs need a pipeline; name one, or put them into the goal")
            return self
        if self.skills is not None:
            raise ValueError("skills: the agents of a pipeline carry out its steps; leave skills out")
        if (size := len(self.goal.encode("utf-8", "replace"))) > MAX_PIPELINE_GOAL_BYTES:
            raise ValueError(
                f"goal: with a pipeline it must not be longer than {MAX_PIPELINE_GOAL_BYTES} bytes, it has {size}; "
                "put the rest into a file that the agents read"
            )
        return self

    def with_attachments(self, attachments: tuple[Attachment, ...]) -> Self:
        return replace_fields(self, {"attachments": attachments}) if attachments else self

    def for_agent(self) -> AgentInput:
        """Return the input for the agent's loop that the goal shares. Raise InvalidInput if it is too large."""
        config = self.config
        shared_keys = LoopConfig.model_fields.keys() - {"max_iterations", "timeout_s"}
        limits: dict[str, Any] = {name: getattr(config, name) for name in sorted(config.model_fields_set & shared_keys)}
        limits |= {
            "max_iterations": config.max_iterations,
            "max_model_calls": config.max_llm_calls,
            "max_concurrent_tools": config.max_parallel_steps,
            "tool_timeout_s": config.step_timeout_s,
            "timeout_s": config.timeout_s or config.step_budget_s,
            "max_total_tokens": config.max_total_tokens,
        }
        given: dict[str, Any] = {"task": self.goal, "agent": self.agent, "config": limits}
        optional = {
            "model": self.model,
            "tools": self.skills,
            "tenant": self.tenant,
            "trusted_context": self.trusted_context,
            "attachments": [attachment.model_dump(exclude_defaults=True) for attachment in self.attachments],
        }
        given |= {name: value for name, value in optional.items() if value}
        return check_input(AgentInput, given)


def parse_goal(raw: object) -> GoalInput:
    """Raise InvalidInput, which lists every problem with its key."""
    if not isinstance(raw, (dict, GoalInput)):
        raise not_an_object(raw, '{"goal": "..."}')
    given = check_input(GoalInput, cast("object", raw))
    given.for_agent()
    return given
