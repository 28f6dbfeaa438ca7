"""Tools that the loop carries out by itself: no activity stands behind them. What all others know of them is here.

The steps of a saga are among it: those that were done are taken back when a later one fails.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal, cast

from pydantic import ValidationError

from orga.workflows.types.questions import QUESTION_ANSWERED
from orga.workflows.types.record import Record
from orga.workflows.types.tool_calls.decision import DECISION_GROUNDED

SAGA_ENDED = "SagaEnded"
"""The note that tells how one ended: no activity stands for the call."""

MAX_STEPS = 20

StepKind = Literal["read_only", "compensatable", "final"]
"""What a step leaves behind: nothing, what its compensation takes back, or what cannot be taken back."""


class Action(Record):
    """A call that a saga makes."""

    tool: str
    arguments: dict[str, Any] = {}


class SagaStep(Action):
    """One step."""

    kind: StepKind
    compensation: Action | None = None


class SagaPlan(Record):
    """Arguments of a `saga` call."""

    steps: tuple[SagaStep, ...] = ()


def step_count(arguments: dict[str, Any]) -> int:
    """Return how many steps these arguments propose, whether they are a plan or not."""
    steps = arguments.get("steps")
    return len(cast("list[Any]", steps)) if isinstance(steps, list) else 0


DELEGATE = "delegate"
"""The tool by which a model delegates; carried out as a child workflow."""

TERMINATE = "terminate"
"""The tool by which a model ends its run: `{"reason": ..., "output": ...}`."""

DECIDE = "decide"
"""The tool by which a model proposes a decision: `{"decision": ..., "fields": {...}}`."""

SAGA = "saga"
"""The tool by which a model proposes a saga: `{"steps": [...]}`."""

ASK_USER = "ask_user"
"""The tool by which a model asks a person: `{"question": ..., "options": [...], "default": ..., "expires_s": ...}`."""

Arguments = dict[str, Any]


def _one_call(arguments: Arguments) -> int:
    return 1


def _no_calls(arguments: Arguments) -> int:
    return 0


def _steps_and_itself(arguments: Arguments) -> int:
    return 1 + step_count(arguments)


def _no_other_tools(arguments: Arguments) -> tuple[str, ...]:
    return ()


def _tools_of_steps(arguments: Arguments) -> tuple[str, ...]:
    try:
        steps = SagaPlan.model_validate(arguments).steps
    except ValidationError:  # then it is not begun
        return ()
    return tuple(action.tool for step in steps for action in (step, step.compensation) if action is not None)


@dataclass(frozen=True)
class ToolNeed:
    """What an agent's config has to hold for a tool, which it offers then without listing it."""

    key: str
    """`agents.NAME.<key>`."""
    lacking: str
    """What an agent has without it."""
    remedy: str
    """What to do, ahead of the key."""


@dataclass(frozen=True)
class LoopTool:
    """What is particular about one of them."""

    name: str
    action: str = "tool_call"
    """What policies call it."""
    cost: Callable[[Arguments], int] = _one_call
    """How many of `max_tool_calls` it takes, by its arguments."""
    stands_alone: bool = False
    """Nothing that stands beside it in a reply is begun."""
    is_answer: bool = False
    """It brings the run's answer."""
    calls: Callable[[Arguments], tuple[str, ...]] = _no_other_tools
    """The other tools that it calls, by its arguments."""
    is_plan: bool = False
    """It makes calls of other tools; it ends by itself when the run is interrupted."""
    is_run: bool = False
    """A call of it is a run of another agent."""
    ends_with: str = ""
    """The note that tells how a call of it ended, where no activity or child stands for it."""
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
        # A required decision could never be made otherwise, and no answer would be taken.
        LoopTool(
            DECIDE,
            cost=_no_calls,
            ends_with=DECISION_GROUNDED,
            need=ToolNeed("decisions", "nothing to decide", "declare it in"),
        ),
        LoopTool(ASK_USER, ends_with=QUESTION_ANSWERED),
        LoopTool(SAGA, cost=_steps_and_itself, calls=_tools_of_steps, is_plan=True, ends_with=SAGA_ENDED),
    )
}
"""By name. None of them may be a step of a saga: what a delegate does, no compensation named beforehand takes back."""

CALL_ENDS = frozenset(tool.ends_with for tool in LOOP_TOOLS.values() if tool.ends_with)
"""Notes that stand for the end of a call."""

RUN_TOOL = next(tool.name for tool in LOOP_TOOLS.values() if tool.is_run)
"""The tool whose calls are runs."""

_ORDINARY_TOOL = LoopTool("")


def loop_tool(name: str) -> LoopTool:
    """Return what is particular about a tool; nothing is about one that is not the loop's."""
    return LOOP_TOOLS.get(name, _ORDINARY_TOOL)


def tool_needing(key: str) -> str:
    """Return the tool that an agent is offered for the sake of a key of its config."""
    return next(tool.name for tool in LOOP_TOOLS.values() if tool.need is not None and tool.need.key == key)


def needed_keys(names: Collection[str]) -> frozenset[str]:
    """Return the keys of an agent's config that mean something where these tools are offered."""
    return frozenset(tool.need.key for tool in LOOP_TOOLS.values() if tool.need is not None and tool.name in names)
