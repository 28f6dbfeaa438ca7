"""Checks an agent's tools, delegates, reviews and models: in the configuration before any run, and for each setup."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from orga.activities.adapters.agents.tiers import ChosenModels
from orga.activities.adapters.problem import FileProblem
from orga.activities.ports import AbsentTool
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.goals.deliveries import MEMORY, Channel
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.models.providers import HASHING
from orga.workflows.types.models.tiers import LOCAL_TIER, TIER_PREFIX
from orga.workflows.types.recall import KNOWLEDGE_TOOLS
from orga.workflows.types.text import known_names_hint, similar_name_hint
from orga.workflows.types.tool_calls.delegation import Delegate
from orga.workflows.types.tool_calls.loop_tools import LOOP_TOOLS, tool_needing
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolSpec, matches_any_glob


def agent_problems(
    agents: Mapping[str, AgentConfig],
    tools: Mapping[str, ToolSpec] | None,
    is_elsewhere: Callable[[str], bool] = lambda tool: False,
) -> Iterator[FileProblem]:
    """Yield the problems of all agents. `agents` includes `default`.

    Args:
        tools: The worker's tools, or None if they are unknown.
        is_elsewhere: Returns whether a name or glob means tools that are known only when the worker runs.
    """
    for name, agent in agents.items():
        if tools is not None:
            yield from _tool_problems(name, agent, tools, is_elsewhere)
        yield from agent_own_problems(name, agent, agents)
    if tools is not None:
        for key, tool in _option_tools(tools.values()):
            if tool not in tools and not is_elsewhere(tool):
                yield FileProblem(key, f"no such tool: {tool}", known_names_hint(tool, tools))


def _tool_problems(
    name: str, agent: AgentConfig, tools: Mapping[str, ToolSpec], is_elsewhere: Callable[[str], bool]
) -> Iterator[FileProblem]:
    unknown = [each for each in agent.tools if each not in LOOP_TOOLS and not is_elsewhere(each)]
    absent = [each for each in unknown if not any(matches_any_glob(tool, [each]) for tool in tools)]
    if absent:
        remedy = f"{similar_name_hint(absent[0], list(tools))}use {', '.join(tools)}"
        yield FileProblem(f"agents.{name}.tools", f"no such tool: {', '.join(absent)}", remedy)
    for tool in LOOP_TOOLS.values():
        need = tool.need
        if need is not None and tool.name in agent.tools and not getattr(agent, need.key):
            remedy = f"{need.remedy} agents.{name}.{need.key}"
            yield FileProblem(f"agents.{name}.tools", f"there is {need.lacking}", remedy)
    if not agent.config.uses_knowledge and (idle := [tool for tool in KNOWLEDGE_TOOLS if tool in agent.tools]):
        text = f"there is no knowledge for {', '.join(idle)}"
        yield FileProblem(f"agents.{name}.tools", text, f"set agents.{name}.config.knowledge")
    for key, tool in config_tools(agent.config):
        if tool not in tools and not is_elsewhere(tool):
            yield FileProblem(f"agents.{name}.{key}", f"no such tool: {tool}", known_names_hint(tool, tools))
    for key, fault in acting_lookup_faults(agent.config, tools):
        yield FileProblem(f"agents.{name}.{key}", fault, "name another tool, or state its effect in tools.options")


def agent_own_problems(name: str, agent: AgentConfig, agents: Mapping[str, AgentConfig]) -> Iterator[FileProblem]:
    """Yield the problems of one agent that do not depend on the worker's tools: of its delegates and reviews."""
    for index, delegate in enumerate(agent.delegates):
        key = f"agents.{name}.delegates.{index}"
        if delegate.agent == name:
            yield FileProblem(key, "an agent cannot delegate to itself", "leave it out")
        elif delegate.agent not in agents:
            yield FileProblem(key, f"no such agent: {delegate.agent}", known_names_hint(delegate.agent, agents))
        else:
            yield from _idle_tool_problems(key, delegate, agents[delegate.agent])
    listed = agent_tool_names(agent)
    for key, tool in agent.reviewed_tools:  # a typing error would leave the real tool without review
        if not any(matches_any_glob(own, [tool]) or matches_any_glob(tool, [own]) for own in listed):
            text = f"the agent does not list the tool {tool}"
            yield FileProblem(f"agents.{name}.{key}", text, known_names_hint(tool, listed))


def _idle_tool_problems(key: str, delegate: Delegate, target: AgentConfig) -> Iterator[FileProblem]:
    """Yield tools that a delegation allows, but that the other agent does not have."""
    own = agent_tool_names(target)
    for tool in delegate.tools or ():
        if not matches_any_glob(tool, own):
            text = f"agent {delegate.agent} does not list the tool {tool}"
            yield FileProblem(f"{key}.tools", text, known_names_hint(tool, own))
    has_to_decide = any(decision.required for decision in target.decisions.values())
    decide = tool_needing("decisions")
    if has_to_decide and delegate.tools is not None and not matches_any_glob(decide, delegate.tools):
        yield FileProblem(
            f"{key}.tools", f"agent {delegate.agent} has to decide, but these tools do not let it", f"add {decide!r}"
        )


