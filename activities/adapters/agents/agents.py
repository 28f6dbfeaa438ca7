"""Builds a run's setup from the configuration of its agent: model, instructions, tools, limits and output schema.

It also checks configured pipelines: that their steps are agents, and that their goals can delegate to them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import to_json

from orga.activities.adapters.agents.agent_problems import (
    acting_lookup_faults,
    agent_own_problems,
    config_tools,
    cost_refusal,
    embedder_refusal,
    model_refusal,
    thinking_refusal,
    unknown_tool_lines,
)
from orga.activities.adapters.agents.offered_tools import OfferedTools, offered_tools
from orga.activities.adapters.agents.tiers import NO_GOAL_TIERS, NO_TIER_SETTINGS, NO_TIERS, ModelChoice
from orga.activities.adapters.models.model_settings import EMBEDDED_MODEL
from orga.activities.adapters.problem import FileProblem
from orga.activities.adapters.schemas.arguments import schema_problem
from orga.activities.ports import AbsentTool, OtherPlace, ToolSource
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.goals.deliveries import MEMORY
from orga.workflows.types.goals.pipelines import Pipeline
from orga.workflows.types.goals.requests import PromptTemplates
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.limits import Ceiling
from orga.workflows.types.models.call_settings import ModelSettings
from orga.workflows.types.models.providers import HASHING
from orga.workflows.types.models.tiers import LOCAL_TIER, GoalTiers, ModelTiers, TierName
from orga.workflows.types.record import InvalidInput, validation_problems
from orga.workflows.types.setup import PrepareRequest, Setup
from orga.workflows.types.text import known_names_hint
from orga.workflows.types.tool_calls.gate import is_same_policy, policy_text
from orga.workflows.types.tool_calls.loop_tools import RUN_TOOL
from orga.workflows.types.tool_calls.tools import ToolSpec

NO_PIPELINES: Mapping[str, Pipeline] = {}


def pipeline_problems(pipelines: Mapping[str, Pipeline], agents: Mapping[str, AgentConfig]) -> Iterator[FileProblem]:
    """Yield a problem for each step whose agent does not exist. `agents` includes `default`."""
    for name, pipeline in pipelines.items():
        for key, step in pipeline.parts.items():
            if step.agent not in agents:
                place = f"pipelines.{name}.{key}"
                yield FileProblem(place, f"no such agent: {step.agent}", known_names_hint(step.agent, agents))


def require_pipeline(name: str, agent: str, pipelines: Mapping[str, Pipeline]) -> Pipeline:
    """Return the pipeline. Raise InvalidInput if there is none, or if one of its steps is the goal's own agent."""
    pipeline = pipelines.get(name)
    if pipeline is None:
        known = known_names_hint(name, pipelines) if pipelines else "there are none: [pipelines]"
        raise InvalidInput(f"pipeline: there is no pipeline {name!r}; {known}")
    for key, step in pipeline.parts.items():
        if step.agent == agent:
            raise InvalidInput(
                f"pipeline: {name}.{key} is done by {agent!r}, the goal's own agent, which cannot delegate to itself; "
                "start the goal with another agent"
            )
    return pipeline


def _require_delegation(pipeline: Pipeline, offered: OfferedTools) -> None:
    """Raise InvalidInput if a goal with a pipeline cannot delegate.

    A tool profile can leave out the tool for delegation, and a tool can have the name of an agent.
    """
    tools = {tool.name for tool in offered.tools}
    if same := [agent for agent in pipeline.agents if agent in tools]:
        raise InvalidInput(f"pipeline: {same[0]!r} is an agent and a tool of the goal's agent; rename the agent")
    if not offered.delegates:
        raise InvalidInput(f"pipeline: its steps are delegated, and tool_profile leaves out {RUN_TOOL!r}; include it")


def run_config(agent: LoopConfig, given: dict[str, Any], ceiling: Ceiling) -> LoopConfig:
    """Return the effective config. Raise InvalidInput if keys contradict each other, or the ceiling leaves nothing.

    A setting that is an object (`recovery`, `tool_profile`, ...) is merged key by key. null removes it.
    """
    base = agent.model_dump()
    for key, value in given.items():
        is_merged = isinstance(value, dict) and isinstance(base.get(key), dict)
        base[key] = base[key] | value if is_merged else value
    config = _validated_config(base, "config")
    limits = ceiling.model_dump(exclude={"tools", "tier"}, exclude_none=True)
    own = {key: getattr(config, key) for key in limits}
    capped = {key: limit if own[key] is None else min(own[key], limit) for key, limit in limits.items()}
    return _validated_config(config.model_dump() | capped, "lineage.ceiling")


