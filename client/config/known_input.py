"""Checks models, and the input of a run, against the configuration before anything is started."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orga.client.config.sections import ModelsConfig, OrgaConfig
from orga.client.errors import ConfigError
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.goals.goal_input import GoalInput
from orga.workflows.types.input import AgentInput
from orga.workflows.types.models.endpoints import DEFAULT_ENDPOINT
from orga.workflows.types.models.providers import CODE, model_name_problem
from orga.workflows.types.recall import KNOWLEDGE_TOOLS
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.sessions.session_input import SessionInput
from orga.workflows.types.tool_calls.tools import matches_any_glob

if TYPE_CHECKING:
    from orga.activities.adapters.agents.tiers import ModelChoice

Environment = Mapping[str, str]


def require_model(name: str) -> None:
    """Raise ConfigError for a model of an unknown provider. Models of your own endpoints are refused, too."""
    if problem := model_name_problem(name):
        raise ConfigError(problem)


def model_problem(name: str, env: Environment, models: ModelsConfig) -> str:
    """Return why a process with this environment cannot call the model, or "". No model is loaded or called."""
    from orga.activities.adapters.models.model_settings import (
        EMBEDDED_MODEL,
        ModelNotConfigured,
        provider_endpoint,
    )

    if problem := model_name_problem(name, models.own_endpoints):
        return problem
    provider, _, model = name.strip().partition(":")
    match provider:
        case "local":
            from orga.activities.adapters.offline.local_model import missing_extra

            return missing_extra()
        case "offline":
            named = f"{provider}:{model.strip()}"
            return "" if named == EMBEDDED_MODEL else f"'{named}' names no model: the offline one is {EMBEDDED_MODEL}"
        case _ if provider == CODE:
            return ""  # only the worker knows the models that its code defines
        case _:  # a provider with a server, or an endpoint of your own
            try:
                provider_endpoint(provider, env, models.base_urls, models.endpoints.get(provider, DEFAULT_ENDPOINT))
            except ModelNotConfigured as error:
                return str(error)
            return ""


def price_check(config: ModelsConfig, is_priced: Callable[[str], bool]) -> Callable[[str], bool]:
    """Return `is_priced`, or under `unpriced = "allow"` a function that accepts every model."""
    return is_priced if config.unpriced == "refuse" else lambda model: True


@dataclass(frozen=True)
class RequestedNames:
    """The names in a run's input that the configuration must know."""

    agent: str
    model: str | None = None
    tools: Sequence[str] = ()
    is_goal: bool = False
    deliver: Sequence[str] = ()
    pipeline: str | None = None
    inputs: tuple[str, ...] | None = None
    """Inputs for the pipeline. None takes the inputs that the pipeline declares."""


def requested_names(given: AgentInput | GoalInput | SessionInput) -> RequestedNames:
    if not isinstance(given, GoalInput):
        return RequestedNames(given.agent, given.model, given.tools or ())
    return RequestedNames(
        given.agent,
        given.model,
        given.skills or (),
        is_goal=True,
        deliver=given.deliver or (),
        pipeline=given.pipeline,
        inputs=given.inputs,
    )


def refuse_unknown(wanted: RequestedNames, config: OrgaConfig) -> None:
    """Raise InvalidInput for names that every worker of this configuration would refuse, whatever its environment."""
    from orga.activities.adapters.agents.agent_problems import agent_tool_names, delegate_tool_names
    from orga.workflows.types.text import known_names_hint

    agent = require_agent(wanted, config)
    own_tools = agent_tool_names(agent)
    delegate_tools = delegate_tool_names(agent, config.agents)
    for tool in wanted.tools:
        if tool not in KNOWLEDGE_TOOLS and not matches_any_glob(tool, [*own_tools, *delegate_tools]):
            hint = known_names_hint(tool, own_tools)
            raise InvalidInput(f"tools: agent {wanted.agent!r} does not list {tool!r}; {hint}")
    for model in models_of(wanted, agent, config, {}):
        if problem := model_name_problem(model, config.models.own_endpoints):
            raise InvalidInput(f"model: {problem}")
    _refuse_deliveries(wanted, config)
    _refuse_pipeline(wanted, config)