def agent_tool_names(agent: AgentConfig) -> list[str]:
    """Return what an agent may call: tools, globs, and the loop's own tools."""
    by_config = (tool.name for tool in LOOP_TOOLS.values() if tool.need is not None and getattr(agent, tool.need.key))
    return [*agent.tools, *by_config, *(KNOWLEDGE_TOOLS if agent.config.uses_knowledge else ())]


def delegate_tool_names(agent: AgentConfig, agents: Mapping[str, AgentConfig]) -> list[str]:
    """Return the tools of an agent's delegates, and of their delegates. Whoever starts a run may list them, too."""
    found: dict[str, AgentConfig] = {}
    waiting = [agent]
    while waiting:
        for delegate in waiting.pop().delegates:
            if delegate.agent in agents and delegate.agent not in found:
                found[delegate.agent] = agents[delegate.agent]
                waiting.append(found[delegate.agent])
    return [tool for each in found.values() for tool in agent_tool_names(each)]


def model_refusal(chosen: ChosenModels, check_model: Callable[[str], None]) -> str:
    """Return why one of a run's models cannot do its work, or "". `check_model` raises ValueError."""
    if chosen.unfit_model_problem:
        return chosen.unfit_model_problem
    for key, model in chosen.keyed_models():
        try:
            check_model(model)
        except ValueError as error:
            return f"{key}: {error}"
    return ""


_NEVER_THINK = frozenset({"local", "offline"})
"""Providers in the worker's process, whose models do not think."""


def thinking_refusal(chosen: ChosenModels, config: LoopConfig) -> str:
    """Return why the models of a run cannot think as its config says, or "". Models in the worker do not think."""
    key = "effort" if config.effort not in {None, "none"} else ""
    if config.thinking_tokens:
        key = "thinking_tokens"
    embedded = [name for name in chosen.models if name.partition(":")[0] in _NEVER_THINK]
    if not key or not embedded:
        return ""
    return f"config.{key}: {embedded[0]} does not think; set {key} to null, or choose another model"


def cost_refusal(chosen: ChosenModels, config: LoopConfig, is_priced: Callable[[str], bool]) -> str:
    """Return why `max_cost_usd` cannot be enforced for the models of a run, or "". The reason is an unknown price."""
    if config.max_cost_usd is None:
        return ""
    unknown = [name for name in chosen.all_models if not is_priced(name)]
    if not unknown:
        return ""
    return (
        f"config.max_cost_usd: the price of {', '.join(unknown)} is not known, so it would limit nothing;"
        f' state it as [models.prices."{unknown[0]}"], or set [models] unpriced = "allow"'
    )


def embedder_refusal(chosen: ChosenModels, config: LoopConfig, channels: tuple[Channel, ...], embedder: str) -> str:
    """Return why a run that is bound to the local tier would still send texts to a provider, or ""."""
    if chosen.may_be_embedded_by(embedder):
        return ""
    memory = next((f"goals.deliveries.{each.name}" for each in channels if each.kind == MEMORY and each.default), "")
    if not (what := "config.knowledge" if config.uses_knowledge else memory):
        return ""
    return (
        f"{what}: the embedder {embedder} gets all texts that are stored or looked for, but a run of "
        f"{TIER_PREFIX}{LOCAL_TIER} and all its delegates are bound to the local tier; use [knowledge] embedder = "
        f"{HASHING!r}, or an embedder of a provider of that tier ({', '.join(chosen.local)})"
    )


def unknown_tool_lines(
    config: LoopConfig,
    offered: Iterable[ToolSpec],
    known: Mapping[str, ToolSpec],
    absent: Callable[[str], AbsentTool | None],
) -> Iterator[str]:
    """Yield a line for each key that names no tool of the worker. A tool that is absent for now is accepted."""
    for key, tool in (*config_tools(config), *_option_tools(offered)):
        missing = absent(tool)
        if tool not in known and not (missing and missing.is_temporary):
            yield f"{key}: this worker has no tool {tool!r}; {known_names_hint(tool, known)}"


def acting_lookup_faults(config: LoopConfig, known: Mapping[str, ToolSpec]) -> Iterator[tuple[str, str]]:
    """Yield the key and the error of each lookup tool that does more than read.

    Nobody reviews a lookup, and the text of a task decides what is looked up.
    """
    for key, tool in _lookup_tools(config):
        spec = known.get(tool)
        if spec is not None and spec.effect != "read_only":
            yield key, f"{tool} is {spec.effect}; only a read_only tool looks references up"


def config_tools(config: LoopConfig) -> Iterator[tuple[str, str]]:
    """Yield the key and name of each tool in a config: alternatives for failed tools, and lookups of references."""
    yield from _alternative_tools("config.recovery", config.recovery)
    yield from _lookup_tools(config)


def _option_tools(tools: Iterable[ToolSpec]) -> Iterator[tuple[str, str]]:
    for spec in tools:
        if spec.options.recovery is not None:
            yield from _alternative_tools(f"tools.options.{spec.name}.recovery", spec.options.recovery)


def _lookup_tools(config: LoopConfig) -> Iterator[tuple[str, str]]:
    if config.pre_hydration is not None:
        for kind, tool in config.pre_hydration.resolution_tools.items():
            yield f"config.pre_hydration.resolution_tools.{kind}", tool


def _alternative_tools(section: str, recovery: Recovery) -> Iterator[tuple[str, str]]:
    for index, tool in enumerate(recovery.alternatives):
        yield f"{section}.alternatives.{index}", tool
