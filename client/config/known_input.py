"""What is wrong with the input of a run by its own configuration: refused before a server, a worker or a run begins."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orga.client.config.known_models import model_name_problem, model_problem
from orga.client.config.sections import OrgaConfig
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.goals.input import GoalInput
from orga.workflows.types.input import AgentInput
from orga.workflows.types.recall import KNOWLEDGE_TOOLS
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.sessions.input import SessionInput
from orga.workflows.types.tool_calls.tools import matches_any_glob

Environment = Mapping[str, str]


@dataclass(frozen=True)
class RequestedNames:
    """What a run or a goal asks for by name."""

    agent: str
    model: str | None = None
    tools: Sequence[str] = ()
    is_goal: bool = False
    deliver: Sequence[str] = ()
    pipeline: str | None = None
    inputs: tuple[str, ...] | None = None
    """Of its pipeline; None for the pipeline's own."""


def requested_names(given: AgentInput | GoalInput | SessionInput) -> RequestedNames:
    """Return what an input that was checked asks for by name."""
    if not isinstance(given, GoalInput):
        return RequestedNames(given.agent, given.model, given.tools or ())
    of_a_goal = (given.deliver or (), given.pipeline, given.inputs)
    return RequestedNames(given.agent, given.model, given.skills or (), True, *of_a_goal)


def refuse_unknown(wanted: RequestedNames, config: OrgaConfig) -> None:
    """Refuse what no worker of this configuration would take, whatever its environment.

    Raises:
        InvalidInput: As the worker would say it.
    """
    from orga.activities.adapters.agents.agent_problems import agent_tool_names, delegate_tool_names
    from orga.workflows.types.text import known_names_hint

    agent = require_agent(wanted, config)
    listed = agent_tool_names(agent)
    of_delegates = delegate_tool_names(agent, config.agents)
    for tool in wanted.tools:
        if tool not in KNOWLEDGE_TOOLS and not matches_any_glob(tool, [*listed, *of_delegates]):
            raise InvalidInput(
                f"tools: agent {wanted.agent!r} does not list {tool!r}; {known_names_hint(tool, listed)}"
            )
    for model in models_of(wanted, agent, config, {}):
        if problem := model_name_problem(model):
            raise InvalidInput(f"model: {problem}")
    _refuse_deliveries(wanted, config)
    _refuse_pipeline(wanted, config)


def _refuse_deliveries(wanted: RequestedNames, config: OrgaConfig) -> None:
    if not wanted.deliver:
        return
    from orga.workflows.decisions.goals.deliveries import unknown_deliveries

    if problem := unknown_deliveries(tuple(wanted.deliver), tuple(config.goals.deliveries)):
        raise InvalidInput(problem)


def _refuse_pipeline(wanted: RequestedNames, config: OrgaConfig) -> None:
    if wanted.pipeline is None:
        return
    from orga.activities.adapters.agents.pipelines import require_pipeline
    from orga.workflows.decisions.goals.pipelines.plans import inputs_problem

    pipeline = require_pipeline(wanted.pipeline, wanted.agent, config.pipelines)
    if problem := inputs_problem(wanted.pipeline, wanted.inputs, pipeline):
        raise InvalidInput(problem)


def refuse_in_process(wanted: RequestedNames, config: OrgaConfig) -> None:
    """Refuse what a worker of this process would.

    Raises:
        InvalidInput: As the worker would say it.
    """
    refuse_unknown(wanted, config)
    refuse_unready_model(wanted, config, os.environ)


def misspelt_tools(config: OrgaConfig) -> list[tuple[str, str]]:
    """Return the agents whose tools name none that is known without running anything, each with what is wrong.

    A function, a manifest or an MCP server may bring a tool of any name: then only what is near to a known one counts.
    """
    from orga.activities.adapters.tools.catalog import builtin_specs
    from orga.workflows.types.text import known_names_hint, similar_name_hint
    from orga.workflows.types.tool_calls.loop_tools import LOOP_TOOLS

    functions = [path.rpartition(":")[2] for path in config.tools.python]
    known = sorted({*builtin_specs(), *LOOP_TOOLS, *KNOWLEDGE_TOOLS, *functions})
    may_be_more = bool(functions or config.tools.manifests or config.mcp.servers)
    return [
        (name, f"agents.{name}.tools: there is no tool {tool!r}; {known_names_hint(tool, known)}")
        for name, agent in config.agents.items()
        for tool in agent.tools
        if tool.isidentifier() and tool.partition("_")[0] not in config.mcp.servers and tool not in known
        if not may_be_more or similar_name_hint(tool, known)
    ]


def refuse_unready_model(wanted: RequestedNames, config: OrgaConfig, env: Environment) -> None:
    """Refuse a model that a worker with this environment could not ask: it has no key, say.

    Raises:
        InvalidInput: As the worker would say it.
    """
    for model in models_of(wanted, require_agent(wanted, config), config, env):
        if problem := model_problem(model, env, config.models.base_urls):
            raise InvalidInput(f"model: {problem}")


def require_agent(wanted: RequestedNames, config: OrgaConfig) -> AgentConfig:
    """Return the agent that is named.

    Raises:
        InvalidInput: There is none; the text names those that there are.
    """
    from orga.activities.adapters.agents.agents import with_default_agent
    from orga.workflows.types.text import known_names_hint

    agents = with_default_agent(config.agents)
    if wanted.agent not in agents:
        raise InvalidInput(f"agent: there is no agent {wanted.agent!r}; {known_names_hint(wanted.agent, agents)}")
    return agents[wanted.agent]


def models_of(wanted: RequestedNames, agent: AgentConfig, config: OrgaConfig, env: Environment) -> tuple[str, ...]:
    """Return the models that a run would ask, in fallback order.

    Raises:
        InvalidInput: A tier that there is not, or that has no models.
    """
    from orga.activities.adapters.agents.tiers import ModelChoice
    from orga.activities.adapters.models.settings import default_model

    choice = ModelChoice(config.models.default or default_model(env), config.models.tiers, config.goals.tiers)
    return choice.chosen(agent, wanted.model, is_goal=wanted.is_goal).models
