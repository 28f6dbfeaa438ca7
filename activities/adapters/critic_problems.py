"""What stands in the way of critics: a model that cannot review, tools that nobody calls."""

from collections.abc import Callable, Iterator, Sequence

from orga.activities.adapters.models.settings import EMBEDDED_MODEL
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.critics import Critic
from orga.workflows.types.loop_tools import LOOP_TOOLS
from orga.workflows.types.tools import matches


def critic_refusal(critics: Sequence[Critic], model: str, check_model: Callable[[str], None]) -> str:
    """Return why one of them cannot review the answers of `model`, or ""; `check_model` raises ValueError."""
    for critic in critics:
        if problem := model_problem(critic, model, check_model):
            return f"critics.{critic.name}.model: {problem}"
    return ""


def model_problem(critic: Critic, model: str, check_model: Callable[[str], None]) -> str:
    """Return why its model cannot review, or ""; without one of its own it has the run's."""
    chosen = critic.model or model
    if not critic.rubric:
        return ""
    if chosen == EMBEDDED_MODEL:
        return f"{EMBEDDED_MODEL} can quote but not judge; choose another model"
    try:
        check_model(chosen)
    except ValueError as error:
        return str(error)
    return ""


def listed_tools(agent: AgentConfig) -> list[str]:
    """Return what an agent may call: tools, globs, and what the loop itself offers it."""
    by_config = (tool.name for tool in LOOP_TOOLS.values() if tool.need is not None and getattr(agent, tool.need.key))
    return [*agent.tools, *by_config]


def unwatched(agent: AgentConfig) -> Iterator[tuple[str, str]]:
    """Yield critics with those of their tools that the agent cannot call: a slip there would leave calls unreviewed."""
    listed = listed_tools(agent)
    for critic in agent.critics:
        for tool in critic.tools:
            if not any(matches(name, [tool]) or matches(tool, [name]) for name in listed):
                yield critic.name, tool
