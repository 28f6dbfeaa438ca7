"""The tools that a run is offered: all sources together, then what the run, its profile and its ceiling leave."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from activities.adapters.known_names import there_are
from activities.adapters.loop_tools import TERMINATE_TOOL, delegate_specs, delegate_tool
from workflows.types.agents import AgentConfig
from workflows.types.context import PrepareRequest
from workflows.types.delegation import DELEGATE, TERMINATE, DelegateSpec
from workflows.types.input import InvalidInput
from workflows.types.profile import ToolProfile
from workflows.types.tools import ToolSpec


@dataclass(frozen=True)
class Offered:
    """What a model is offered. There are delegates only where `delegate` is among the tools."""

    tools: tuple[ToolSpec, ...]
    delegates: tuple[DelegateSpec, ...]


def offered_tools(
    request: PrepareRequest,
    agents: Mapping[str, AgentConfig],
    worker: Mapping[str, ToolSpec],
    profile: ToolProfile | None,
) -> Offered:
    """Return what is left of the tools of the run's agent, which is one of `agents`.

    Raises:
        InvalidInput: A tool that the agent does not list, or that nobody has.
    """
    agent = agents[request.agent]
    delegates = delegate_specs(agent.delegates, agents)
    known = {**worker, TERMINATE: TERMINATE_TOOL}
    listed: list[str] = list(agent.tools)
    if delegates:
        known[DELEGATE] = delegate_tool(delegates)
        listed.append(DELEGATE)
    chosen = listed if request.tools is None else request.tools
    specs = [_known(tool, request.agent, listed, known) for tool in dict.fromkeys(chosen)]
    visible = profile.visible(specs) if profile else specs
    most = request.ceiling.tools
    tools = tuple(spec for spec in visible if most is None or spec.name in most)
    return Offered(tools, delegates if any(spec.name == DELEGATE for spec in tools) else ())


def _known(tool: str, agent: str, listed: Collection[str], known: Mapping[str, ToolSpec]) -> ToolSpec:
    if tool not in listed:
        raise InvalidInput(f"tools: agent {agent!r} does not list {tool!r}; {there_are(tool, listed)}")
    if tool == DELEGATE and tool not in known:
        raise InvalidInput(f"tools: agent {agent!r} has nobody to delegate to; name agents in agents.{agent}.delegates")
    if tool not in known:
        raise InvalidInput(f"tools: this worker has no tool {tool!r}; {there_are(tool, known)}")
    return known[tool]
