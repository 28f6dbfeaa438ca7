"""Running goals as values: a state with a plan, one of its steps, the reply of a turn, the result of a call."""

from collections.abc import Iterable
from typing import Any

from pydantic_core import to_json

from orga.workflows.decisions.goals.begin import initial_goal_state
from orga.workflows.decisions.goals.templates import PLACEHOLDERS
from orga.workflows.types.goals.goal_input import GoalConfig, GoalInput
from orga.workflows.types.goals.pursuit import GoalState, PlanStep, Scores, StepState
from orga.workflows.types.goals.requests import GoalReply, PromptName
from orga.workflows.types.tool_calls.recovery import Outcome
from tests.support.values.core import ORIGIN, T0, a_call, a_setup

DIMENSIONS = tuple(Scores.model_fields)


def all_of(score: object) -> dict[str, object]:
    """Return the same score in every dimension."""
    return dict.fromkeys(DIMENSIONS, score)


def a_plan_step(step_id: str, state: StepState = "open", mean: float | None = None, *needs: str) -> PlanStep:
    """Return a step that uses the tool `read`."""
    scores = None if mean is None else Scores.model_validate(all_of(mean))
    return PlanStep(
        id=step_id, goal="g", skill="read", arguments={"at": step_id}, state=state, scores=scores, depends_on=needs
    )


def a_goal(*steps: PlanStep, config: dict[str, Any] | None = None, **pursuit: Any) -> GoalState:
    """Return the state of a goal with this plan, prepared for the tool `read`."""
    given = GoalInput(goal="find out", config=GoalConfig.model_validate(config or {}))
    state = initial_goal_state(given, ORIGIN, T0)
    setup = a_setup(config=state.input.config)
    return state.with_task(setup=setup).with_pursuit(steps=steps, longest=len(steps), **pursuit)


def a_turn(text: str | None = None, **fields: Any) -> GoalReply:
    """Return the reply of a turn: this text, or one JSON object."""
    return GoalReply.of(to_json(fields).decode() if text is None else text)


def planned_steps(*ids: str) -> list[dict[str, Any]]:
    """Return the steps of a plan."""
    return [{"id": each, "goal": "g", "skill": "read", "arguments": {"at": each}} for each in ids]


def step_outcomes(state: GoalState, statuses: Iterable[Any]) -> list[Outcome]:
    """Return an outcome for each due step."""
    pairs = zip(state.pursuit.due_steps, statuses, strict=True)
    return [
        Outcome(call=a_call("read", step.id, **(step.arguments or {})), status=status, text="what it says")
        for step, status in pairs
    ]


def showing_all(name: PromptName) -> str:
    """Return a template that fills in every variable."""
    return "\n".join(f"{each}=<{{{{ {each} }}}}>" for each in PLACEHOLDERS[name])