def _refuse_deliveries(wanted: RequestedNames, config: OrgaConfig) -> None:
    if not wanted.deliver:
        return
    from orga.workflows.decisions.goals.endings import unknown_deliveries

    if problem := unknown_deliveries(tuple(wanted.deliver), tuple(config.goals.deliveries)):
        raise InvalidInput(problem)


def _refuse_pipeline(wanted: RequestedNames, config: OrgaConfig) -> None:
    if wanted.pipeline is None:
        return
    from orga.activities.adapters.agents.agents import require_pipeline
    from orga.workflows.decisions.goals.pipelines import inputs_problem

    pipeline = require_pipeline(wanted.pipeline, wanted.agent, config.pipelines)
    if problem := inputs_problem(wanted.pipeline, wanted.inputs, pipeline):
        raise InvalidInput(problem)


def refuse_in_process(wanted: RequestedNames, config: OrgaConfig) -> None:
    """Raise InvalidInput for names that a worker with this process's environment would refuse."""
    refuse_unknown(wanted, config)
    refuse_unready_model(wanted, config, os.environ)


def misspelt_tools(config: OrgaConfig) -> dict[str, list[str]]:
    """Return the problems with unknown tools, by agent. No code of the configuration is run.

    Functions, manifests and MCP servers may offer tools of any name. If the configuration has any of these, a tool
    counts as misspelt only if its name is close to a known one.
    """
    from orga.activities.adapters.tools.catalog import builtin_specs
    from orga.workflows.types.text import known_names_hint, similar_name_hint
    from orga.workflows.types.tool_calls.loop_tools import LOOP_TOOLS

    functions = [path.rpartition(":")[2] for path in config.tools.python]
    own = {*functions, *config.tools.activities, *config.tools.deferred}
    known = sorted({*builtin_specs(), *LOOP_TOOLS, *KNOWLEDGE_TOOLS, *own})
    has_other_tools = bool(functions or config.tools.manifests or config.mcp.servers)

    def is_misspelt(tool: str) -> bool:
        is_glob = not tool.isidentifier()
        if is_glob or tool in known or config.mcp.is_server_tool(tool):
            return False
        return not has_other_tools or bool(similar_name_hint(tool, known))

    return {
        name: [
            f"agents.{name}.tools: there is no tool {tool!r}; {known_names_hint(tool, known)}"
            for tool in filter(is_misspelt, agent.tools)
        ]
        for name, agent in config.agents.items()
    }


def refuse_unready_model(wanted: RequestedNames, config: OrgaConfig, env: Environment) -> None:
    """Raise InvalidInput for a model that a worker with this environment cannot call, such as one without a key."""
    for model in models_of(wanted, require_agent(wanted, config), config, env):
        if problem := model_problem(model, env, config.models):
            raise InvalidInput(f"model: {problem}")


def require_agent(wanted: RequestedNames, config: OrgaConfig) -> AgentConfig:
    """Return the agent that the input names. Raise InvalidInput, which lists the agents, if there is none."""
    from orga.activities.adapters.agents.agents import with_default_agent
    from orga.workflows.types.text import known_names_hint

    agents = with_default_agent(config.agents)
    if wanted.agent not in agents:
        raise InvalidInput(f"agent: there is no agent {wanted.agent!r}; {known_names_hint(wanted.agent, agents)}")
    return agents[wanted.agent]


def models_of(wanted: RequestedNames, agent: AgentConfig, config: OrgaConfig, env: Environment) -> tuple[str, ...]:
    """Return the models of a run in fallback order. Raise InvalidInput for an unknown or empty tier."""
    from orga.activities.adapters.models.model_settings import default_model

    choice = model_choice(config, default_model(env))
    return choice.chosen_models(agent, wanted.model, is_goal=wanted.is_goal).models


def model_choice(config: OrgaConfig, default_model: str) -> "ModelChoice":
    """Return the models that runs can choose from. `default_model` is used if the configuration names no default."""
    from orga.activities.adapters.agents.tiers import ModelChoice

    return ModelChoice(config.models.default or default_model, config.models.tiers, config.goals.tiers)
