"""Running goals with pipelines as values, and the results of their steps."""

from collections.abc import Mapping
from typing import Any

from orga.workflows.decisions.goals.begin import initial_goal_state
from orga.workflows.decisions.goals.pipelines import (
    with_pipeline_plan,
    with_pipeline_round,
    with_round_outputs,
)
from orga.workflows.decisions.goals.pursue import with_round_outcomes
from orga.workflows.types.goals.goal_input import parse_goal
from orga.workflows.types.goals.pipelines import Pipeline
from orga.workflows.types.goals.pursuit import GoalState
from orga.workflows.types.text import delimited_text
from orga.workflows.types.tool_calls.recovery import Outcome
from tests.support.values.core import ORIGIN, T0, a_call, a_setup

CHAIN: dict[str, Any] = {"kind": "chain", "steps": ["finder", {"agent": "writer", "task": "Write it up."}]}
SURVEY: dict[str, Any] = {"kind": "map_reduce", "map": "reader", "reduce": "editor", "inputs": ["a.md", "b.md"]}
ESSAY: dict[str, Any] = {
    "kind": "director_critic",
    "director": "writer",
    "critic": "reviewer",
    "rubric": {"clear": {"weight": 0.25, "description": "a child follows it"}, "true": {"weight": 0.75}},
}


def pipeline_state(config: Mapping[str, Any], /, goal: str = "see to it", **given: Any) -> GoalState:
    """Return the state of a goal with this pipeline, planned. `given` is the rest of its input."""
    checked = parse_goal({"goal": goal, "pipeline": "line", **given})
    state = initial_goal_state(checked, ORIGIN, T0)
    setup = a_setup(config=state.input.config).with_pipeline(Pipeline.model_validate(config, extra="forbid"))
    return with_pipeline_plan(state.with_task(setup=setup))


def after_round(state: GoalState, *ends: str | Outcome) -> GoalState:
    """Return the state after one more round: each step has an answer, or another outcome."""
    state = with_pipeline_round(state)
    due = state.pursuit.due_steps
    assert len(due) == len(ends), [step.id for step in due]
    outcomes = [
        each
        if isinstance(each, Outcome)
        else Outcome(
            call=a_call("delegate", step.id, agent=step.skill),
            status="ok",
            text=delimited_text(each, f"agent {step.skill}"),
        )
        for step, each in zip(due, ends, strict=True)
    ]
    return with_round_outputs(with_round_outcomes(state, outcomes), outcomes)


def fails(status: Any = "failed", text: str = "[Error] it fell down", *, may_have_acted: bool = False) -> Outcome:
    """Return the outcome of a step without a result."""
    outcome = Outcome(call=a_call("delegate"), status=status, text=text)
    return outcome.with_possible_effect(may_have_acted) if may_have_acted else outcome


def noted_data(state: GoalState, event: str) -> list[dict[str, Any]]:
    """Return the data noted for the journal under this name."""
    return [note.data for note in state.notes if note.event == event]
