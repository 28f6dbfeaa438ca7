"""Settings of a run as code writes them: the keys of `LoopConfig`, so that type checkers take a plain dict for one."""

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from orga.workflows.types.hydration import PreHydration
from orga.workflows.types.input import ContextStrategy, RunKnowledge
from orga.workflows.types.recovery import Recovery, StepIteration
from orga.workflows.types.tools import ToolProfile

Table = Mapping[str, Any]


class LoopSettings(TypedDict, total=False):
    """Each key is explained in `LoopConfig`; what is left out is the agent's own setting."""

    max_iterations: int
    max_total_tokens: int
    timeout_s: float
    tool_timeout_s: float
    max_concurrent_tools: int
    context_token_budget: int
    temperature: float | None
    max_output_tokens: int
    max_delegation_depth: int
    max_cost_usd: float | None
    max_model_calls: int | None
    max_tool_calls: int | None
    on_exhausted: Literal["stop", "ask"]
    context_strategy: ContextStrategy
    recovery: Recovery | Table
    tool_profile: ToolProfile | Table | None
    step_iteration: StepIteration | Table | None
    pre_hydration: PreHydration | Table | None
    knowledge: RunKnowledge | Table | None
