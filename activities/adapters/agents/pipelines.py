"""Checks configured pipelines: that their steps are agents, and that their goals can delegate to them."""

from collections.abc import Iterator, Mapping

from orga.activities.adapters.agents.offered_tools import OfferedTools
from orga.activities.adapters.problem import FileProblem
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.goals.pipelines import Pipeline
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.setup import PrepareRequest
from orga.workflows.types.text import known_names_hint
from orga.workflows.types.tool_calls.loop_tools import RUN_TOOL

NO_PIPELINES: Mapping[str, Pipeline] = {}


def pipeline_problems(pipelines: Mapping[str, Pipeline], agents: Mapping[str, AgentConfig]) -> Iterator[FileProblem]:
    """Yield a problem for each step without an existing agent. `agents` includes `default`."""
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


class ConfiguredPipelines:
    def __init__(self, pipelines: Mapping[str, Pipeline]) -> None:
        self._pipelines = pipelines

    def requested_pipeline(self, request: PrepareRequest) -> Pipeline | None:
        """Return the pipeline that a goal names, or None. Raise InvalidInput as `require_pipeline` does."""
        return None if request.pipeline is None else require_pipeline(request.pipeline, request.agent, self._pipelines)

    def require_delegation(self, pipeline: Pipeline | None, offered: OfferedTools) -> None:
        """Raise InvalidInput if a goal with a pipeline cannot delegate.

        A tool profile can leave out the tool for delegation, and a tool can have the name of an agent.
        """
        if pipeline is None:
            return
        tools = {tool.name for tool in offered.tools}
        if same := [agent for agent in pipeline.agents if agent in tools]:
            raise InvalidInput(f"pipeline: {same[0]!r} is an agent and a tool of the goal's agent; rename the agent")
        if not offered.delegates:
            raise InvalidInput(
                f"pipeline: its steps are delegated, and tool_profile leaves out {RUN_TOOL!r}; include it"
            )
