"""What a critic looks at: answers, however they are given, or calls of its tools, however they are made."""

from pydantic_core import to_json

from workflows.decisions.saga import steps_of
from workflows.types.context import Setup
from workflows.types.critic import Critic
from workflows.types.loop_tools import loop_tool
from workflows.types.messages import ToolCall
from workflows.types.profile import matches


def answer_critics(setup: Setup) -> tuple[Critic, ...]:
    """Return the critics of final answers, in the order of the config."""
    return tuple(critic for critic in setup.critics if not critic.tools)


def reviews(critic: Critic, call: ToolCall) -> bool:
    """Return whether a critic has to see a call; one of answers sees what ends the run with one."""
    if not critic.tools:
        return loop_tool(call.name).is_answer
    return any(matches(name, critic.tools) for name in (call.name, *_named_in_saga(call)))


def subject_of(critic: Critic, call: ToolCall) -> tuple[str, str]:
    """Return the tool that is called, or "" for an answer, and the text that is reviewed."""
    if not critic.tools:
        return "", str(call.arguments.get("output", ""))
    return call.name, to_json(call.arguments, inf_nan_mode="strings").decode()


def _named_in_saga(call: ToolCall) -> list[str]:
    if not loop_tool(call.name).is_plan:
        return []
    try:
        steps = steps_of(call)
    except ValueError:  # then it is not begun
        return []
    return [action.tool for step in steps for action in (step, step.compensation) if action is not None]
