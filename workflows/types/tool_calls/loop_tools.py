"""Tools of the loop itself, and the properties by which other modules treat them. Their calls are no tool activities.

One of them is the saga. If one of its steps fails, the finished steps are undone.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal, cast

from pydantic import ValidationError

from orga.workflows.types.questions import QUESTION_ANSWERED
from orga.workflows.types.record import Record
from orga.workflows.types.tool_calls.decision import DECISION_GROUNDED

SAGA_ENDED = "SagaEnded"
"""The note about the end of a saga, which has no activity of its own."""

MAX_STEPS = 20

StepKind = Literal["read_only", "compensatable", "final"]
"""The effect of a step: none, one that its compensation undoes, or one that nothing undoes."""


class Action(Record):
    """A call that a saga makes."""

    tool: str
    arguments: dict[str, Any] = {}


class SagaStep(Action):
    kind: StepKind
    compensation: Action | None = None


class SagaPlan(Record):
    """Arguments of a `saga` call."""

    steps: tuple[SagaStep, ...] = ()


def step_count(arguments: dict[str, Any]) -> int:
    """Return the number of steps in these arguments, even if they are not a valid plan."""
    steps = arguments.get("steps")
    return len(cast("list[Any]", steps)) if isinstance(steps, list) else 0


DELEGATE = "delegate"
"""The tool for delegating to another agent. Each call is a child workflow."""

TERMINATE = "terminate"
"""The tool for ending the run: `{"reason": ..., "output": ...}`."""

DECIDE = "decide"
"""The tool for proposing a decision: `{"decision": ..., "fields": {...}}`."""

SAGA = "saga"
"""The tool for proposing a saga: `{"steps": [...]}`."""

ASK_USER = "ask_user"
"""The tool for asking a person: `{"question": ..., "options": [...], "default": ..., "expires_s": ...}`."""

Arguments = dict[str, Any]


def _no_calls(arguments: Arguments) -> int:
    return 0


def _saga_cost(arguments: Arguments) -> int:
    return 1 + step_count(arguments)


def _tools_of_steps(arguments: Arguments) -> tuple[str, ...]:
    try:
        steps = SagaPlan.model_validate(arguments).steps
    except ValidationError:  # a saga with an invalid plan does not begin
        return ()
    return tuple(action.tool for step in steps for action in (step, step.compensation) if action is not None)


@dataclass(frozen=True)
class ToolNeed:
    """The part of an agent's config that a tool needs. An agent that has it is offered the tool without listing it."""

    key: str
    """`agents.NAME.<key>`."""
    lacking: str
    """The problem in an error if that part is missing."""
    remedy: str
    """The remedy in that error. The key follows it."""


@dataclass(frozen=True)
class LoopTool:
    """The properties of a loop tool."""

    name: str
    action: str = "tool_call"
    cost: Callable[[Arguments], int] = lambda _: 1
    """Returns how much of `max_tool_calls` a call with these arguments takes."""
    stands_alone: bool = False
    """True if the other calls of the same reply are not begun."""
    is_answer: bool = False
    """True if a call holds the run's answer."""
    calls: Callable[[Arguments], tuple[str, ...]] = lambda _: ()
    """Returns the other tools that a call with these arguments calls."""
    is_saga: bool = False
    """True if it calls other tools, and ends by itself if the run is interrupted."""
    is_run: bool = False
    """True if each call is a run of another agent."""
    ends_with: str = ""
    """The note that records the end of a call. Set if a call has neither an activity nor a child workflow."""
    need: ToolNeed | None = None


LOOP_TOOLS = {
    tool.name: tool
    for tool in (
        LoopTool(
            DELEGATE,
            action="delegate",
            is_run=True,
            need=ToolNeed("delegates", "nobody to delegate to", "name agents in"),
        ),
        LoopTool(TERMINATE, action="terminate", stands_alone=True, is_answer=True),
        # A decision costs no call. Otherwise a required one could not be made at the limit, and no answer would count.
        LoopTool(
            DECIDE,
            cost=_no_calls,
            ends_with=DECISION_GROUNDED,
            need=ToolNeed("decisions", "nothing to decide", "declare it in"),
        ),
        LoopTool(ASK_USER, ends_with=QUESTION_ANSWERED),
        LoopTool(SAGA, cost=_saga_cost, calls=_tools_of_steps, is_saga=True, ends_with=SAGA_ENDED),
    )
}
"""Loop tools by name. None of them may be a step of a saga, because no compensation undoes a delegate's work."""

CALL_ENDS = frozenset(tool.ends_with for tool in LOOP_TOOLS.values() if tool.ends_with)
"""The notes that record the end of a call."""

RUN_TOOL = next(tool.name for tool in LOOP_TOOLS.values() if tool.is_run)
"""The tool whose calls are runs of other agents."""

_ORDINARY_TOOL = LoopTool("")


def loop_tool(name: str) -> LoopTool:
    """Return the properties of a tool. A tool that is not the loop's has the defaults."""
    return LOOP_TOOLS.get(name, _ORDINARY_TOOL)


def tool_needing(key: str) -> str:
    """Return the tool that an agent is offered because of this key of its config."""
    return next(tool.name for tool in LOOP_TOOLS.values() if tool.need is not None and tool.need.key == key)


def needed_keys(names: Collection[str]) -> frozenset[str]:
    """Return the keys of an agent's config that these tools need."""
    return frozenset(tool.need.key for tool in LOOP_TOOLS.values() if tool.need is not None and tool.name in names)
