"""Tools that the loop carries out itself, without an activity, and all that others need to know about them.

One of them is the saga: its finished steps are undone if a later one fails.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal, cast

from pydantic import ValidationError

from orga.workflows.types.questions import QUESTION_ANSWERED
from orga.workflows.types.record import Record
from orga.workflows.types.tool_calls.decision import DECISION_GROUNDED

SAGA_ENDED = "SagaEnded"
"""The note about the end of a saga. The call has no activity."""

MAX_STEPS = 20

StepKind = Literal["read_only", "compensatable", "final"]
"""The lasting effect of a step: none, one that its compensation undoes, or a final one."""


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
"""The tool by which a model delegates. It runs as a child workflow."""

TERMINATE = "terminate"
"""The tool by which a model ends its run: `{"reason": ..., "output": ...}`."""

DECIDE = "decide"
"""The tool by which a model proposes a decision: `{"decision": ..., "fields": {...}}`."""

SAGA = "saga"
"""The tool by which a model proposes a saga: `{"steps": [...]}`."""

ASK_USER = "ask_user"
"""The tool by which a model asks a person: `{"question": ..., "options": [...], "default": ..., "expires_s": ...}`."""

Arguments = dict[str, Any]


def _no_calls(arguments: Arguments) -> int:
    return 0


def _saga_cost(arguments: Arguments) -> int:
    return 1 + step_count(arguments)


def _tools_of_steps(arguments: Arguments) -> tuple[str, ...]:
    try:
        steps = SagaPlan.model_validate(arguments).steps
    except ValidationError:  # such a saga does not begin
        return ()
    return tuple(action.tool for step in steps for action in (step, step.compensation) if action is not None)


@dataclass(frozen=True)
class ToolNeed:
    """The part of an agent's config that a tool needs. With it, the tool is offered without being listed."""

    key: str
    """`agents.NAME.<key>`."""
    lacking: str
    remedy: str
    """The remedy in an error. The key follows it."""


@dataclass(frozen=True)
class LoopTool:
    """The properties of a loop tool."""

    name: str
    action: str = "tool_call"
    cost: Callable[[Arguments], int] = lambda _: 1
    """The number of `max_tool_calls` that a call takes, computed from its arguments."""
    stands_alone: bool = False
    """Other calls of the same reply are not begun."""
    is_answer: bool = False
    """It returns the run's answer."""
    calls: Callable[[Arguments], tuple[str, ...]] = lambda _: ()
    """The other tools that it calls, computed from its arguments."""
    is_saga: bool = False
    """It calls other tools, and ends by itself if the run is interrupted."""
    is_run: bool = False
    """Each call is a run of another agent."""
    ends_with: str = ""
    """The note about the end of a call that has no activity or child."""
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
"""Loop tools by name. None may be a step of a saga: no compensation declared in advance undoes a delegate's work."""

CALL_ENDS = frozenset(tool.ends_with for tool in LOOP_TOOLS.values() if tool.ends_with)
"""The notes about the end of a call that has no activity or child."""

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
    """Return the keys of an agent's config that have a meaning if these tools are offered."""
    return frozenset(tool.need.key for tool in LOOP_TOOLS.values() if tool.need is not None and tool.name in names)