BUDGET_KEY = "context_token_budget"

MIN_BUDGET = 500
"""Tokens. The least that the key accepts."""


def default_context_budget(config: LoopConfig, window: int) -> int:
    """Return the budget for the conversation of a run that sets none, with a model of that context window.

    It is a quarter of the run's tokens, at least the key's default, and at most what the reply leaves of the window.
    The reply gets its output limit, but at most a quarter of the window.
    """
    wanted = max(config.context_token_budget, config.max_total_tokens // 4)
    return max(min(wanted, window - min(config.max_output_tokens, window // 4)), MIN_BUDGET)


def _validated_config(values: dict[str, Any], place: str) -> LoopConfig:
    try:
        return LoopConfig.model_validate(values)
    except ValidationError as error:
        raise InvalidInput(*(f"{place}.{problem}" for problem in validation_problems(error, LoopConfig))) from None


_STRING_KEYWORDS = frozenset({"type", "title", "description", "maxLength"})
_OBJECT_KEYWORDS = frozenset(
    {"type", "title", "description", "properties", "required", "additionalProperties", "$schema"}
)


def schema_refusal(schema: dict[str, Any] | None, model: str) -> str:
    """Return why a model cannot answer in the form of a schema, or "" if it can."""
    if schema is None:
        return ""
    if problem := schema_problem(schema):
        return f"cannot be used, {problem}"
    if model == EMBEDDED_MODEL and not can_fill_schema(schema):
        return f"{EMBEDDED_MODEL} can fill a string or an object of one string only; choose another model"
    return ""


def can_fill_schema(schema: dict[str, Any]) -> bool:
    """Return whether the schema is a string, or an object of one string, without a demand on its form."""
    return _string_schema(schema) is not None


def filled_schema(schema: dict[str, Any], text: str) -> str:
    """Return JSON that contains `text`, cut to the schema's limit. Only for a schema that `can_fill_schema` accepts."""
    string = _string_schema(schema) or {}
    cut = text[: int(string.get("maxLength", len(text)))]
    value: Any = cut if string is schema else dict.fromkeys(schema["properties"], cut)
    return to_json(value).decode()


def _string_schema(schema: dict[str, Any]) -> dict[str, Any] | None:
    if schema.get("type") == "string":
        return schema if schema.keys() <= _STRING_KEYWORDS else None
    if schema.get("type") != "object" or not schema.keys() <= _OBJECT_KEYWORDS:
        return None
    properties = cast("dict[str, dict[str, Any]]", schema.get("properties", {}))
    if len(properties) != 1 or not set(schema.get("required", ())) <= properties.keys():
        return None
    (string,) = properties.values()
    return string if string.get("type") == "string" and string.keys() <= _STRING_KEYWORDS else None


def with_default_agent(agents: Mapping[str, AgentConfig]) -> dict[str, AgentConfig]:
    return {"default": AgentConfig(), **agents}


async def unknown_window(model: str) -> int | None:
    return None


class ConfiguredAgents:
    def __init__(
        self,
        agents: Mapping[str, AgentConfig],
        tools: Mapping[str, ToolSpec],
        default_model: str,
        check_model: Callable[[str], None],
        worker_facts: Setup,
        *,
        source: ToolSource | None = None,
        is_priced: Callable[[str], bool] = lambda model: True,
        policy_version: Callable[[], str] = lambda: "",
        tiers: ModelTiers = NO_TIERS,
        goal_tiers: GoalTiers = NO_GOAL_TIERS,
        prompts: PromptTemplates | None = None,
        pipelines: Mapping[str, Pipeline] = NO_PIPELINES,
        embedder: str = HASHING,
        tier_settings: Mapping[TierName, ModelSettings] = NO_TIER_SETTINGS,
        context_window: Callable[[str], Awaitable[int | None]] = unknown_window,
    ) -> None:
        """Check delegates and pipelines. Raise ValueError if one of them names no agent.

        Args:
            tools: All tools that the worker runs.
            default_model: Model of agents that name none.
            check_model: Raises ValueError with cause and remedy for a model that cannot be called.
            worker_facts: A setup whose policy, search attributes and continue-as-new limits are copied.
            source: Source of further tools, which may differ from run to run.
            is_priced: Returns whether a model's cost will be known, or need not be.
            policy_version: Returns the version of the current policies, or "" without policies.
            prompts: Templates of goal prompts that replace the default ones.
            embedder: Embedder of the knowledge that runs recall and store.
            context_window: Returns the tokens of a model's context, or None if they are not known.
        """
        self.known = with_default_agent(agents)
        self._tools = tools
        self._models = ModelChoice(default_model, tiers, goal_tiers, tier_settings)
        self._check_model = check_model
        self._facts = worker_facts
        self._source = source
        self._is_priced = is_priced
        self._prompts = prompts
        self._embedder = embedder
        self._policy_version = policy_version
        self._context_window = context_window
        self._pipelines = pipelines
        problems = [each for name, agent in agents.items() for each in agent_own_problems(name, agent, self.known)]
        problems += pipeline_problems(pipelines, self.known)
        if problems:
            raise ValueError("; ".join(map(str, problems)))

    async def setup(self, request: PrepareRequest, *, is_goal: bool = False) -> Setup:
        """Return the setup of a run, or of a goal. The run's own settings win over the agent's.

        Raises:
            InvalidInput: An error of the starter.
            OtherPlace: The run was started for another folder, other models or another policy.
        """
        self._refuse_other_place(request)
        agent = self.known.get(request.agent)
        if agent is None:
            hint = known_names_hint(request.agent, self.known)
            raise InvalidInput(f"agent: there is no agent {request.agent!r}; {hint}")
        pipeline, agents = None, self.known
        if request.pipeline is not None:
            pipeline = require_pipeline(request.pipeline, request.agent, self._pipelines)
            agents = {**agents, request.agent: agent.with_delegates(*pipeline.agents)}
        is_bound = request.ceiling.tier == LOCAL_TIER
        chosen = self._models.chosen_models(agent, request.model, is_goal=is_goal, is_bound=is_bound)
        if problem := model_refusal(chosen, self._check_model):
            raise InvalidInput(problem)
        for model in chosen.models:
            if problem := await asyncio.to_thread(schema_refusal, request.output_schema, model):
                raise InvalidInput(f"output_schema: {problem}")
        config = run_config(agent.config, request.config, request.ceiling)
        set_keys = agent.config.model_fields_set | request.config.keys()
        if BUDGET_KEY not in set_keys:
            found = await asyncio.gather(*map(self._context_window, chosen.conversation_models))
            if windows := [window for window in found if window]:  # otherwise the key keeps its default
                config = config.with_context_budget(default_context_budget(config, min(windows)))
        channels = self._facts.deliveries if is_goal else ()
        problem = cost_refusal(chosen, config, self._is_priced) or thinking_refusal(chosen, config)
        problem = problem or embedder_refusal(chosen, config, channels, self._embedder)
        if problem:
            raise InvalidInput(problem)
        tools = self._tools
        if self._source is not None:
            wanted = [*agent.tools, *(request.tools or ()), *(tool for _, tool in config_tools(config))]
            tools = {**await self._source.specs(wanted), **tools}
        absent: Callable[[str], AbsentTool | None] = self._source.absent_tool if self._source else lambda tool: None
        offered = offered_tools(request, agents, tools, config, absent)
        if pipeline is not None:
            _require_delegation(pipeline, offered)
        acting = [f"{key}: {fault}" for key, fault in acting_lookup_faults(config, tools)]
        if faults := [*unknown_tool_lines(config, offered.tools, tools, absent), *acting]:
            raise InvalidInput(*faults)
        instructions = agent.instructions if request.instructions is None else request.instructions
        setup = self._facts.with_agent(request.agent, chosen.models[0], instructions, offered.tools, config)
        setup = setup.with_prompts(self._prompts if is_goal else None).with_pipeline(pipeline)
        if not chosen.may_be_embedded_by(self._embedder):
            setup = setup.with_deliveries(tuple(each for each in setup.deliveries if each.kind != MEMORY))
        return (
            setup.with_tiers(dict(chosen.tiers))
            .with_critics_of(agent)
            .with_optional_parts(
                delegates=offered.delegates or None,
                decisions=dict(offered.decisions) or None,
                output_schema=request.output_schema,
                policy_version=self._policy_version() or None,
            )
        )

    def _refuse_other_place(self, request: PrepareRequest) -> None:
        place, own = request.workplace, self._facts.workplace
        if place is not None and own is not None:
            if place.root != own.root:
                where = f"{place.folder} ({place.config})" if place.config else place.folder
                raise OtherPlace(f"the run was started for {where}, and this worker works for {own.folder}")
            if place.models not in {"", own.models}:
                names = ", ".join(place.variables)[:200]
                raise OtherPlace(f"the shell that started the run has other models than this worker: {names}")
        policy = policy_text(self._facts.policy, self._facts.policy_place, self._policy_version())
        if self._facts.policy_place and not is_same_policy(policy, request.policy):
            raise OtherPlace("the run was started under another policy than this worker's, so it waits for another one")
